/* job_spec.h - what a person asked for: the spec of kc-job(5), complete, defaults filled in, paths absolute.
 * Writer: govern (spec). Readers: all. */
#ifndef KC_CONTRACTS_JOB_SPEC_H
#define KC_CONTRACTS_JOB_SPEC_H

#include "base/contract.h"
#include "contracts/types.h"

#define KC_JOB_SPEC_VERSION 12

#define KC_FAMILY_TABLE(X) X(FAMILY_GPT2, "gpt2", 0) X(FAMILY_LLAMA, "llama", 0) X(FAMILY_MOE, "moe", 0)
#define KC_DEVICE_TABLE(X) X(DEVICE_CPU, "cpu", 0)
/* bf16: parameters as ops read them, activations and their derivatives; masters, moments and gradients stay fp32 */
#define KC_PRECISION_TABLE(X) X(PRECISION_FP32, "fp32", 0) X(PRECISION_BF16, "bf16", 0)
#define KC_ORDER_TABLE(X) X(ORDER_SHUFFLED, "shuffled", 0) X(ORDER_SEQUENTIAL, "sequential", 0)
/* masked: a token sees its own document alone; one begins with the token data.end_of_text, and with the sample */
#define KC_DOCUMENTS_TABLE(X) X(DOCUMENTS_JOINED, "joined", 0) X(DOCUMENTS_MASKED, "masked", 0)
#define KC_OPTIMIZER_TABLE(X) X(OPTIMIZER_ADAMW, "adamw", 0)
#define KC_LR_TABLE(X)                                                                                                 \
    X(LR_CONSTANT, "constant", 0) X(LR_LINEAR, "linear", 0) X(LR_COSINE, "cosine", 0) X(LR_WSD, "wsd", 0)
/* a snapshot is due while one is under way: leave it out, or finish the one first */
#define KC_BUSY_TABLE(X) X(BUSY_SKIP, "skip", 0) X(BUSY_WAIT, "wait", 0)
#define KC_CODING_TABLE(X) X(CODING_AUTO, "auto", 0) X(CODING_ALWAYS, "always", 0) X(CODING_NEVER, "never", 0)
#define KC_ON_NONFINITE_TABLE(X)                                                                                       \
    X(NONFINITE_STOP, "stop", 0) X(NONFINITE_SKIP, "skip", 0) X(NONFINITE_ROLLBACK, "rollback", 0)
#define KC_ON_CRASH_TABLE(X) X(CRASH_RESTART, "restart", 0) X(CRASH_STOP, "stop", 0)
/* a rank stands still for too long: say so; keep all that is known of it, stacks too; and then start from a snapshot */
#define KC_ON_HANG_TABLE(X) X(HANG_REPORT, "report", 0) X(HANG_DUMP, "dump", 0) X(HANG_RESTART, "restart", 0)

/* What is done to a rank on purpose, where kcd allows drills (kc-job(5) says what each is), and where in a step.
 * 1: it is done to a process as such, once, at whatever it is; 0: while it goes on, or to a call. */
#define KC_DRILL_TABLE(X)                                                                                              \
    X(DRILL_EXIT, "exit", 1) X(DRILL_SIGNAL, "signal", 1) X(DRILL_STOP, "stop", 1) X(DRILL_SPIN, "spin", 1)            \
    X(DRILL_BLOCK, "block", 1) X(DRILL_LOCK, "lock", 1) X(DRILL_SLEEP, "sleep", 1) X(DRILL_ERROR, "error", 1)          \
    X(DRILL_GRANDCHILD, "grandchild", 1) X(DRILL_LEAK, "leak", 1) X(DRILL_SLOW, "slow", 0)                             \
    X(DRILL_SKIP, "skip", 0) X(DRILL_COUNT, "count", 0) X(DRILL_TYPE, "type", 0) X(DRILL_PRIMITIVE, "primitive", 0)    \
    X(DRILL_REDUCE, "reduce", 0) X(DRILL_ROOT, "root", 0) X(DRILL_SWAP, "swap", 0)                                     \
    X(DRILL_UNRECEIVED, "unreceived", 0) X(DRILL_NONFINITE, "nonfinite", 0) X(DRILL_FLIP, "flip", 0)                   \
    X(DRILL_NOSPACE, "nospace", 0)
#define KC_DRILL_AT_TABLE(X)                                                                                           \
    X(DRILL_AT_START, "start", 0) X(DRILL_AT_DATA, "data", 0) X(DRILL_AT_FORWARD, "forward", 0)                        \
    X(DRILL_AT_BACKWARD, "backward", 0) X(DRILL_AT_COMMUNICATION, "communication", 0)                                  \
    X(DRILL_AT_OPTIMIZER, "optimizer", 0) X(DRILL_AT_SNAPSHOT, "snapshot", 0) X(DRILL_AT_RESTORE, "restore", 0)        \
    X(DRILL_AT_EVALUATE, "evaluate", 0)

/* Who chooses an algorithm: the table of costs (auto), or the spec, which names one. */
#define KC_CHOICE_ROW(id, name, extra) KC_CHOICE_##id,
enum kc_choice { KC_CHOICE_AUTO, KC_ALGORITHM_TABLE(KC_CHOICE_ROW) KC_CHOICES };

enum kc_family { KC_FAMILY_TABLE(KC_ENUM_ROW) KC_FAMILIES };
enum kc_device_name { KC_DEVICE_TABLE(KC_ENUM_ROW) KC_DEVICE_NAMES };
enum kc_precision { KC_PRECISION_TABLE(KC_ENUM_ROW) KC_PRECISIONS };
enum kc_order { KC_ORDER_TABLE(KC_ENUM_ROW) KC_ORDERS };
enum kc_documents { KC_DOCUMENTS_TABLE(KC_ENUM_ROW) KC_DOCUMENTS };
enum kc_optimizer { KC_OPTIMIZER_TABLE(KC_ENUM_ROW) KC_OPTIMIZERS };
enum kc_lr { KC_LR_TABLE(KC_ENUM_ROW) KC_LRS };
enum kc_busy { KC_BUSY_TABLE(KC_ENUM_ROW) KC_BUSIES };
enum kc_coding { KC_CODING_TABLE(KC_ENUM_ROW) KC_CODINGS };
enum kc_on_nonfinite { KC_ON_NONFINITE_TABLE(KC_ENUM_ROW) KC_ON_NONFINITES };
enum kc_on_crash { KC_ON_CRASH_TABLE(KC_ENUM_ROW) KC_ON_CRASHES };
enum kc_on_hang { KC_ON_HANG_TABLE(KC_ENUM_ROW) KC_ON_HANGS };
enum kc_drill_what { KC_DRILL_TABLE(KC_ENUM_ROW) KC_DRILLS };
enum kc_drill_at { KC_DRILL_AT_TABLE(KC_ENUM_ROW) KC_DRILL_ATS };
extern const char *const kc_family_name[KC_FAMILIES], *const kc_device_kind_name[KC_DEVICE_NAMES],
    *const kc_precision_name[KC_PRECISIONS], *const kc_order_name[KC_ORDERS],
    *const kc_documents_name[KC_DOCUMENTS], *const kc_optimizer_name[KC_OPTIMIZERS], *const kc_lr_name[KC_LRS],
    *const kc_busy_name[KC_BUSIES], *const kc_coding_name[KC_CODINGS], *const kc_on_nonfinite_name[KC_ON_NONFINITES],
    *const kc_on_crash_name[KC_ON_CRASHES], *const kc_on_hang_name[KC_ON_HANGS], *const kc_choice_name[KC_CHOICES],
    *const kc_drill_name[KC_DRILLS], *const kc_drill_at_name[KC_DRILL_ATS];
extern const uint8_t kc_drill_of_process[KC_DRILLS];

struct kc_spec_env {
    kc_text name, value;
};

#define KC_NO_TOKEN UINT32_MAX
#define KC_WEIGHT_BY_SIZE (-1.0)
struct kc_spec_file {
    kc_text path, mask; /* absolute; mask "" where every token counts */
    double weight;      /* share of the samples, not normalised; KC_WEIGHT_BY_SIZE for all files of a list or for none */
};

#define KC_DRILL_ALL UINT32_MAX
/* One fault that is put into a rank. Of the numbers in the last rows a kind has those that kc-job(5) gives it, else 0. */
struct kc_spec_injection {
    uint32_t rank;         /* KC_DRILL_ALL: every rank */
    uint32_t what, at;     /* enum kc_drill_what, enum kc_drill_at */
    uint32_t nth;          /* of the calls there that it could be done at: the first is 0 */
    uint64_t step;         /* from 1; 0 where `at` is in no step */
    uint32_t again;        /* 1: in every incarnation, 0: in the first alone */
    uint32_t code, signal; /* of an exit, of a death */
    uint32_t milliseconds; /* 0: for ever */
    uint32_t mib, times;
};

struct kc_job_spec {
    struct kc_contract head;
    kc_text name; /* [a-z0-9-]{1,48} */
    uint32_t ranks, device, threads, oversubscribe, precision, order;
    uint64_t seed, steps;

    uint32_t family, layers, hidden, heads, context, vocab;
    kc_text init_from; /* absolute path, or "" for seeded values */
    /* What a family has no field for: kv_heads is heads, ffn of gpt2 is 4·hidden and its head tied, the rest is 0. */
    uint32_t kv_heads, ffn, tied, experts, top_k;
    double rope_theta, rms_eps, balance;

    struct kc_span train, validation; /* struct kc_spec_file; validation none or one */
    struct kc_span freeze; /* kc_text: shell patterns; parameters whose name matches one are not trained */
    uint64_t lora_rank;    /* 0: no adapters; else these are all that is trained */
    double lora_alpha;     /* what adapters add is multiplied by alpha/rank */
    struct kc_span lora_targets; /* kc_text: shell patterns; weights whose name matches one have adapters */
    uint32_t documents, end_of_text;  /* a token of the vocabulary where documents are masked, else KC_NO_TOKEN */
    uint32_t sequences; /* of one step, over all ranks */
    uint32_t micro;     /* of one rank's micro-batch */

    uint32_t optimizer, lr_kind;
    double lr, beta1, beta2, eps, weight_decay, clip;
    uint64_t warmup;
    double floor; /* share of lr at the end */

    uint32_t axis[KC_AXES]; /* product == ranks */
    uint32_t zero;          /* 0 nothing is sharded over the batch axes, 1 moments and masters, 2 gradients too, 3 parameters too */
    uint32_t sequence;      /* 1: norms and residuals are cut along the sequence inside the tensor axis */
    uint32_t pipeline, chunks; /* enum kc_pipeline; virtual stages a rank */
    uint32_t recompute;     /* enum kc_recompute */
    uint32_t recompute_layers; /* with full: the first so many layers of each stage; 0 all of them */
    uint32_t recompute_memory; /* with auto: MiB that a rank may need in all */
    uint32_t expert_memory; /* MiB a rank for rows that experts of a layer receive; 0: enough for the worst case */

    uint32_t snapshot_keep;
    uint64_t snapshot_keep_every; /* versions that it divides are kept for ever; 0 none */
    uint32_t snapshot_copies;     /* that the keeper holds in memory; 0: training stands still while a snapshot is written */
    uint32_t snapshot_busy;       /* enum kc_busy */
    uint32_t snapshot_mib_per_second; /* of all ranks together; 0: as fast as the disk takes it */
    uint32_t snapshot_full_every; /* every how many versions one needs no other; 1: none does */
    uint32_t snapshot_coding;     /* enum kc_coding: while it takes no longer than the disk, whatever it takes, not at all */
    uint32_t keep_nonfinite;      /* 1: a state that is not finite is kept aside, one at most */
    uint32_t max_rollbacks;       /* answers to KC_NONFINITE_ROLLBACK, of the whole run */
    uint64_t snapshot_every, evaluate_every, replica_every; /* steps; 0: never */
    uint32_t evaluate_batches;
    uint32_t on_nonfinite, on_crash, max_restarts;
    uint32_t on_hang;                     /* enum kc_on_hang */
    uint32_t shrink;                      /* 1: go on with fewer ranks along data when a device is faulty */
    double backoff, backoff_max;          /* seconds: kc_policy_wait() */
    double hang_floor, hang_ceiling;      /* seconds between which the learned limit of a phase lies */
    double straggler_score;               /* below which a rank is told; 0: none is */
    double grace_seconds;
    uint32_t log_max_mib, log_keep;
    struct kc_span env; /* struct kc_spec_env */
    uint32_t algorithm[KC_PRIMITIVES]; /* enum kc_choice; KC_CHOICE_AUTO where the spec does not name one */
    struct kc_span inject; /* struct kc_spec_injection */
};

extern const struct kc_layout kc_job_spec_layout;

#endif
