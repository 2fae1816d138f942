/* golden.h - the reference runs of tests/golden: their spec, their token file, their tensors, and what is asked of a run
 * that follows them (tests/golden/README.md). */
#ifndef KC_TESTS_GOLDEN_H
#define KC_TESTS_GOLDEN_H

#include "tests/unit/graph_runner.h"

/* A safetensors file of f32 tensors. */
struct safetensors {
    unsigned char *data;
    struct json_t *head;
    const unsigned char *body;
};
struct safetensors safetensors_open(const char *path);
void safetensors_close(struct safetensors *s);
/* The values of a tensor, owned by the caller. */
float *safetensors_floats(const struct safetensors *s, const char *name, uint64_t *count);
/* The shape of a parameter in files: joined dimensions are one. Returns its rank. */
size_t golden_shape(const struct kc_graph_tensor *t, uint64_t size[KC_DIMS_MAX]);

struct golden {
    char folder[64];
    struct json_t *reference, *arguments, *steps;
    unsigned char *file;
    const uint16_t *tokens;
    uint64_t samples;
    uint32_t context;
};
struct golden golden_open(const char *name);
void golden_close(struct golden *g);
double golden_number(const struct golden *g, const char *argument);
/* The spec of the run with `micro` sequences a micro-batch. */
struct kc_job_spec golden_spec(const struct golden *g, uint32_t micro);
/* kc_load_fn, self a struct golden: sequential samples. */
int golden_load(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e);
/* The initial values of the run; adapters are left out, and are in a folder of their own. */
void golden_parameters(const struct golden *g, struct runner *r);
void golden_adapters(const char *folder, struct runner *r);
/* Every tensor of `role` times `scale` is that of the file, to `tolerance` of its largest value. */
void golden_compare(struct runner *r, enum kc_role role, double scale, const char *path, double tolerance);
/* max |Δ| / max |want| over [first, last) */
double golden_apart(const float *got, double scale, const float *want, uint64_t first, uint64_t last);
/* Learning rate of step `step` from 0, by the formulas of golden/README.md. */
double golden_rate(const struct golden *g, uint64_t step);

#endif
