/* check.c */
#include "jobs/data/check.h"

#include "jobs/data/tokens.h"

#include <errno.h>

static int check_file(const struct kc_job_spec *spec, const char *field, const char *path, struct kc_error *e)
{
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
                       "model.vocab is %u, but %s has token %u at position %llu (%s): model.vocab %u would do", spec->vocab,
                       field, largest, (unsigned long long)where, path, largest + 1);
    kc_tokens_close(t);
    return code;
}

int kc_data_check(const struct kc_job_spec *spec, struct kc_error *e)
{
    int code = check_file(spec, "data.train", KC_TEXT(spec, spec->train), e);
    if (code == 0 && spec->validation)
        code = check_file(spec, "data.validation", KC_TEXT(spec, spec->validation), e);
    return code;
}
