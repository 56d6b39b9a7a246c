/* lib/eval/predict against TabPFN 9.2.0's own predictions on a table with gaps, heavy tails, a constant and an empty
 * column; and what must hold for every prediction. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "eval/eval.h"
#include "file/file.h"
#include "model/model.h"
#include "table/table.h"
#include "unit.h"

static struct tabft_failure f;

enum { COLUMNS = 9, ROWS = 160, LABELS = 3 };
static const char *const labels[LABELS] = {"low", "mid", "top"};

/* The numbers of one of the recorded CSV files: columns n0 to n7 and the label y, which is text. */
struct sheet {
    size_t n_rows;
    double value[COLUMNS][ROWS];
};

static void read_sheet(const char *name, struct sheet *s)
{
    char line[1024], *rest, *cell;
    FILE *file = fopen(unit_data(name), "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    ck_assert_str_eq(line, "n0,n1,n2,n3,n4,n5,n6,n7,y\n");
    for (s->n_rows = 0; fgets(line, sizeof line, file) != NULL; s->n_rows++) {
        ck_assert(s->n_rows < ROWS);
        line[strcspn(line, "\r\n")] = '\0';
        rest = line;
        for (int c = 0; c < COLUMNS; c++) {
            cell = strsep(&rest, ",");
            ck_assert_ptr_nonnull(cell);
            double *to = &s->value[c][s->n_rows];
            *to = *cell != '\0' ? strtod(cell, NULL) : NAN;
            for (int k = 0; c == COLUMNS - 1 && k < LABELS; k++)
                if (strcmp(cell, labels[k]) == 0) *to = k;
        }
    }
    (void)fclose(file);
}

/* Packs columns order[0..n) of a sheet, the label last where it is among them, and loads the table. */
static struct table *pack(const struct sheet *s, const int *order, size_t n)
{
    static const char *const names[COLUMNS] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "y"};
    struct table_column column[COLUMNS];
    struct table *t;
    bool target = order[n - 1] == COLUMNS - 1;
    for (size_t i = 0; i < n; i++)
        column[i] = (struct table_column){.name = names[order[i]], .kind = TABLE_FLOAT, .value = s->value[order[i]]};
    if (target) {
        column[n - 1].kind = TABLE_TEXT;
        column[n - 1].n_dictionary = LABELS;
        column[n - 1].dictionary = labels;
    }
    const struct table_output output = {.n_rows = s->n_rows,
                                        .n_columns = n,
                                        .column = column,
                                        .target = target ? n - 1 : SIZE_MAX,
                                        .task = target ? TABLE_CLASSIFICATION : TABLE_NO_TASK,
                                        .provenance = "{}"};
    MUST(table_write("sheet.tbf", true, &output, NULL, &f));
    MUST(table_open(&t, "sheet.tbf", NULL, &f));
    ck_assert_int_eq(unlink("sheet.tbf"), 0);
    return t;
}

static struct model *open_model(void)
{
    struct ckpt *c;
    struct model *m;
    MUST(ckpt_open(&c, unit_data("reference/v2_6_cls.model.safetensors"), &f));
    MUST(model_open(&m, c, MODEL_ANY_TASK, &f));
    ckpt_close(c);
    return m;
}

static const int all[COLUMNS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
static const struct eval_options recorded = {.n_estimators = 4, .seed = 3};

START_TEST(tabpfn_predicts_the_same)
{
    static struct sheet a, b;
    struct model *m = open_model();
    struct eval_prediction p;
    struct ckpt *vectors;
    double worst = 0;
    read_sheet("reference/predict_numeric_v2_6_cls.train.csv", &a);
    read_sheet("reference/predict_numeric_v2_6_cls.test.csv", &b);
    struct table *train = pack(&a, all, COLUMNS), *test = pack(&b, all, COLUMNS);
    MUST(eval_predict(m, train, test, &recorded, NULL, &p, &f));
    MUST(ckpt_open(&vectors, unit_data("reference/predict_numeric_v2_6_cls.vectors.safetensors"), &f));
    const struct ckpt_tensor *proba = ckpt_find(vectors, "proba");
    ck_assert(p.n_rows == 40 && p.n_classes == LABELS && proba->count == 40 * LABELS);
    for (size_t i = 0; i < proba->count; i++) worst = fmax(worst, fabs(p.probability[i] - ckpt_value(proba, i)));
    printf("largest difference from TabPFN's probabilities: %.3g\n", worst);
    ck_assert_double_lt(worst, 5e-6);
    for (size_t i = 0; i < 40; i++) ck_assert_int_eq(p.truth[i], (int)b.value[COLUMNS - 1][i]);
    ckpt_close(vectors);
    eval_prediction_clear(&p);
    table_close(train);
    table_close(test);
    model_close(m);
}
END_TEST

/* The same bits whatever the threads, the order of the test's columns, columns that tell nothing, and without a target.
 */
START_TEST(same_bits)
{
    static const int turned[7] = {7, 6, 5, 2, 1, 0, 8}, bare[6] = {0, 1, 2, 5, 6, 7}, useful[7] = {0, 1, 2, 5, 6, 7, 8};
    static struct sheet a, b;
    struct model *m = open_model();
    struct eval_prediction p, q;
    struct threads *pool;
    read_sheet("reference/predict_numeric_v2_6_cls.train.csv", &a);
    read_sheet("reference/predict_numeric_v2_6_cls.test.csv", &b);
    MUST(threads_open(&pool, 3, &f));
    for (size_t i = 0; i < a.n_rows; i++) a.value[3][i] = 7; /* constant; n4 is empty */
    for (size_t i = 0; i < b.n_rows; i++) b.value[3][i] = b.value[4][i] = (double)i;
    struct table *train = pack(&a, all, COLUMNS), *test = pack(&b, all, COLUMNS), *reduced = pack(&a, useful, 7);
    struct table *others[3] = {pack(&b, turned, 7), pack(&b, bare, 6), pack(&b, useful, 7)};
    MUST(eval_predict(m, train, test, &recorded, NULL, &p, &f));
    const size_t size = p.n_rows * p.n_classes * sizeof *p.probability;
    MUST(eval_predict(m, train, test, &recorded, pool, &q, &f));
    ck_assert_mem_eq(p.probability, q.probability, size);
    eval_prediction_clear(&q);
    for (int i = 0; i < 3; i++) {
        MUST(eval_predict(m, reduced, others[i], &recorded, pool, &q, &f));
        ck_assert_mem_eq(p.probability, q.probability, size);
        if (i == 1) ck_assert_int_eq(q.truth[0], EVAL_NO_LABEL);
        else ck_assert_mem_eq(p.truth, q.truth, p.n_rows * sizeof *p.truth);
        eval_prediction_clear(&q);
        table_close(others[i]);
    }
    eval_prediction_clear(&p);
    threads_close(pool);
    table_close(train);
    table_close(test);
    table_close(reduced);
    model_close(m);
}
END_TEST

START_TEST(labels_and_refusals)
{
    static const int short_by_one[6] = {0, 1, 2, 5, 6, 8}, useful[7] = {0, 1, 2, 5, 6, 7, 8};
    static struct sheet a, b;
    struct model *m = open_model();
    struct eval_prediction p;
    read_sheet("reference/predict_numeric_v2_6_cls.train.csv", &a);
    read_sheet("reference/predict_numeric_v2_6_cls.test.csv", &b);
    struct table *whole = pack(&a, useful, 7), *narrow = pack(&b, short_by_one, 6), *test = pack(&b, useful, 7);
    MUST_FAIL(eval_predict(m, whole, narrow, &recorded, NULL, &p, &f), TABFT_INPUT, "n7");

    /* Training rows that have two of the three labels: two classes, and the third is a label that no class has. */
    for (size_t i = 0; i < a.n_rows; i++) a.value[COLUMNS - 1][i] = a.value[COLUMNS - 1][i] == 0 ? 0 : 2;
    struct table *two = pack(&a, useful, 7);
    MUST(eval_predict(m, two, test, &recorded, NULL, &p, &f));
    ck_assert(p.n_classes == 2 && p.n_labels == 3);
    ck_assert_str_eq(p.label[0], "low");
    ck_assert_str_eq(p.label[1], "top");
    ck_assert_str_eq(p.label[2], "mid");
    for (size_t i = 0; i < p.n_rows; i++) {
        static const int expected[LABELS] = {0, 2, 1};
        ck_assert_int_eq(p.truth[i], expected[(int)b.value[COLUMNS - 1][i]]);
        ck_assert_double_eq_tol(p.probability[2 * i] + p.probability[2 * i + 1], 1, 1e-9);
    }
    eval_prediction_clear(&p);

    for (size_t i = 0; i < a.n_rows; i++) a.value[COLUMNS - 1][i] = 1;
    struct table *one = pack(&a, useful, 7);
    MUST_FAIL(eval_predict(m, one, test, &recorded, NULL, &p, &f), TABFT_INPUT, "one label");
    a.value[COLUMNS - 1][5] = NAN;
    struct table *gap = pack(&a, useful, 7);
    MUST_FAIL(eval_predict(m, gap, test, &recorded, NULL, &p, &f), TABFT_INPUT, "row 5 (from 0) has no label");
    struct table *no_target = pack(&a, useful, 6);
    MUST_FAIL(eval_predict(m, no_target, test, &recorded, NULL, &p, &f), TABFT_INPUT, "no classification target");
    b.n_rows = 0;
    struct table *no_rows = pack(&b, useful, 7);
    MUST_FAIL(eval_predict(m, whole, no_rows, &recorded, NULL, &p, &f), TABFT_INPUT, "no rows");
    struct table *const made[] = {whole, narrow, test, two, one, gap, no_target, no_rows};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) table_close(made[i]);
    model_close(m);
}
END_TEST

UNIT_MAIN("predictions", tabpfn_predicts_the_same, same_bits, labels_and_refusals)
