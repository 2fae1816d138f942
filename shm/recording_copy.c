/* recording_copy.c - the end of a job's recording as one file, for a postmortem. Whole segments: each stands alone. */
#include "recording_impl.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The time of the last frame of a file that is one segment; 0: it has none. */
static uint64_t last_wall(const struct tape_file *f)
{
    struct kc_tape_frame frame;
    size_t p = sizeof(struct kc_tape_head);
    uint64_t wall = 0;
    for (long n; p < f->bytes && (n = tape_frame_at(f->data + p, f->bytes - p, &frame)) > 0; p += (size_t)n)
        wall = frame.wall;
    return wall;
}

int kc_recording_copy(const char *folder, const char *path, uint64_t seconds, struct kc_error *e)
{
    struct tape_file *file = NULL;
    uint32_t files = 0;
    size_t bytes = 0;
    uint64_t newest = 0;
    int code = tape_folder_read(folder, &file, &files);
    if (code < 0)
        return kc_fail(e, code, "%s: %s", folder, code == -ENOENT ? "it holds no segment of a recording" : strerror(-code));
    for (uint32_t i = 0; i < files; i++) {
        const uint64_t wall = last_wall(&file[i]);
        newest = wall > newest ? wall : newest;
    }
    char *all = NULL;
    for (uint32_t i = 0; i < files && code == 0; i++) {
        if (last_wall(&file[i]) + seconds * KC_SECOND < newest)
            continue;
        char *more = realloc(all, bytes + file[i].bytes + 1);
        if (!more) {
            code = -ENOMEM;
            break;
        }
        all = more;
        memcpy(all + bytes, file[i].data, file[i].bytes);
        bytes += file[i].bytes;
    }
    if (code == 0)
        code = kc_file_replace(path, all, bytes);
    free(all);
    tape_files_free(file, files);
    return code < 0 ? kc_fail(e, code, "%s: %s", path, strerror(-code)) : 0;
}
