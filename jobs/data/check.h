/* check.h - does the data fit the spec? Asked before anything starts; reads the files once through. */
#ifndef KC_JOBS_DATA_CHECK_H
#define KC_JOBS_DATA_CHECK_H

#include "base/error.h"
#include "contracts/job_spec.h"

/* All token files open, are whole, have a sample of model.context, and no token that model.vocab does not have; a
 * mask speaks of as many tokens as its file has, in zeros and ones, not all of them 0. Errors of kc_tokens_open()
 * and kc_mask_open(), -EINVAL; e names the fields (data.train, model.vocab …), the numbers and what would do. */
int kc_data_check(const struct kc_job_spec *spec, struct kc_error *e);

#endif
