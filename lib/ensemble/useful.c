#define TABFT_ENSEMBLE_ROOM
#include <math.h>

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

enum ensemble_use ensemble_column_use(const double *value, size_t n_rows)
{
    bool differs = false, present = false;
    for (size_t i = 0; i < n_rows && !(differs && present); i++) {
        differs = differs || !(value[i] == value[0]);
        present = present || !isnan(value[i]);
    }
    if (!present) return ENSEMBLE_ALL_MISSING;
    return differs ? ENSEMBLE_USED : ENSEMBLE_CONSTANT;
}

int ensemble_useful_columns(const struct table *t, enum ensemble_use *use, size_t *used, size_t *n_used,
                            struct tabft_failure *f)
{
    for (size_t i = 0; i < t->n_columns; i++) use[i] = ensemble_column_use(t->column[i].value, t->n_rows);
    return ensemble_list_used(t, use, used, n_used, f);
}

int ensemble_list_used(const struct table *t, const enum ensemble_use *use, size_t *used, size_t *n_used,
                       struct tabft_failure *f)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_columns; i++)
        if (use[i] == ENSEMBLE_USED) used[n++] = i;
    *n_used = n;
    if (n > 0) return 0;
    return tabft_fail(f, TABFT_INPUT,
                      "%s: every column is constant or missing, there is nothing to learn from; "
                      "add columns that vary",
                      t->path != NULL ? t->path : "the training table");
}
