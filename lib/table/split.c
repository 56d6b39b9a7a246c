/* A table into a training and a test table. How rows are drawn is part of the format of results, and in tabft-prep(1):
 * the rows of each class in their order (rows without label are a class of their own, the last; without classes all
 * rows are one class) are permuted by numpy's default_rng(seed), one generator for all classes in order, and the first
 * m of a class are its test rows. The m of the classes sum up to the wanted number: the class's share rounded down, and
 * one more for the classes with the largest rests, the first of equal ones. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/threads.h"
#include "table/packed.h"
#include "table/prep.h"
#include "table/sink.h"

struct draw {
    size_t n_rows, n_classes; /* the class of missing labels included */
    uint32_t *class;          /* [n_rows] */
    size_t *count, *wanted;   /* [n_classes] */
    uint8_t *is_test;         /* [n_rows] */
};

static void draw_clear(struct draw *d)
{
    free(d->class);
    free(d->count);
    free(d->wanted);
    free(d->is_test);
}

static int read_classes(struct draw *d, const struct packed_reader *r, struct tabft_failure *f)
{
    int error = 0;
    const struct schema *s = packed_reader_schema(r);
    struct cells *cells = NULL;
    struct column_statistics unused;
    bool classes = s->task == TABLE_CLASSIFICATION;
    *d = (struct draw){.n_rows = s->n_rows, .n_classes = classes ? s->n_labels + 1 : 1};
    TRY(memory_new(&d->class, d->n_rows, sizeof *d->class, "a split", f));
    TRY(memory_new(&d->is_test, d->n_rows, sizeof *d->is_test, "a split", f));
    TRY(memory_new(&d->count, d->n_classes, sizeof *d->count, "a split", f));
    TRY(memory_new(&d->wanted, d->n_classes, sizeof *d->wanted, "a split", f));
    TRY(cells_new(&cells, 1, TABLE_GROUP_ROWS, f));
    for (size_t g = 0; classes && g < schema_groups(s); g++) {
        TRY(packed_reader_page(r, 0, (size_t)s->target, g, cells, &unused, f));
        for (size_t i = 0; i < packed_reader_group_rows(r, g); i++) {
            d->class[g * TABLE_GROUP_ROWS + i] = cells->absent[i] ? (uint32_t)s->n_labels : (uint32_t)cells->slot[i];
        }
    }
    for (size_t i = 0; i < d->n_rows; i++) d->count[d->class[i]]++;
fail:
    cells_free(cells);
    return error;
}

static void share_out(struct draw *d, size_t n_test)
{
    size_t given = 0;
    for (size_t c = 0; c < d->n_classes; c++) {
        d->wanted[c] = (size_t)((unsigned __int128)n_test * d->count[c] / d->n_rows);
        given += d->wanted[c];
    }
    for (; given < n_test; given++) { /* at most n_classes - 1 times */
        size_t best = 0;
        uint64_t most = 0;
        for (size_t c = 0; c < d->n_classes; c++) {
            uint64_t rest = (uint64_t)((unsigned __int128)n_test * d->count[c] -
                                       (unsigned __int128)(d->wanted[c]) * d->n_rows);
            bool taken = (unsigned __int128)d->wanted[c] * d->n_rows > (unsigned __int128)n_test * d->count[c];
            if (!taken && rest > most) {
                most = rest;
                best = c;
            }
        }
        d->wanted[best]++;
    }
}

static int draw_rows(struct draw *d, uint32_t seed, struct tabft_failure *f)
{
    int error = 0;
    size_t *start = NULL, *row = NULL, *order = NULL;
    struct random_pcg g;
    random_pcg_seed(&g, seed);
    TRY(memory_new(&start, d->n_classes + 1, sizeof *start, "a split", f));
    TRY(memory_new(&row, d->n_rows, sizeof *row, "a split", f));
    TRY(memory_new(&order, d->n_rows, sizeof *order, "a split", f));
    for (size_t c = 0; c < d->n_classes; c++) start[c + 1] = start[c] + d->count[c];
    for (size_t i = 0; i < d->n_rows; i++) row[start[d->class[i]]++] = i;
    for (size_t c = 0; c < d->n_classes; c++) {
        size_t first = start[c] - d->count[c];
        random_pcg_permutation(&g, d->count[c], order);
        for (size_t i = 0; i < d->wanted[c]; i++) d->is_test[row[first + order[i]]] = 1;
    }
fail:
    free(start);
    free(row);
    free(order);
    return error;
}

static int provenance(const struct packed_reader *r, const struct split_options *o, const char *side, char **text,
                      struct tabft_failure *f)
{
    size_t size;
    json_t *test = o->rows > 0 ? json_integer((json_int_t)o->rows) : json_real(o->fraction);
    json_t *of = json_pack("{s:s, s:O}", "digest", packed_reader_digest(r), "provenance", packed_reader_provenance(r));
    return json_text(json_pack("{s:s, s:s, s:s, s:o, s:I, s:o}", "tool", "tabft-prep split", "version", PACKAGE_VERSION,
                               "side", side, "test", test, "seed", (json_int_t)o->seed, "of", of),
                     text, &size, f);
}

static int open_side(struct sink *to, const struct packed_reader *r, const struct split_options *o, bool test,
                     size_t n_rows, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    char *made_by = NULL;
    struct schema s = *packed_reader_schema(r);
    s.n_rows = n_rows;
    TRY(provenance(r, o, test ? "test" : "train", &made_by, f));
    TRY(sink_open(to,
                  &(struct packed_start){test ? o->test : o->train, o->force, PACK_LEVEL, &s, packed_reader_texts(r),
                                         made_by, NULL},
                  pool, f));
fail:
    free(made_by);
    return error;
}

int prep_split(const struct split_options *o, struct threads *pool, const struct prep_say *say, struct tabft_failure *f)
{
    int error = 0;
    struct packed_reader *r = NULL;
    struct draw d = {0};
    struct sink train = {0}, test = {0};
    struct cells *cells = NULL;
    char line[256];
    if (strcmp(o->train, o->test) == 0) FAIL(f, TABFT_USE, "--train-out and --test-out name the same file; name two");
    TRY(packed_reader_open(&r, o->input, threads_count(pool), true, f));
    const struct schema *s = packed_reader_schema(r);
    size_t n_test = o->rows > 0 ? (size_t)o->rows : (size_t)floor(o->fraction * (double)s->n_rows + 0.5);
    if (n_test < 1 || n_test >= s->n_rows)
        FAIL(f, TABFT_INPUT, "%s: %zu of %zu rows for the test table leave one of the two empty; change --test",
             o->input, n_test, s->n_rows);
    TRY(read_classes(&d, r, f));
    share_out(&d, n_test);
    TRY(draw_rows(&d, o->seed, f));
    TRY(open_side(&train, r, o, false, s->n_rows - n_test, pool, f));
    TRY(open_side(&test, r, o, true, n_test, pool, f));
    TRY(cells_new(&cells, s->n_columns, TABLE_GROUP_ROWS, f));
    for (size_t g = 0; g < schema_groups(s); g++) {
        size_t n = packed_reader_group_rows(r, g);
        TRY(packed_reader_group(r, pool, g, cells, f));
        TRY(sink_put(&train, cells, n, d.is_test + g * TABLE_GROUP_ROWS, 0, f));
        TRY(sink_put(&test, cells, n, d.is_test + g * TABLE_GROUP_ROWS, 1, f));
    }
    TRY(packed_reader_unchanged(r, f));
    TRY(sink_close(&train, f));
    TRY(sink_close(&test, f));
    (void)snprintf(line, sizeof line, "%zu training rows, %zu test rows%s", s->n_rows - n_test, n_test,
                   d.n_classes > 1 ? ", by class" : "");
    say->line(say->context, false, line);
fail:
    sink_abandon(&train);
    sink_abandon(&test);
    cells_free(cells);
    draw_clear(&d);
    packed_reader_close(r);
    return error;
}
