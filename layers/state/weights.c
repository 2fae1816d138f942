/* weights.c - may a run begin from these values? Asked by the console before anything starts; the answer is made by
 * reading them, exactly as rank 0 will, into a state of its own that is thrown away. */
#include "state/state.h"

int kc_weights_check(const struct kc_job_spec *spec, const struct kc_shard_plan *shard, struct kc_error *e)
{
    struct kc_state_config config = {.spec = spec, .shard = shard, .guard = KC_GUARD_COUNT};
    struct kc_state *s = NULL;
    if (!*KC_TEXT(spec, spec->init_from))
        return 0;
    int rc = kc_state_new(&config, &s, e);
    if (rc == 0)
        rc = kc_state_init(s, e);
    kc_state_free(s);
    return rc;
}
