/* The learning rate of a step: TabPFN's linear warm-up over a tenth of the steps, then a cosine to 0 or a constant. */
#ifndef TABFT_TRAIN_SCHEDULE_H
#define TABFT_TRAIN_SCHEDULE_H

#include <stddef.h>

enum schedule_kind {
    SCHEDULE_COSINE = 1, /* warm-up, then half a cosine wave down to 0 */
    SCHEDULE_WARMUP,     /* warm-up, then constant */
    SCHEDULE_CONSTANT    /* no warm-up either */
};

/* What the base rate is multiplied by at `step` (from 0) of `total`. With a warm-up of one step or more the first step
 * has 0: the moments move, the weights do not. Fewer than 10 steps have no warm-up. Steps beyond total count as total.
 */
double schedule_factor(enum schedule_kind kind, size_t step, size_t total);

#endif
