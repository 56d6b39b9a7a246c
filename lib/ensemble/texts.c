/* The texts of a column as the ranks that ensemble_columns takes. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/ensemble.h"
#include "table/table.h"

double ensemble_missing_rank(const char *const *sorted, size_t n)
{
    size_t rank = 0;
    while (rank < n && strcmp(sorted[rank], "__MISSING__") < 0) rank++;
    return (double)rank;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static void rank_texts(const char *const *sorted, size_t n, const struct table_column *column, double *rank)
{
    for (size_t i = 0; i < column->n_dictionary; i++) {
        const char *const *found = n > 0 ? bsearch(&column->dictionary[i], sorted, n, sizeof *sorted, by_text) : NULL;
        rank[i] = found != NULL ? (double)(found - sorted) : ENSEMBLE_UNSEEN;
    }
}

int ensemble_rank_texts(const struct table_column *train, const struct table_column *other, double *train_rank,
                        double *other_rank, double *missing_rank, struct tabft_failure *f)
{
    int error = 0;
    const char **sorted = NULL;
    TRY(memory_new(&sorted, train->n_dictionary, sizeof *sorted, "a dictionary", f));
    for (size_t i = 0; i < train->n_dictionary; i++) sorted[i] = train->dictionary[i];
    if (train->n_dictionary > 0) qsort(sorted, train->n_dictionary, sizeof *sorted, by_text);
    rank_texts(sorted, train->n_dictionary, train, train_rank);
    if (other != NULL) rank_texts(sorted, train->n_dictionary, other, other_rank);
    *missing_rank = ensemble_missing_rank(sorted, train->n_dictionary);
fail:
    free(sorted);
    return error;
}
