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
    static int number;
    char path[64];
    (void)snprintf(path, sizeof path, "sheet-%d-%d.tbf", (int)getpid(), number++);
    MUST(table_write(path, true, &output, NULL, &f));
    struct threads *pool; /* as large as any that reads it */
    MUST(threads_open(&pool, 3, &f));
    MUST(table_open(&t, path, pool, &f));
    threads_close(pool);
    return t;
}

static void discard(struct table *t)
{
    ck_assert_int_eq(unlink(t->path), 0);
    table_close(t);
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
    discard(train);
    discard(test);
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
        discard(others[i]);
    }
    eval_prediction_clear(&p);
    threads_close(pool);
    discard(train);
    discard(test);
    discard(reduced);
    model_close(m);
}
END_TEST

/* Blocks of any size, contexts kept or encoded again, some of the rows, and rows in another order. */
START_TEST(blocks_and_orders)
{
    static const size_t sizes[] = {1, 7, 16, 40, 1000};
    static struct sheet a, b, mixed;
    struct model *m = open_model();
    struct eval_prediction p, q;
    struct eval_options o = recorded;
    read_sheet("reference/predict_numeric_v2_6_cls.train.csv", &a);
    read_sheet("reference/predict_numeric_v2_6_cls.test.csv", &b);
    mixed.n_rows = b.n_rows;
    for (size_t i = 0; i < b.n_rows; i++)
        for (size_t c = 0; c < COLUMNS; c++) mixed.value[c][i] = b.value[c][(i * 7 + 3) % b.n_rows];
    struct table *train = pack(&a, all, COLUMNS), *test = pack(&b, all, COLUMNS), *other = pack(&mixed, all, COLUMNS);
    MUST(eval_predict(m, train, test, &o, NULL, &p, &f));
    const size_t n = p.n_rows, k = p.n_classes, row = k * sizeof *p.probability;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        o.block_rows = sizes[s];
        MUST(eval_predict(m, train, test, &o, NULL, &q, &f));
        ck_assert_mem_eq(p.probability, q.probability, n * row);
        ck_assert_mem_eq(p.truth, q.truth, n * sizeof *p.truth);
        eval_prediction_clear(&q);
        MUST(eval_predict(m, train, other, &o, NULL, &q, &f));
        for (size_t i = 0; i < n; i++)
            ck_assert_mem_eq(q.probability + i * k, p.probability + (i * 7 + 3) % n * k, row);
        eval_prediction_clear(&q);
    }
    o.block_rows = 5;
    o.first_row = 11;
    o.n_rows = 18;
    MUST(eval_predict(m, train, test, &o, NULL, &q, &f));
    ck_assert_uint_eq(q.n_rows, 18);
    ck_assert_mem_eq(q.probability, p.probability + 11 * k, 18 * row);
    ck_assert_mem_eq(q.truth, p.truth + 11, 18 * sizeof *q.truth);
    eval_prediction_clear(&q);
    o.n_rows = n - 10;
    MUST_FAIL(eval_predict(m, train, test, &o, NULL, &q, &f), TABFT_USE, "are not all there");
    eval_prediction_clear(&p);
    discard(train);
    discard(test);
    discard(other);
    model_close(m);
}
END_TEST

/* With less memory a context is encoded again for each block, and then nothing is done. */
START_TEST(plans)
{
    static struct sheet a, b;
    struct model *m = open_model();
    struct eval_prediction p, q;
    struct eval_options o = recorded;
    struct eval_predictor *e;
    read_sheet("reference/predict_numeric_v2_6_cls.train.csv", &a);
    read_sheet("reference/predict_numeric_v2_6_cls.test.csv", &b);
    struct table *train = pack(&a, all, COLUMNS), *test = pack(&b, all, COLUMNS);
    MUST(eval_predict(m, train, test, &o, NULL, &p, &f));
    o.block_rows = 7;
    o.collects = true;
    MUST(eval_predictor_open(&e, m, train, test, &o, NULL, &f));
    const struct eval_plan once = *eval_predictor_plan(e);
    eval_predictor_close(e);
    ck_assert(once.kept && once.kept_bytes > 0 && once.block_rows == 7 && once.n_rows == b.n_rows);
    ck_assert_uint_eq(eval_plan_encodings(&once), 1);
    o.memory = once.total - 1;
    MUST(eval_predictor_open(&e, m, train, test, &o, NULL, &f));
    const struct eval_plan again = *eval_predictor_plan(e);
    eval_predictor_close(e);
    ck_assert(!again.kept && again.total < once.total);
    ck_assert_uint_eq(eval_plan_encodings(&again), (b.n_rows + 6) / 7);
    MUST(eval_predict(m, train, test, &o, NULL, &q, &f));
    ck_assert_mem_eq(p.probability, q.probability, p.n_rows * p.n_classes * sizeof *p.probability);
    eval_prediction_clear(&q);
    o.memory = again.total - 1;
    MUST_FAIL(eval_predict(m, train, test, &o, NULL, &q, &f), TABFT_SYSTEM, "give the job more memory");
    eval_prediction_clear(&p);
    discard(train);
    discard(test);
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
    MUST(eval_predict(m, one, test, &recorded, NULL, &p, &f)); /* as TabPFN does: it is always that class */
    ck_assert(p.n_classes == 1 && p.n_labels == 3);
    for (size_t i = 0; i < p.n_rows; i++) ck_assert(p.probability[i] == 1);
    eval_prediction_clear(&p);
    a.value[COLUMNS - 1][5] = NAN;
    struct table *gap = pack(&a, useful, 7);
    MUST_FAIL(eval_predict(m, gap, test, &recorded, NULL, &p, &f), TABFT_INPUT, "row 5 (from 0) has no label");
    struct table *no_target = pack(&a, useful, 6);
    MUST_FAIL(eval_predict(m, no_target, test, &recorded, NULL, &p, &f), TABFT_INPUT, "has no target");
    b.n_rows = 0;
    struct table *no_rows = pack(&b, useful, 7);
    MUST_FAIL(eval_predict(m, whole, no_rows, &recorded, NULL, &p, &f), TABFT_INPUT, "no rows to predict");
    MUST_FAIL(eval_predict(m, no_rows, test, &recorded, NULL, &p, &f), TABFT_INPUT, "no rows to learn from");
    struct table *const made[] = {whole, narrow, test, two, one, gap, no_target, no_rows};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) discard(made[i]);
    model_close(m);
}
END_TEST

UNIT_MAIN("predictions", tabpfn_predicts_the_same, same_bits, blocks_and_orders, plans, labels_and_refusals)
