/* spec_impl.h - what the readers of a spec share. */
#ifndef KC_GOVERN_SPEC_IMPL_H
#define KC_GOVERN_SPEC_IMPL_H

#include "base/json.h"
#include "govern/spec.h"

#include <stdbool.h>
#include <stdio.h>

struct reader {
    const json_t *root;
    const char *directory;
    struct kc_arena *arena;
    struct kc_job_spec *spec;
    struct kc_error *e;
};

/* What stands there, for a message: at most 60 characters of JSON. */
const char *spec_shown(const json_t *value, char room[64]);
/* A path made absolute; `what` is the field's full name. */
int spec_read_path(struct reader *r, const char *what, const json_t *value, bool or_null, kc_text *out);

/* ---- spec_files.c: data.train and data.validation ---- */
/* One file or, with `many`, a list of them: a path, or {"path", "weight" (many), "mask"}. */
int spec_read_files(struct reader *r, const char *what, const json_t *value, bool many, struct kc_span *out);
/* The same form again: one plain file is its path, none is null. New reference. */
json_t *spec_files_json(const struct kc_job_spec *spec, struct kc_span files);

/* ---- spec_patterns.c ---- */
/* A list of texts, none empty. */
int spec_read_patterns(struct reader *r, const char *what, const json_t *value, struct kc_span *out);
json_t *spec_patterns_json(const struct kc_job_spec *spec, struct kc_span patterns); /* new reference */

/* ---- spec_inject.c ---- */
/* A list of faults, each an object that names what, where and when. */
int spec_read_injections(struct reader *r, const char *what, const json_t *value, struct kc_span *out);
/* Are there such ranks, and can the fault be put into this layout? -EINVAL e. */
int spec_check_injections(const struct kc_job_spec *s, struct kc_error *e);
json_t *spec_injections_json(const struct kc_job_spec *spec, struct kc_span injections); /* new reference */

/* ---- spec_parallel.c ---- */
/* Do ranks, axes, batch and model fit each other? -EINVAL e. */
int spec_check_parallel(const struct kc_job_spec *s, struct kc_error *e);

#endif
