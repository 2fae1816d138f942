/* check.c */
#include "jobs/data/check.h"

#include "jobs/data/field.h"
#include "jobs/data/mask.h"
#include "jobs/data/tokens.h"

#include <errno.h>

/* The mask fits its tokens, holds zeros and ones, and leaves something to learn. */
static int check_mask(const char *field, const char *path, const struct kc_tokens *t, struct kc_error *e)
{
    struct kc_mask *m = NULL;
    uint64_t counted = 0;
    int code = kc_mask_open(path, t, &m, e);
    if (code == 0 && (code = kc_mask_count(m, 0, kc_mask_tokens(m), &counted, e)) == 0 && counted == 0)
        code = kc_fail(e, -EINVAL,
                       "%s: none of its %llu tokens counts: nothing to learn; leave the mask out or prepare it "
                       "again",
                       path, (unsigned long long)kc_mask_tokens(m));
    kc_mask_close(m);
    return code < 0 ? kc_fail_prefix(e, code, "%s.mask", field) : 0;
}

static int check_file(const struct kc_job_spec *spec, const char *field, const struct kc_spec_file *file,
                      struct kc_error *e)
{
    const char *path = KC_TEXT(spec, file->path);
    struct kc_tokens *t = NULL;
    uint32_t largest = 0;
    uint64_t where = 0;
    int code = kc_tokens_open(path, &t, e);
    if (code < 0)
        return kc_fail_prefix(e, code, "%s", field);
    uint64_t count = kc_tokens_count(t);
    if (count < (uint64_t)spec->context + 1)
        code = kc_fail(e, -EINVAL,
                       "%s has %llu tokens (%s), but one sample of model.context = %u needs %u: a longer text, or "
                       "model.context %llu would do",
                       field, (unsigned long long)count, path, spec->context, spec->context + 1,
                       (unsigned long long)(count > 1 ? count - 1 : 1));
    if (code == 0 && (code = kc_tokens_max(t, &largest, &where, e)) < 0)
        kc_fail_prefix(e, code, "%s", field);
    if (code == 0 && largest >= spec->vocab)
        code = kc_fail(e, -EINVAL,
                       "model.vocab is %u, but %s has token %u at position %llu (%s): model.vocab %u would do",
                       spec->vocab, field, largest, (unsigned long long)where, path, largest + 1);
    if (code == 0 && file->mask)
        code = check_mask(field, KC_TEXT(spec, file->mask), t, e);
    kc_tokens_close(t);
    return code;
}

int kc_data_check(const struct kc_job_spec *spec, struct kc_error *e)
{
    const struct kc_spec_file *train = KC_AT(spec, struct kc_spec_file, spec->train);
    char room[40];
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < spec->train.count; i++)
        code = check_file(spec, field_of_train(spec->train.count, i, room), &train[i], e);
    if (code == 0 && spec->validation.count)
        code = check_file(spec, "data.validation", KC_AT(spec, struct kc_spec_file, spec->validation), e);
    return code;
}
