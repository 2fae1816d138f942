/* node.h - a machine as `kc node` and the screen show it: its memory and load, its devices with who holds them, and who else
 * uses them. One struct for both, so they say the same. Unknown is not zero: NaN, -1, "". */
#ifndef KC_CONSOLE_NODE_H
#define KC_CONSOLE_NODE_H

#include "base/error.h"
#include "base/home.h"
#include "base/json.h"
#include "resource/resource.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A process that the device's driver tells of. */
struct node_user {
    int64_t pid;
    char user[32];   /* whose it is; "" unknown */
    bool ours;       /* of the user who asks */
    char program[32];
    double memory;   /* bytes of the device */
};

struct node_device {
    char name[32], kind[16], model[64], isa[16];
    int64_t numa, core;
    double peak_flops, memory, memory_free; /* flop/s, bytes */
    double busy, celsius, watts;            /* busy: of 1, in the last moments */
    int state;                              /* enum kc_device_state */
    char reason[160];                       /* why it is faulty */
    char job[64];                           /* who holds it */
    int64_t rank;
    bool shared;                            /* with others, who are not told */
    int64_t users;                          /* processes on it; -1: no driver tells */
    struct node_user *user;                 /* of which so many are named: */
    size_t named;
};

struct node {
    char host[72], instance[56], home[4096];
    int64_t kcd;             /* pid of the one that answers; -1: none */
    bool told_by_kcd;        /* the devices' states; else by their locks */
    double memory, available;/* bytes of the machine */
    double limit, headroom;  /* of the tightest control group above us; NaN: none */
    double load[3];          /* averages of 1, 5 and 15 minutes */
    struct node_device *device;
    size_t devices;
};

/* Look at this machine; needs no kcd. Waits a fifth of a second, in which cpus are watched. */
int node_read(const struct kc_home *home, struct node *out, struct kc_error *e);
void node_free(struct node *n);

/* Into the object that a verb prints, and out of it again. -EINVAL: it is none of `kc node`. */
void node_json(const struct node *n, json_t *into);
int node_of_json(const json_t *object, struct node *out);
/* One device. New reference. */
json_t *node_device_json(const struct node_device *d);

/* One device from the pool, without what it takes time or a driver to know. */
void node_device_of(const struct kc_device *d, const struct kc_device_live *live, struct node_device *out);

/* For people. All return `out`. */
const char *node_holder_text(const struct node_device *d, char *out, size_t room);  /* "demo-1/3 and others", "-" */
const char *node_memory_text(const struct node *n, char *out, size_t room);         /* "64.0 GiB, 12.0 GiB available, …" */
const char *node_load_text(const struct node *n, char *out, size_t room);           /* "0.52 0.40 0.31" */
const char *node_user_text(const struct node_user *u, char *out, size_t room);      /* "pid 4411 of anna, python, 12.0 GiB" */

#endif
