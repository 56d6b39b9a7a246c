/* What kind each column of a chunk is, and the codes of its categories (spec 3.4). */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

static double cell_of(const struct ensemble_columns *first, const struct ensemble_columns *second, size_t row, size_t j)
{
    const struct ensemble_columns *part = row < first->n_rows ? first : second;
    return part->x[(row < first->n_rows ? row : row - first->n_rows) * part->n_columns + j];
}

/* Distinct values, missing counted as one, up to `enough`. seen[enough]. */
static size_t count_distinct(const struct ensemble_columns *first, const struct ensemble_columns *second, size_t n_rows,
                             size_t j, size_t enough, double *seen)
{
    size_t n = 0, missing = 0;
    for (size_t i = 0; i < n_rows && n + missing < enough; i++) {
        double value = cell_of(first, second, i, j);
        if (isnan(value)) {
            missing = 1;
            continue;
        }
        size_t at = 0;
        while (at < n && seen[at] != value) at++;
        if (at == n) seen[n++] = value;
    }
    return n + missing;
}

/* All distinct values of the column, ascending, into k. */
static int list_values(struct column_kind *k, const struct ensemble_columns *first,
                       const struct ensemble_columns *second, size_t n_rows, size_t j, struct tabft_failure *f)
{
    double *scratch = NULL;
    size_t m = 0, n = 0;
    int error;
    TRY(memory_new(&k->value, n_rows, sizeof *k->value, "the values of a category", f));
    TRY(memory_new(&scratch, n_rows, sizeof *scratch, "the values of a category", f));
    for (size_t i = 0; i < n_rows; i++) {
        double value = cell_of(first, second, i, j);
        if (isfinite(value)) k->value[m++] = value; /* infinities are no category */
    }
    numbers_sort(k->value, m, scratch);
    for (size_t i = 0; i < m; i++)
        if (n == 0 || k->value[i] != k->value[n - 1]) k->value[n++] = k->value[i];
    k->n_values = n;
    k->coded = true;
    k->has_gap = m < n_rows;
    if (k->kind != KIND_CATEGORY && m < n_rows && first->missing_rank != NULL)
        k->gap_rank = (size_t)first->missing_rank[j];
    TRY(memory_grow(&k->value, n > 0 ? n : 1, sizeof *k->value, "the values of a category", f));
fail:
    free(scratch);
    return error;
}

static enum kind kind_of(const struct config *c, bool is_text, size_t n_rows, size_t n_distinct)
{
    if (n_distinct <= 1) return KIND_CONSTANT;
    if (is_text) return n_distinct <= c->max_unique_text_category ? KIND_CATEGORY : KIND_TEXT;
    bool few = n_rows > c->min_rows_to_infer && n_distinct < c->min_unique_number;
    return few ? KIND_CATEGORY : KIND_NUMBER;
}

int kinds_detect(struct column_kind *kind, const struct config *c, const struct ensemble_columns *first,
                 const struct ensemble_columns *second, struct tabft_failure *f)
{
    double *seen = NULL;
    size_t n_rows = first->n_rows + (second != NULL ? second->n_rows : 0);
    size_t enough_numbers = c->min_unique_number > 2 ? c->min_unique_number : 2;
    size_t enough_texts = c->max_unique_text_category + 1 > 2 ? c->max_unique_text_category + 1 : 2;
    int error;
    TRY(memory_new(&seen, enough_numbers + enough_texts, sizeof *seen, "distinct values", f));
    for (size_t j = 0; j < first->n_columns; j++) {
        bool is_text = first->is_text != NULL && first->is_text[j];
        size_t n = count_distinct(first, second, n_rows, j, is_text ? enough_texts : enough_numbers, seen);
        kind[j] = (struct column_kind){.kind = kind_of(c, is_text, n_rows, n), .gap_rank = SIZE_MAX};
        if (kind[j].kind == KIND_CONSTANT) { /* whatever a query holds there, it was not learned from */
            double value = cell_of(first, second, 0, j);
            kind[j].constant = isnan(value) ? (double)NAN : is_text ? 0 : value;
            continue;
        }
        if (kind[j].kind == KIND_CATEGORY || is_text) TRY(list_values(&kind[j], first, second, n_rows, j, f));
    }
fail:
    free(seen);
    return error;
}

void kinds_free(struct column_kind *kind, size_t n_columns)
{
    if (kind == NULL) return;
    for (size_t j = 0; j < n_columns; j++) free(kind[j].value);
    free(kind);
}

double kinds_cell(const struct column_kind *k, double cell)
{
    if (k->kind == KIND_CONSTANT) return k->constant;
    if (isnan(cell)) return k->kind == KIND_CATEGORY && !k->has_gap ? ENSEMBLE_UNSEEN : (double)NAN;
    if (!k->coded || isinf(cell)) return cell;
    size_t low = 0, high = k->n_values;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (k->value[middle] < cell) low = middle + 1;
        else high = middle;
    }
    if (low == k->n_values || k->value[low] != cell) return ENSEMBLE_UNSEEN;
    return (double)low + (k->gap_rank != SIZE_MAX && cell >= (double)k->gap_rank ? 1 : 0);
}
