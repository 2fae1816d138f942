/* recording_board.c - the board as of a moment: a segment's first frame and all up to the moment's last, applied to an
 * empty board. The last one made is kept, so that going forward applies only what is new. */
#include "recording_impl.h"

#include "reader_impl.h"
#include "segment_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int apply_frame(struct kc_recording *r, const struct tape_segment *s, uint32_t frame, unsigned char *raw)
{
    const unsigned char *p = s->data + r->place[s->first + frame].at;
    struct kc_tape_frame f;
    memcpy(&f, p, sizeof f);
    if (f.raw == 0)
        return 0;
    int code = kc_tape_unpress(p + sizeof f, f.stored, raw, f.raw);
    return code < 0 ? code : kc_tape_apply(raw, f.raw, r->image, s->head.board_bytes);
}

static int need_image(struct kc_recording *r, uint64_t bytes)
{
    if (r->image && r->image_bytes == bytes) {
        memset(r->image, 0, bytes);
    } else {
        free(r->image);
        r->image = calloc(1, bytes);
        r->image_bytes = bytes;
    }
    return r->image ? 0 : -ENOMEM;
}

/* Bring the image to the frame of its segment. */
static int make_image(struct kc_recording *r, uint32_t segment, uint32_t frame)
{
    const struct tape_segment *s = &r->segment[segment];
    unsigned char *raw = malloc(KC_TAPE_RAW_MOST);
    int code = raw ? 0 : -ENOMEM;
    if (code == 0 && (r->made == 0 || r->image_segment != segment || r->made > frame + 1)) {
        r->made = 0;
        code = need_image(r, s->head.board_bytes);
    }
    r->image_segment = segment;
    for (; code == 0 && r->made <= frame; r->made++)
        code = apply_frame(r, s, r->made, raw);
    if (code < 0)
        r->made = 0;
    free(raw);
    return code;
}

/* Operations that were left out read as overwritten by later ones, which is what they will be. */
static void mark_left_out(struct kc_job_segment *b)
{
    for (uint32_t i = 0; i < b->head.ranks; i++) {
        struct kc_rank_slot *s = &b->rank[i];
        const uint64_t head = s->ops_head;
        for (uint64_t n = head > KC_OPS ? head - KC_OPS : 0; n < head; n++)
            if (s->ops[n % KC_OPS].seq < 2 * n + 1)
                s->ops[n % KC_OPS].seq = 2 * (n + KC_OPS) + 2;
    }
}

int kc_recording_board(struct kc_recording *r, uint32_t i, uint64_t wall, struct kc_reader **out, struct kc_error *e)
{
    struct kc_moment m;
    if (kc_recording_moment(r, i, &m) < 0)
        return kc_fail(e, -EINVAL, "there is no moment %u in the recording, it has %u", i, r->moments);
    const struct tape_segment *s = &r->segment[r->moment[i].segment];
    int code = make_image(r, r->moment[i].segment, r->moment[i].frame);
    if (code == -ENOMEM)
        return kc_fail(e, code, "no memory for a board of %llu bytes", (unsigned long long)s->head.board_bytes);
    if (code < 0)
        return kc_fail(e, code, "segment %llu of the recording is damaged: a frame of it does not unpack to what lies on "
                       "a board", (unsigned long long)s->head.number);
    code = segment_check_head("the board in the recording", r->image, s->head.board_bytes, e);
    if (code < 0)
        return code;
    if (((const struct kc_segment_head *)r->image)->ranks != s->head.ranks)
        return kc_fail(e, -EBADMSG, "segment %llu of the recording is damaged: a board of other ranks lies in it",
                       (unsigned long long)s->head.number);
    struct kc_reader *reader = calloc(1, sizeof *reader);
    struct kc_job_segment *b = reader ? malloc(s->head.board_bytes) : NULL;
    if (!b) {
        free(reader);
        return kc_fail(e, -ENOMEM, "no memory for a board of %llu bytes", (unsigned long long)s->head.board_bytes);
    }
    memcpy(b, r->image, s->head.board_bytes);
    mark_left_out(b);
    b->head.saved = m.time + (wall > m.wall ? wall - m.wall : 0);
    b->head.saved_wall = m.wall + (wall > m.wall ? wall - m.wall : 0);
    *reader = (struct kc_reader){.segment = {.head = &b->head, .bytes = s->head.board_bytes, .fd = -1}, .file = b,
                                 .now = b->head.saved, .recorded = 1};
    *out = reader;
    return 0;
}
