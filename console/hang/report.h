/* report.h - a diagnosis for people and for scripts. */
#ifndef KC_CONSOLE_HANG_REPORT_H
#define KC_CONSOLE_HANG_REPORT_H

#include "verdict.h"

#include "base/json.h"

#include <stdio.h>

/* Adds to an object of schema kc.hang/1: id, hung, text, ranks, saved, between_seconds, verdicts. */
void kc_report_json(const struct kc_evidence *e, const struct kc_diagnosis *d, json_t *to);
void kc_report_text(const struct kc_evidence *e, const struct kc_diagnosis *d, FILE *out);

#endif
