/* bench.h - what the verbs of `kc bench` share: their options as numbers, the cores they run on, interrupts. */
#ifndef KC_CONSOLE_BENCH_H
#define KC_CONSOLE_BENCH_H

#include "command.h"
#include "session.h"

#include "contracts/types.h"

/* Cores in the order in which ranks get them. */
struct bench_cores {
    uint32_t cpu[1024];
    size_t count;
};

/* All return an exit code and have told why if it is not 0. */

/* A whole number option, `otherwise` when it is not given. */
int bench_whole(struct session *s, const struct arguments *a, enum option_id id, uint32_t least,
                uint32_t most, uint32_t otherwise, uint32_t *out);
/* "64M": bytes, with K, M or G behind it. */
int bench_size(struct session *s, const struct arguments *a, enum option_id id, uint64_t least,
               uint64_t most, uint64_t otherwise, uint64_t *out);
/* The first `wanted` cores of this machine, all there are with --oversubscribe. Too few, and cores
 * that jobs of this home hold (a note: figures will suffer), are told. */
int bench_cores(struct session *s, const struct arguments *a, size_t wanted,
                struct bench_cores *out);
/* `bytes` are about to be used: refuse, with the numbers, what would not fit. */
int bench_memory(struct session *s, uint64_t bytes, const char *lower);
/* A program that the bench needs beside kc. */
int bench_program(struct session *s, const char *program);
/* $KC_HOME is there (made if it was not) and may be written. */
int bench_home(struct session *s);

/* Run the verb so that SIGINT, SIGTERM, SIGHUP and SIGPIPE only set the flag of interrupt_seen():
 * it has processes to end and a folder to remove. */
int bench_guarded(struct session *s, const struct arguments *a,
                  int (*verb)(struct session *s, const struct arguments *a));

/* "step 5 of 12": on a terminal one line that is rewritten, else a line every ten seconds. */
void bench_progress(struct session *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void bench_progress_end(struct session *s);
/* "1.27 s", "156 ms". */
const char *bench_seconds(double v, char *out, size_t room);

#endif
