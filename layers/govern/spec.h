/* spec.h - a spec file becomes a job_spec contract, or one clear line. Checks types, ranges, names and combinations;
 * touches nothing but the file itself. (What needs the data or the disk is in startup.h.) */
#ifndef KC_GOVERN_SPEC_H
#define KC_GOVERN_SPEC_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/job_spec.h"

/* Bytes of a spec file that are enough for anybody. */
#define KC_SPEC_BYTES_MAX (1u << 20)

/* Parse `text` (JSON); relative paths are relative to `directory` (absolute). Sealed in the fresh arena.
 * -EINVAL e: full path of every field concerned, the numbers, the next step; unknown fields with the nearest known. */
int kc_spec_parse(const char *text, const char *directory, struct kc_arena *arena, const struct kc_job_spec **out,
                  struct kc_error *e);
/* Read and parse a file; e is prefixed with its path. */
int kc_spec_load(const char *path, struct kc_arena *arena, const struct kc_job_spec **out, struct kc_error *e);
/* May a job run by it? -EINVAL more ranks than a job has: these are planned only. */
int kc_spec_runs(const struct kc_job_spec *spec, struct kc_error *e);
/* The complete spec, defaults filled in, paths absolute, as JSON in the same form (new reference): what is stored as
 * jobs/<id>/spec.json. Parsing it again gives the same contract. */
struct json_t *kc_spec_json(const struct kc_job_spec *spec);

#endif
