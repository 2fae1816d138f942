/* record.h - the seqlock, as code; private to this room.
 *
 * A body is copied word by word. The writer stores seq odd, then each word with release, then seq even with
 * release. The reader loads seq with acquire, each word with acquire, then seq again. If it saw a word of a
 * write, that word's release makes the odd seq (or a later one) visible to its second load: so two equal, even
 * values mean a true copy. No fence is needed, and a thread checker can follow it. A writer never waits; between
 * begin and end nothing may block.
 *
 * After a writer died in it, seq stays odd and readers say "torn", until the next owner of the record writes it. */
#ifndef KC_SHM_RECORD_H
#define KC_SHM_RECORD_H

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KC_BODY_MAX 1024  /* bytes of the largest body, rounded up */
#define KC_READ_TRIES 64  /* then a reader gives up; a write takes well under a microsecond */

typedef uint64_t __attribute__((may_alias)) kc_word;

static inline void kc_words_store(void *to, const void *from, size_t bytes)
{
    kc_word *t = to;
    const kc_word *f = from;
    for (size_t i = 0; i < bytes / 8; i++)
        __atomic_store_n(&t[i], f[i], __ATOMIC_RELEASE);
}

static inline void kc_words_load(void *to, const void *from, size_t bytes)
{
    kc_word *t = to;
    const kc_word *f = from;
    for (size_t i = 0; i < bytes / 8; i++)
        t[i] = __atomic_load_n(&f[i], __ATOMIC_ACQUIRE);
}

/* Write a record; `seq` may be odd from an owner that died. */
static inline void kc_record_write(_Atomic uint64_t *seq, void *body, const void *from, size_t bytes)
{
    uint64_t s = atomic_load_explicit(seq, memory_order_relaxed) | 1;
    atomic_store_explicit(seq, s, memory_order_relaxed);
    kc_words_store(body, from, bytes);
    atomic_store_explicit(seq, s + 1, memory_order_release);
}

/* Make a record look never written. */
static inline void kc_record_clear(_Atomic uint64_t *seq, void *body, size_t bytes)
{
    static const unsigned char zero[KC_BODY_MAX];
    kc_record_write(seq, body, zero, bytes);
}

/* Write entry n of a ring. Its seq says that it is n: 2n + 1 while written, 2n + 2 when whole. */
static inline void kc_entry_write(_Atomic uint64_t *seq, uint64_t n, void *body, const void *from, size_t bytes)
{
    atomic_store_explicit(seq, 2 * n + 1, memory_order_relaxed);
    kc_words_store(body, from, bytes);
    atomic_store_explicit(seq, 2 * n + 2, memory_order_release);
}

/* For rings that several threads of a rank write: take entry n's place. Refused (the entry is then lost, and
 * readers see that it is) when a thread slept for a whole round of the ring: its place was given to a later
 * entry, or is still being written for an earlier one. An entry below `first` was left by an incarnation that is
 * dead. */
static inline int kc_entry_claim(_Atomic uint64_t *seq, uint64_t n, uint64_t first)
{
    uint64_t s = atomic_load_explicit(seq, memory_order_relaxed);
    if (s > 2 * n || ((s & 1) && s / 2 >= first))
        return -EBUSY;
    return atomic_compare_exchange_strong_explicit(seq, &s, 2 * n + 1, memory_order_relaxed, memory_order_relaxed)
               ? 0 : -EBUSY;
}

static inline void kc_entry_shared(_Atomic uint64_t *seq, uint64_t n, uint64_t first, void *body, const void *from,
                                   size_t bytes)
{
    if (kc_entry_claim(seq, n, first) < 0)
        return;
    kc_words_store(body, from, bytes);
    atomic_store_explicit(seq, 2 * n + 2, memory_order_release);
}

/* Copy a record. 0; -EAGAIN torn; -ENOENT never written. `out` is untouched on failure. */
static inline int kc_record_read(const _Atomic uint64_t *seq, const void *body, void *out, size_t bytes)
{
    unsigned char copy[KC_BODY_MAX] __attribute__((aligned(8)));
    for (int i = 0; i < KC_READ_TRIES; i++) {
        uint64_t s = atomic_load_explicit(seq, memory_order_acquire);
        if (s == 0)
            return -ENOENT;
        if (!(s & 1)) {
            kc_words_load(copy, body, bytes);
            if (atomic_load_explicit(seq, memory_order_relaxed) == s) {
                memcpy(out, copy, bytes);
                return 0;
            }
        }
        if (i % 16 == 15)
            sched_yield(); /* one processor: the writer may be waiting for ours */
    }
    return -EAGAIN;
}

/* Copy a record with its seq, to[0]; what is torn is torn in the copy, too. */
static inline void kc_record_copy(const _Atomic uint64_t *from, uint64_t *to, size_t body)
{
    for (int i = 0; i < KC_READ_TRIES; i++) {
        uint64_t s = atomic_load_explicit(from, memory_order_acquire);
        kc_words_load(to + 1, from + 1, body);
        to[0] = s;
        if (!(s & 1) && atomic_load_explicit(from, memory_order_relaxed) == s)
            return;
        if (i % 16 == 15)
            sched_yield();
    }
    to[0] |= 1;
}

/* Copy entry n of a ring. 0; -EAGAIN not whole (yet, or its writer died); -ESTALE overwritten by a later one. */
static inline int kc_entry_read(const _Atomic uint64_t *seq, uint64_t n, const void *body, void *out, size_t bytes)
{
    unsigned char copy[KC_BODY_MAX] __attribute__((aligned(8)));
    for (int i = 0; i < KC_READ_TRIES; i++) {
        uint64_t s = atomic_load_explicit(seq, memory_order_acquire);
        if (s > 2 * n + 2)
            return -ESTALE;
        if (s == 2 * n + 2) {
            kc_words_load(copy, body, bytes);
            if (atomic_load_explicit(seq, memory_order_relaxed) == s) {
                memcpy(out, copy, bytes);
                return 0;
            }
        }
        if (i % 16 == 15)
            sched_yield();
    }
    return -EAGAIN;
}

/* The macros name record and body once. */
#define KC_WRITE(r, from) kc_record_write(&(r).seq, &(r).body, (from), sizeof(r).body)
#define KC_CLEAR(r) kc_record_clear(&(r).seq, &(r).body, sizeof(r).body)
#define KC_READ(r, out) kc_record_read(&(r).seq, &(r).body, (out), sizeof(r).body)
#define KC_ENTRY_WRITE(r, n, from) kc_entry_write(&(r).seq, (n), &(r).body, (from), sizeof(r).body)
#define KC_ENTRY_SHARED(r, n, first, from) kc_entry_shared(&(r).seq, (n), (first), &(r).body, (from), sizeof(r).body)
#define KC_ENTRY_READ(r, n, out) kc_entry_read(&(r).seq, (n), &(r).body, (out), sizeof(r).body)

/* Cut a text into a field of fixed size; the rest of the field is zero. */
static inline void kc_field_text(char *field, size_t room, const char *text)
{
    size_t n = text ? strnlen(text, room - 1) : 0;
    if (n)
        memcpy(field, text, n);
    memset(field + n, 0, room - n);
}
#define KC_FIELD(field, text) kc_field_text((field), sizeof(field), (text))
/* End a text that somebody else wrote. */
#define KC_END(field) ((field)[sizeof(field) - 1] = 0)

#endif
