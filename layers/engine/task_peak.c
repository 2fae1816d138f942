/* task_peak.c - the best rate of matrix products on one core: the limit beside which `kc bench
 * step` shows a step. One JSON line. Several of these at once measure what several ranks could
 * reach. */
#include "task.h"

#include "base/error.h"
#include "jobs/jobs.h"
#include "resource/resource.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: kc-rank --task peak [--cpus LIST] [--seconds S]\n"
    "Prints the rate of 2048 x 2048 x 2048 products in f32. Normally started by `kc bench step`.\n";

int task_peak(int argc, char **argv)
{
    static const struct option options[] = {{"cpus", required_argument, NULL, 'c'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    const char *cpus = NULL;
    double seconds = 1, rate;
    char variant[96], *end = "";
    struct kc_error e = {""};
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'c')
            cpus = optarg;
        else if (c == 's')
            seconds = strtod(optarg, &end);
        if (c == '?' || *end || !(seconds > 0 && seconds <= 60))
            return fputs(usage, stderr), 2;
    }
    int code = cpus ? kc_resource_bind(cpus, &e) : 0;
    if (code == 0)
        code = kc_jobs_cpu_peak(seconds, &rate, variant, sizeof variant, &e);
    if (code < 0) {
        fprintf(stderr, "kc-rank: %s\n", e.text);
        return 10;
    }
    printf("{\"flops_per_second\":%.9g,\"variant\":\"%s\"}\n", rate, variant);
    return 0;
}
