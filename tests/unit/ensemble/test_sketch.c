/* Tables that are large enough for torch.svd_lowrank where the checkpoint leaves the SVD to torch: its directions come from
 * its random numbers, and ours are held to them (tests/data/ensemble/make_sketch.py), in tables with more rows than columns
 * and with fewer. How far they are from the singular vectors says how much that is. */
#include "base/threads.h"
#include "ensemble/ensemble.h"
#include "reference.h"

enum { SHOWN = 6, QUERY = 6, FACTORS = 12, SEED = 5 };
static struct tabft_failure f;

static double uniform(uint64_t i, uint64_t salt)
{
    static const uint64_t factor[] = {UINT64_C(0xff51afd7ed558ccd), UINT64_C(0xc4ceb9fe1a85ec53)};
    uint64_t k = i + (salt << 32);
    for (int round = 0; round < 2; round++) k = (k ^ k >> 33) * factor[round];
    return (double)(k >> 40) / 0x1p24 - 0.5;
}

static double *make_table(size_t rows, size_t columns)
{
    double *x = malloc(rows * columns * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            double value = uniform(i * columns + j, 3) / 8;
            for (size_t k = 0; k < FACTORS; k++)
                value += uniform(i * FACTORS + k, 1) * uniform(k * columns + j, 2) * pow(0.75, (double)k);
            x[i * columns + j] = uniform(i * columns + j, 4) > 0.49 ? (double)NAN : value;
        }
    return x;
}

/* The worst difference of a column of coordinates, over the largest in it. */
static double difference(const struct ensemble_call *call, size_t columns, size_t c, const struct ckpt_tensor *t)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < SHOWN + QUERY; i++) {
        size_t row = i < SHOWN ? i : call->n_context + i - SHOWN;
        double theirs = ckpt_value(t, i * t->shape[1] + c);
        worst = fmax(worst, fabs((double)call->x[row * call->n_columns + columns + c] - theirs));
        largest = fmax(largest, fabs(theirs));
    }
    return worst / largest;
}

static void check(const struct ckpt *c, const char *name, size_t n, size_t columns)
{
    static int32_t y[2600];
    double *x = make_table(n + QUERY, columns), worst = 0, exact = 0;
    const struct ensemble_columns context = {.n_rows = n, .n_columns = columns, .x = x};
    const struct ensemble_columns query = {.n_rows = QUERY, .n_columns = columns, .x = x + n * columns};
    const struct ckpt_tensor *t = tensor_of(c, "%s.x", name), *e = tensor_of(c, "%s.exact", name);
    const struct ensemble_options options = {
        .n_estimators = 1,
        .seed = SEED,
        .phase = ENSEMBLE_PREDICTION,
        .n_classes = 2,
        .inference_config = "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"squashing_scaler_default\","
                            " \"categorical_name\": \"numeric\", \"max_features_per_estimator\": 9000,"
                            " \"global_transformer_name\": \"svd_quarter_components\"}],"
                            " \"ENABLE_GPU_PREPROCESSING\": true, \"FEATURE_SHIFT_METHOD\": null,"
                            " \"OUTLIER_REMOVAL_STD\": null}"};
    struct threads *pool;
    struct ensemble *ensemble;
    struct ensemble_call call;
    for (size_t i = 0; i < n; i++) y[i] = (int32_t)(i % 2);
    MUST(threads_open(&pool, 2, &f));
    MUST(ensemble_open(&ensemble, &options, &context, y, NULL, &f));
    MUST(ensemble_call(ensemble, 0, &query, pool, &call, &f));
    const size_t k = t->shape[1] - 1; /* the last is the fingerprint */
    size_t near = 0;
    ck_assert_uint_eq(call.n_columns, columns + k + 1);
    for (size_t i = 0; i < k; i++) {
        double d = difference(&call, columns, i, t);
        worst = fmax(worst, d);
        near += d <= 1e-4;
        exact = fmax(exact, difference(&call, columns, i, e));
    }
    printf("%s: %zu of %zu coordinates within 1e-4 of those of the sketch, all within %.2g; within %.2g of exact ones\n",
           name, near, k, worst, exact);
    (void)fflush(stdout);
    ck_assert_uint_ge(near * 10, k * 8); /* where singular values nearly meet, float32 turns directions */
    ck_assert_double_le(worst, 2e-2);
    ck_assert_double_ge(exact, 0.3); /* or the sketch would say nothing */
    ensemble_call_clear(&call);
    ensemble_close(ensemble);
    threads_close(pool);
    free(x);
}

START_TEST(large_tables_are_decomposed_as_torch_does)
{
    struct ckpt *c;
    MUST(ckpt_open(&c, unit_data("ensemble/sketch.safetensors"), &f));
    check(c, "tall", 2600, 400);
    check(c, "wide", 400, 2600);
    ckpt_close(c);
}
END_TEST

UNIT_MAIN("ensemble/sketch", large_tables_are_decomposed_as_torch_does)
