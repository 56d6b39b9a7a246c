/* Targets and distributions against TabPFN 9.2.0 (tests/data/ensemble/make_distribution.py), and what is refused. */
#include "ensemble/regression.h"
#include "reference.h"

enum { ROWS_MAX = 128, BORDERS_MAX = 64, QUERY_MAX = 16, ESTIMATORS = 4 };

static struct tabft_failure f;
static double x[ROWS_MAX * 2], y[ROWS_MAX];

/* Estimators 0 and 2 take the target as it is, 1 and 3 through a power. */
static struct ensemble *open_fit(size_t n, const char *config)
{
    struct ensemble_options options = {.n_estimators = ESTIMATORS, .seed = 1, .phase = ENSEMBLE_PREDICTION};
    options.inference_config = config;
    struct ensemble_columns context = {.n_rows = n, .n_columns = 2, .x = x};
    struct ensemble *e;
    for (size_t i = 0; i < 2 * n; i++) x[i] = (double)(i * i % 101);
    MUST(ensemble_open_regression(&e, &options, &context, y, NULL, &f));
    return e;
}

#define CONFIG                                                                                      \
    "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\"}, {\"name\": \"squashing_scaler_default\"}]," \
    " \"REGRESSION_Y_PREPROCESS_TRANSFORMS\": [null, \"safepower\"]}"

static void near(double ours, double theirs, double tolerance, const char *what)
{
    ck_assert_msg(fabs(ours - theirs) <= tolerance * fmax(1, fabs(theirs)), "%s is %.17g instead of %.17g", what, ours,
                  theirs);
}

static void one_grid(const struct ckpt *c, const struct ensemble *e, const char *grid)
{
    const struct ckpt_tensor *borders_t = tensor_of(c, "%s.borders", grid), *logits = tensor_of(c, "%s.logits", grid);
    const struct ckpt_tensor *own = tensor_of(c, "%s.own_borders", grid), *mask = tensor_of(c, "%s.mask", grid);
    const struct ckpt_tensor *recorded = tensor_of(c, "%s.probability", grid), *mean = tensor_of(c, "%s.mean", grid);
    const struct ckpt_tensor *quantiles = tensor_of(c, "%s.quantiles", grid);
    size_t n = borders_t->count, n_query = recorded->shape[0];
    static double borders[BORDERS_MAX], out[BORDERS_MAX], probability[QUERY_MAX * BORDERS_MAX];
    bool is_masked[BORDERS_MAX];
    ck_assert(n <= BORDERS_MAX && n_query <= QUERY_MAX);
    for (size_t i = 0; i < n; i++) borders[i] = ckpt_value(borders_t, i);

    ck_assert(!ensemble_borders(e, 0, borders, n, out, is_masked));
    ck_assert(ensemble_borders(e, 1, borders, n, out, is_masked));
    for (size_t i = 0; i < n; i++) near(out[i], ckpt_value(own, i), 1e-6, "a border");
    for (size_t i = 0; i + 1 < n; i++) ck_assert_int_eq(is_masked[i], (int)ckpt_value(mask, i));

    struct ensemble_targets t = ensemble_targets(e);
    MUST(ensemble_distribution(e, logits->data, n_query, borders, n, probability, &f));
    for (size_t i = 0; i < n_query * (n - 1); i++) near(probability[i], ckpt_value(recorded, i), 1e-7, "a probability");
    for (size_t q = 0; q < n_query; q++) {
        const double *p = probability + q * (n - 1);
        near(ensemble_mean(t, borders, n, p), ckpt_value(mean, q), 1e-6, "a mean");
        for (size_t k = 1; k < 10; k++)
            near(ensemble_quantile(t, borders, n, p, (double)k / 10), ckpt_value(quantiles, (k - 1) * n_query + q),
                 1e-5, "a quantile");
        ck_assert(isinf(ensemble_quantile(t, borders, n, p, 0)) && isinf(ensemble_quantile(t, borders, n, p, 1)));
    }
}

START_TEST(distributions)
{
    struct ckpt *c;
    MUST(ckpt_open(&c, unit_data("ensemble/distribution.safetensors"), &f));
    const struct ckpt_tensor *recorded = tensor_of(c, "y");
    ck_assert_uint_le(recorded->count, ROWS_MAX);
    for (size_t i = 0; i < recorded->count; i++) y[i] = ckpt_value(recorded, i);
    struct ensemble *e = open_fit(recorded->count, CONFIG);
    one_grid(c, e, "wide");
    one_grid(c, e, "narrow");
    one_grid(c, e, "quantiles");
    ensemble_close(e);
    ckpt_close(c);
}
END_TEST

START_TEST(equal_targets)
{
    for (size_t i = 0; i < 20; i++) y[i] = 4.25;
    struct ensemble *e = open_fit(20, CONFIG);
    struct ensemble_targets t = ensemble_targets(e);
    struct ensemble_call call;
    ck_assert(t.all_equal && t.mean == 4.25);
    MUST(ensemble_call(e, 1, NULL, NULL, &call, &f));
    for (size_t i = 0; i < 20; i++) ck_assert(call.y_context[i] == 0);
    ensemble_call_clear(&call);
    ensemble_close(e);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
    struct ensemble_options options = {.n_estimators = 2, .seed = 1, .phase = ENSEMBLE_PREDICTION};
    struct ensemble_columns context = {.n_rows = 10, .n_columns = 2, .x = x};
    struct ensemble *e;
    for (size_t i = 0; i < 20; i++) x[i] = y[i] = (double)i;
    y[4] = (double)NAN;
    MUST_FAIL(ensemble_open_regression(&e, &options, &context, y, NULL, &f), TABFT_INPUT,
              "row 4 (from 0): the target is not a number");
    y[4] = 4;
    options.n_classes = 2;
    MUST_FAIL(ensemble_open_regression(&e, &options, &context, y, NULL, &f), TABFT_USE, "numbers and 2 classes");
    options.n_classes = 0;
    options.balance_probabilities = true;
    MUST_FAIL(ensemble_open_regression(&e, &options, &context, y, NULL, &f), TABFT_USE, "cannot be balanced");
    options.balance_probabilities = false;
    options.inference_config = "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\"}],"
                               " \"REGRESSION_Y_PREPROCESS_TRANSFORMS\": [\"quantile_norm\"]}";
    MUST_FAIL(ensemble_open_regression(&e, &options, &context, y, NULL, &f), TABFT_INPUT, "is \"quantile_norm\"");
    options.inference_config = "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\"}],"
                               " \"FIX_NAN_BORDERS_AFTER_TARGET_TRANSFORM\": false}";
    MUST_FAIL(ensemble_open_regression(&e, &options, &context, y, NULL, &f), TABFT_INPUT, "FIX_NAN_BORDERS");
    options.inference_config = "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\"}],"
                               " \"SUBSAMPLE_SAMPLES\": 5, \"SAMPLE_SUBSAMPLING_METHOD\": \"stratified\"}";
    MUST_FAIL(ensemble_open_regression(&e, &options, &context, y, NULL, &f), TABFT_INPUT, "stratified");

    e = open_fit(10, CONFIG);
    const double borders[4] = {-1, 0, 1, 2};
    float logits[ESTIMATORS][3] = {{0}};
    double probability[3];
    MUST_FAIL(ensemble_distribution(e, &logits[0][0], 1, borders, 3, probability, &f), TABFT_INPUT, "2 target buckets");
    double means[1] = {0};
    options = (struct ensemble_options){.n_estimators = ESTIMATORS,
                                        .seed = 1,
                                        .phase = ENSEMBLE_PREDICTION,
                                        .inference_config = CONFIG,
                                        .average_before_softmax = true};
    struct ensemble *before;
    MUST(ensemble_open_regression(&before, &options, &context, y, NULL, &f));
    MUST_FAIL(ensemble_add_means(before, 0, &logits[0][0], 1, borders, 4, means, &f), TABFT_USE, "after the softmax");
    logits[0][0] = logits[2][2] = 1e6f; /* each finds one bucket possible, and another one */
    MUST_FAIL(ensemble_distribution(before, &logits[0][0], 1, borders, 4, probability, &f), TABFT_INPUT,
              "no target is possible to all estimators");
    logits[0][0] = logits[2][2] = 0;
    ensemble_close(before);
    logits[2][1] = NAN;
    MUST_FAIL(ensemble_distribution(e, &logits[0][0], 1, borders, 4, probability, &f), TABFT_INPUT,
              "query row 1: estimator 3");
    ensemble_close(e);
}
END_TEST

UNIT_MAIN("ensemble/regression", distributions, equal_targets, what_cannot_be_is_refused)
