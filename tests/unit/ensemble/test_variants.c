/* One untidy table under many inference_configs, against what TabPFN 9.2.0 made of it
 * (tests/data/ensemble/make_variants.py): every transform, encoding, shift and subset that TabFT takes. */
#include <jansson.h>

#include "ensemble/ensemble.h"
#include "reference.h"

enum { ROWS_MAX = 256, COLUMNS_MAX = 32 };

static struct tabft_failure f;
static double raw[ROWS_MAX * COLUMNS_MAX];
static int32_t raw_y[ROWS_MAX];
static size_t n_rows, n_columns, n_context;

static void read_raw(const struct ckpt *c)
{
    const struct ckpt_tensor *x = tensor_of(c, "raw.X"), *y = tensor_of(c, "raw.y");
    n_rows = x->shape[0];
    n_columns = x->shape[1];
    n_context = strtoul(ckpt_metadata(c, "context"), NULL, 10);
    ck_assert(n_rows <= ROWS_MAX && n_columns <= COLUMNS_MAX && n_context < n_rows);
    for (size_t i = 0; i < n_rows * n_columns; i++) raw[i] = ckpt_value(x, i);
    for (size_t i = 0; i < n_rows; i++) raw_y[i] = (int32_t)ckpt_value(y, i);
}

static void one_estimator(const struct ckpt *c, const struct ensemble *e, const struct ensemble_columns *query,
                          int variant, size_t estimator, struct tally *tally)
{
    char what[64];
    struct ensemble_call call;
    (void)snprintf(what, sizeof what, "variant %d estimator %zu", variant, estimator);
    MUST(ensemble_call(e, estimator, query, NULL, &call, &f));
    compare(call.x, tensor_of(c, "v%d.e%zu.x", variant, estimator), call.n_context + call.n_query, call.n_columns,
            call.follows_svd ? call.fingerprint_column : -1, tally, what);
    const struct ckpt_tensor *y = tensor_of(c, "v%d.e%zu.y", variant, estimator);
    ck_assert_uint_eq(y->count, call.n_context);
    for (size_t i = 0; i < call.n_context; i++) ck_assert((double)call.y_context[i] == ckpt_value(y, i));
    ensemble_call_clear(&call);
}

static void one_variant(const struct ckpt *c, int variant, struct tally *tally)
{
    char key[32];
    (void)snprintf(key, sizeof key, "variant%d", variant);
    json_t *root = json_loads(ckpt_metadata(c, key), 0, NULL);
    ck_assert_ptr_nonnull(root);
    char *config = json_dumps(json_object_get(root, "inference_config"), 0);
    bool predicts = strcmp(json_string_value(json_object_get(root, "phase")), "prediction") == 0;
    struct ensemble_options options = {
        .n_estimators = (size_t)json_integer_value(json_object_get(root, "estimators")),
        .seed = (uint32_t)json_integer_value(json_object_get(root, "seed")),
        .phase = predicts ? ENSEMBLE_PREDICTION : ENSEMBLE_FINETUNING,
        .n_classes = 3,
        .inference_config = config,
    };
    struct ensemble_columns context = {.n_rows = n_context, .n_columns = n_columns, .x = raw};
    struct ensemble_columns query = {
        .n_rows = n_rows - n_context, .n_columns = n_columns, .x = raw + n_context * n_columns};
    struct ensemble *e;
    MUST(ensemble_open(&e, &options, &context, raw_y, predicts ? NULL : &query, &f));
    for (size_t i = 0; i < options.n_estimators; i++) one_estimator(c, e, predicts ? &query : NULL, variant, i, tally);
    ensemble_close(e);
    free(config);
    json_decref(root);
}

START_TEST(every_variant)
{
    struct ckpt *c;
    struct tally tally = {0};
    MUST(ckpt_open(&c, unit_data("ensemble/variants.safetensors"), &f));
    read_raw(c);
    int n = atoi(ckpt_metadata(c, "variants"));
    ck_assert_int_ge(n, 8);
    for (int i = 0; i < n; i++) one_variant(c, i, &tally);
    report("variants", &tally, 0.95);
    ckpt_close(c);
}
END_TEST

UNIT_MAIN("ensemble/variants", every_variant)
