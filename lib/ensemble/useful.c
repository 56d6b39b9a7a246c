#define TABFT_ENSEMBLE_ROOM
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"
#include "table/table.h"

const char *ensemble_use_name(enum ensemble_use use)
{
    switch (use) {
    case ENSEMBLE_CONSTANT: return "constant";
    case ENSEMBLE_ALL_MISSING: return "all missing";
    default: return "used";
    }
}

/* What the statistics say, which is all but for texts and columns of infinities; false where they do not tell. */
static bool judge_by_statistics(const struct table *t, const struct table_column *c, enum ensemble_use *use)
{
    if (c->n_missing == t->n_rows) *use = ENSEMBLE_ALL_MISSING;
    else if (c->n_missing > 0 || (c->has_range && (c->n_infinite > 0 || c->min < c->max))) *use = ENSEMBLE_USED;
    else if (c->has_range || (c->kind == TABLE_TEXT && c->n_dictionary == 1)) *use = ENSEMBLE_CONSTANT;
    else return false;
    return true;
}

/* No value is missing. */
static enum ensemble_use judge_by_values(const double *value, size_t n_rows)
{
    for (size_t i = 1; i < n_rows; i++)
        if (value[i] != value[0]) return ENSEMBLE_USED;
    return ENSEMBLE_CONSTANT;
}

int ensemble_useful_columns(const struct table *t, struct threads *pool, enum ensemble_use *use, size_t *used,
                            size_t *n_used, struct tabft_failure *f)
{
    int error = 0;
    size_t n = 0;
    double *value = NULL;
    for (size_t c = 0; c < t->n_columns; c++) {
        if (!judge_by_statistics(t, &t->column[c], &use[c])) {
            if (value == NULL) TRY(memory_new(&value, t->n_rows, sizeof *value, "a column", f));
            TRY(table_read_column(t, c, pool, value, f));
            use[c] = judge_by_values(value, t->n_rows);
        }
        if (use[c] == ENSEMBLE_USED) used[n++] = c;
    }
    if (n == 0)
        FAIL(f, TABFT_INPUT,
             "%s: every column is constant or missing, there is nothing to learn from; "
             "add columns that vary",
             t->path);
    *n_used = n;
fail:
    free(value);
    return error;
}
