/* peer_mpi.c - the same collectives with MPI: the peer of ours_comm.c. Built only where there is an mpicc.
 *
 *   mpirun -n RANKS peer_mpi [LARGEST [PRIMITIVE …]]
 *
 * One JSON line per primitive and size. Buffers are the program's own memory: MPI has no windows. */
#include "comm_cases.h"

#include <mpi.h>
#include <stdio.h>

static int rank, ranks;

static void run(enum what w, float *in, float *out, size_t bytes)
{
    int n = (int)(bytes / 4), part = n / ranks, other = rank ^ 1;
    MPI_Comm all = MPI_COMM_WORLD;
    switch (w) {
    case ALL_REDUCE: MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, all); break;
    case ALL_GATHER: MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, all); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, all); break;
    case BROADCAST: MPI_Bcast(rank ? out : in, n, MPI_FLOAT, 0, all); break;
    case ALL_TO_ALL: MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, all); break;
    case SEND:
        for (int there = 0; there < 2 && other < ranks; there++) {
            if (there == (rank & 1))
                MPI_Send(in, n, MPI_FLOAT, other, 0, all);
            else
                MPI_Recv(out, n, MPI_FLOAT, other, 0, all, MPI_STATUS_IGNORE);
        }
        break;
    default: MPI_Barrier(all); break;
    }
}

static double measure(enum what w, float *in, float *out, size_t bytes)
{
    static double own[ROUNDS_MAX], slowest[ROUNDS_MAX];
    int rounds = rounds_of(bytes);
    fill(in, in_count(w, bytes, ranks), rank);
    memset(out, 0xff, out_count(w, bytes, ranks) * 4);
    for (int r = -ROUNDS_WARM; r < rounds; r++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        run(w, in, out, bytes);
        if (r >= 0)
            own[r] = (MPI_Wtime() - start) * 1e6 / (w == SEND ? 2 : 1);
    }
    const float *result = w == BROADCAST && rank == 0 ? in : out;
    if (wrong(w, result, bytes, ranks, rank)) {
        fprintf(stderr, "peer_mpi: %s of %zu bytes: element %zu is wrong\n", what_name[w], bytes,
                wrong(w, result, bytes, ranks, rank) - 1);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Allreduce(own, slowest, rounds, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return median(slowest, rounds);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 10) : LARGEST;
    float *in = malloc(largest), *out = malloc(largest);
    for (enum what w = 0; w < WHATS; w++) {
        int wanted = argc <= 2;
        for (int i = 2; i < argc; i++)
            wanted |= !strcmp(argv[i], what_name[w]);
        for (size_t bytes = SMALLEST; wanted && bytes <= (w == BARRIER ? SMALLEST : largest); bytes *= 4) {
            double us = measure(w, in, out, bytes);
            if (rank == 0)
                printf("{\"who\":\"openmpi\",\"primitive\":\"%s\",\"kind\":\"plain\",\"ranks\":%d,\"bytes\":%zu,"
                       "\"us\":%.3f}\n",
                       what_name[w], ranks, bytes, us);
        }
    }
    MPI_Finalize();
    free(in);
    free(out);
    return 0;
}
