/* tree.h - many stacks as one tree: a node is a function, and says through which ranks it goes. Pure: the same stacks give the
 * same tree and the same text.
 *
 * Stuck or slow is told by looks: a rank is stuck where its board did not move and its main thread was inside the same
 * function of ours, further in than where it began, in all looks; else it moves, however slowly. One look tells neither, and a long
 * computation looks stuck for a while: whether it lasts too long is not judged here. */
#ifndef KC_CONSOLE_HANG_TREE_H
#define KC_CONSOLE_HANG_TREE_H

#include "stack.h"

#include <stdio.h>

#define KC_TREE_LINES 4    /* of a function, that are told apart */
#define KC_TREE_STATES 4   /* of threads that stand at one place */
#define KC_TREE_NONE UINT32_MAX

struct kc_tree_set {       /* of ranks */
    uint64_t bit[(KC_RANKS_MAX + 63) / 64];
};

enum kc_tree_word { KC_TREE_UNKNOWN, KC_TREE_STUCK, KC_TREE_MOVES };

struct kc_tree_node {
    uint32_t symbol;       /* one that stands for the function; KC_TREE_NONE: a kind of thread */
    uint32_t child, next;  /* KC_TREE_NONE: none. Children: those of more threads first */
    struct kc_tree_set ranks;
    uint32_t threads;      /* that were here in any look */
    uint32_t ends;         /* of these, that were here innermost */
    uint32_t looks;        /* thread-looks that ended here */
    struct kc_tree_end {   /* of the threads that ended here: who was in which state (proc(5); 0 unknown) */
        char state;
        struct kc_tree_set ranks;
    } end[KC_TREE_STATES];
    uint32_t states;       /* how many different ones; more than there is room for are left out */
    uint32_t line[KC_TREE_LINES], lines; /* lines: how many there were, also beyond */
    char name[16];         /* of a kind of thread: "main", or what they are called */
};

struct kc_tree {
    const struct kc_stacks *stacks;  /* borrowed */
    struct kc_tree_node *node;
    uint32_t nodes, first;           /* first: the kind of thread that comes first; the others by next */
    struct kc_tree_rank {
        enum kc_tree_word word;
        uint32_t at;                 /* stuck: symbol of the innermost function that all looks have; else KC_TREE_NONE */
        char state;                  /* of its main thread in the last look; 0 unknown */
    } *rank;                         /* (ranks), as in stacks->rank */
};

/* -ENOMEM. `s` must live as long as the tree. */
int kc_tree_make(const struct kc_stacks *s, struct kc_tree **out);
/* NULL is fine. */
void kc_tree_free(struct kc_tree *t);

void kc_tree_add(struct kc_tree_set *s, uint32_t rank);
bool kc_tree_has(const struct kc_tree_set *s, uint32_t rank);
/* "[6] 0-2,5-7"; out is always ended. */
void kc_tree_ranks(const struct kc_tree_set *s, char *out, size_t room);
/* The room that a source file belongs to, "comm"; "" for what is not ours. */
void kc_tree_room(const char *file, char out[16]);
/* Of a thread's state (proc(5)), for people. */
const char *kc_tree_state_word(char state);
/* The whole of it for people, a line a function; `title` begins the first line. */
void kc_tree_print(const struct kc_tree *t, const char *title, FILE *out);

#endif
