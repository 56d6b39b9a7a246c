/* Puts the columns of an estimator in its own order. */
#define TABFT_ENSEMBLE_ROOM
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "ensemble/ensemble_internal.h"

int step_shuffle(struct frame *x, enum shift shift, size_t amount, uint64_t seed, int *fingerprint,
                 struct tabft_failure *f)
{
    size_t *order = NULL, n = x->n_columns;
    int error = 0;
    if (shift == SHIFT_NONE) return 0;
    TRY(memory_new(&order, n, sizeof *order, "an order of columns", f));
    if (shift == SHIFT_ROTATE) {
        for (size_t i = 0; i < n; i++) order[(i + amount) % n] = i;
    } else {
        struct random_pcg g;
        random_pcg_seed(&g, seed);
        random_pcg_permutation(&g, n, order);
    }
    TRY(frame_select(x, order, n, f));
    for (size_t i = 0; i < n; i++)
        if (*fingerprint >= 0 && order[i] == (size_t)*fingerprint) {
            *fingerprint = (int)i;
            break;
        }
fail:
    free(order);
    return error;
}
