/* Takes infinities out of the columns before the steps and puts them back after them, where an inference_config passes
 * them on to the network (PASSTHROUGH_INF): into the column itself and its reshaped copies, not into what was computed
 * from it otherwise. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

int step_infinities(struct frame *x, struct tabft_failure *f)
{
    int error;
    TRY(memory_new(&x->mark, x->n_columns, sizeof *x->mark, "infinities", f));
    for (size_t j = 0; j < x->n_columns; j++) {
        double *value = x->column[j].value;
        size_t i = 0;
        while (i < x->n_rows && !isinf(value[i])) i++;
        if (i == x->n_rows) continue;
        TRY(memory_new(&x->mark[x->n_marks], x->n_rows, sizeof **x->mark, "infinities", f));
        x->column[j].infinity = x->mark[x->n_marks++];
        for (; i < x->n_rows; i++) {
            if (!isinf(value[i])) continue;
            x->column[j].infinity[i] = value[i] > 0 ? 1 : -1;
            value[i] = (double)NAN;
        }
    }
    return 0;
fail:
    return error;
}

void step_infinities_back(struct frame *x)
{
    for (size_t j = 0; j < x->n_columns; j++) {
        const struct frame_column *c = &x->column[j];
        for (size_t i = 0; c->infinity != NULL && i < x->n_rows; i++)
            if (c->infinity[i] != 0) c->value[i] = c->infinity[i] * (double)INFINITY;
    }
}
