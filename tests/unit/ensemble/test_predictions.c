/* What TabPFN 9.2.0 gave its network in prediction, call by call, against what we give ours from the same CSV files:
 * tests/data/reference/predict_*. Values within 1e-5 (of the value where it is above 1); fingerprints after SVD
 * columns, which hash last bits, on 97 % of the rows. The wide table is noise of 60 rows: its singular values are too
 * close for that. */
#include "ensemble/regression.h"
#include "reference.h"

enum { ROWS_MAX = 256, COLUMNS_MAX = 10, TEXT_SIZE = 32 };
static const double least_share = 0.97, least_share_wide = 0.65;
static struct tabft_failure f;

/* A CSV file without quotes; the last column is the target. */
struct csv {
    size_t n, n_columns; /* without the target */
    char cell[ROWS_MAX][COLUMNS_MAX][TEXT_SIZE];
    double x[ROWS_MAX * COLUMNS_MAX], y[ROWS_MAX];
};

static size_t split(char *line, char (*cell)[TEXT_SIZE])
{
    size_t n = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *at = line; at != NULL; n++) {
        char *next = strchr(at, ',');
        if (next != NULL) *next++ = '\0';
        ck_assert(n < COLUMNS_MAX && strlen(at) < TEXT_SIZE);
        memcpy(cell[n], at, strlen(at) + 1);
        at = next;
    }
    return n;
}

static void read_csv(const char *name, const char *part, struct csv *m)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "reference/%s.%s.csv", name, part);
    FILE *in = fopen(unit_data(line), "r");
    ck_assert_msg(in != NULL && fgets(line, sizeof line, in) != NULL, "%s", name);
    m->n_columns = split(line, m->cell[0]) - 1;
    for (m->n = 0; fgets(line, sizeof line, in) != NULL; m->n++) {
        ck_assert_uint_lt(m->n, ROWS_MAX);
        ck_assert_uint_eq(split(line, m->cell[m->n]), m->n_columns + 1);
    }
    (void)fclose(in);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The sorted texts of a column; returns their number. */
static size_t dictionary_of(const struct csv *m, size_t j, const char **sorted)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->cell[i][j][0] != '\0') sorted[n++] = m->cell[i][j];
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(sorted[i], sorted[kept - 1]) != 0) sorted[kept++] = sorted[i];
    return kept;
}

/* A column of numbers, or of texts as ranks among sorted[n]. */
static void fill(struct csv *m, size_t j, bool is_text, const char *const *sorted, size_t n)
{
    for (size_t i = 0; i < m->n; i++) {
        const char *text = m->cell[i][j];
        double value = (double)NAN;
        if (text[0] != '\0' && is_text) {
            const char *const *found = bsearch(&text, sorted, n, sizeof *sorted, by_text);
            value = found == NULL ? ENSEMBLE_UNSEEN : (double)(found - sorted);
        } else if (text[0] != '\0') {
            value = strtod(text, NULL);
        }
        *(j == m->n_columns ? &m->y[i] : &m->x[i * m->n_columns + j]) = value;
    }
}

static bool has_text(const struct csv *m, size_t j)
{
    for (size_t i = 0; i < m->n; i++) {
        char *end;
        (void)strtod(m->cell[i][j], &end);
        if (*end != '\0') return true;
    }
    return false;
}

/* All calls of a prediction with four estimators and seed 3. */
static void compare_calls(const char *name, const struct ensemble *e, const struct ensemble_columns *test, double least)
{
    char what[128];
    struct ckpt *c;
    struct tally tally = {0};
    (void)snprintf(what, sizeof what, "reference/%s.vectors.safetensors", name);
    MUST(ckpt_open(&c, unit_data(what), &f));
    for (size_t i = 0; i < ensemble_count(e); i++) {
        (void)snprintf(what, sizeof what, "%s estimator %zu", name, i);
        struct ensemble_call call;
        MUST(ensemble_call(e, i, test, NULL, &call, &f));
        const struct ckpt_tensor *y = tensor_of(c, "call%zu.y", i);
        ck_assert_uint_eq(y->count, call.n_context);
        for (size_t k = 0; k < call.n_context; k++)
            ck_assert_msg(fabs(ckpt_value(y, k) - (double)call.y_context[k]) <= 1e-6 * fmax(1, fabs(ckpt_value(y, k))),
                          "%s: target %zu is %.9g", what, k, (double)call.y_context[k]);
        compare(call.x, tensor_of(c, "call%zu.x", i), call.n_context + call.n_query, call.n_columns,
                call.fingerprint_may_differ ? call.fingerprint_column : -1, &tally, what);
        ensemble_call_clear(&call);
    }
    report(name, &tally, least);
    ckpt_close(c);
}

static const struct ensemble_options usual = {.n_estimators = 4, .seed = 3, .phase = ENSEMBLE_PREDICTION};

static struct ensemble *open_fit(const char *architecture, size_t n_classes, const struct ensemble_columns *train,
                                 const double *y)
{
    struct ensemble_options options = usual;
    struct ensemble *e;
    options.architecture = architecture;
    options.n_classes = n_classes;
    if (n_classes == 0) {
        MUST(ensemble_open_regression(&e, &options, train, y, NULL, &f));
        return e;
    }
    static int32_t code[ROWS_MAX]; /* borrowed by the ensemble */
    for (size_t i = 0; i < train->n_rows; i++) code[i] = (int32_t)y[i];
    MUST(ensemble_open(&e, &options, train, code, NULL, &f));
    return e;
}

static void predict(const char *name, const char *architecture, double least)
{
    static struct csv train, test;
    bool is_text[COLUMNS_MAX];
    double missing_rank[COLUMNS_MAX];
    size_t n_classes = 0;
    read_csv(name, "train", &train);
    read_csv(name, "test", &test);
    for (size_t j = 0; j <= train.n_columns; j++) {
        const char *sorted[ROWS_MAX];
        size_t n = dictionary_of(&train, j, sorted);
        is_text[j] = has_text(&train, j);
        missing_rank[j] = ensemble_missing_rank(sorted, n);
        fill(&train, j, is_text[j], sorted, n);
        fill(&test, j, is_text[j], sorted, n);
        if (j == train.n_columns && is_text[j]) n_classes = n;
    }
    struct ensemble_columns context = {.n_rows = train.n, .n_columns = train.n_columns, .x = train.x};
    struct ensemble_columns query = {.n_rows = test.n, .n_columns = test.n_columns, .x = test.x};
    context.is_text = query.is_text = is_text;
    context.missing_rank = query.missing_rank = missing_rank;
    struct ensemble *e = open_fit(architecture, n_classes, &context, train.y);
    compare_calls(name, e, &query, least);
    ensemble_close(e);
}

/* Heavy tails, gaps, a constant column, an all-missing one and one of two values. */
START_TEST(numeric_v2_6) { predict("predict_numeric_v2_6_cls", "\"tabpfn_v2_6\"", least_share); }
END_TEST

/* The preset with quantiles next to the originals and half as many SVD columns. */
START_TEST(numeric_v2) { predict("predict_numeric_v2_cls", NULL, least_share); }
END_TEST

/* Texts, some of which the training rows lack, and numbers that are few. */
START_TEST(mixed_v2_6) { predict("predict_mixed_v2_6_cls", "tabpfn_v2_6", least_share); }
END_TEST
START_TEST(mixed_v2) { predict("predict_mixed_v2_cls", "tabpfn_v2", least_share); }
END_TEST

/* Targets as they are and through powers; v2 has powers of columns too, whose hashes nobody can repeat. */
START_TEST(numeric_regression_v2_6) { predict("predict_numeric_v2_6_reg", "tabpfn_v2_6", least_share); }
END_TEST
START_TEST(mixed_regression_v2_6) { predict("predict_mixed_v2_6_reg", "tabpfn_v2_6", least_share); }
END_TEST
START_TEST(mixed_regression_v2) { predict("predict_mixed_v2_reg", "tabpfn_v2", 0.5); }
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
START_TEST(wide_v2_6)
{
    struct ckpt *c;
    MUST(ckpt_open(&c, unit_data("reference/predict_wide_v2_6_cls.raw.safetensors"), &f));
    struct ensemble_columns train = matrix_of(c, "X_train"), test = matrix_of(c, "X_test");
    double y[ROWS_MAX];
    for (size_t i = 0; i < train.n_rows; i++) y[i] = ckpt_value(tensor_of(c, "y_train"), i);
    struct ensemble *e = open_fit("tabpfn_v2_6", 3, &train, y);
    compare_calls("predict_wide_v2_6_cls", e, &test, least_share_wide);
    ensemble_close(e);
    free((void *)(uintptr_t)train.x);
    free((void *)(uintptr_t)test.x);
    ckpt_close(c);
}
END_TEST

UNIT_MAIN("ensemble/predictions", numeric_v2_6, numeric_v2, mixed_v2_6, mixed_v2, numeric_regression_v2_6,
          mixed_regression_v2_6, mixed_regression_v2, wide_v2_6)
