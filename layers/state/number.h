/* number.h - random numbers by position, and the few functions of a real number that they and the learning rate
 * need.
 *
 * Everything here is a fixed sequence of IEEE 754 double operations (with contraction off, as the build has it): the
 * same bits on every machine, compiler and C library, which libm's log and cos do not promise. */
#ifndef KC_STATE_NUMBER_H
#define KC_STATE_NUMBER_H

#include <stdint.h>

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3. SC 2011). */
void kc_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Natural logarithm for 0 < x < 2^1000; sine and cosine of 2π·turns for 0 ≤ turns ≤ 1. Within 4 units in the last
 * place. */
double kc_number_log(double x);
void kc_number_turn(double turns, double *sine, double *cosine);

/* FNV-1a, 64 bits, of a text without its NUL: how a name enters the generator. */
uint64_t kc_number_name(const char *text);

/* The standard normal values number `first` … first + count - 1 of stream (seed, purpose, name), scaled and rounded
 * to float. Value 2k and 2k+1 come from counter k by Box-Muller, so any range gives the same bits as the whole. */
void kc_number_normal(uint64_t seed, const char *purpose, const char *name, uint64_t first, uint64_t count,
                      double scale, float *out);

#endif
