/* Scales columns by their standard deviation and appends products of pairs of them, drawn without repetition
 * (spec 3.5). The second factor is drawn from a set of CPython, whose order is that of its hash table; so the table is
 * rebuilt here, slot by slot, for what ints it can hold. */
#define TABFT_ENSEMBLE_ROOM
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "ensemble/ensemble_internal.h"

size_t polynomials_count(size_t limit, size_t n_columns)
{
    size_t all = n_columns % 2 ? (n_columns + 1) / 2 * n_columns : n_columns / 2 * (n_columns + 1);
    return all < limit ? all : limit;
}

/* ---- A set of small ints as CPython keeps it ---- */
enum { SLOT_FREE = -1, SLOT_DROPPED = -2, PROBES = 9, SLOTS_LEAST = 8 };

struct set {
    size_t mask, n_filled, n_used; /* slots - 1, slots not free, slots with a value */
    int32_t *slot;                 /* room for the largest table the values can need */
};

static size_t table_size(size_t at_least)
{
    size_t size = SLOTS_LEAST;
    while (size <= at_least) size *= 2;
    return size;
}

static void set_clear(struct set *s, size_t size)
{
    s->mask = size - 1;
    s->n_filled = s->n_used = 0;
    for (size_t i = 0; i < size; i++) s->slot[i] = SLOT_FREE;
}

/* The slot where `value` is or would go. */
static size_t set_place(const struct set *s, int32_t value)
{
    size_t perturbation = (size_t)value, i = (size_t)value & s->mask;
    for (;;) {
        size_t probes = i + PROBES <= s->mask ? PROBES : 0;
        for (size_t k = 0; k <= probes; k++)
            if (s->slot[i + k] == SLOT_FREE || s->slot[i + k] == value) return i + k;
        perturbation >>= 5;
        i = (i * 5 + 1 + perturbation) & s->mask;
    }
}

static void set_put(struct set *s, int32_t value)
{
    s->slot[set_place(s, value)] = value;
    s->n_filled++;
    s->n_used++;
}

/* Moves everything to a table of the size for `at_least`. spare is room for as many slots. */
static void set_resize(struct set *s, size_t at_least, int32_t *spare)
{
    size_t old_size = s->mask + 1;
    memcpy(spare, s->slot, old_size * sizeof *spare);
    set_clear(s, table_size(at_least));
    for (size_t i = 0; i < old_size; i++)
        if (spare[i] >= 0) set_put(s, spare[i]);
}

static void set_add(struct set *s, int32_t value, int32_t *spare)
{
    set_put(s, value);
    if (s->n_filled * 5 >= s->mask * 3) set_resize(s, s->n_used > 50000 ? s->n_used * 2 : s->n_used * 4, spare);
}

/* all - taken: rebuilt value by value, or where little is taken copied and thinned out. `all` is overwritten. */
static void set_subtract(struct set *out, struct set *all, const bool *is_taken, size_t n_taken, int32_t *spare)
{
    if (all->n_used / 4 <= n_taken) {
        set_clear(out, SLOTS_LEAST);
        for (size_t i = 0; i <= all->mask; i++)
            if (all->slot[i] >= 0 && !is_taken[all->slot[i]]) set_add(out, all->slot[i], spare);
        return;
    }
    size_t size = all->n_used * 5 >= (SLOTS_LEAST - 1) * 3 ? table_size(all->n_used * 2) : SLOTS_LEAST;
    if (size == all->mask + 1) {
        memcpy(out->slot, all->slot, size * sizeof *out->slot);
        out->mask = all->mask, out->n_filled = all->n_filled, out->n_used = all->n_used;
    } else {
        set_clear(out, size);
        for (size_t i = 0; i <= all->mask; i++)
            if (all->slot[i] >= 0) set_put(out, all->slot[i]);
    }
    for (size_t i = 0; i <= out->mask; i++)
        if (out->slot[i] >= 0 && is_taken[out->slot[i]]) {
            out->slot[i] = SLOT_DROPPED;
            out->n_used--;
        }
    if (out->n_filled - out->n_used > out->mask / 4)
        set_resize(out, out->n_used > 50000 ? out->n_used * 2 : out->n_used * 4, spare);
}

static int32_t set_at(const struct set *s, size_t index)
{
    for (size_t i = 0;; i++)
        if (s->slot[i] >= 0 && index-- == 0) return s->slot[i];
}

/* ---- The pairs ---- */
struct drawing {
    struct random_pcg g;
    size_t n_columns, n_pairs, *first;
    int32_t *second; /* -1 until drawn */
    struct set all, left;
    int32_t *spare;
    bool *is_taken; /* [n_columns] */
};

static int drawing_open(struct drawing *d, size_t n_columns, size_t n_pairs, uint64_t seed, struct tabft_failure *f)
{
    size_t slots = table_size(n_columns * 4);
    int error;
    *d = (struct drawing){.n_columns = n_columns, .n_pairs = n_pairs};
    random_pcg_seed(&d->g, seed);
    TRY(memory_new(&d->first, n_pairs, sizeof *d->first, "pairs of columns", f));
    TRY(memory_new(&d->second, n_pairs, sizeof *d->second, "pairs of columns", f));
    TRY(memory_new(&d->all.slot, slots, sizeof *d->spare, "pairs of columns", f));
    TRY(memory_new(&d->left.slot, slots, sizeof *d->spare, "pairs of columns", f));
    TRY(memory_new(&d->spare, slots, sizeof *d->spare, "pairs of columns", f));
    TRY(memory_new(&d->is_taken, n_columns, sizeof *d->is_taken, "pairs of columns", f));
fail:
    return error;
}

static void drawing_close(struct drawing *d)
{
    free(d->first);
    free(d->second);
    free(d->all.slot);
    free(d->left.slot);
    free(d->spare);
    free(d->is_taken);
}

/* The columns from first[i] on that have not been its partner, in the order of the set. */
static void partners_left(struct drawing *d, size_t i)
{
    size_t n_taken = 1; /* "not drawn yet" counts as taken: pair i is that itself */
    memset(d->is_taken, 0, d->n_columns * sizeof *d->is_taken);
    for (size_t k = 0; k < d->n_pairs; k++)
        if (d->first[k] == d->first[i] && d->second[k] >= 0) {
            d->is_taken[d->second[k]] = true;
            n_taken++;
        }
    set_clear(&d->all, SLOTS_LEAST);
    for (size_t column = d->first[i]; column < d->n_columns; column++) set_add(&d->all, (int32_t)column, d->spare);
    set_subtract(&d->left, &d->all, d->is_taken, n_taken, d->spare);
}

static void draw_pairs(struct drawing *d)
{
    size_t index;
    random_pcg_choice_repeated(&d->g, d->n_columns, d->n_pairs, d->first);
    for (size_t i = 0; i < d->n_pairs; i++) d->second[i] = -1;
    for (size_t i = 0; i < d->n_pairs; i++) {
        partners_left(d, i);
        while (d->left.n_used == 0) {
            random_pcg_choice_repeated(&d->g, d->n_columns, 1, &d->first[i]);
            partners_left(d, i);
        }
        random_pcg_choice_repeated(&d->g, d->left.n_used, 1, &index);
        d->second[i] = set_at(&d->left, index);
    }
}

/* ---- The columns ---- */

/* scikit-learn's StandardScaler without centring on rows of a matrix: sums one row after the other, gaps left out. */
static void scale_column(double *value, size_t n_context, size_t n_rows)
{
    double sum = 0, drift = 0, squares = 0, n = 0;
    for (size_t i = 0; i < n_context; i++)
        if (!isnan(value[i])) {
            sum += value[i];
            n += 1;
        }
    if (n == 0) return;
    double mean = sum / n;
    for (size_t i = 0; i < n_context; i++) drift += isnan(value[i]) ? 0 : value[i] - mean;
    for (size_t i = 0; i < n_context; i++) squares += isnan(value[i]) ? 0 : (value[i] - mean) * (value[i] - mean);
    double variance = (squares - drift * drift / n) / n, noise = n * mean * DBL_EPSILON;
    if (variance <= n * DBL_EPSILON * variance + noise * noise) return;
    double scale = sqrt(variance);
    for (size_t i = 0; i < n_rows; i++) value[i] /= scale;
}

int step_polynomials(struct frame *x, size_t limit, uint64_t seed, struct tabft_failure *f)
{
    if (limit == 0) return 0;
    size_t n = x->n_columns;
    struct drawing d = {0};
    int error;
    TRY(drawing_open(&d, n, polynomials_count(limit, n), seed, f));
    draw_pairs(&d);
    for (size_t j = 0; j < n; j++) scale_column(x->column[j].value, x->n_context, x->n_rows);
    for (size_t k = 0; k < d.n_pairs; k++) {
        TRY(frame_append(x, false, f));
        double *out = x->column[x->n_columns - 1].value;
        const double *a = x->column[d.first[k]].value, *b = x->column[d.second[k]].value;
        for (size_t i = 0; i < x->n_rows; i++) out[i] = a[i] * b[i];
    }
fail:
    drawing_close(&d);
    return error;
}
