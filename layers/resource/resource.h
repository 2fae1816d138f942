/* resource.h - hardware as one list of logical devices that ranks lease: what each can do, how far they are from
 * each other, whether they are healthy, and who holds them.
 *
 * A device is the unit that is leased: for kind "cpu" one logical processor of the kernel (named cpu-<its number>)
 * with the memory of its NUMA node, for kind "cuda" one GPU. A rank's lease is a set of units of one kind. The
 * lease is a lock on one file per unit, `<run dir>/devices/<host>/<kind>-<number>`: the kernel drops it when the
 * last process that inherited the descriptor is gone, so no crash can leak or fake a lease, and everybody who uses
 * the same run directory shares one pool.
 *
 * How a lease travels: kcd or the keeper takes it (kc_lease_take), lets a rank inherit the descriptors
 * (kc_lease_inherit in the child, before exec) and puts kc_leases_format() of ALL ranks into KC_LEASES and
 * kc_lease_units_text() of its own into KC_CPUS of every rank. The rank binds itself (kc_resource_bind) and
 * rebuilds all leases of its job (kc_leases_parse) to make the device view, which is then the same on every rank.
 *
 * Functions answer 0 or -errno, leave outputs untouched on failure and print nothing. A pool belongs to one
 * thread. */
#ifndef KC_RESOURCE_RESOURCE_H
#define KC_RESOURCE_RESOURCE_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/comm_costs.h"
#include "contracts/device_view.h"
#include "shm/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KC_UNITS_MAX 1024 /* units of one lease */

/* ---- devices
 * ------------------------------------------------------------------------------------------------------ */

/* Fields of struct kc_device that may be unknown: a clear bit in `valid` means unknown, which is not zero. */
enum kc_device_field {
    KC_DEVICE_NUMA = 1 << 0,
    KC_DEVICE_CORE = 1 << 1,
    KC_DEVICE_GHZ = 1 << 2,
    KC_DEVICE_PEAK = 1 << 3,
    KC_DEVICE_MEMORY_TOTAL = 1 << 4,
    KC_DEVICE_MEMORY_FREE = 1 << 5,
};

struct kc_device {
    char kind[16];      /* "cpu", "cuda" */
    uint32_t number;    /* in its kind: the kernel's cpu number, the GPU's index; with kind: the name "cpu-3" */
    char node[65];      /* host name */
    char rack[64];      /* from the site file; "" unknown */
    char leaf[64];      /* network switch, from the site file; "" unknown */
    char model[64];     /* what the maker calls it; "" unknown */
    char isa[16];       /* "avx512", "avx2", "neon", "portable"; for GPUs "sm_90" */
    uint32_t valid;     /* enum kc_device_field */
    uint32_t numa;      /* NUMA node of its memory */
    uint32_t core;      /* physical core (or GPU); units with the same core share its arithmetic */
    uint32_t sibling;   /* 0 for the first unit of a core, 1 for the next …: higher ones are leased last */
    double ghz;         /* nominal clock */
    double peak_flops;  /* fp32 estimate of its core, flop/s: GHz × flops a cycle (README.md) */
    uint64_t memory_total, memory_free; /* bytes of its NUMA node, or of the GPU */
};

enum kc_device_state { KC_DEVICE_IDLE, KC_DEVICE_LEASED, KC_DEVICE_FAULTY, KC_DEVICE_UNKNOWN, KC_DEVICE_STATES };
extern const char *const kc_device_state_name[KC_DEVICE_STATES]; /* "idle", "leased", "faulty", "unknown" */

/* What is true of a device now. */
struct kc_device_live {
    enum kc_device_state state; /* FAULTY wins over LEASED; UNKNOWN for pools without a run directory */
    bool leased, shared;        /* somebody holds it; several may (oversubscribe) */
    char reason[160];           /* why it is faulty; "" when it is not */
    char job[64];               /* who took it last, while leased; "" unknown */
    uint32_t rank;
    int32_t taker;              /* process that took the lease; 0 unknown */
};

/* ---- device kinds: a table, one row each
 * --------------------------------------------------------------------------- */

/* Where kinds look. All strings are borrowed and never NULL except `topology`. */
struct kc_machine {
    const char *node;     /* host name, written into devices */
    const char *root;     /* put before /sys and /proc; "" on a real machine, a folder in tests */
    const char *topology; /* NULL: this machine; else an hwloc synthetic description, "numa:2 core:4 pu:1" */
    const char *nvml;     /* the library that describes NVIDIA GPUs, opened at run time */
    bool whole;           /* do not leave out what this process's own affinity and cpu quota exclude */
};

/* Who uses a device, and how it is, as its driver tells it. */
enum kc_device_use_field {
    KC_USE_BUSY = 1 << 0,
    KC_USE_CELSIUS = 1 << 1,
    KC_USE_WATTS = 1 << 2,
    KC_USE_USERS = 1 << 3,
};
#define KC_USERS_MAX 64   /* processes of a device that are told; more are counted */
#define KC_NO_USER UINT32_MAX
struct kc_device_user {
    int32_t pid;          /* of the first pid namespace */
    uint32_t uid;         /* whose it is; KC_NO_USER: unknown, as in a container that cannot see it */
    char name[32];        /* of its program; "" unknown */
    uint64_t memory;      /* bytes of the device that it holds */
    bool memory_known;
};
struct kc_device_use {
    uint32_t valid;       /* enum kc_device_use_field */
    double busy;          /* of 1, over the last moments */
    double celsius, watts;
    uint32_t users;       /* processes; the first KC_USERS_MAX of them: */
    struct kc_device_user user[KC_USERS_MAX];
};

struct kc_devices; /* a list that grows while kinds are asked */
/* Append a copy. -ENOMEM. */
int kc_devices_add(struct kc_devices *list, const struct kc_device *device);

struct kc_device_kind {
    const char *name;
    /* Append every unit of this kind with what never changes. None there: 0, silently. */
    int (*discover)(const struct kc_machine *m, struct kc_devices *list, struct kc_error *e);
    /* Fill in what changes (memory_free); leaves alone what it cannot find out. */
    void (*describe)(const struct kc_machine *m, struct kc_device *device);
    /* true: fit for use. false: faulty, and why, in a few words. Asked anew each time: a device heals when this
     * says so. */
    bool (*health)(const struct kc_machine *m, const struct kc_device *device, char *reason, size_t room);
    /* Fill in what the driver knows of its use: pids and memory of processes, not whose they are. NULL: nothing does. */
    void (*use)(const struct kc_machine *m, const struct kc_device *device, struct kc_device_use *out);
};

/* The kinds that are built in: "cpu" and "cuda". */
const struct kc_device_kind *kc_device_kinds(size_t *count);

/* ---- the pool
 * ----------------------------------------------------------------------------------------------------- */

struct kc_pool_config {
    const char *run_dir;  /* where locks live (made if missing). NULL: describe the whole machine, lease nothing */
    bool look;            /* look at run_dir only: make nothing, lease nothing; for showing who holds what */
    const char *home;     /* $KC_HOME: its site.json is read if there is one; NULL: none */
    const char *site;     /* a site file that must exist, instead of home's; NULL: none */
    /* The rest may stay zero: */
    const char *node;     /* host name; NULL: of this machine */
    const char *root, *topology, *nvml; /* see struct kc_machine; NULL: the real ones */
    const struct kc_device_kind *kinds; /* NULL: kc_device_kinds() */
    size_t kinds_count;
};

struct kc_pool;

/* Find the devices. With a run directory, cpus that this process may not use (affinity, cpuset) are left out, and
 * no more are kept than the cgroup's cpu quota allows (rounded down, at least one). *out is owned until
 * kc_pool_close(). -EINVAL a bad site file or topology, -ENAMETOOLONG, -ENOMEM, or what mkdir said. */
int kc_pool_open(const struct kc_pool_config *config, struct kc_pool **out, struct kc_error *e);
/* Leases live on. NULL is fine; returns NULL. */
struct kc_pool *kc_pool_close(struct kc_pool *pool);

size_t kc_pool_count(const struct kc_pool *pool);
/* Borrowed, in the order in which units are leased: by kind, then first units of cores, then their siblings. */
const struct kc_device *kc_pool_device(const struct kc_pool *pool, size_t index);
/* Ask kinds again for what changes (memory_free). */
void kc_pool_refresh(struct kc_pool *pool);
/* State and health of one device, looked up now, taking no lock. */
void kc_pool_live(const struct kc_pool *pool, size_t index, struct kc_device_live *out);
/* How a device is used now, and by whom. Of a cpu its kind knows nothing: kc_resource_ticks(). */
void kc_pool_use(const struct kc_pool *pool, size_t index, struct kc_device_use *out);
/* Take a device out of use by hand: writes `reason` to `<kind>-<number>.faulty` beside its lock, where an operator
 * may put or remove it too. reason NULL: put it back. The lease of a running rank is not touched. -EINVAL, -errno. */
int kc_pool_mark(struct kc_pool *pool, size_t index, const char *reason, struct kc_error *e);
/* "cpu-3". */
void kc_device_name(const struct kc_device *device, char out[32]);

enum kc_distance kc_device_distance(const struct kc_device *a, const struct kc_device *b);
/* The nominal class of a distance: a name and bytes per second between two devices, for choosing, never a
 * measurement. */
struct kc_bandwidth {
    const char *name;
    double bytes_per_second;
};
const struct kc_bandwidth *kc_distance_bandwidth(enum kc_distance distance);

/* ---- leases
 * ------------------------------------------------------------------------------------------------------- */

struct kc_lease;

struct kc_lease_request {
    const char *kind;        /* "cpu" */
    uint32_t ranks;          /* leases wanted */
    uint32_t units_per_rank; /* cores (spec: threads) */
    bool oversubscribe; /* units may be shared between ranks and with other oversubscribed jobs, never with one that
                           asked for its own; a rank may then get fewer units than it asked for */
    const char *job;         /* "demo-1": who will hold it, told to whoever is refused */
    const char *who;         /* the caller's name, counted in the ledger: "keeper" */
};

/* All leases of a job, or none. A rank's units lie in one NUMA node where possible, and ranks fill one node after
 * another. On success out[0 … ranks-1] are owned (kc_lease_release); their descriptors are close-on-exec. -EBUSY
 * not now: leased to others or faulty; ask again later. -ERANGE never on this machine: more than there is. In both
 * cases e has the numbers. -ENOENT no such kind, -EINVAL ranks or units 0 or too many, -EROFS the pool has no run
 * directory. */
int kc_lease_take(struct kc_pool *pool, const struct kc_lease_request *request, struct kc_lease **out,
                  struct kc_error *e);
/* Would kc_lease_take() be possible at all? 0, -ERANGE, -ENOENT, -EINVAL as above; takes nothing, needs no run
 * directory. */
int kc_lease_possible(const struct kc_pool *pool, const struct kc_lease_request *request, struct kc_error *e);
/* Close our descriptors; the units are free when nobody else holds them. pool may be NULL (not counted then). NULL
 * is fine; returns NULL. */
struct kc_lease *kc_lease_release(struct kc_pool *pool, struct kc_lease *lease);
/* Let the next exec keep the descriptors (or not). Async-signal-safe: for the child between fork and exec. -errno. */
int kc_lease_inherit(const struct kc_lease *lease, bool on);

const char *kc_lease_kind(const struct kc_lease *lease);
bool kc_lease_shared(const struct kc_lease *lease);
/* Unit numbers, ascending; for "cpu" the cpus to run on. Borrowed. */
const uint32_t *kc_lease_units(const struct kc_lease *lease, size_t *count);
/* One descriptor per unit (-1: rebuilt without, holds nothing). Borrowed. */
const int *kc_lease_fds(const struct kc_lease *lease, size_t *count);
/* "0-1,4", for KC_CPUS. -ENOSPC. */
int kc_lease_units_text(const struct kc_lease *lease, char *out, size_t room);
/* All leases of a job as one text, rank by rank: "cpu:0-1;cpu:2-3"; with descriptors "cpu:0-1@7,8;…"; shared ones
 * "cpu*:0". -ENOSPC. */
int kc_leases_format(struct kc_lease *const *leases, size_t ranks, bool with_fds, char *out, size_t room);
/* The inverse: exactly `ranks` leases. Descriptors, where named, must be open lock files; they are ours then, and
 * close-on-exec. -EINVAL with the place, -EBADF, -ENOMEM. */
int kc_leases_parse(const char *text, size_t ranks, struct kc_lease **out, struct kc_error *e);
/* Leases that hold nothing, for plans: every rank the next `each` units of that kind in the pool, from the first again where
 * ranks share. Which units these are does not matter to a plan. -ENODEV there are none, -ENOMEM. */
int kc_leases_imagine(const struct kc_pool *pool, const char *kind, size_t ranks, uint32_t each, struct kc_lease **out,
                      struct kc_error *e);

/* The ledger of this pool: who asked, how often, with what result. -ENOENT past the last caller. */
struct kc_pool_ledger_row {
    char who[32];
    uint64_t taken, refused, released; /* leases; requests; leases */
};
int kc_pool_ledger(const struct kc_pool *pool, size_t index, struct kc_pool_ledger_row *out);

/* ---- contracts
 * ---------------------------------------------------------------------------------------------------- */

/* The device view of a job: leases[0 … places-1] as devices, their distances. Of a job there are as many places as
 * ranks; of more ranks, as they are planned only, rank r is at place r mod places. Holds nothing that changes between two
 * looks (no free memory), so that all ranks build the same bytes. The arena is fresh and is frozen on success; *out
 * lies in it. -ENOSPC (arena->need says how much), -ENODEV a unit that this machine does not have, -EINVAL places. */
int kc_resource_view(const struct kc_pool *pool, struct kc_lease *const *leases, size_t places, size_t ranks,
                     struct kc_arena *arena, const struct kc_device_view **out, struct kc_error *e);

/* Tables of communication costs. Arenas are fresh and are frozen on success; -ENOSPC, -ENOMEM. Files are those of
 * costs.c; `root` is "" or NULL on a real machine. */
#define KC_COSTS_FILE "comm_costs.json" /* in $KC_HOME: what was measured; in a job's directory: what it plans with */
/* The built-in one. */
int kc_resource_costs(struct kc_arena *arena, const struct kc_comm_costs **out);
/* The file at `path` if it was measured on this machine, with the built-in rows for groups larger than it knows; the
 * built-in table if there is no such file, and, with one line in *warning (else it is ""), if it is damaged or another
 * machine's. */
int kc_costs_choose(const char *path, const char *root, struct kc_arena *arena, const struct kc_comm_costs **out,
                    struct kc_error *warning);
/* Add measured rows to the file; they replace those of the same primitive, algorithm, distance and size of group. A
 * file that is damaged or another machine's is begun anew. -errno of the file. */
int kc_costs_store(const char *path, const char *root, const struct kc_comm_cost *rows, size_t count,
                   struct kc_error *e);
/* Write a whole table down where a job keeps it, and read it again: row for row and bit for bit, on whatever machine the
 * job goes on, so that its plan stays what it was. No file: the
 * built-in table (jobs of before there were files), and one line in *warning, which else is "".
 * -EINVAL it is damaged; never another table instead. */
int kc_costs_keep(const char *path, const struct kc_comm_costs *costs, struct kc_error *e);
int kc_costs_load(const char *path, struct kc_arena *arena, const struct kc_comm_costs **out, struct kc_error *warning,
                  struct kc_error *e);

/* ---- how busy the machine is
 * ------------------------------------------------------------------------ */

/* Clock ticks of a cpu since boot: two looks give what it did between them. */
struct kc_cpu_ticks {
    uint32_t cpu;
    uint64_t busy, all; /* busy: neither idle nor waiting for a disk */
};
/* Of all cpus, from /proc/stat; root: "" or NULL on a real machine. How many, at most `room`, or -errno. */
int kc_resource_ticks(const char *root, struct kc_cpu_ticks *out, size_t room);
/* The load averages of 1, 5 and 15 minutes. -errno. */
int kc_resource_load(const char *root, double out[3]);

/* ---- memory and cores of the calling process
 * ------------------------------------------------------------------------ */

struct kc_memory {
    uint64_t total, available;          /* of the machine (MemTotal, MemAvailable), bytes */
    bool limited;                       /* a cgroup above this process has a limit */
    uint64_t limit, used, headroom;     /* of the tightest such cgroup; page cache it can drop counts as room */
};
/* root: "" or NULL on a real machine. -errno if /proc/meminfo cannot be read; a cgroup that cannot be read is no
 * limit. */
int kc_resource_memory(const char *root, struct kc_memory *out);
/* What can still be allocated: available, or the headroom if that is less. */
uint64_t kc_memory_room(const struct kc_memory *m);
/* Cpus that the cgroup's quota is worth (0.5, 2.0 …), 0 without a quota. */
double kc_resource_quota(const char *root);

/* ---- out of memory: whom the kernel killed for want of it
 * ------------------------------------------------------------------------ */

struct kc_oom_watch;
/* A process of ours that ended by SIGKILL, which we did not send. level and evidence: 0 and "" at first. */
struct kc_oom_victim {
    pid_t pid;
    uint32_t rank;
    enum kc_oom_level level;
    char evidence[112]; /* "the kernel's log names pid 123"; may be there without a level: "" there is none */
};
/* Watch the control group of the calling process, and the kernel's log where it may be read. Owned until kc_oom_close().
 * root: "" or NULL on a real machine; now: kc_now(). -ENOMEM, -ENAMETOOLONG. */
int kc_oom_open(const char *root, uint64_t now, struct kc_oom_watch **out);
/* NULL is fine; returns NULL. */
struct kc_oom_watch *kc_oom_close(struct kc_oom_watch *watch);
/* Processes begin whom nothing of what was killed so far concerns. Forgets whom it followed. */
void kc_oom_begin(struct kc_oom_watch *watch, uint64_t now);
/* A process began: if it has a control group that no other has, nor we, that group's counter is proof. Below KC_RANKS_MAX. */
void kc_oom_follow(struct kc_oom_watch *watch, uint32_t rank, pid_t pid);
/* Now and then while nobody has died, each second, say: what was counted long before an end is not of that end. */
void kc_oom_sample(struct kc_oom_watch *watch, uint64_t now);
/* Judge all that were killed since kc_oom_begin(), together. CERTAIN: the log names it, or a counter of its own rose;
 * LIKELY: the counter of kills that holds for it rose by as many as were killed, or more; else UNKNOWN. What is certain stays
 * so when it is judged again. Where one is likely and the log can be read, its line is waited for, `patience` nanoseconds at
 * most. */
void kc_oom_judge(struct kc_oom_watch *watch, struct kc_oom_victim *victims, size_t count, uint64_t patience);

/* Run the calling thread, and the threads it makes from now on, on the cpus of the list only. -EINVAL with the
 * reason. */
int kc_resource_bind(const char *cpus, struct kc_error *e);

#define KC_CPUS_TEXT 4096
/* The list of the cpus that the calling thread may run on. -ENOSPC, -errno. */
int kc_resource_allowed(char *out, size_t room);
/* Where a rank's threads run that must not stand in the way of ranks: of the cpus `allowed` those that no lease of the job
 * has, and all if there is none such. Pure. -EINVAL, -ENOSPC, -ENOMEM. */
int kc_resource_background(const char *allowed, struct kc_lease *const *leases, size_t ranks, char *out, size_t room);

/* Has the calling thread a cpu for waiting beside those of so many compute threads? Not where ranks `share` cpus, nor
 * where it can't be known. */
bool kc_resource_spare_core(uint32_t threads, bool share);

/* "0-1,4" to 0, 1, 4: ascending, each once, below 65536. -EINVAL with the place, -ENOSPC more than `room`. */
int kc_cpus_parse(const char *text, uint32_t *out, size_t room, size_t *count, struct kc_error *e);
/* The inverse, for ascending numbers. -ENOSPC. */
int kc_cpus_format(const uint32_t *cpus, size_t count, char *out, size_t room);

#endif
