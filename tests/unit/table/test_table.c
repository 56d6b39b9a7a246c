#include <check.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/table.h"
#include "unit.h"

enum { ROWS = 150000 };
static const char *const words[] = {"north", "south \"B\"", "a,b", "\xc3\xa9"};
static const char *const labels[] = {"0", "2", "10"};

static double value_of(size_t column, size_t row)
{
    if (row % 7 == column) return (double)NAN;
    switch (column) {
    case 0: return (double)row / 4;                  /* exactly float32 */
    case 1: return row == 99999 ? 0.1 : (double)row; /* one value is not */
    case 2: return 40000.0 - (double)(row % 80000);  /* i32 */
    case 3: return (double)(row % 4);                /* codes of words */
    case 4: return (double)(row % 2);                /* boolean */
    default: return (double)(row % 3);               /* label codes */
    }
}

static struct table_output output(struct table_column column[6], double *values)
{
    static const char *const names[] = {"half", "decimal", "count", "word", "flag", "y"};
    static const enum table_kind kinds[] = {TABLE_FLOAT, TABLE_FLOAT,   TABLE_INTEGER,
                                            TABLE_TEXT,  TABLE_BOOLEAN, TABLE_INTEGER};
    for (size_t c = 0; c < 6; c++) {
        for (size_t i = 0; i < ROWS; i++) values[c * ROWS + i] = value_of(c, i);
        column[c] = (struct table_column){.name = names[c], .kind = kinds[c], .value = values + c * ROWS};
    }
    column[3].n_dictionary = 4;
    column[3].dictionary = words;
    column[5].n_dictionary = 3;
    column[5].dictionary = labels;
    return (struct table_output){ROWS, 6, column, 5, TABLE_CLASSIFICATION, "{\"made_by\":\"test\"}"};
}

static void check_same(const struct table *t, const double *values)
{
    ck_assert_uint_eq(t->n_rows, ROWS);
    ck_assert_uint_eq(t->n_columns, 5);
    ck_assert(t->has_target && t->task == TABLE_CLASSIFICATION);
    ck_assert_uint_eq(t->n_labels, 3);
    ck_assert_str_eq(t->label[2], "10");
    ck_assert_str_eq(t->target.name, "y");
    for (size_t c = 0; c < 6; c++) {
        const struct table_column *column = c < 5 ? &t->column[c] : &t->target;
        size_t n_missing = 0;
        for (size_t i = 0; i < ROWS; i++) {
            double want = values[c * ROWS + i], got = column->value[i];
            n_missing += isnan(want) ? 1 : 0;
            ck_assert_msg(memcmp(&want, &got, 8) == 0 || (isnan(want) && isnan(got)), "column %zu row %zu: %g, not %g",
                          c, i, got, want);
        }
        ck_assert_uint_eq(column->n_missing, n_missing);
    }
    for (size_t i = 0; i < 4; i++) ck_assert_str_eq(t->column[3].dictionary[i], words[i]);
}

START_TEST(written_and_loaded_is_the_same)
{
    struct tabft_failure f = {0};
    struct threads *pool;
    struct table_column column[6];
    double *values;
    char first[65] = "";
    MUST(memory_new(&values, 6 * ROWS, sizeof *values, "values", &f));
    struct table_output o = output(column, values);
    for (int threads = 1; threads <= 3; threads++) {
        struct table *t;
        MUST(threads_open(&pool, threads, &f));
        MUST(table_write("test_table.tbf", true, &o, pool, &f));
        MUST(table_open(&t, "test_table.tbf", pool, &f));
        check_same(t, values);
        if (threads == 1) strcpy(first, t->digest);
        ck_assert_str_eq(t->digest, first);
        table_close(t);
        threads_close(pool);
    }
    MUST_FAIL(table_write("test_table.tbf", false, &o, NULL, &f), TABFT_USE, "exists");
    struct table *t;
    MUST(table_open_schema(&t, "test_table.tbf", &f));
    ck_assert_str_eq(t->digest, first);
    ck_assert_ptr_null(t->column[0].value);
    ck_assert_uint_eq(t->column[0].n_missing, (ROWS + 6) / 7);
    ck_assert_str_eq(t->label[1], "2");
    table_close(t);
    unlink("test_table.tbf");
    free(values);
}
END_TEST

START_TEST(no_rows_is_a_table)
{
    struct tabft_failure f = {0};
    struct table *t;
    double none;
    struct table_column column = {.name = "a", .kind = TABLE_FLOAT, .value = &none};
    struct table_output o = {0, 1, &column, SIZE_MAX, TABLE_NO_TASK, "{}"};
    MUST(table_write("test_table_0.tbf", true, &o, NULL, &f));
    MUST(table_open(&t, "test_table_0.tbf", NULL, &f));
    ck_assert(t->n_rows == 0 && t->n_columns == 1 && !t->has_target);
    table_close(t);
    unlink("test_table_0.tbf");
}
END_TEST

START_TEST(what_a_column_cannot_hold_is_refused)
{
    struct tabft_failure f = {0};
    double values[] = {0, 1, 2.5};
    static const char *const two[] = {"a", "b"};
    struct table_column column = {.name = "a", .kind = TABLE_INTEGER, .value = values};
    struct table_output o = {3, 1, &column, SIZE_MAX, TABLE_NO_TASK, "{}"};
    MUST_FAIL(table_write("test_table_x.tbf", true, &o, NULL, &f), TABFT_USE, "row 2");
    column = (struct table_column){
        .name = "a", .kind = TABLE_TEXT, .value = values, .n_dictionary = 2, .dictionary = two};
    values[2] = 2;
    MUST_FAIL(table_write("test_table_x.tbf", true, &o, NULL, &f), TABFT_USE, "row 2");
    values[2] = -1;
    MUST_FAIL(table_write("test_table_x.tbf", true, &o, NULL, &f), TABFT_USE, "row 2");
    o.task = TABLE_REGRESSION;
    MUST_FAIL(table_write("test_table_x.tbf", true, &o, NULL, &f), TABFT_USE, "target");
    ck_assert_int_ne(access("test_table_x.tbf", F_OK), 0);
}
END_TEST

START_TEST(columns_match_by_name_and_kind)
{
    struct tabft_failure f = {0};
    double v[2] = {0, 1};
    const struct table_column train_columns[] = {{.name = "a", .kind = TABLE_FLOAT, .value = v},
                                                 {.name = "b", .kind = TABLE_TEXT, .value = v}};
    const struct table_column test_columns[] = {{.name = "b", .kind = TABLE_TEXT, .value = v},
                                                {.name = "more", .kind = TABLE_TEXT, .value = v},
                                                {.name = "a", .kind = TABLE_INTEGER, .value = v}};
    struct table train = {.n_rows = 2, .n_columns = 2, .column = train_columns, .path = "train.tbf"};
    struct table test = {.n_rows = 2, .n_columns = 3, .column = test_columns, .path = "test.tbf"};
    size_t map[2];
    MUST(table_match(&train, &test, map, &f));
    ck_assert(map[0] == 2 && map[1] == 0);
    struct table_column changed[3] = {test_columns[0], test_columns[1], test_columns[2]};
    test.column = changed;
    changed[0].kind = TABLE_FLOAT;
    MUST_FAIL(table_match(&train, &test, map, &f), TABFT_INPUT, "column b is float");
    changed[0].name = "c";
    MUST_FAIL(table_match(&train, &test, map, &f), TABFT_INPUT, "column b of train.tbf is missing");
    /* Nothing was learnt from a column without values: any kind will do. */
    struct table_column empty[2] = {train_columns[0], train_columns[1]};
    empty[1].n_missing = 2;
    changed[0].name = "b";
    train.column = empty;
    MUST(table_match(&train, &test, map, &f));
}
END_TEST

UNIT_MAIN("table/table", written_and_loaded_is_the_same, no_rows_is_a_table, what_a_column_cannot_hold_is_refused,
          columns_match_by_name_and_kind)
