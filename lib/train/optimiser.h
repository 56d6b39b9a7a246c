/* AdamW on one slice of the parameters: every rank keeps the moments of the slice it owns and of nothing else. One
 * group: biases, norms and embeddings decay like the rest, as in TabPFN. Arithmetic is float32 in torch's order of
 * operations (base/vectors.h), in the memory of a struct vectors. */
#ifndef TABFT_TRAIN_OPTIMISER_H
#define TABFT_TRAIN_OPTIMISER_H

#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "base/vectors.h"

struct optimiser;

/* Moments 0 for a slice of n parameters (0 is fine: an idle rank). `v` is borrowed until optimiser_close. */
int optimiser_open(struct optimiser **out, const struct vectors *v, size_t n, struct tabft_failure *f) TABFT_MUST_CHECK;
void optimiser_close(struct optimiser *o); /* NULL is fine */
size_t optimiser_bytes(size_t n);          /* what it holds, for --plan */

struct optimiser_step {
    double learning_rate, weight_decay;
    double clip; /* every gradient is multiplied by it first: 1, or less where the norm is too large */
};
/* One step: weights [n] change in place by gradient [n]. */
void optimiser_step(struct optimiser *o, const struct optimiser_step *step, float *weights, const float *gradient);

/* What the next step depends on: steps taken, and the moments, which may be read and written where they lie. Valid
 * until optimiser_close. */
struct optimiser_state {
    uint64_t steps;
    float *moment1, *moment2; /* [n] each */
};
struct optimiser_state optimiser_state(struct optimiser *o);
void optimiser_set_steps(struct optimiser *o, uint64_t steps);

/* The factor that brings a gradient of this norm under `largest` (0: no clipping): min(1, largest / (norm + 1e-6)). */
double optimiser_clip(double norm, double largest);

#endif
