/* trace_if.h - who looks on while a program runs: schedule shows what its instructions find and leave in memory, and knows
 * nothing of what is done with it. Functions cross once, at construction; where nobody looks on, nothing is shown.
 * Writer: trace. Readers: schedule, engine, drill. */
#ifndef KC_CONTRACTS_TRACE_IF_H
#define KC_CONTRACTS_TRACE_IF_H

#include <stdbool.h>
#include <stdint.h>

struct kc_trace_if {
    void *self;
    /* Does somebody look on? Asked once a run, before it begins. `step`: optimizer steps finished. */
    bool (*wants)(void *self, uint32_t program, uint64_t step);
    /* Operand k (inputs, then outputs) of instruction n of the program: of an op all, of a collective what it gives. An input
     * is shown as the instruction finds it; an output as it leaves it, before anybody who waits for it goes on. On the thread
     * of the instruction's lane; each operand is shown once at most. What an instruction leaves out of an output that it overwrites is 0. */
    void (*seen)(void *self, uint32_t n, uint32_t operand, const void *data);
};

#endif
