/* contract.h - how a contract is built, sealed, read, printed and compared.
 *
 * A contract is one block of bytes without pointers: a head, a root struct whose first member is the head, and arrays
 * that spans (offset and count from the start of the block) point to. It is built in an arena of its own, sealed with a
 * digest, and the arena is frozen; from then on the same bytes are read by every layer, compared between ranks, stored
 * beside a snapshot and printed as JSON. What its fields are is a table (struct kc_layout): printing and comparing need no
 * code per contract. */
#ifndef KC_BASE_CONTRACT_H
#define KC_BASE_CONTRACT_H

#include "base/arena.h"
#include "base/digest.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define KC_CONTRACT_MAGIC UINT32_C(0x6b635f63) /* "c_ck" */

struct kc_contract {
    uint32_t magic;
    uint16_t kind;    /* enum kc_contract_kind, contracts/types.h */
    uint16_t version; /* of the layout of this kind */
    uint64_t bytes;   /* of the whole block */
    struct kc_digest digest; /* of the whole block with this field zero */
};

struct kc_span {
    uint32_t offset; /* bytes from the start of the block; 0 when empty */
    uint32_t count;  /* elements */
};

typedef uint32_t kc_text; /* offset of a NUL-terminated string; 0 is the empty string */

/* ---- reading ---- */
/* `const struct kc_plan_op *op = KC_AT(plan, struct kc_plan_op, plan->ops);` Only for sealed or checked blocks. */
#define KC_AT(block, type, span) ((const type *)((const char *)(block) + (span).offset))
#define KC_TEXT(block, text) ((text) ? (const char *)(block) + (text) : "")

/* ---- building: the arena must be fresh and belong to this contract alone ---- */
/* The zeroed root struct with its head filled. NULL when the arena is full. */
void *kc_contract_begin(struct kc_arena *a, uint16_t kind, uint16_t version, size_t root_bytes);
/* Append an array of `count` zeroed elements and point *span to it; returns it, or NULL when full (count 0: a non-NULL
 * pointer that must not be read). */
void *kc_contract_array(struct kc_arena *a, struct kc_span *span, size_t count, size_t element_bytes);
/* Append a string; equal strings are not merged. 0 for "" and when full. */
kc_text kc_contract_text(struct kc_arena *a, const char *text);
/* Fill size and digest and freeze. -ENOSPC if anything did not fit (a->need: bytes wanted so far; begin again with more). */
int kc_contract_seal(struct kc_arena *a);
/* Is this a whole, sealed block of that kind and version, at most `bytes` long, digest right? 0, -EPROTO, -EBADMSG. */
int kc_contract_check(const void *block, size_t bytes, uint16_t kind, uint16_t version);

/* ---- layouts ---- */
enum kc_field_kind {
    KC_FIELD_U8, KC_FIELD_U16, KC_FIELD_U32, KC_FIELD_U64, KC_FIELD_I32, KC_FIELD_I64, KC_FIELD_F32, KC_FIELD_F64,
    KC_FIELD_TEXT,   /* kc_text */
    KC_FIELD_SPAN,   /* struct kc_span of `of`, or of scalars of kind `scalar` */
    KC_FIELD_STRUCT, /* an inline struct `of` */
    KC_FIELD_HIDDEN, /* padding: not printed, not compared */
};

struct kc_layout;
struct kc_field {
    const char *name;             /* the JSON key */
    uint32_t offset;              /* in its struct */
    uint16_t count;               /* > 1: an inline array */
    uint8_t kind;                 /* enum kc_field_kind */
    uint8_t scalar;               /* for a span of scalars */
    const struct kc_layout *of;   /* for structs and spans of structs */
    const char *const *names;     /* for enums: printed instead of the number */
    uint32_t names_count;
};
struct kc_layout {
    const char *name;
    uint32_t bytes; /* sizeof the struct */
    uint32_t count; /* fields; together they cover every byte of the struct (a test checks it) */
    const struct kc_field *fields;
};

/* The block as a JSON object (a new reference), or NULL without memory. */
struct json_t *kc_contract_json(const void *block, const struct kc_layout *layout);
/* The first field that differs, as "ops[3].opcode: 7 and 9", written to text. 0 equal, 1 different. */
int kc_contract_difference(const void *a, const void *b, const struct kc_layout *layout, char *text, size_t room);

#endif
