/* tear_status.c - leaves the job's status on a board as a keeper does that is killed while it writes it. tear_status FILE */
#include "shm/board.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
    int fd = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
    struct kc_job_segment *b =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b == MAP_FAILED)
        return fprintf(stderr, "tear_status: %s\n", argc == 2 ? argv[1] : "FILE"), 1;
    atomic_fetch_or(&b->keeper.status.seq, 1);
    return 0;
}
