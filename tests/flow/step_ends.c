/* step_ends.c - prints "step end" for every step on a job's board, end in CLOCK_MONOTONIC nanoseconds: what a flow test
 * compares a file's time with. step_ends INSTANCE JOB */
#include "shm/reader.h"

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct kc_reader *reader;
    struct kc_error e = {""};
    struct kc_step_record r;
    uint64_t cursor = 0, lost = 0;
    if (argc != 3 || kc_reader_attach(argv[1], argv[2], &reader, &e) < 0) {
        fprintf(stderr, "step_ends: %s\n", argc == 3 ? e.text : "INSTANCE JOB");
        return 1;
    }
    while (kc_reader_steps(reader, &cursor, &r, 1, &lost) == 1)
        printf("%" PRIu64 " %" PRIu64 "\n", r.step, r.end);
    kc_reader_free(reader);
    return 0;
}
