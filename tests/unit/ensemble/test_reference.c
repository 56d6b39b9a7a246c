/* What TabPFN 9.2.0 gave its network, step by step, against what we give ours from the same raw rows:
 * tests/data/reference. Values within 1e-5 (of the value where it is above 1). The fingerprint of an estimator with SVD
 * columns hashes last bits, and those of the fine-tuning run hang on the recording machine: its singular values lie
 * within 0.3 % of each other, TabPFN itself reproduces 91.0 % of these fingerprints on a processor with AVX-512 and an
 * SVD without rounding errors 93.9 %. Ours does not depend on the processor and gives the latter. The wide table is
 * noise of 60 rows: closer values still. */
#include "base/threads.h"
#include "ensemble/ensemble.h"
#include "reference.h"

static const double least_share_finetuning = 0.935, least_share_prediction = 0.97, least_share_wide = 0.65;
static struct tabft_failure f;

/* ---- A fine-tuning run ---- */
enum { RAW_ROWS = 400, RAW_COLUMNS = 20, ESTIMATORS = 5, STEPS = 4, SEED = 17, PLAIN_ESTIMATOR = 2 };

static double raw_x[RAW_ROWS][RAW_COLUMNS];
static int32_t raw_y[RAW_ROWS];

static void read_raw(const struct ckpt *c)
{
    const struct ckpt_tensor *x = tensor_of(c, "raw.X_train"), *y = tensor_of(c, "raw.y_train");
    ck_assert_uint_eq(x->count, RAW_ROWS * RAW_COLUMNS);
    ck_assert_uint_eq(y->count, RAW_ROWS);
    for (size_t i = 0; i < RAW_ROWS; i++) {
        for (size_t j = 0; j < RAW_COLUMNS; j++) raw_x[i][j] = ckpt_value(x, i * RAW_COLUMNS + j);
        raw_y[i] = (int32_t)ckpt_value(y, i);
    }
}

/* The raw row whose values are all among a recorded row of the estimator without transforms. */
static size_t find_raw(const struct ckpt_tensor *t, size_t row)
{
    size_t width = t->shape[1], found = RAW_ROWS;
    for (size_t i = 0; i < RAW_ROWS; i++) {
        size_t j = 0;
        for (; j < RAW_COLUMNS; j++) {
            size_t k = 0;
            while (k < width && ckpt_value(t, row * width + k) != raw_x[i][j]) k++;
            if (k == width) break;
        }
        if (j == RAW_COLUMNS) {
            ck_assert_uint_eq(found, RAW_ROWS);
            found = i;
        }
    }
    ck_assert_uint_lt(found, RAW_ROWS);
    return found;
}

static struct ensemble_columns rows_of(const struct ckpt_tensor *t, double *x, int32_t *y)
{
    size_t n = t->shape[0];
    for (size_t i = 0; i < n; i++) {
        size_t row = find_raw(t, i);
        memcpy(x + i * RAW_COLUMNS, raw_x[row], sizeof raw_x[row]);
        y[i] = raw_y[row];
    }
    return (struct ensemble_columns){.n_rows = n, .n_columns = RAW_COLUMNS, .x = x};
}

static void one_step(const struct ckpt *c, int step, struct threads *pool, struct tally *tally)
{
    static double x_context[RAW_ROWS * RAW_COLUMNS], x_query[RAW_ROWS * RAW_COLUMNS];
    static int32_t y_context[RAW_ROWS], y_query[RAW_ROWS];
    struct ensemble_columns context =
        rows_of(tensor_of(c, "step%d.est%d.X_context", step, PLAIN_ESTIMATOR), x_context, y_context);
    struct ensemble_columns query =
        rows_of(tensor_of(c, "step%d.est%d.X_query", step, PLAIN_ESTIMATOR), x_query, y_query);
    struct ensemble_options options = {.n_estimators = ESTIMATORS,
                                       .seed = SEED,
                                       .phase = ENSEMBLE_FINETUNING,
                                       .n_classes = 2,
                                       .architecture = "tabpfn_v2_6"};
    size_t widest[ESTIMATORS], bytes;
    struct ensemble *e;
    MUST(ensemble_open(&e, &options, &context, y_context, &query, &f));
    MUST(ensemble_columns_max(&options, RAW_COLUMNS, context.n_rows, query.n_rows, 1, widest, &bytes, &f));
    for (size_t i = 0; i < ESTIMATORS; i++) {
        char what[64];
        (void)snprintf(what, sizeof what, "step %d estimator %zu", step, i);
        const struct ckpt_tensor *permutation = tensor_of(c, "step%d.est%zu.class_permutation", step, i);
        const struct ckpt_tensor *y = tensor_of(c, "step%d.est%zu.y_context", step, i);
        struct ensemble_call call;
        MUST(ensemble_call(e, i, NULL, pool, &call, &f));
        ck_assert_uint_eq(call.n_columns, widest[i]);
        for (size_t k = 0; k < 2; k++)
            ck_assert_int_eq(ensemble_class_permutation(e, i)[k], (int)ckpt_value(permutation, k));
        for (size_t k = 0; k < call.n_context; k++)
            ck_assert_msg((double)call.y_context[k] == ckpt_value(y, k), "%s: label of row %zu", what, k);
        int apart = call.fingerprint_may_differ ? call.fingerprint_column : -1;
        compare(call.x, tensor_of(c, "step%d.est%zu.X_context", step, i), call.n_context, call.n_columns, apart, tally,
                what);
        compare(call.x + call.n_context * call.n_columns, tensor_of(c, "step%d.est%zu.X_query", step, i), call.n_query,
                call.n_columns, apart, tally, what);
        ensemble_call_clear(&call);
    }
    ensemble_close(e);
}

START_TEST(finetuning_run)
{
    struct ckpt *c;
    struct tally tally = {0};
    struct threads *pool;
    MUST(ckpt_open(&c, unit_data("reference/finetune_v2_6_cls.vectors.safetensors"), &f));
    MUST(threads_open(&pool, 2, &f));
    read_raw(c);
    for (int step = 0; step < STEPS; step++) one_step(c, step, step % 2 ? pool : NULL, &tally);
    report("fine-tuning of v2.6", &tally, least_share_finetuning);
    threads_close(pool);
    ckpt_close(c);
}
END_TEST

/* ---- Predictions from CSV files ---- */
enum { CSV_ROWS_MAX = 256, CSV_COLUMNS = 8 };

/* Eight numbers, empty where missing, and a label low, mid or top. */
static size_t read_csv(const char *path, double *x, int32_t *y)
{
    static const char *const labels[] = {"low", "mid", "top"};
    char line[1024];
    FILE *in = fopen(path, "r");
    ck_assert_msg(in != NULL && fgets(line, sizeof line, in) != NULL, "%s", path);
    size_t n = 0;
    for (; fgets(line, sizeof line, in) != NULL; n++) {
        ck_assert_uint_lt(n, CSV_ROWS_MAX);
        char *at = line;
        for (size_t j = 0; j < CSV_COLUMNS; j++) {
            char *end = at;
            x[n * CSV_COLUMNS + j] = *at == ',' ? (double)NAN : strtod(at, &end);
            ck_assert_int_eq(*end, ',');
            at = end + 1;
        }
        at[strcspn(at, "\r\n")] = '\0';
        y[n] = 0;
        while (y[n] < 3 && strcmp(at, labels[y[n]]) != 0) y[n]++;
        ck_assert_int_lt(y[n], 3);
    }
    (void)fclose(in);
    return n;
}

/* All calls of a prediction; x and y of the training rows, x of the test rows. */
static void compare_prediction(const char *name, const char *architecture, const struct ensemble_columns *train,
                               const int32_t *y_train, const struct ensemble_columns *test, double least_share)
{
    struct ensemble_options options = {
        .n_estimators = 4, .seed = 3, .phase = ENSEMBLE_PREDICTION, .n_classes = 3, .architecture = architecture};
    char what[128];
    struct ckpt *c;
    struct ensemble *e;
    struct tally tally = {0};
    (void)snprintf(what, sizeof what, "reference/%s.vectors.safetensors", name);
    MUST(ckpt_open(&c, unit_data(what), &f));
    MUST(ensemble_open(&e, &options, train, y_train, NULL, &f));
    for (size_t i = 0; i < options.n_estimators; i++) {
        (void)snprintf(what, sizeof what, "%s estimator %zu", name, i);
        struct ensemble_call call;
        MUST(ensemble_call(e, i, test, NULL, &call, &f));
        const struct ckpt_tensor *y = tensor_of(c, "call%zu.y", i);
        ck_assert_uint_eq(y->count, train->n_rows);
        for (size_t k = 0; k < train->n_rows; k++) ck_assert(ckpt_value(y, k) == (double)call.y_context[k]);
        compare(call.x, tensor_of(c, "call%zu.x", i), call.n_context + call.n_query, call.n_columns,
                call.fingerprint_may_differ ? call.fingerprint_column : -1, &tally, what);
        ensemble_call_clear(&call);
    }
    report(name, &tally, least_share);
    ensemble_close(e);
    ckpt_close(c);
}

static void predict_csv(const char *name, const char *architecture)
{
    static double x_train[CSV_ROWS_MAX * CSV_COLUMNS], x_test[CSV_ROWS_MAX * CSV_COLUMNS];
    static int32_t y_train[CSV_ROWS_MAX], y_test[CSV_ROWS_MAX];
    struct ensemble_columns train = {.n_columns = CSV_COLUMNS, .x = x_train};
    struct ensemble_columns test = {.n_columns = CSV_COLUMNS, .x = x_test};
    char path[128];
    (void)snprintf(path, sizeof path, "reference/%s.train.csv", name);
    train.n_rows = read_csv(unit_data(path), x_train, y_train);
    (void)snprintf(path, sizeof path, "reference/%s.test.csv", name);
    test.n_rows = read_csv(unit_data(path), x_test, y_test);
    compare_prediction(name, architecture, &train, y_train, &test, least_share_prediction);
}

/* Heavy tails, gaps, a constant column, an all-missing one and one of two values. */
START_TEST(predictions_v2_6)
{
    predict_csv("predict_numeric_v2_6_cls", "\"tabpfn_v2_6\"");
}
END_TEST

/* The preset with quantiles next to the originals and half as many SVD columns. */
START_TEST(predictions_v2)
{
    predict_csv("predict_numeric_v2_cls", NULL);
}
END_TEST

/* ---- Texts: age, income, colour, grade, town, flag ---- */
enum { MIXED_COLUMNS = 6, TEXT_SIZE = 16 };
static const bool mixed_is_text[MIXED_COLUMNS] = {false, false, true, false, true, true};

struct mixed {
    size_t n;
    char cell[CSV_ROWS_MAX][MIXED_COLUMNS][TEXT_SIZE];
    int32_t y[CSV_ROWS_MAX];
    double x[CSV_ROWS_MAX][MIXED_COLUMNS];
};

static void read_mixed(const char *path, struct mixed *m)
{
    static const char *const labels[] = {"low", "mid", "top"};
    char line[1024];
    FILE *in = fopen(path, "r");
    ck_assert_msg(in != NULL && fgets(line, sizeof line, in) != NULL, "%s", path);
    for (m->n = 0; fgets(line, sizeof line, in) != NULL; m->n++) {
        ck_assert_uint_lt(m->n, CSV_ROWS_MAX);
        line[strcspn(line, "\r\n")] = '\0';
        char *at = line;
        for (size_t j = 0; j <= MIXED_COLUMNS; j++) {
            size_t length = strcspn(at, ",");
            ck_assert_uint_lt(length, TEXT_SIZE);
            if (j < MIXED_COLUMNS) {
                memcpy(m->cell[m->n][j], at, length);
                m->cell[m->n][j][length] = '\0';
                at += length + 1;
            }
        }
        int32_t k = 0;
        while (k < 3 && strcmp(at, labels[k]) != 0) k++;
        ck_assert_int_lt(k, 3);
        m->y[m->n] = k;
    }
    (void)fclose(in);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The sorted texts of a column; returns their number. */
static size_t dictionary_of(const struct mixed *m, size_t j, const char **sorted)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->cell[i][j][0] != '\0') sorted[n++] = m->cell[i][j];
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(sorted[i], sorted[kept - 1]) != 0) sorted[kept++] = sorted[i];
    return kept;
}

static void code_column(struct mixed *m, size_t j, const char *const *sorted, size_t n)
{
    for (size_t i = 0; i < m->n; i++) {
        const char *text = m->cell[i][j];
        const char *const *found = bsearch(&text, sorted, n, sizeof *sorted, by_text);
        m->x[i][j] = text[0] == '\0'     ? (double)NAN
                     : !mixed_is_text[j] ? strtod(text, NULL)
                     : found == NULL     ? ENSEMBLE_UNSEEN
                                         : (double)(found - sorted);
    }
}

static void predict_mixed(const char *name, const char *architecture)
{
    static struct mixed train, test;
    char path[128];
    double missing_rank[MIXED_COLUMNS];
    (void)snprintf(path, sizeof path, "reference/%s.train.csv", name);
    read_mixed(unit_data(path), &train);
    (void)snprintf(path, sizeof path, "reference/%s.test.csv", name);
    read_mixed(unit_data(path), &test);
    for (size_t j = 0; j < MIXED_COLUMNS; j++) {
        const char *sorted[CSV_ROWS_MAX];
        size_t n = dictionary_of(&train, j, sorted);
        missing_rank[j] = ensemble_missing_rank(sorted, n);
        code_column(&train, j, sorted, n);
        code_column(&test, j, sorted, n);
    }
    struct ensemble_columns context = {.n_rows = train.n, .n_columns = MIXED_COLUMNS, .x = &train.x[0][0]};
    struct ensemble_columns query = {.n_rows = test.n, .n_columns = MIXED_COLUMNS, .x = &test.x[0][0]};
    context.is_text = query.is_text = mixed_is_text;
    context.missing_rank = query.missing_rank = missing_rank;
    compare_prediction(name, architecture, &context, train.y, &query, least_share_prediction);
}

START_TEST(predictions_mixed_v2_6)
{
    predict_mixed("predict_mixed_v2_6_cls", "tabpfn_v2_6");
}
END_TEST

START_TEST(predictions_mixed_v2)
{
    predict_mixed("predict_mixed_v2_cls", "tabpfn_v2");
}
END_TEST

static struct ensemble_columns matrix_of(const struct ckpt *c, const char *name)
{
    const struct ckpt_tensor *t = tensor_of(c, "%s", name);
    double *x = malloc((size_t)t->count * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (uint64_t i = 0; i < t->count; i++) x[i] = ckpt_value(t, i);
    return (struct ensemble_columns){.n_rows = (size_t)t->shape[0], .n_columns = (size_t)t->shape[1], .x = x};
}

/* 620 columns for estimators that take 500: each gets a random subset. */
START_TEST(predictions_wide)
{
    struct ckpt *c;
    MUST(ckpt_open(&c, unit_data("reference/predict_wide_v2_6_cls.raw.safetensors"), &f));
    struct ensemble_columns train = matrix_of(c, "X_train"), test = matrix_of(c, "X_test");
    int32_t y[CSV_ROWS_MAX];
    for (size_t i = 0; i < train.n_rows; i++) y[i] = (int32_t)ckpt_value(tensor_of(c, "y_train"), i);
    compare_prediction("predict_wide_v2_6_cls", "tabpfn_v2_6", &train, y, &test, least_share_wide);
    free((void *)(uintptr_t)train.x);
    free((void *)(uintptr_t)test.x);
    ckpt_close(c);
}
END_TEST

UNIT_MAIN("ensemble/reference", finetuning_run, predictions_v2_6, predictions_v2, predictions_wide,
          predictions_mixed_v2_6, predictions_mixed_v2)
