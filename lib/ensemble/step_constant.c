/* Drops columns that tell no context rows apart. Unlike ensemble_column_use this is judged per context, as TabPFN does;
 * a gap differs from everything. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

static bool varies(const struct frame_column *column, size_t n)
{
    const double *value = column->value;
    bool differs = false, present = false;
    for (size_t i = 0; column->infinity != NULL && i < n; i++)
        if (column->infinity[i] != column->infinity[0]) return true;
    for (size_t i = 0; i < n && !(differs && present); i++) {
        differs = differs || !(value[i] == value[0]);
        present = present || !isnan(value[i]);
    }
    return differs && present;
}

int step_constant(struct frame *x, struct tabft_failure *f)
{
    size_t *kept = NULL, n = 0;
    int error;
    TRY(memory_new(&kept, x->n_columns, sizeof *kept, "a list of columns", f));
    for (size_t i = 0; i < x->n_columns; i++)
        if (varies(&x->column[i], x->n_context)) kept[n++] = i;
    if (n == 0)
        FAIL(f, TABFT_INPUT,
             "estimators: every column is constant or missing in these %zu context rows; "
             "use columns that vary, or larger chunks",
             x->n_context);
    if (n < x->n_columns) TRY(frame_select(x, kept, n, f));
fail:
    free(kept);
    return error;
}
