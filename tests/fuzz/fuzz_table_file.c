#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eval/eval.h"
#include "fuzz.h"
#include "table/prep.h"
#include "table/table.h"

enum { CELLS_MOST = 1 << 20 }; /* what a table may have that is loaded here */

static void quiet(void *context, bool warning, const char *text)
{
    (void)context, (void)warning;
    for (; *text != '\0'; text++)
        fuzz_hold((unsigned char)*text >= 0x20 && *text != 0x7f, "a report has no control characters");
}

const struct prep_say fuzz_say = {quiet, NULL};

/* What is said of a table without its cells. */
static bool read_schema(const char *path, bool *large)
{
    struct tabft_failure f = {0};
    struct table *t = NULL;
    char *text = NULL;
    const bool taken = fuzz_taken(table_open_schema(&t, path, &f), &f);
    *large = taken && t->n_rows * (t->n_columns + 1) > CELLS_MOST;
    table_close(t);
    for (int json = 0; json < 2; json++) {
        if (fuzz_taken(prep_info(path, json == 1, &text, &f), &f)) fuzz_hold(text != NULL, "info gives a text");
        free(text);
        text = NULL;
    }
    return taken;
}

static bool read_cells(const char *path)
{
    struct tabft_failure f = {0};
    struct table *t = NULL;
    const bool taken = fuzz_taken(table_open(&t, path, NULL, &f), &f);
    for (size_t c = 0; taken && c <= t->n_columns; c++) {
        if (c == t->n_columns && !t->has_target) break;
        const struct table_column *column = c < t->n_columns ? &t->column[c] : &t->target;
        for (size_t row = 0; row < t->n_rows; row++) {
            const double v = column->value[row];
            if (column->n_dictionary > 0 && v == v)
                fuzz_hold(v >= 0 && v < (double)column->n_dictionary && strlen(column->dictionary[(size_t)v]) < 1 << 21,
                          "codes are places in their dictionary");
        }
    }
    table_close(t);
    t = NULL;
    if (fuzz_taken(table_open_parts(&t, path, NULL, &f), &f)) {
        double *value = calloc(t->n_rows + 1, sizeof *value);
        for (size_t c = 0; value != NULL && c < t->n_columns; c++)
            (void)fuzz_taken(table_read_column(t, c, NULL, value, &f), &f);
        free(value);
        fuzz_hold(table_unchanged(t, &f) == 0, "nothing has changed the file");
        table_close(t);
    }
    return taken;
}

static void read_prediction(const char *path)
{
    struct tabft_failure f = {0};
    struct eval_prediction p = {0};
    if (fuzz_taken(eval_prediction_open(path, NULL, &p, &f), &f))
        for (size_t row = 0; row < p.n_rows; row++)
            fuzz_hold(p.truth[row] == EVAL_NO_LABEL || (p.truth[row] >= 0 && (size_t)p.truth[row] < p.n_labels),
                      "a row's label is in the list");
    eval_prediction_clear(&p);
}

void fuzz_read_table(const char *path)
{
    struct tabft_failure f = {0};
    const char *const twice[2] = {path, path}, *csv = fuzz_path("cat.csv"), *merged = fuzz_path("merged.tbf");
    bool large = false;
    const bool described = read_schema(path, &large);
    const bool sound = fuzz_taken(prep_verify(path, NULL, &f), &f);
    if (large) return;
    const bool loaded = read_cells(path), printed = fuzz_taken(prep_cat(path, csv, true, NULL, &f), &f);
    fuzz_hold(!sound || (described && loaded && printed), "what verify takes, all others take");
    fuzz_hold(!loaded || described, "a table that can be loaded can be described");
    if (fuzz_taken(prep_merge(twice, 2, merged, true, NULL, &fuzz_say, &f), &f))
        fuzz_hold(prep_verify(merged, NULL, &f) == 0, "what merge writes is sound");
    const struct split_options split = {
        .input = path, .train = fuzz_path("train.tbf"), .test = fuzz_path("test.tbf"), .force = true, .fraction = 0.3};
    if (fuzz_taken(prep_split(&split, NULL, &fuzz_say, &f), &f))
        fuzz_hold(prep_verify(split.train, NULL, &f) == 0 && prep_verify(split.test, NULL, &f) == 0,
                  "what split writes is sound");
    read_prediction(path);
}
