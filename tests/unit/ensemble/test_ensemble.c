/* What holds for every table: no sign of threads or blocks, columns that tell nothing, gaps, refusals, sizes foretold.
 */
#include <check.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "base/threads.h"
#include "ensemble/ensemble.h"
#include "table/table.h"
#include "unit.h"

enum { CONTEXT = 150, QUERY = 50, COLUMNS = 7, CLASSES = 3 };

static struct tabft_failure f;

/* Numbers, gaps, few values, a heavy tail; the last column constant, the one before all missing. */
struct example {
    double context[CONTEXT][COLUMNS], query[QUERY][COLUMNS];
    int32_t y[CONTEXT];
};

static double example_cell(struct random_pcg *g, size_t column)
{
    double u = random_pcg_double(g);
    if (column == 5) return (double)NAN;
    if (column == 6) return 7;
    if (random_pcg_double(g) < 0.1) return (double)NAN;
    if (column == 1) return floor(u * 3);
    if (column == 2) return 1 / (u + 1e-4);
    return u;
}

/* The example that every test begins with; what it changes in it, it changes for itself. */
static struct example data;
static struct ensemble_columns context, query;

static void make_example(void)
{
    struct random_pcg g;
    random_pcg_seed(&g, 11);
    for (size_t i = 0; i < CONTEXT; i++) {
        for (size_t j = 0; j < COLUMNS; j++) data.context[i][j] = example_cell(&g, j);
        data.y[i] = (int32_t)random_pcg_integer(&g, 0, CLASSES);
    }
    for (size_t i = 0; i < QUERY; i++)
        for (size_t j = 0; j < COLUMNS; j++) data.query[i][j] = example_cell(&g, j);
    context = (struct ensemble_columns){.n_rows = CONTEXT, .n_columns = COLUMNS, .x = &data.context[0][0]};
    query = (struct ensemble_columns){.n_rows = QUERY, .n_columns = COLUMNS, .x = &data.query[0][0]};
}

static struct ensemble_options options_of(size_t n_estimators, enum ensemble_phase phase)
{
    return (struct ensemble_options){
        .n_estimators = n_estimators, .seed = 5, .phase = phase, .n_classes = CLASSES, .architecture = "tabpfn_v2_6"};
}

static void same_bits(const struct ensemble_call *a, const struct ensemble_call *b)
{
    ck_assert_uint_eq(a->n_context, b->n_context);
    ck_assert_uint_eq(a->n_query, b->n_query);
    ck_assert_uint_eq(a->n_columns, b->n_columns);
    ck_assert_int_eq(a->fingerprint_column, b->fingerprint_column);
    size_t n = (a->n_context + a->n_query) * a->n_columns;
    ck_assert_int_eq(memcmp(a->x, b->x, n * sizeof *a->x), 0);
    ck_assert_int_eq(memcmp(a->y_context, b->y_context, a->n_context * sizeof *a->y_context), 0);
}

START_TEST(threads_do_not_show)
{
    make_example();
    const char *const architectures[] = {"tabpfn_v2", "tabpfn_v2_6"};
    for (size_t a = 0; a < 2; a++) {
        struct ensemble_options options = options_of(4, ENSEMBLE_FINETUNING);
        options.architecture = architectures[a];
        struct ensemble *e;
        MUST(ensemble_open(&e, &options, &context, data.y, &query, &f));
        for (size_t i = 0; i < 4; i++) {
            struct ensemble_call one, three;
            struct threads *pool;
            MUST(threads_open(&pool, 3, &f));
            MUST(ensemble_call(e, i, NULL, NULL, &one, &f));
            MUST(ensemble_call(e, i, NULL, pool, &three, &f));
            same_bits(&one, &three);
            ensemble_call_clear(&one);
            ensemble_call_clear(&three);
            threads_close(pool);
        }
        ensemble_close(e);
    }
}
END_TEST

START_TEST(query_blocks_do_not_show)
{
    make_example();
    struct ensemble_options options = options_of(3, ENSEMBLE_PREDICTION);
    struct ensemble *e;
    MUST(ensemble_open(&e, &options, &context, data.y, NULL, &f));
    for (size_t i = 0; i < 3; i++) {
        struct ensemble_call whole, none;
        MUST(ensemble_call(e, i, &query, NULL, &whole, &f));
        MUST(ensemble_call(e, i, NULL, NULL, &none, &f));
        ck_assert_uint_eq(none.n_query, 0);
        ck_assert_int_eq(memcmp(none.x, whole.x, CONTEXT * whole.n_columns * sizeof *whole.x), 0);
        for (size_t first = 0; first < QUERY; first += 7) {
            struct ensemble_columns part = {.n_rows = QUERY - first < 7 ? QUERY - first : 7, .n_columns = COLUMNS};
            part.x = &data.query[first][0];
            struct ensemble_call call;
            MUST(ensemble_call(e, i, &part, NULL, &call, &f));
            ck_assert_int_eq(memcmp(call.x + CONTEXT * call.n_columns, whole.x + (CONTEXT + first) * whole.n_columns,
                                    part.n_rows * call.n_columns * sizeof *call.x),
                             0);
            ensemble_call_clear(&call);
        }
        ensemble_call_clear(&whole);
        ensemble_call_clear(&none);
    }
    ensemble_close(e);
}
END_TEST

/* The same rows without their constant and all-missing columns give the same calls, bit for bit. */
START_TEST(useless_columns_do_not_show)
{
    static double context_few[CONTEXT][5], query_few[QUERY][5];
    make_example();
    for (size_t i = 0; i < CONTEXT; i++) memcpy(context_few[i], data.context[i], sizeof context_few[i]);
    for (size_t i = 0; i < QUERY; i++) memcpy(query_few[i], data.query[i], sizeof query_few[i]);
    struct ensemble_columns few_context = {.n_rows = CONTEXT, .n_columns = 5, .x = &context_few[0][0]};
    struct ensemble_columns few_query = {.n_rows = QUERY, .n_columns = 5, .x = &query_few[0][0]};
    for (int phase = 0; phase < 2; phase++) {
        struct ensemble_options options = options_of(4, phase ? ENSEMBLE_PREDICTION : ENSEMBLE_FINETUNING);
        struct ensemble *e, *few;
        MUST(ensemble_open(&e, &options, &context, data.y, phase ? NULL : &query, &f));
        MUST(ensemble_open(&few, &options, &few_context, data.y, phase ? NULL : &few_query, &f));
        for (size_t i = 0; i < 4; i++) {
            struct ensemble_call a, b;
            MUST(ensemble_call(e, i, phase ? &query : NULL, NULL, &a, &f));
            MUST(ensemble_call(few, i, phase ? &few_query : NULL, NULL, &b, &f));
            same_bits(&a, &b);
            ensemble_call_clear(&a);
            ensemble_call_clear(&b);
        }
        ensemble_close(e);
        ensemble_close(few);
    }
}
END_TEST

enum { JUDGED = 9, JUDGED_ROWS = 4 };

/* Columns [first, first + n) of those that are judged, packed. */
static struct table *judged_table(const double (*value)[JUDGED_ROWS], size_t first, size_t n)
{
    static const char *const names[JUDGED] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    static const char *const texts[2] = {"no", "yes"};
    struct table_column column[JUDGED];
    struct table *t;
    for (size_t i = 0; i < n; i++) {
        const bool is_text = first + i >= 5 && first + i < 7;
        column[i] = (struct table_column){.name = names[first + i],
                                          .kind = is_text ? TABLE_TEXT : TABLE_FLOAT,
                                          .value = value[first + i],
                                          .n_dictionary = is_text ? 2 : 0,
                                          .dictionary = is_text ? texts : NULL};
    }
    const struct table_output output = {.n_rows = JUDGED_ROWS,
                                        .n_columns = n,
                                        .column = column,
                                        .target = SIZE_MAX,
                                        .task = TABLE_NO_TASK,
                                        .provenance = "{}"};
    MUST(table_write("judged.tbf", true, &output, NULL, &f));
    MUST(table_open_parts(&t, "judged.tbf", NULL, &f));
    ck_assert_int_eq(unlink("judged.tbf"), 0);
    return t;
}

START_TEST(useful_columns_are_judged_on_the_table)
{
    const double nan = (double)NAN, inf = (double)INFINITY;
    const double values[JUDGED][JUDGED_ROWS] = {
        {1, 2, 3, 4}, {7, 7, 7, 7}, {nan, nan, nan, nan}, {7, nan, 7, 7},      {nan, 7, 7, 7},
        {1, 1, 1, 1}, {0, 0, 1, 0}, {inf, inf, inf, inf}, {inf, inf, inf, -inf}};
    const enum ensemble_use expected[JUDGED] = {ENSEMBLE_USED,     ENSEMBLE_CONSTANT, ENSEMBLE_ALL_MISSING,
                                                ENSEMBLE_USED,     ENSEMBLE_USED,     ENSEMBLE_CONSTANT,
                                                ENSEMBLE_USED,     ENSEMBLE_CONSTANT, ENSEMBLE_USED};
    enum ensemble_use use[JUDGED];
    size_t used[JUDGED], n_used;
    struct table *t = judged_table(values, 0, JUDGED), *none = judged_table(values, 1, 2);
    MUST(ensemble_useful_columns(t, NULL, use, used, &n_used, &f));
    for (size_t i = 0; i < JUDGED; i++) ck_assert_int_eq(use[i], expected[i]);
    ck_assert_uint_eq(n_used, 5);
    ck_assert_uint_eq(used[1], 3);
    ck_assert_str_eq(ensemble_use_name(use[1]), "constant");
    ck_assert_str_eq(ensemble_use_name(use[2]), "all missing");
    MUST_FAIL(ensemble_useful_columns(none, NULL, use, used, &n_used, &f), TABFT_INPUT,
              "judged.tbf: every column is constant");
    table_close(t);
    table_close(none);
}
END_TEST

/* Any number of estimators: labels are permuted as said, sizes are as foretold, fingerprints of the context are unique.
 */
START_TEST(every_number_of_estimators)
{
    make_example();
    for (size_t n = 1; n <= 9; n++) {
        struct ensemble_options options = options_of(n, ENSEMBLE_FINETUNING);
        size_t most[9], bytes;
        struct ensemble *e;
        MUST(ensemble_open(&e, &options, &context, data.y, &query, &f));
        ck_assert_uint_eq(ensemble_count(e), n);
        MUST(ensemble_columns_max(&options, COLUMNS, CONTEXT, QUERY, 1, most, &bytes, &f));
        ck_assert_uint_ge(bytes, (CONTEXT + QUERY) * COLUMNS * sizeof(double));
        for (size_t i = 0; i < n; i++) {
            struct ensemble_call call;
            MUST(ensemble_call(e, i, NULL, NULL, &call, &f));
            ck_assert_uint_le(call.n_columns, most[i]);
            ck_assert_uint_eq(call.n_columns, call.fingerprint_may_differ ? 7 : 6); /* five vary, SVD gives one, and the
                                                                                       hash */
            unsigned seen = 0;
            for (size_t k = 0; k < CLASSES; k++) seen |= 1u << ensemble_class_permutation(e, i)[k];
            ck_assert_uint_eq(seen, 7);
            for (size_t k = 0; k < CONTEXT; k++) {
                ck_assert((int32_t)call.y_context[k] == ensemble_class_permutation(e, i)[data.y[k]]);
                for (size_t m = 0; m < k; m++)
                    ck_assert(call.x[k * call.n_columns + (size_t)call.fingerprint_column] !=
                              call.x[m * call.n_columns + (size_t)call.fingerprint_column]);
            }
            ensemble_call_clear(&call);
        }
        ensemble_close(e);
    }
}
END_TEST

/* Equal rows: context fingerprints differ, query fingerprints are those of the first such row. */
START_TEST(equal_rows_get_their_own_fingerprints)
{
    make_example();
    for (size_t i = 1; i < 6; i++) memcpy(data.context[i], data.context[0], sizeof data.context[0]);
    memcpy(data.query[0], data.context[0], sizeof data.query[0]);
    memcpy(data.query[1], data.context[0], sizeof data.query[0]);
    struct ensemble_options options = options_of(2, ENSEMBLE_FINETUNING);
    struct ensemble *e;
    MUST(ensemble_open(&e, &options, &context, data.y, &query, &f));
    for (size_t n = 0; n < 2; n++) {
        struct ensemble_call call;
        MUST(ensemble_call(e, n, NULL, NULL, &call, &f));
        const float *print = call.x + call.fingerprint_column;
        for (size_t i = 0; i < 6; i++)
            for (size_t k = 0; k < i; k++) ck_assert(print[i * call.n_columns] != print[k * call.n_columns]);
        ck_assert(print[CONTEXT * call.n_columns] == print[0]);
        ck_assert(print[(CONTEXT + 1) * call.n_columns] == print[0]);
        ensemble_call_clear(&call);
    }
    ensemble_close(e);
}
END_TEST

/* A value of a category that the context lacks: -1 where codes stay numbers (spec 3.4). */
START_TEST(unseen_categories)
{
    make_example();
    data.query[0][1] = 99;
    data.query[1][1] = 0;
    struct ensemble_options options = options_of(1, ENSEMBLE_PREDICTION);
    options.inference_config = "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\", \"categorical_name\": \"none\"}],"
                               " \"FEATURE_SHIFT_METHOD\": null, \"FINGERPRINT_FEATURE\": false,"
                               " \"MIN_UNIQUE_FOR_NUMERICAL_FEATURES\": 5, \"OUTLIER_REMOVAL_STD\": null}";
    struct ensemble *e;
    struct ensemble_call call;
    MUST(ensemble_open(&e, &options, &context, data.y, NULL, &f));
    MUST(ensemble_call(e, 0, &query, NULL, &call, &f));
    ck_assert_uint_eq(call.n_columns, 5);
    ck_assert_int_eq(call.fingerprint_column, -1);
    /* Categories stand first. */
    ck_assert(call.x[CONTEXT * 5] == -1.0f);
    ck_assert(call.x[(CONTEXT + 1) * 5] == 0.0f);
    ensemble_call_clear(&call);
    ensemble_close(e);
}
END_TEST

/* Rows far out are drawn in for prediction, and only there. */
START_TEST(outliers_are_clipped_in_prediction)
{
    make_example();
    data.query[0][0] = 1e6;
    for (int phase = 0; phase < 2; phase++) {
        struct ensemble_options options = options_of(2, phase ? ENSEMBLE_PREDICTION : ENSEMBLE_FINETUNING);
        struct ensemble *e;
        struct ensemble_call call;
        float most = 0;
        MUST(ensemble_open(&e, &options, &context, data.y, phase ? NULL : &query, &f));
        MUST(ensemble_call(e, 1, phase ? &query : NULL, NULL, &call, &f)); /* the estimator without a transform */
        for (size_t j = 0; j < call.n_columns; j++) most = fmaxf(most, call.x[CONTEXT * call.n_columns + j]);
        if (phase) ck_assert(most > 10 && most < 1e4f);
        else ck_assert(most == 1e6f);
        ensemble_call_clear(&call);
        ensemble_close(e);
    }
}
END_TEST

START_TEST(row_subsets_in_prediction)
{
    make_example();
    const char *const methods[] = {"auto", "balanced"};
    for (size_t m = 0; m < 2; m++) {
        char config[256];
        (void)snprintf(config, sizeof config,
                       "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\"}], \"SUBSAMPLE_SAMPLES\": 40,"
                       " \"SAMPLE_SUBSAMPLING_METHOD\": \"%s\"}",
                       methods[m]);
        struct ensemble_options options = options_of(4, ENSEMBLE_PREDICTION);
        options.inference_config = config;
        struct ensemble *e;
        size_t times[CONTEXT] = {0};
        MUST(ensemble_open(&e, &options, &context, data.y, NULL, &f));
        for (size_t i = 0; i < 4; i++) {
            struct ensemble_call call;
            MUST(ensemble_call(e, i, &query, NULL, &call, &f));
            ck_assert_uint_eq(call.n_context, 40);
            for (size_t k = 0; k < 40; k++) {
                ck_assert(k == 0 || call.context_row[k] > call.context_row[k - 1]);
                ck_assert((int32_t)call.y_context[k] == ensemble_class_permutation(e, i)[data.y[call.context_row[k]]]);
                times[call.context_row[k]]++;
            }
            ensemble_call_clear(&call);
        }
        for (size_t k = 0; k < CONTEXT; k++) ck_assert_uint_le(times[k], 2); /* 160 of 150 rows, dealt evenly */
        ensemble_close(e);
    }
}
END_TEST

static void refuses(const char *config, const char *text)
{
    make_example();
    struct ensemble_options options = options_of(2, ENSEMBLE_PREDICTION);
    options.inference_config = config;
    struct ensemble *e;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, NULL, &f), TABFT_INPUT, text);
}

/* What TabPFN's n_estimators="auto" comes to. */
START_TEST(number_of_estimators_by_default)
{
    static const struct {
        const char *config;
        size_t n_columns, expected;
    } cases[] = {
        {NULL, 1, 8},
        {NULL, 4000, 8},
        {NULL, 4001, 9},
        {NULL, 16001, 32},
        {NULL, 90000, 32},
        {"{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\", \"max_features_per_estimator\": 680},"
         " {\"name\": \"none\", \"max_features_per_estimator\": 100}], \"N_ESTIMATORS\": \"auto\"}",
         1001, 11},
        {"{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\"}], \"N_ESTIMATORS\": 3}", 90000, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ensemble_options options = options_of(1, ENSEMBLE_PREDICTION);
        size_t n;
        options.inference_config = cases[i].config;
        MUST(ensemble_default_count(&options, cases[i].n_columns, &n, &f));
        ck_assert_uint_eq(n, cases[i].expected);
    }
}
END_TEST

START_TEST(unknown_configs_are_refused_by_name)
{
#define TRANSFORM(fields) "{\"PREPROCESS_TRANSFORMS\": [{" fields "}]}"
#define FIELD(field) "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\"}], " field "}"
    refuses("{", "inference_config:1:");
    refuses("[]", "not a JSON object");
    refuses("{}", "PREPROCESS_TRANSFORMS is missing");
    refuses("{\"PREPROCESS_TRANSFORMS\": []}", "not a list of 1");
    refuses(TRANSFORM("\"categorical_name\": \"numeric\""), "has no name");
    refuses(TRANSFORM("\"name\": \"kdi\""), "name is \"kdi\"");
    refuses(TRANSFORM("\"name\": 3"), "name is 3");
    refuses(TRANSFORM("\"name\": \"none\", \"categorical_name\": \"target\""), "categorical_name is \"target\"");
    refuses(TRANSFORM("\"name\": \"none\", \"categorical_name\": \"numeric_shuffled\""), "numeric_shuffled");
    refuses(TRANSFORM("\"name\": \"none\", \"global_transformer_name\": \"pca\""),
            "global_transformer_name is \"pca\"");
    refuses(TRANSFORM("\"name\": \"none\", \"append_original\": 2"), "append_original is 2");
    refuses(TRANSFORM("\"name\": \"none\", \"max_features_per_estimator\": 0"), "max_features_per_estimator is 0");
    refuses(TRANSFORM("\"name\": \"none\", \"differentiable\": true"), "differentiable is true");
    refuses(TRANSFORM("\"name\": \"none\", \"color\": 1"), "unknown field \"color\"");
    refuses(FIELD("\"N_ESTIMATORS\": 0"), "N_ESTIMATORS is 0");
    refuses(FIELD("\"N_ESTIMATORS\": \"many\""), "N_ESTIMATORS is \"many\"");
    refuses(FIELD("\"COLOR\": 1"), "unknown field \"COLOR\"");
    refuses(FIELD("\"POLYNOMIAL_FEATURES\": 0"), "POLYNOMIAL_FEATURES is 0");
    refuses(FIELD("\"POLYNOMIAL_FEATURES\": \"some\""), "POLYNOMIAL_FEATURES is \"some\"");
    refuses(FIELD("\"OUTLIER_REMOVAL_STD\": -1.0"), "OUTLIER_REMOVAL_STD is -1");
    refuses(FIELD("\"SOFTMAX_TEMPERATURE\": 0"), "SOFTMAX_TEMPERATURE is 0");
    refuses(FIELD("\"PASSTHROUGH_INF\": 1"), "PASSTHROUGH_INF is 1");
    refuses(FIELD("\"FEATURE_SHIFT_METHOD\": \"flip\""), "FEATURE_SHIFT_METHOD is \"flip\"");
    refuses(FIELD("\"SUBSAMPLE_SAMPLES\": [[1]]"), "SUBSAMPLE_SAMPLES is a list");
    refuses(FIELD("\"SUBSAMPLE_SAMPLES\": 50, \"SAMPLE_SUBSAMPLING_METHOD\": \"majority_downsample\""),
            "majority_downsample");
    refuses(FIELD("\"SUBSAMPLE_SAMPLES\": 2"), "2 rows for 3 classes");
    refuses(FIELD("\"MAX_NUMBER_OF_CLASSES\": 2"), "3 classes, the checkpoint was made for at most 2");
    refuses("{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\", \"max_features_per_estimator\": 3}],"
            " \"FEATURE_SUBSAMPLING_METHOD\": \"gini_feature_importance\","
            " \"FEATURE_SUBSAMPLING_IMPORTANCE_TOP_K_COUNT\": 2}",
            "gini_feature_importance");
    refuses(FIELD("\"FEATURE_SUBSAMPLING_IMPORTANCE_TOP_K_COUNT\": 0"), "TOP_K_COUNT is 0");
    refuses(FIELD("\"FEATURE_SUBSAMPLING_IMPORTANCE_TOP_K_COUNT\": 1.5"), "TOP_K_COUNT is 1.5");
    refuses(FIELD("\"ENABLE_GPU_PREPROCESSING\": 1"), "ENABLE_GPU_PREPROCESSING is 1");
    refuses("{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"none\", \"max_features_per_estimator\": 1}]}",
            "no room for a column");
}
END_TEST

START_TEST(tables_that_cannot_be_are_refused)
{
    make_example();
    struct ensemble_options options = options_of(2, ENSEMBLE_FINETUNING);
    struct ensemble *e;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, NULL, &f), TABFT_USE, "fine-tuning takes its query rows");
    data.y[3] = CLASSES;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, &query, &f), TABFT_INPUT, "row 3 (from 0): class code 3");
    data.y[3] = 0;
    data.query[2][4] = -(double)INFINITY;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, &query, &f), TABFT_INPUT,
              "query row 2 (from 0), column 4: infinite");
    data.query[2][4] = 0;
    query.n_columns = 4;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, &query, &f), TABFT_INPUT, "4 columns in the query");
    query.n_columns = COLUMNS;
    context.n_rows = 1;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, &query, &f), TABFT_INPUT, "1 context row");
    context.n_rows = CONTEXT;
    options.n_classes = 1; /* predictions of one class there are: test_predict */
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, &query, &f), TABFT_INPUT, "1 class in the training table");
    options.n_classes = 11;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, &query, &f), TABFT_INPUT, "11 classes");
    options.n_classes = CLASSES;
    options.n_estimators = 0;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, &query, &f), TABFT_USE, "0 of them");
    options.n_estimators = 1;
    options.softmax_temperature = -0.5;
    MUST_FAIL(ensemble_open(&e, &options, &context, data.y, &query, &f), TABFT_USE, "softmax temperature: -0.5");
}
END_TEST

START_TEST(calls_that_cannot_be_are_refused)
{
    make_example();
    struct ensemble_options options = options_of(2, ENSEMBLE_PREDICTION);
    struct ensemble *e;
    struct ensemble_call call;
    MUST(ensemble_open(&e, &options, &context, data.y, NULL, &f));
    data.query[1][0] = (double)INFINITY;
    MUST_FAIL(ensemble_call(e, 0, &query, NULL, &call, &f), TABFT_INPUT, "query row 1 (from 0), column 0: infinite");
    data.query[1][0] = 1e300; /* the estimator without a transform cannot hand it on */
    MUST_FAIL(ensemble_call(e, 1, &query, NULL, &call, &f), TABFT_INPUT,
              "query row 1 (from 0), column 0: a value is too large");
    query.n_columns = 3;
    MUST_FAIL(ensemble_call(e, 0, &query, NULL, &call, &f), TABFT_INPUT, "3 columns in the query");
    query.n_columns = COLUMNS;
    ensemble_close(e);
    /* In float32 before it is reshaped; a column that is reshaped, too, and by its name. */
    static const char *const names[COLUMNS] = {"a", "b", "c", "d", "e"};
    context.name = query.name = names;
    options.inference_config = "{\"PREPROCESS_TRANSFORMS\": [{\"name\": \"squashing_scaler_default\"}],"
                               " \"ENABLE_GPU_PREPROCESSING\": true}";
    MUST(ensemble_open(&e, &options, &context, data.y, NULL, &f));
    MUST_FAIL(ensemble_call(e, 0, &query, NULL, &call, &f), TABFT_INPUT,
              "query row 1 (from 0), column \"a\": a value is too large");
    ensemble_close(e);
    options.inference_config = NULL;

    for (size_t i = 0; i < CONTEXT; i++)
        for (size_t j = 0; j < COLUMNS; j++) data.context[i][j] = 1;
    MUST(ensemble_open(&e, &options, &context, data.y, NULL, &f));
    MUST_FAIL(ensemble_call(e, 0, NULL, NULL, &call, &f), TABFT_INPUT, "every column is constant or missing");
    ensemble_close(e);
}
END_TEST

START_TEST(probabilities_undo_the_permutations)
{
    make_example();
    struct ensemble_options options = options_of(4, ENSEMBLE_PREDICTION);
    struct ensemble *e;
    enum { ROWS = 2, OUTPUTS = 10 };
    static float logits[4][ROWS][OUTPUTS];
    double p[ROWS][CLASSES];
    MUST(ensemble_open(&e, &options, &context, data.y, NULL, &f));
    ck_assert(ensemble_temperature(e) == 0.9);
    ck_assert_uint_eq(ensemble_classes(e), CLASSES);
    for (size_t i = 0; i < 4; i++)
        for (size_t q = 0; q < ROWS; q++)
            for (size_t k = 0; k < CLASSES; k++)
                logits[i][q][ensemble_class_permutation(e, i)[k]] = q == 0 ? (float)k : k == i % CLASSES ? 9.0f : 0.0f;
    MUST(ensemble_probabilities(e, &logits[0][0][0], ROWS, OUTPUTS, &p[0][0], &f));
    double total = 1 + exp(1 / 0.9) + exp(2 / 0.9);
    for (size_t k = 0; k < CLASSES; k++) ck_assert_double_eq_tol(p[0][k], exp((double)k / 0.9) / total, 1e-15);
    double high = exp(9 / 0.9) / (exp(9 / 0.9) + 2), low = 1 / (exp(9 / 0.9) + 2);
    ck_assert_double_eq_tol(p[1][0], (2 * high + 2 * low) / 4, 1e-15); /* estimators 0 and 3 say class 0 */
    ck_assert_double_eq_tol(p[1][1], (high + 3 * low) / 4, 1e-15);
    MUST_FAIL(ensemble_probabilities(e, &logits[0][0][0], ROWS, 2, &p[0][0], &f), TABFT_INPUT,
              "2 outputs for 3 classes");
    logits[1][1][0] = NAN;
    MUST_FAIL(ensemble_probabilities(e, &logits[0][0][0], ROWS, OUTPUTS, &p[0][0], &f), TABFT_INPUT,
              "query row 2: estimator 2");
    ensemble_close(e);

    for (size_t k = 0; k < CONTEXT; k++) data.y[k] %= 2; /* a class without a row */
    options.balance_probabilities = true;
    MUST(ensemble_open(&e, &options, &context, data.y, NULL, &f));
    MUST_FAIL(ensemble_probabilities(e, &logits[0][0][0], 1, OUTPUTS, &p[0][0], &f), TABFT_INPUT, "class 2 (from 0)");
    ensemble_close(e);
}
END_TEST

UNIT_MAIN("ensemble/ensemble", threads_do_not_show, query_blocks_do_not_show, useless_columns_do_not_show,
          useful_columns_are_judged_on_the_table, every_number_of_estimators, equal_rows_get_their_own_fingerprints,
          unseen_categories, outliers_are_clipped_in_prediction, row_subsets_in_prediction,
          number_of_estimators_by_default, unknown_configs_are_refused_by_name, tables_that_cannot_be_are_refused,
          calls_that_cannot_be_are_refused, probabilities_undo_the_permutations)
