/* verb_node.c - kc node: the machine, its devices and who holds and uses them. */
#include "command.h"
#include "node.h"
#include "session.h"
#include "text.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_device(FILE *out, const struct node_device *d)
{
    char numa[32] = "-", busy[16], peak[32], memory[32], holder[96];
    if (d->numa >= 0)
        snprintf(numa, sizeof numa, "%lld", (long long)d->numa);
    fprintf(out, "%-10s %-8s %-9s %4s %5s %9s %10s  %s%s%s\n", d->name, kc_device_state_name[d->state], d->isa, numa,
            text_number(100 * d->busy, "%.0f %%", busy, sizeof busy), text_rate(d->peak_flops, peak, sizeof peak),
            text_bytes(d->memory, memory, sizeof memory), node_holder_text(d, holder, sizeof holder),
            *d->reason ? ": " : "", d->reason);
}

/* What a driver tells of a device, on a line of its own; its processes, a line each. */
static void print_use(FILE *out, const struct node_device *d)
{
    char a[32], b[32], c[32], line[192];
    if (isnan(d->celsius) && isnan(d->watts) && d->users < 0)
        return;
    fprintf(out, "%-10s %s, %s, %s free; ", d->name, text_number(d->celsius, "%.0f °C", a, sizeof a),
            text_number(d->watts, "%.0f W", b, sizeof b), text_bytes(d->memory_free, c, sizeof c));
    if (d->users < 0)
        fprintf(out, "its driver does not tell who uses it\n");
    else
        fprintf(out, "%lld process%s on it\n", (long long)d->users, d->users == 1 ? "" : "es");
    for (size_t i = 0; i < d->named; i++)
        fprintf(out, "           %s\n", node_user_text(&d->user[i], line, sizeof line));
}

static int print_node(struct session *s, const struct node *n)
{
    struct draft d;
    FILE *out = draft_open(&d);
    char line[192];
    fprintf(out, "node        %s, instance %s\nhome        %s\n", n->host, n->instance, n->home);
    if (n->kcd >= 0)
        fprintf(out, "kcd         pid %lld\n", (long long)n->kcd);
    else
        fprintf(out, "kcd         none. Start one: kcd --daemon\n");
    fprintf(out, "memory      %s\n", node_memory_text(n, line, sizeof line));
    fprintf(out, "load        %s\n", node_load_text(n, line, sizeof line));
    fprintf(out, "\n%-10s %-8s %-9s %4s %5s %9s %10s  %s\n", "DEVICE", "STATE", "ISA", "NUMA", "BUSY", "FLOP/S", "MEMORY",
            "HELD BY");
    for (size_t i = 0; i < n->devices; i++)
        print_device(out, &n->device[i]);
    for (size_t i = 0; i < n->devices; i++)
        print_use(out, &n->device[i]);
    return draft_close(s, &d);
}

int verb_node(struct session *s, const struct arguments *a)
{
    (void)a;
    struct node n;
    struct kc_error e = {""};
    int rc = node_read(&s->home, &n, &e), code;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (s->json) {
        json_t *o = session_envelope(s);
        node_json(&n, o);
        code = session_emit(s, o);
    } else {
        code = print_node(s, &n);
    }
    node_free(&n);
    return code;
}
