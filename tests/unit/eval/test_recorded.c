/* What TabPFN 9.2.0 made of untidy tables in prediction, from raw CSV files to what its users get, in two halves that
 * do not hang on each other: what its network was given, call by call, against what we give ours from the same files,
 * packed as tabft-prep packs them (within 1e-5, of the value where it is above 1); and its predictions against ours
 * from the inputs that were recorded (within 2e-5): tests/data/reference/predict_*. The preset is the one that the
 * model's file asks for, or that the recording names.
 *
 * Fingerprints behind SVD columns hash last bits, which are those of the recording processor. Between AVX2 and AVX-512
 * TabPFN itself differs by 7 % of them for the worst small table, 76 % for a wide one (60 rows of noise, whose singular
 * values are too close) and 21 % for the worst untidy one, whose scales are far apart. Behind powers of columns, whose
 * lambda comes from a search, it repeats none. */
#include <unistd.h>

#include "base/threads.h"
#include "ensemble/reference.h"
#include "ensemble/regression.h"
#include "eval/eval.h"
#include "eval/matrix.h"
#include "model/model.h"
#include "table/prep.h"
#include "unit_backend.h"

#define LEAST_SHARE 0.93
#define LEAST_SHARE_WIDE 0.55
enum { NEVER = 99 };
static struct tabft_failure f;

/* A recorded prediction, reference/<name>.vectors.safetensors, of the tables reference/<sheet>.train.csv and .test.csv,
 * or where there are none <name>.raw.safetensors. */
struct recorded {
    const char *name, *sheet;
    size_t powers_from; /* the first estimator with powers of columns */
    double least;       /* share of fingerprints that are equal */
    const char *model;  /* NULL: the recording's */
    double bound;       /* of the network's inputs; 0: 1e-5 */
};

/* ---- Tables ---- */
static void say_nothing(void *context, bool warning, const char *text) { (void)context, (void)warning, (void)text; }
static const struct prep_say quiet = {say_nothing, NULL};

static void pack(const char *input, const char *output, const char *schema, enum table_task task)
{
    const struct pack_options options = {.input = &input,
                                         .n_inputs = 1,
                                         .output = output,
                                         .force = true,
                                         .point = '.',
                                         .target = schema == NULL ? "y" : NULL,
                                         .task = schema == NULL ? task : TABLE_NO_TASK,
                                         .schema = schema,
                                         .block_bytes = PACK_BLOCK_BYTES};
    MUST(prep_pack(&options, NULL, &quiet, &f));
}

static void open_tables(const char *sheet, bool is_regression, struct table **train, struct table **test)
{
    char file[192];
    (void)snprintf(file, sizeof file, "reference/%s.train.csv", sheet);
    pack(unit_data(file), "recorded-train.tbf", NULL, is_regression ? TABLE_REGRESSION : TABLE_CLASSIFICATION);
    (void)snprintf(file, sizeof file, "reference/%s.test.csv", sheet);
    pack(unit_data(file), "recorded-test.tbf", "recorded-train.tbf", TABLE_NO_TASK);
    MUST(table_open(train, "recorded-train.tbf", NULL, &f));
    MUST(table_open(test, "recorded-test.tbf", NULL, &f));
}

/* The rows of a recorded table as the ensemble takes them. */
struct sheets {
    struct table *train, *test; /* NULL: not from CSV files */
    struct eval_columns columns;
    double *x_context, *x_query;
    struct ensemble_columns context, query;
    double *y;        /* [context rows] numbers or class codes */
    int32_t *code;    /* the latter */
    size_t n_classes; /* 0: the target is a number */
};

static void *room_for(size_t n, size_t size)
{
    void *p = calloc(n, size);
    ck_assert_ptr_nonnull(p);
    return p;
}

static void read_csv(struct sheets *t, const char *sheet, bool is_regression)
{
    open_tables(sheet, is_regression, &t->train, &t->test);
    MUST(eval_columns_open(&t->columns, t->train, t->test, NULL, &f));
    size_t n = t->train->n_rows, m = t->test->n_rows, *row = room_for(m, sizeof *row);
    for (size_t i = 0; i < m; i++) row[i] = i;
    t->x_context = room_for(n * t->columns.n, sizeof *t->x_context);
    t->x_query = room_for(m * t->columns.n, sizeof *t->x_query);
    MUST(eval_columns_context(&t->columns, NULL, t->x_context, &f));
    MUST(eval_columns_rows(&t->columns, row, m, NULL, t->x_query, &f));
    free(row);
    t->context = eval_columns_matrix(&t->columns, t->x_context, n);
    t->query = eval_columns_matrix(&t->columns, t->x_query, m);
    t->n_classes = is_regression ? 0 : t->train->n_labels;
    t->y = room_for(n, sizeof *t->y);
    for (size_t i = 0; i < n; i++) t->y[i] = t->train->target.value[i];
}

static double *read_tensor(const struct ckpt *c, const char *name, struct ensemble_columns *columns)
{
    const struct ckpt_tensor *t = tensor_of(c, "%s", name);
    double *x = room_for(t->count, sizeof *x);
    for (uint64_t i = 0; i < t->count; i++) x[i] = ckpt_value(t, i);
    if (columns != NULL) *columns = (struct ensemble_columns){.n_rows = t->shape[0], .n_columns = t->shape[1], .x = x};
    return x;
}

static void read_raw(struct sheets *t, const char *name)
{
    char file[192];
    struct ckpt *c;
    (void)snprintf(file, sizeof file, "reference/%s.raw.safetensors", name);
    MUST(ckpt_open(&c, unit_data(file), &f));
    t->x_context = read_tensor(c, "X_train", &t->context);
    t->x_query = read_tensor(c, "X_test", &t->query);
    t->y = read_tensor(c, "y_train", NULL);
    t->n_classes = 3;
    ckpt_close(c);
}

static void sheets_open(struct sheets *t, const struct recorded *recorded, bool is_regression)
{
    *t = (struct sheets){0};
    if (recorded->sheet != NULL) read_csv(t, recorded->sheet, is_regression);
    else read_raw(t, recorded->name);
    t->code = room_for(t->context.n_rows, sizeof *t->code);
    for (size_t i = 0; t->n_classes > 0 && i < t->context.n_rows; i++) t->code[i] = (int32_t)t->y[i];
}

static void sheets_close(struct sheets *t)
{
    eval_columns_clear(&t->columns);
    table_close(t->train);
    table_close(t->test);
    if (t->test != NULL) ck_assert(unlink("recorded-train.tbf") == 0 && unlink("recorded-test.tbf") == 0);
    free(t->x_context);
    free(t->x_query);
    free(t->y);
    free(t->code);
}

/* ---- One recorded prediction ---- */
struct session {
    const struct recorded *recorded;
    const char *name;
    struct ckpt *vectors;
    struct model *model;
    struct sheets sheets;
    struct ensemble_options options;
    struct ensemble *ensemble;
};

static void session_open(struct session *s, const struct recorded *recorded)
{
    char file[192];
    struct ckpt *weights;
    *s = (struct session){.recorded = recorded, .name = recorded->name};
    (void)snprintf(file, sizeof file, "reference/%s.vectors.safetensors", s->name);
    MUST(ckpt_open(&s->vectors, unit_data(file), &f));
    const char *model = recorded->model != NULL ? recorded->model : ckpt_metadata(s->vectors, "model");
    (void)snprintf(file, sizeof file, "reference/%s.model.safetensors", model);
    bool is_regression = ckpt_find(s->vectors, "mean") != NULL;
    MUST(ckpt_open(&weights, unit_data(file), &f));
    MUST(model_open(&s->model, weights, is_regression ? MODEL_REGRESSION : MODEL_CLASSIFICATION, &f));
    ckpt_close(weights);
    sheets_open(&s->sheets, recorded, is_regression);
    const char *config = ckpt_metadata(s->vectors, "inference_config");
    s->options = (struct ensemble_options){
        .task = is_regression ? ENSEMBLE_REGRESSION : ENSEMBLE_CLASSIFICATION,
        .n_estimators = strtoul(ckpt_metadata(s->vectors, "n_estimators"), NULL, 10),
        .seed = (uint32_t)strtoul(ckpt_metadata(s->vectors, "random_state"), NULL, 10),
        .phase = ENSEMBLE_PREDICTION,
        .n_classes = s->sheets.n_classes,
        .architecture = model_architecture(s->model),
        .inference_config = config != NULL ? config : model_inference_config(s->model),
    };
}

static void session_fit(struct session *s)
{
    const struct ensemble_columns *context = &s->sheets.context;
    if (s->sheets.n_classes == 0)
        MUST(ensemble_open_regression(&s->ensemble, &s->options, context, s->sheets.y, NULL, &f));
    else MUST(ensemble_open(&s->ensemble, &s->options, context, s->sheets.code, NULL, &f));
}

static void session_close(struct session *s)
{
    ensemble_close(s->ensemble);
    sheets_close(&s->sheets);
    model_close(s->model);
    ckpt_close(s->vectors);
}

/* One estimator's rows and targets, out of a call that may hold several: [rows][estimators][columns]. */
struct member {
    struct ckpt_tensor x, y; /* [rows][columns], [context rows] */
    float *values;
};

static void slice(struct ckpt_tensor *out, const struct ckpt_tensor *t, size_t which, size_t n_members, float *to)
{
    size_t n_rows = t->shape[0], width = t->count / n_rows / n_members;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < width; j++)
            to[i * width + j] = (float)ckpt_value(t, (i * n_members + which) * width + j);
    *out = (struct ckpt_tensor){
        .dtype = CKPT_F32, .rank = 2, .shape = {n_rows, width}, .count = n_rows * width, .data = to};
}

static struct member member_of(const struct session *s, size_t estimator)
{
    size_t call = 0;
    const struct ckpt_tensor *x;
    while (estimator >= (x = tensor_of(s->vectors, "call%zu.x", call))->shape[1]) {
        estimator -= x->shape[1];
        call++;
    }
    const struct ckpt_tensor *y = tensor_of(s->vectors, "call%zu.y", call);
    struct member m = {.values = malloc((x->count + y->count) * sizeof *m.values)};
    ck_assert_ptr_nonnull(m.values);
    slice(&m.x, x, estimator, x->shape[1], m.values);
    slice(&m.y, y, estimator, x->shape[1], m.values + x->count);
    return m;
}

static void compare_inputs(const struct session *s)
{
    char what[160];
    struct tally tally = {.bound = s->recorded->bound}, powers = {0};
    for (size_t i = 0; i < s->options.n_estimators; i++) {
        struct ensemble_call call;
        struct member theirs = member_of(s, i);
        const float *y = theirs.y.data;
        (void)snprintf(what, sizeof what, "%s estimator %zu", s->name, i);
        MUST(ensemble_call(s->ensemble, i, &s->sheets.query, NULL, &call, &f));
        ck_assert_uint_eq(theirs.y.count, call.n_context);
        for (size_t k = 0; k < call.n_context; k++)
            ck_assert_msg(fabsf(y[k] - call.y_context[k]) <= 1e-6f * fmaxf(1, fabsf(y[k])), "%s: target %zu is %.9g",
                          what, k, (double)call.y_context[k]);
        compare(call.x, &theirs.x, call.n_context + call.n_query, call.n_columns,
                call.fingerprint_may_differ ? call.fingerprint_column : -1,
                i >= s->recorded->powers_from ? &powers : &tally, what);
        ensemble_call_clear(&call);
        free(theirs.values);
    }
    report(s->name, &tally, s->recorded->least);
}

/* logits[estimators][n_query][outputs] of the recorded inputs; the caller frees them. */
static float *recorded_logits(const struct session *s, size_t n_query)
{
    size_t n = n_query * model_outputs(s->model);
    float *logits = malloc(s->options.n_estimators * n * sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    for (size_t i = 0; i < s->options.n_estimators; i++) {
        struct member m = member_of(s, i);
        struct model_run *run;
        const struct model_shape shape = {m.y.count, n_query, m.x.shape[1]};
        const struct model_input input = {.shape = shape, .x = m.x.data, .y_context = m.y.data};
        ck_assert_uint_eq(m.x.shape[0], shape.n_context + n_query);
        MUST(model_run_open(&run, s->model, shape, MODEL_RECOMPUTE_NONE, false, unit_cpu(NULL), &f));
        MUST(model_forward(run, model_values(s->model), &input, logits + i * n, &f));
        model_run_close(run);
        free(m.values);
    }
    return logits;
}

static void predict_means(const struct session *s, const float *logits, size_t n_query, double *out)
{
    size_t n = model_outputs(s->model);
    double *borders = malloc((n + 1) * sizeof *borders), *p = malloc(n_query * n * sizeof *p);
    ck_assert(borders != NULL && p != NULL);
    for (size_t i = 0; i <= n; i++) borders[i] = (double)model_borders(s->model)[i];
    MUST(ensemble_distribution(s->ensemble, logits, n_query, borders, n + 1, p, &f));
    for (size_t q = 0; q < n_query; q++)
        out[q] = ensemble_mean(ensemble_targets(s->ensemble), borders, n + 1, p + q * n);
    free(p);
    free(borders);
}

/* Ours from the recorded inputs against predictions [rows][classes] or [rows]. */
static void compare_predictions(const struct session *s, const struct ckpt_tensor *theirs)
{
    bool is_regression = s->sheets.n_classes == 0;
    size_t n_query = theirs->shape[0];
    float *logits = recorded_logits(s, n_query);
    double *ours = malloc(theirs->count * sizeof *ours), worst = 0;
    ck_assert_ptr_nonnull(ours);
    if (is_regression) predict_means(s, logits, n_query, ours);
    else MUST(ensemble_probabilities(s->ensemble, logits, n_query, model_outputs(s->model), ours, &f));
    for (size_t i = 0; i < theirs->count; i++)
        worst = fmax(worst, fabs(ours[i] - ckpt_value(theirs, i)) / fmax(1, fabs(ckpt_value(theirs, i))));
    printf("%s: largest difference of %s from the recorded inputs %.3g\n", s->name, theirs->name, worst);
    (void)fflush(stdout);
    ck_assert_msg(worst <= 2e-5, "%s: a prediction differs by %.3g", s->name, worst);
    free(ours);
    free(logits);
}

static void predict(const struct recorded *recorded, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct session s;
        session_open(&s, &recorded[i]);
        session_fit(&s);
        compare_inputs(&s);
        compare_predictions(&s, tensor_of(s.vectors, s.sheets.n_classes == 0 ? "mean" : "proba"));
        session_close(&s);
    }
}

#define SMALL(table, model, powers_from)                                                       \
    {                                                                                          \
        "predict_" table "_" model, "predict_" table "_" model, powers_from, LEAST_SHARE, NULL, 0 \
    }
#define TABLE_OF_EACH_MODEL(table)                                                                         \
    SMALL(table, "v2_cls", NEVER), SMALL(table, "v2_reg", 2), SMALL(table, "v2_5_cls", NEVER),             \
        SMALL(table, "v2_5_reg", NEVER), SMALL(table, "v2_6_cls", NEVER), SMALL(table, "v2_6_reg", NEVER), \
        SMALL(table, "v3_cls", NEVER), SMALL(table, "v3_reg", NEVER)

/* Heavy tails, gaps, a constant column, an all-missing one and one of two values. */
START_TEST(numeric_tables)
{
    static const struct recorded tables[] = {TABLE_OF_EACH_MODEL("numeric")};
    predict(tables, sizeof tables / sizeof *tables);
}
END_TEST

/* Texts, some of which the training rows lack, integers that are few, and gaps. */
START_TEST(mixed_tables)
{
    static const struct recorded tables[] = {TABLE_OF_EACH_MODEL("mixed")};
    predict(tables, sizeof tables / sizeof *tables);
}
END_TEST

/* 620 columns for estimators that take 500: each gets a random subset. */
START_TEST(wide_tables)
{
    static const struct recorded tables[] = {{"predict_wide_v2_6_cls", NULL, NEVER, LEAST_SHARE_WIDE, NULL, 0},
                                             {"predict_wide_v3_cls", NULL, NEVER, LEAST_SHARE_WIDE, NULL, 0}};
    predict(tables, sizeof tables / sizeof *tables);
}
END_TEST

/* Booleans, many texts with gaps, values that only the test has, columns that only the test rows tell apart; every
 * version's own preset and those that checkpoints carry: tests/data/reference/make_untidy.py. */
START_TEST(untidy_tables)
{
#define UNTIDY(model, task, powers_from, least)                                   \
    {                                                                             \
        "predict_untidy_" model, "predict_untidy_" task, powers_from, least, NULL, 0 \
    }
    static const struct recorded tables[] = {
        UNTIDY("v2_cls", "cls", NEVER, 0.83),       UNTIDY("v2_reg", "reg", 2, 0.92),
        UNTIDY("v2_5_cls", "cls", NEVER, 0.99),     UNTIDY("v2_5_reg", "reg", NEVER, 0.99),
        UNTIDY("v3_cls", "cls", NEVER, 0.99),       UNTIDY("v3_reg", "reg", NEVER, 0.99),
        UNTIDY("v2_6_cls_own", "cls", NEVER, 0.99), UNTIDY("v2_6_reg_own", "reg", NEVER, 0.9),
        UNTIDY("v3_cls_own", "cls", NEVER, 0.98),   UNTIDY("v3_reg_own", "reg", NEVER, 0.98),
    };
    predict(tables, sizeof tables / sizeof *tables);
}
END_TEST

/* What the published checkpoints of v3 and v3.5 ask for: torch computes the second half of the preprocessing in float32,
 * its SVD, too (so 2e-4), and square roots that no other library repeats, whose rows' fingerprints say nothing. Quantiles
 * and v3.5's columns, which stay as they are, have TabPFN's bits and fingerprints. */
START_TEST(untidy_tables_by_torch)
{
    static const struct recorded tables[] = {
        {"predict_untidy_v3_5_cls_torch", "predict_untidy_cls", NEVER, 1, NULL, 0},
        {"predict_untidy_v3_5_reg_torch", "predict_untidy_reg", NEVER, 1, NULL, 0},
        {"predict_untidy_v3_cls_torch", "predict_untidy_cls", NEVER, 0, NULL, 2e-4},
        {"predict_untidy_v3_reg_torch", "predict_untidy_reg", NEVER, 0, NULL, 2e-4},
    };
    predict(tables, sizeof tables / sizeof *tables);
}
END_TEST

/* v3.5 on the same inputs: only its predictions were recorded, and its one file serves both tasks. */
START_TEST(untidy_tables_v3_5)
{
    static const struct recorded tables[] = {{"predict_untidy_v3_cls", "predict_untidy_cls", NEVER, 0.99, "v3_5", 0},
                                             {"predict_untidy_v3_reg", "predict_untidy_reg", NEVER, 0.99, "v3_5", 0}};
    static const char *const expected[] = {"v3_5_cls", "v3_5_reg"};
    struct ckpt *c;
    MUST(ckpt_open(&c, unit_data("reference/predict_untidy_v3_5.safetensors"), &f));
    for (size_t i = 0; i < 2; i++) {
        struct session s;
        session_open(&s, &tables[i]);
        session_fit(&s);
        compare_inputs(&s);
        compare_predictions(&s, tensor_of(c, "%s", expected[i]));
        session_close(&s);
    }
    ckpt_close(c);
}
END_TEST

/* The whole way at once, where no fingerprint differs. */
START_TEST(from_csv_to_probabilities)
{
    static const struct recorded tables[] = {{"predict_untidy_v2_5_cls", "predict_untidy_cls", NEVER, 1, NULL, 0},
                                             {"predict_untidy_v3_cls", "predict_untidy_cls", NEVER, 1, NULL, 0}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        struct session s;
        struct eval_prediction p;
        session_open(&s, &tables[i]);
        const struct eval_options options = {.n_estimators = s.options.n_estimators, .seed = s.options.seed};
        const struct ckpt_tensor *theirs = tensor_of(s.vectors, "proba");
        MUST(eval_predict(s.model, s.sheets.train, s.sheets.test, &options, NULL, &p, &f));
        ck_assert_uint_eq(p.n_rows * p.n_classes, theirs->count);
        for (size_t k = 0; k < theirs->count; k++)
            ck_assert_double_eq_tol(p.probability[k], ckpt_value(theirs, k), 2e-5);
        eval_prediction_clear(&p);
        session_close(&s);
    }
}
END_TEST

/* What is done with the logits: tests/data/reference/make_options.py. */
START_TEST(ways_to_average)
{
    static const struct recorded cls = SMALL("mixed", "v2_6_cls", NEVER), reg = SMALL("numeric", "v2_6_reg", NEVER);
    static const struct {
        const struct recorded *recorded;
        const char *option;
        bool before, balanced;
        double temperature;
    } ways[] = {
        {&cls, "before", true, false, 0}, {&cls, "balanced", false, true, 0}, {&cls, "all", true, true, 0.5},
        {&reg, "before", true, false, 0}, {&reg, "all", true, false, 0.5},
    };
    struct ckpt *expected;
    MUST(ckpt_open(&expected, unit_data("reference/predict_options.safetensors"), &f));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct session s;
        session_open(&s, ways[i].recorded);
        s.options.average_before_softmax = ways[i].before;
        s.options.balance_probabilities = ways[i].balanced;
        s.options.softmax_temperature = ways[i].temperature;
        session_fit(&s);
        compare_predictions(&s, tensor_of(expected, "%s.%s", s.name, ways[i].option));
        session_close(&s);
    }
    ckpt_close(expected);
}
END_TEST

UNIT_MAIN("recorded predictions", numeric_tables, mixed_tables, wide_tables, untidy_tables, untidy_tables_by_torch, untidy_tables_v3_5,
          from_csv_to_probabilities, ways_to_average)
