/* What TabPFN 9.2.0's fine-tuning gave its network, step by step, against what we give ours from the same raw rows:
 * tests/data/reference. Values within 1e-5 (of the value where it is above 1). The fingerprint of an estimator with SVD
 * columns hashes last bits, and those of these runs hang on the recording machine: the singular values lie within 0.3 %
 * of each other, TabPFN itself reproduces 91.0 % of the classifier's fingerprints on a processor with AVX-512 and an
 * SVD without rounding errors 93.9 %. Ours does not depend on the processor and gives the latter. */
#include "base/threads.h"
#include "ensemble/regression.h"
#include "reference.h"

static const double least_share = 0.93;
static struct tabft_failure f;

enum { RAW_ROWS = 400, RAW_COLUMNS = 20, ESTIMATORS = 5, STEPS = 4, SEED = 17 };

/* A recorded run: which estimator shows the raw values among its columns, and the task. */
struct run {
    const char *file;
    int plain_estimator;
    bool is_regression;
};
static const struct run classifier = {"reference/finetune_v2_6_cls.vectors.safetensors", 2, false};
static const struct run regressor = {"reference/finetune_v2_6_reg.vectors.safetensors", 0, true};

struct rows {
    size_t n;
    double x[RAW_ROWS][RAW_COLUMNS], y[RAW_ROWS];
    int32_t code[RAW_ROWS];
};
static struct rows raw;

static void read_raw(const struct ckpt *c)
{
    const struct ckpt_tensor *x = tensor_of(c, "raw.X_train"), *y = tensor_of(c, "raw.y_train");
    ck_assert_uint_eq(x->count, RAW_ROWS * RAW_COLUMNS);
    ck_assert_uint_eq(y->count, RAW_ROWS);
    raw.n = RAW_ROWS;
    for (size_t i = 0; i < RAW_ROWS; i++) {
        for (size_t j = 0; j < RAW_COLUMNS; j++) raw.x[i][j] = ckpt_value(x, i * RAW_COLUMNS + j);
        raw.y[i] = ckpt_value(y, i);
        raw.code[i] = (int32_t)raw.y[i];
    }
}

/* The raw row whose values are all among a recorded row. */
static size_t find_raw(const struct ckpt_tensor *t, size_t row)
{
    size_t width = t->shape[1], found = RAW_ROWS;
    for (size_t i = 0; i < RAW_ROWS; i++) {
        size_t j = 0;
        for (; j < RAW_COLUMNS; j++) {
            size_t k = 0;
            while (k < width && ckpt_value(t, row * width + k) != raw.x[i][j]) k++;
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

static struct ensemble_columns rows_of(const struct ckpt_tensor *t, struct rows *rows)
{
    rows->n = t->shape[0];
    for (size_t i = 0; i < rows->n; i++) {
        size_t row = find_raw(t, i);
        memcpy(rows->x[i], raw.x[row], sizeof raw.x[row]);
        rows->y[i] = raw.y[row];
        rows->code[i] = raw.code[row];
    }
    return (struct ensemble_columns){.n_rows = rows->n, .n_columns = RAW_COLUMNS, .x = &rows->x[0][0]};
}

static void compare_targets(const float *y, const struct ckpt_tensor *t, size_t n, double tolerance, const char *what)
{
    ck_assert_uint_eq(t->count, n);
    for (size_t k = 0; k < n; k++) {
        double ours = (double)y[k], theirs = ckpt_value(t, k);
        ck_assert_msg(fabs(ours - theirs) <= tolerance, "%s: target %zu is %.9g instead of %.9g", what, k, ours,
                      theirs);
    }
}

/* Labels exactly. The recorded regression had float32 targets, in which TabPFN standardises, and in which it finds the
 * lambda of estimators 1 and 3 to about 1e-4 (test_predictions has float64 ones, equal within 1e-6). */
static double tolerance_of(const struct run *run, size_t estimator)
{
    if (!run->is_regression) return 0;
    return estimator % 2 == 1 ? 5e-4 : 1e-6;
}

static void one_estimator(const struct ckpt *c, const struct run *run, const struct ensemble *e, int step, size_t i,
                          const struct rows *query, struct threads *pool, struct tally *tally)
{
    char what[64];
    struct ensemble_call call;
    (void)snprintf(what, sizeof what, "step %d estimator %zu", step, i);
    MUST(ensemble_call(e, i, NULL, pool, &call, &f));
    compare_targets(call.y_context, tensor_of(c, "step%d.est%zu.y_context", step, i), call.n_context,
                    run->is_regression, what);
    if (run->is_regression) {
        float targets[RAW_ROWS];
        ensemble_transform_targets(e, i, query->y, query->n, targets);
        compare_targets(targets, tensor_of(c, "step%d.est%zu.targets", step, i), query->n, tolerance_of(run, i), what);
    } else {
        const struct ckpt_tensor *permutation = tensor_of(c, "step%d.est%zu.class_permutation", step, i);
        for (size_t k = 0; k < 2; k++)
            ck_assert_int_eq(ensemble_class_permutation(e, i)[k], (int)ckpt_value(permutation, k));
    }
    int apart = call.fingerprint_may_differ ? call.fingerprint_column : -1;
    compare(call.x, tensor_of(c, "step%d.est%zu.X_context", step, i), call.n_context, call.n_columns, apart, tally,
            what);
    compare(call.x + call.n_context * call.n_columns, tensor_of(c, "step%d.est%zu.X_query", step, i), call.n_query,
            call.n_columns, apart, tally, what);
    ensemble_call_clear(&call);
}

static void one_step(const struct ckpt *c, const struct run *run, int step, struct threads *pool, struct tally *tally)
{
    static struct rows context_rows, query_rows;
    struct ensemble_columns context =
        rows_of(tensor_of(c, "step%d.est%d.X_context", step, run->plain_estimator), &context_rows);
    struct ensemble_columns query =
        rows_of(tensor_of(c, "step%d.est%d.X_query", step, run->plain_estimator), &query_rows);
    struct ensemble_options options = {.task = run->is_regression ? ENSEMBLE_REGRESSION : ENSEMBLE_CLASSIFICATION,
                                       .n_estimators = ESTIMATORS,
                                       .seed = SEED,
                                       .phase = ENSEMBLE_FINETUNING,
                                       .n_classes = run->is_regression ? 0 : 2,
                                       .architecture = "tabpfn_v2_6"};
    size_t widest[ESTIMATORS], bytes;
    struct ensemble *e;
    if (run->is_regression)
        MUST(ensemble_open_regression(&e, &options, &context, context_rows.y, &query, &f));
    else
        MUST(ensemble_open(&e, &options, &context, context_rows.code, &query, &f));
    MUST(ensemble_columns_max(&options, RAW_COLUMNS, context.n_rows, query.n_rows, 1, widest, &bytes, &f));
    for (size_t i = 0; i < ESTIMATORS; i++) {
        ck_assert_uint_eq(tensor_of(c, "step%d.est%zu.X_context", step, i)->shape[1], widest[i]);
        one_estimator(c, run, e, step, i, &query_rows, pool, tally);
    }
    ensemble_close(e);
}

static void whole_run(const struct run *run)
{
    struct ckpt *c;
    struct tally tally = {0};
    struct threads *pool;
    MUST(ckpt_open(&c, unit_data(run->file), &f));
    MUST(threads_open(&pool, 2, &f));
    read_raw(c);
    for (int step = 0; step < STEPS; step++) one_step(c, run, step, step % 2 ? pool : NULL, &tally);
    report(run->file, &tally, least_share);
    threads_close(pool);
    ckpt_close(c);
}

START_TEST(classifier_run) { whole_run(&classifier); }
END_TEST

START_TEST(regressor_run) { whole_run(&regressor); }
END_TEST

UNIT_MAIN("ensemble/reference", classifier_run, regressor_run)
