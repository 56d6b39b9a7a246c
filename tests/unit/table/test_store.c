#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/store.h"
#include "table/table.h"
#include "unit.h"

/* Three row groups, the last one short; a column of every width with gaps and without. */
enum { ROWS = 140001, COLUMNS = 14, TARGET = 4 };
static const char path[] = "test_store.tbf";
static const char *const words[] = {"n", "s"};

static double value_of(size_t column, size_t row)
{
    if (column % 2 == 1 && row % 5 == column % 5) return (double)NAN;
    switch (column) {
    case 0:
    case 1: return (double)(row % 100);                           /* i8 */
    case 2:
    case 3: return (double)(row % 30000) - 15000;                 /* i16 */
    case TARGET: return (double)(row % 2);                        /* codes of labels */
    case 5:
    case 6: return (double)row * 1000 - 7e7;                      /* i32 */
    case 7: return ((double)row - 70000) / 8;                     /* f32 */
    case 8: return row == 3 ? -0.0 : (double)row * 0.1;           /* f64 */
    case 9: return row == 139998 ? 9007199254740992.0 : 1 - (double)row; /* i64 */
    case 10:
    case 11: return ((double)(row % 30000) - 15000) / 100; /* d16 */
    default: return row % 7 == 1 ? -0.0 : ((double)row - 70000) / 1000000; /* d32 */
    }
}

static void write_table(void)
{
    struct tabft_failure f = {0};
    static const char *const names[COLUMNS] = {"a", "b", "c", "d", "y", "e", "f",
                                               "g", "h", "i", "j", "k", "l", "m"};
    struct table_column column[COLUMNS];
    double *values;
    MUST(memory_new(&values, COLUMNS * ROWS, sizeof *values, "values", &f));
    for (size_t c = 0; c < COLUMNS; c++) {
        for (size_t i = 0; i < ROWS; i++) values[c * ROWS + i] = value_of(c, i);
        enum table_kind kind = c == TARGET ? TABLE_TEXT : c == 7 || c == 8 || c > 9 ? TABLE_FLOAT : TABLE_INTEGER;
        column[c] = (struct table_column){.name = names[c], .kind = kind, .value = values + c * ROWS};
    }
    column[TARGET].n_dictionary = 2;
    column[TARGET].dictionary = words;
    struct table_output o = {ROWS, COLUMNS, column, TARGET, TABLE_CLASSIFICATION, "{}"};
    MUST(table_write(path, true, &o, NULL, &f));
    free(values);
}

/* The columns of the table in another order, without "b". */
enum { TAKEN = 12 };
static const size_t taken[TAKEN] = {8, 0, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12};
static double wanted(size_t c, size_t row) { return value_of(taken[c] + (taken[c] >= TARGET ? 1 : 0), row); }

static void check_rows(const double *x, const size_t *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < TAKEN; c++) {
            double want = wanted(c, row[i]), got = x[i * TAKEN + c];
            ck_assert_msg(memcmp(&want, &got, sizeof want) == 0 || (isnan(want) && isnan(got)),
                          "column %zu, row %zu: %g instead of %g", c, row[i], got, want);
        }
}

/* Rows of all groups, none in order, some more than once. */
static size_t *some_rows(size_t n, size_t step)
{
    struct tabft_failure f = {0};
    size_t *row;
    MUST(memory_new(&row, n, sizeof *row, "rows", &f));
    for (size_t i = 0; i < n; i++) row[i] = (i * step + 13) % ROWS;
    return row;
}

static struct table_store *store_of(const struct table *t, size_t n_rows, bool whole, void **memory)
{
    struct tabft_failure f = {0};
    struct table_store *s;
    struct table_part part = {.table = t, .column = taken, .n_columns = TAKEN, .n_rows = n_rows, .whole = whole};
    MUST(memory_new_aligned(memory, table_part_bytes(&part), 1, "cells", &f));
    MUST(table_store_open(&s, &part, *memory, &f));
    return s;
}

START_TEST(parts_are_the_table)
{
    struct tabft_failure f = {0};
    struct threads *pool;
    struct table *t;
    void *memory;
    double *x, *column;
    size_t n = 5000, *row = some_rows(n, 48271);
    write_table();
    MUST(memory_new(&x, n * TAKEN, sizeof *x, "rows", &f));
    MUST(memory_new(&column, ROWS, sizeof *column, "a column", &f));
    for (int threads = 1; threads <= 3; threads++) {
        MUST(threads_open(&pool, threads, &f));
        MUST(table_open_parts(&t, path, pool, &f));
        ck_assert_ptr_null(t->column[0].value);
        for (size_t i = 0; i < ROWS; i++) ck_assert(t->target.value[i] == value_of(TARGET, i));
        MUST(table_read_column(t, 7, pool, column, &f));
        for (size_t i = 0; i < ROWS; i++) ck_assert(column[i] == value_of(8, i));
        ck_assert(t->column[2].has_range && t->column[2].min == -15000 && t->column[2].max == 14999);
        /* Whole, filled by as many as there are threads. */
        struct table_store *s = store_of(t, ROWS, true, &memory);
        for (int share = 0; share < threads; share++)
            MUST(table_store_fill(s, pool, (size_t)share, (size_t)threads, &f));
        MUST(table_store_check(s, &f));
        table_store_gather(s, row, 0, n, x);
        check_rows(x, row, n);
        table_store_close(s);
        free(memory);
        /* Chosen rows, twice in the same room. */
        s = store_of(t, n, false, &memory);
        for (size_t part = n / 2; part <= n; part += n / 2) {
            MUST(table_store_pick(s, pool, row, part, NULL, &f));
            table_store_gather(s, NULL, 10, part - 10, x);
            check_rows(x, row + 10, part - 10);
        }
        table_store_close(s);
        free(memory);
        memset(x, 0, n * TAKEN * sizeof *x);
        MUST(table_gather(t, taken, TAKEN, row, n, pool, x, &f));
        check_rows(x, row, n);
        MUST(table_unchanged(t, &f));
        table_close(t);
        threads_close(pool);
    }
    unlink(path);
    free(row);
    free(x);
    free(column);
}
END_TEST

START_TEST(narrow_columns_stay_narrow)
{
    struct tabft_failure f = {0};
    struct table *t;
    /* "a", "c", "g": 1, 2 and 4 bytes; gaps make a float of "d", whose NaN is the gap; "h" has 8. Of decimals "j" has 2
     * bytes, "l" 4, "k" with its gaps 8. */
    static const size_t column[] = {0, 2, 6, 3, 7, 9, 10, 11};
    write_table();
    MUST(table_open_parts(&t, path, NULL, &f));
    struct table_part part = {.table = t, .column = column, .n_columns = 8, .n_rows = 640};
    ck_assert_uint_eq(table_part_bytes(&part), 640 * (1 + 2 + 4 + 4 + 8 + 2 + 8 + 4));
    part.n_rows = SIZE_MAX / 4;
    ck_assert_uint_eq(table_part_bytes(&part), SIZE_MAX);
    table_close(t);
    unlink(path);
}
END_TEST

START_TEST(pages_missing_from_a_share_are_noticed)
{
    struct tabft_failure f = {0};
    struct table *t;
    void *memory;
    write_table();
    MUST(table_open_parts(&t, path, NULL, &f));
    struct table_store *s = store_of(t, ROWS, true, &memory);
    MUST(table_store_fill(s, NULL, 0, 2, &f));
    struct table_part part = {.table = t, .column = taken, .n_columns = TAKEN, .n_rows = ROWS, .whole = true};
    memset((char *)memory + table_part_bytes(&part) - 2048, 0, 2048); /* the statistics of the last pages */
    MUST_FAIL(table_store_check(s, &f), TABFT_INPUT, "the statistics of column");
    table_store_close(s);
    free(memory);
    table_close(t);
    unlink(path);
}
END_TEST

START_TEST(more_threads_than_it_was_opened_for_are_refused)
{
    struct tabft_failure f = {0};
    struct table *t;
    struct threads *pool;
    double x[TAKEN];
    static const size_t row[] = {0};
    write_table();
    MUST(table_open_parts(&t, path, NULL, &f));
    MUST(threads_open(&pool, 2, &f));
    MUST_FAIL(table_gather(t, taken, TAKEN, row, 1, pool, x, &f), TABFT_USE, "opened for 1 threads");
    threads_close(pool);
    table_close(t);
    unlink(path);
}
END_TEST

UNIT_MAIN("table/store", parts_are_the_table, narrow_columns_stay_narrow, pages_missing_from_a_share_are_noticed,
          more_threads_than_it_was_opened_for_are_refused)
