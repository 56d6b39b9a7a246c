/* One untidy table under many inference_configs, against what TabPFN 9.2.0 made of it
 * (tests/data/ensemble/make_variants.py): every transform, encoding, shift and subset that TabFT takes. */
#include <jansson.h>

#include "ensemble/ensemble.h"
#include "reference.h"

enum { ROWS_MAX = 256, COLUMNS_MAX = 80 };

static struct tabft_failure f;
static size_t n_context;

struct rows {
    size_t n, n_columns;
    double x[ROWS_MAX * COLUMNS_MAX], missing_rank[COLUMNS_MAX];
    const bool *is_text;
};
static struct rows raw, text_context, text_whole, broad, infinite, large, late;
static const bool text_is_text[COLUMNS_MAX] = {false, true, true, true, false};
static int32_t raw_y[ROWS_MAX];

static void read_rows(const struct ckpt *c, const char *name, const bool *is_text, size_t rank_row, struct rows *rows)
{
    const struct ckpt_tensor *x = tensor_of(c, "%s", name), *rank = tensor_of(c, "text.missing_rank");
    rows->n = x->shape[0];
    rows->n_columns = x->shape[1];
    rows->is_text = is_text;
    ck_assert(rows->n <= ROWS_MAX && rows->n_columns <= COLUMNS_MAX && n_context < rows->n);
    for (size_t i = 0; i < rows->n * rows->n_columns; i++) rows->x[i] = ckpt_value(x, i);
    for (size_t j = 0; is_text != NULL && j < rows->n_columns; j++)
        rows->missing_rank[j] = ckpt_value(rank, rank_row * rows->n_columns + j);
}

static void read_all(const struct ckpt *c)
{
    const struct ckpt_tensor *y = tensor_of(c, "raw.y");
    n_context = strtoul(ckpt_metadata(c, "context"), NULL, 10);
    read_rows(c, "raw.X", NULL, 0, &raw);
    read_rows(c, "broad.X", NULL, 0, &broad);
    read_rows(c, "infinite.X", NULL, 0, &infinite);
    read_rows(c, "large.X", NULL, 0, &large);
    read_rows(c, "late.X", NULL, 0, &late);
    read_rows(c, "text.X_context", text_is_text, 0, &text_context);
    read_rows(c, "text.X_whole", text_is_text, 1, &text_whole);
    for (size_t i = 0; i < raw.n; i++) raw_y[i] = (int32_t)ckpt_value(y, i);
}

/* Rows [first, end) of a table. */
static struct ensemble_columns part_of(const struct rows *rows, size_t first, size_t end)
{
    return (struct ensemble_columns){.n_rows = end - first,
                                     .n_columns = rows->n_columns,
                                     .x = rows->x + first * rows->n_columns,
                                     .is_text = rows->is_text,
                                     .missing_rank = rows->is_text != NULL ? rows->missing_rank : NULL};
}

static void one_estimator(const struct ckpt *c, const struct ensemble *e, const struct ensemble_columns *query,
                          int variant, size_t estimator, struct tally *tally)
{
    char what[64];
    struct ensemble_call call;
    (void)snprintf(what, sizeof what, "variant %d estimator %zu", variant, estimator);
    MUST(ensemble_call(e, estimator, query, NULL, &call, &f));
    compare(call.x, tensor_of(c, "v%d.e%zu.x", variant, estimator), call.n_context + call.n_query, call.n_columns,
            call.fingerprint_may_differ ? call.fingerprint_column : -1, tally, what);
    const struct ckpt_tensor *y = tensor_of(c, "v%d.e%zu.y", variant, estimator);
    ck_assert_uint_eq(y->count, call.n_context);
    for (size_t i = 0; i < call.n_context; i++) ck_assert((double)call.y_context[i] == ckpt_value(y, i));
    ensemble_call_clear(&call);
}

static void one_variant(const struct ckpt *c, int variant, struct tally *tally, struct tally *single)
{
    struct tally powers = {0}; /* lambda is known to 1e-8, so nothing is said of hashes behind it */
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
    const char *table = json_string_value(json_object_get(root, "table"));
    static const struct {
        const char *name;
        const struct rows *rows;
    } tables[] = {{"broad", &broad}, {"infinite", &infinite}, {"large", &large}, {"late", &late}};
    const struct rows *rows = &raw;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strcmp(table, tables[i].name) == 0) rows = tables[i].rows;
    if (strcmp(table, "text") == 0) rows = predicts ? &text_context : &text_whole;
    struct ensemble_columns context = part_of(rows, 0, n_context), query = part_of(rows, n_context, rows->n);
    struct ensemble *e;
    MUST(ensemble_open(&e, &options, &context, raw_y, predicts ? NULL : &query, &f));
    const bool in_single = strstr(config, "\"ENABLE_GPU_PREPROCESSING\": true") != NULL && strstr(config, "svd") != NULL;
    if (in_single) powers.bound = single->bound;
    if (strstr(config, "power") != NULL) tally = &powers;
    else if (in_single) tally = single;
    for (size_t i = 0; i < options.n_estimators; i++)
        one_estimator(c, e, predicts ? &query : NULL, variant, i, tally);
    ensemble_close(e);
    free(config);
    json_decref(root);
}

START_TEST(every_variant)
{
    struct ckpt *c;
    /* Torch's SVD is of float32, and so is its error. Fingerprints behind it or its square roots say nothing. */
    struct tally tally = {0}, single = {.bound = 2e-4};
    MUST(ckpt_open(&c, unit_data("ensemble/variants.safetensors"), &f));
    read_all(c);
    int n = atoi(ckpt_metadata(c, "variants"));
    ck_assert_int_ge(n, 34);
    for (int i = 0; i < n; i++) one_variant(c, i, &tally, &single);
    report("variants", &tally, 0.95);
    printf("in float32: largest difference %.3g\n", single.worst);
    ck_assert_double_gt(single.worst, 0);
    ckpt_close(c);
}
END_TEST

UNIT_MAIN("ensemble/variants", every_variant)
