/* view_hang.c - who hangs and why, as `kc hang` and `kc stack` say it: asked of another kc when the view is opened and with
 * R, shown with its age. Below the verdicts, where each rank is, which is of now. */
#include "view.h"

#include "answer.h"
#include "hang_page.h"

#include "console/text.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What it says is about this job. */
static bool is_of(const struct answer *a, const struct job *j)
{
    return a && a->json && !strcmp(kc_json_text(a->json, "id", ""), j->id);
}

static const char *age_text(const struct view *v, const struct answer *a, char *out, size_t room)
{
    char age[32];
    const double seconds = v->now > a->came ? (double)(v->now - a->came) * 1e-9 : 0;
    const char *more = a->pid ? ", looking again" : "";
    if (seconds < 1)
        snprintf(out, room, "looked just now%s", more);
    else
        snprintf(out, room, "looked %s ago%s", text_seconds(seconds, age, sizeof age), more);
    return out;
}

static void add_verdicts(struct view *v, struct page *p, const struct job *j)
{
    char age[64];
    const struct answer *a = v->hang;
    if (is_of(a, j)) {
        hang_page_verdicts(p, a->json);
        if (v->replay.on)
            page_add(p, ROLE_DIM, 0, "as it was at %s%s", kc_json_text(a->json, "at", "?"), a->pid ? ", looking again" : "");
        else
            page_add(p, ROLE_DIM, 0, "%s; R looks again", age_text(v, a, age, sizeof age));
    } else if (a && a->pid) {
        page_add(p, ROLE_DIM, 0, "%s", "Looking twice at its board and its processes …");
    }
    if (a && *a->error)
        page_add(p, ROLE_WARN, 0, "kc hang: %s", a->error);
}

static void add_stacks(struct view *v, struct page *p, const struct job *j)
{
    char age[64];
    const struct answer *a = v->stack;
    if (v->replay.on || !a)
        return;
    page_add(p, ROLE_NORMAL, 0, "%s", "");
    if (is_of(a, j)) {
        page_add(p, ROLE_TITLE, 0, "STACKS  %s", age_text(v, a, age, sizeof age));
        hang_page_stacks(p, a->json);
    } else if (a->pid) {
        page_add(p, ROLE_DIM, 0, "%s", "Taking the stacks of its ranks …");
    }
    if (*a->error)
        page_add(p, ROLE_DIM, 0, "no stacks: %s", a->error);
}

void view_draw_hang(struct view *v, struct canvas *c)
{
    struct page p = {.cols = c->cols};
    const struct job *j = view_job(v);
    if (!j) {
        canvas_text(c, 0, 2, 0, ROLE_NORMAL, "The job is gone.");
        return;
    }
    add_verdicts(v, &p, j);
    const int verdicts = p.count;
    page_add(&p, ROLE_NORMAL, 0, "%s", "");
    hang_page_numbers(&p, v->comms);
    if (p.count == verdicts + 1) /* nothing of it */
        free(p.line[--p.count].text);
    add_stacks(v, &p, j);
    v->hang_top = page_draw(&p, c, v->hang_top);
    page_free(&p);
}

bool view_key_hang(struct view *v, enum key_id key)
{
    const int by = key_moves(v, key);
    v->hang_top = v->hang_top + by > 0 ? v->hang_top + by : 0;
    return by != 0;
}
