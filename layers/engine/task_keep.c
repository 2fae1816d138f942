/* task_keep.c - the keeper's helper: writes the newest whole copy in memory to disk when the ranks are gone. Says what it does
 * in JSON, an object a line: {"begins":…} once it has found something to write, then {"saved":…}, {"nothing":…} or
 * {"failed":…}. It may be killed at any moment: what it has not committed is no snapshot. */
#include "task.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "contracts/types.h"
#include "state/state.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: kc-rank --task keep --snapshots DIR --fds LIST\n"
    "Writes the copy of the state in those memory objects, one a rank, to a directory of snapshots. Started by a keeper.\n";

static int parse_fds(const char *text, int fds[KC_RANKS_MAX])
{
    int count = 0;
    char *end;
    for (; *text && count < KC_RANKS_MAX; text = *end == ',' ? end + 1 : end) {
        const long fd = strtol(text, &end, 10);
        if (end == text || fd < 0 || fd > INT_MAX || (*end && *end != ','))
            return -EINVAL;
        fds[count++] = (int)fd;
    }
    return *text ? -EINVAL : count;
}

static json_t *facts(const struct kc_snapshot_info *i)
{
    return json_pack("{s:I, s:I, s:I}", "version", (json_int_t)i->version, "step", (json_int_t)i->step, "bytes",
                     (json_int_t)i->bytes);
}

int task_keep(int argc, char **argv)
{
    static const struct option options[] = {{"snapshots", required_argument, NULL, 's'},
                                            {"fds", required_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    const char *directory = NULL, *list = NULL;
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    int fds[KC_RANKS_MAX], ranks = -EINVAL;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == '?')
            return fputs(usage, stderr), 2;
        *(c == 's' ? &directory : &list) = optarg;
    }
    if (list)
        ranks = parse_fds(list, fds);
    if (!directory || ranks < 1)
        return fputs(usage, stderr), 2;
    const uint64_t began = kc_now();
    int code = kc_copy_save(fds, (uint32_t)ranks, directory, NULL, true, &info, &e);
    if (code == 0) {
        task_say(json_pack("{s:o}", "begins", facts(&info)));
        code = kc_copy_save(fds, (uint32_t)ranks, directory, NULL, false, &info, &e);
    }
    if (code == 0) {
        json_t *o = facts(&info);
        json_object_set_new(o, "seconds", json_real((double)(kc_now() - began) * 1e-9));
        task_say(json_pack("{s:o}", "saved", o));
        return 0;
    }
    task_say(json_pack("{s:s}", code == -ENOENT ? "nothing" : "failed", e.text));
    return code == -ENOENT ? 4 : 9;
}
