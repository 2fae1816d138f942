/* misfit.h - in what tensors that were found differ from those of the model: the first of each kind by name, and how many more.
 * Pure. */
#ifndef KC_STATE_MISFIT_H
#define KC_STATE_MISFIT_H

#include <stddef.h>
#include <stdint.h>

/* What stands before the first of a kind, and between two. */
#define KC_MISFIT_TABLE(X)                                                                                             \
    X(UNLISTED, "the index does not name ", "; nor ")                                                                  \
    X(ABSENT, "the index names ", " and ")                                                                             \
    X(TYPE, "type of ", "; of ")                                                                                       \
    X(SHAPE, "shape of ", "; of ")                                                                                     \
    X(TWICE, "twice ", ", ")                                                                                           \
    X(UNEXPECTED, "unexpected ", ", ")                                                                                 \
    X(MISSING, "missing ", ", ")
#define KC_MISFIT_ROW(id, lead, glue) KC_MISFIT_##id,
enum kc_misfit { KC_MISFIT_TABLE(KC_MISFIT_ROW) KC_MISFIT_KINDS };

enum { KC_MISFIT_FIRST = 3, KC_MISFIT_TEXT = 256 };

struct kc_misfits {
    struct {
        char text[KC_MISFIT_FIRST][KC_MISFIT_TEXT];
        uint32_t count;
    } of[KC_MISFIT_KINDS];
};

/* One more of a kind: its name, and what of it. */
void kc_misfit(struct kc_misfits *m, enum kc_misfit kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
uint32_t kc_misfits_count(const struct kc_misfits *m);
/* "unexpected A, B, C and 14 more; missing D": fewer of each kind where three do not fit, never one cut in its middle. */
void kc_misfits_text(const struct kc_misfits *m, char *out, size_t room);

#endif
