/* A whole fine-tuning run of TabPFN 9.2.0 (reference/finetune_v2_6_cls: 400 rows, 5 estimators, 2 epochs, 4 steps): its
 * rows and network inputs from the raw table, its losses and weights from its recorded batches, and its predictions
 * from end to end. Then the losses and weights of the same run of other networks and of the task of regression: v2.5,
 * v3 and v3.5 were given the very batches of v2.6, so of their runs reference/finetune_others has losses and the lengths
 * of gradients, and how far each weight went, as whole numbers of 2e-8. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "comm/comm.h"
#include "comm/reduce.h"
#include "ensemble/ensemble.h"
#include "eval/eval.h"
#include "eval/run_record.h"
#include "model/model.h"
#include "table/table.h"
#include "train/chunks.h"
#include "train/optimiser.h"
#include "train/train.h"
#include "unit.h"

enum {
    ROWS = 400,
    TEST_ROWS = 100,
    COLUMNS = 20,
    COLUMNS_MAX = 48, /* of a network's input */
    ESTIMATORS = 5,
    STEPS = 4,
    CLASSES = 2,
    CONTEXT = 160,
    QUERY = 40,
    NAME = 160
};

static struct ckpt *recorded;

static const struct ckpt_tensor *get(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const struct ckpt_tensor *get(const char *format, ...)
{
    char key[NAME];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    const struct ckpt_tensor *t = ckpt_find(recorded, key);
    ck_assert_msg(t != NULL, "no tensor %s", key);
    return t;
}

static void open_recorded(const char *name)
{
    struct tabft_failure f = {0};
    char file[NAME];
    (void)snprintf(file, sizeof file, "reference/%s.vectors.safetensors", name);
    MUST(ckpt_open(&recorded, unit_data(file), &f));
}

static struct model *open_model(const char *name, enum model_task task)
{
    struct tabft_failure f = {0};
    struct ckpt *c;
    struct model *m;
    char file[NAME];
    (void)snprintf(file, sizeof file, "reference/%s.model.safetensors", name);
    MUST(ckpt_open(&c, unit_data(file), &f));
    MUST(model_open(&m, c, task, &f));
    ckpt_close(c);
    return m;
}

/* ---- rows and inputs from the raw table ---- */

/* Counts of what differs in one call's matrix. */
struct differences {
    size_t cells, far, fingerprints, other_fingerprints;
};

static void compare_part(struct differences *d, const struct ensemble_call *call, size_t first,
                         const struct ckpt_tensor *t)
{
    ck_assert_uint_eq(t->shape[1], call->n_columns);
    for (size_t i = 0; i < t->count; i++) {
        double is = (double)call->x[first * call->n_columns + i], should = ckpt_value(t, i);
        bool fingerprint = call->fingerprint_may_differ && (int)(i % call->n_columns) == call->fingerprint_column;
        bool same = (isnan(is) && isnan(should)) || fabs(is - should) <= 1e-5;
        if (fingerprint) {
            d->fingerprints++;
            d->other_fingerprints += !same;
        } else {
            d->cells++;
            d->far += !same;
        }
    }
}

static void gather(const size_t *row, size_t n, double *x, int32_t *y)
{
    const struct ckpt_tensor *raw = get("raw.X_train"), *label = get("raw.y_train");
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < COLUMNS; c++) x[i * COLUMNS + c] = ckpt_value(raw, row[i] * COLUMNS + c);
        y[i] = (int32_t)ckpt_value(label, row[i]);
    }
}

static void compare_step(const struct chunk *chunk, size_t step, const struct model *m, struct differences *d)
{
    static double context[CONTEXT * COLUMNS], query[QUERY * COLUMNS];
    static int32_t y_context[CONTEXT], y_query[QUERY];
    struct tabft_failure f = {0};
    ck_assert_uint_eq(chunk->n_context, CONTEXT);
    ck_assert_uint_eq(chunk->n_query, QUERY);
    gather(chunk->context, CONTEXT, context, y_context);
    gather(chunk->query, QUERY, query, y_query);
    const struct ckpt_tensor *should = get("step%zu.y_query", step);
    for (size_t i = 0; i < QUERY; i++) ck_assert_double_eq(ckpt_value(should, i), y_query[i]);
    struct ensemble_options options = {.n_estimators = ESTIMATORS,
                                       .seed = 17,
                                       .phase = ENSEMBLE_FINETUNING,
                                       .n_classes = CLASSES,
                                       .architecture = model_architecture(m),
                                       .inference_config = model_inference_config(m)};
    struct ensemble_columns c = {.n_rows = CONTEXT, .n_columns = COLUMNS, .x = context},
                            q = {.n_rows = QUERY, .n_columns = COLUMNS, .x = query};
    struct ensemble *e;
    MUST(ensemble_open(&e, &options, &c, y_context, &q, &f));
    for (size_t j = 0; j < ESTIMATORS; j++) {
        struct ensemble_call call;
        MUST(ensemble_call(e, j, NULL, NULL, &call, &f));
        compare_part(d, &call, 0, get("step%zu.est%zu.X_context", step, j));
        compare_part(d, &call, CONTEXT, get("step%zu.est%zu.X_query", step, j));
        const struct ckpt_tensor *label = get("step%zu.est%zu.y_context", step, j),
                                 *permutation = get("step%zu.est%zu.class_permutation", step, j);
        for (size_t i = 0; i < CONTEXT; i++) ck_assert_double_eq(ckpt_value(label, i), (double)call.y_context[i]);
        for (size_t k = 0; k < CLASSES; k++)
            ck_assert_int_eq(ensemble_class_permutation(e, j)[k], (int32_t)ckpt_value(permutation, k));
        ensemble_call_clear(&call);
    }
    ensemble_close(e);
}

START_TEST(rows_and_inputs_follow_from_the_raw_table)
{
    struct tabft_failure f = {0};
    int32_t label[ROWS];
    struct differences d = {0};
    open_recorded("finetune_v2_6_cls");
    struct model *m = open_model("v2_6_cls", MODEL_CLASSIFICATION);
    for (size_t i = 0; i < ROWS; i++) label[i] = (int32_t)ckpt_value(get("raw.y_train"), i);
    struct chunks_rules rules = {.n_rows = ROWS,
                                 .chunk_rows = 200,
                                 .query_fraction = 0.2,
                                 .query_min = CLASSES,
                                 .seed = 17,
                                 .label = label,
                                 .n_labels = CLASSES};
    for (size_t step = 0; step < STEPS; step++) {
        struct chunks *chunks;
        MUST(chunks_open(&chunks, &rules, (uint32_t)(step / 2), &f));
        ck_assert_uint_eq(chunks_count(chunks), 2);
        compare_step(chunks_at(chunks, step % 2), step, m, &d);
        chunks_close(chunks);
    }
    ck_assert_uint_eq(d.far, 0);
    ck_assert_uint_gt(d.cells, 80000);
    printf("fingerprints after SVD: %zu of %zu equal\n", d.fingerprints - d.other_fingerprints, d.fingerprints);
    /* These hash last bits; tests/unit/ensemble/test_reference.c says how many can be equal and why. */
    ck_assert_uint_le(d.other_fingerprints * 1000, d.fingerprints * 65);
    model_close(m);
    ckpt_close(recorded);
}
END_TEST

/* ---- training on the recorded batches ---- */

static void concatenate(size_t step, size_t estimator, struct model_input *input, float *x)
{
    const struct ckpt_tensor *context = get("step%zu.est%zu.X_context", step, estimator),
                             *query = get("step%zu.est%zu.X_query", step, estimator);
    memcpy(x, context->data, context->count * sizeof *x);
    memcpy(x + context->count, query->data, query->count * sizeof *x);
    *input = (struct model_input){
        .shape = {.n_context = CONTEXT, .n_query = QUERY, .n_columns = (size_t)context->shape[1]},
        .x = x,
        .y_context = get("step%zu.est%zu.y_context", step, estimator)->data};
}

/* What the replay of a run computes with. */
struct replay {
    struct model *m;
    struct model_run *run;
    struct reduce *reduce;
    struct optimiser *optimiser;
    float *gradient;
};

static void replay_open(struct replay *r, const char *model, enum model_task task)
{
    struct tabft_failure f = {0};
    r->m = open_model(model, task);
    const size_t n = model_parameters(r->m);
    MUST(memory_new_aligned(&r->gradient, n, sizeof *r->gradient, "gradient", &f));
    MUST(model_run_open(&r->run, r->m, (struct model_shape){CONTEXT, QUERY, COLUMNS_MAX}, MODEL_RECOMPUTE_BLOCK, true,
                        NULL, &f));
    MUST(reduce_open(&r->reduce, NULL, NULL, ESTIMATORS, n, &f));
    MUST(optimiser_open(&r->optimiser, n, &f));
}

static void replay_close(struct replay *r)
{
    optimiser_close(r->optimiser);
    reduce_close(r->reduce);
    model_run_close(r->run);
    model_close(r->m);
    free(r->gradient);
}

/* The loss of one estimator and its gradient. A regressor's is crps + mse of logits divided by 0.9. */
static double replay_estimator(struct replay *r, size_t step, size_t estimator)
{
    static float x[(CONTEXT + QUERY) * COLUMNS_MAX];
    struct tabft_failure f = {0};
    double loss;
    int32_t y[QUERY], permutation[CLASSES];
    struct model_input input;
    concatenate(step, estimator, &input, x);
    if (model_task(r->m) == MODEL_REGRESSION) {
        const struct model_regression_target target = {.y_query = get("step%zu.est%zu.targets", step, estimator)->data,
                                                       .temperature = 0.9,
                                                       .crps = 1.0,
                                                       .mse = 1.0,
                                                       .mse_most = INFINITY,
                                                       .scale = 1.0 / ESTIMATORS};
        MUST(model_gradient_regression(r->run, model_values(r->m), &input, &target, &loss, r->gradient, &f));
        return loss;
    }
    for (size_t i = 0; i < QUERY; i++) y[i] = (int32_t)ckpt_value(get("step%zu.y_query", step), i);
    for (size_t k = 0; k < CLASSES; k++)
        permutation[k] = (int32_t)ckpt_value(get("step%zu.est%zu.class_permutation", step, estimator), k);
    const struct model_target target = {
        .y_query = y, .class_permutation = permutation, .n_classes = CLASSES, .scale = 1.0 / ESTIMATORS};
    MUST(model_gradient(r->run, model_values(r->m), &input, &target, &loss, r->gradient, &f));
    return loss;
}

/* One step; gives its loss and the length of its gradient. */
static double replay_step(struct replay *r, size_t step, double *length)
{
    struct tabft_failure f = {0};
    double sum = 0, squares;
    for (size_t j = 0; j < ESTIMATORS; j++) {
        sum += replay_estimator(r, step, j);
        MUST(reduce_add(r->reduce, j, r->gradient, &f));
    }
    MUST(reduce_finish(r->reduce, r->gradient, &f));
    MUST(reduce_square_sum(r->reduce, r->gradient, &squares, &f));
    *length = sqrt(squares);
    struct optimiser_step update = {.learning_rate = ckpt_value(get("step%zu.lr", step), 0),
                                    .weight_decay = 0.01,
                                    .clip = optimiser_clip(*length, 1)};
    optimiser_step(r->optimiser, &update, model_values_mutable(r->m), r->gradient, NULL);
    return sum;
}

/* What may differ: `most` of the weights by `near`, all by `far`. */
struct bounds {
    double loss, length, most, near, far;
};
static const struct bounds v2_bounds = {1e-6, 1e-5, 0.999, 3e-7, 5e-6}, v3_bounds = {2e-6, 1e-5, 0.999, 5e-7, 5e-5};

struct distances {
    size_t total, beyond;
    double worst;
};

static void add_distance(struct distances *d, const struct bounds *b, double is, double should)
{
    const double off = fabs(is - should);
    d->worst = fmax(d->worst, off);
    d->beyond += off > b->near;
    d->total++;
}

static void check_distances(const char *name, const struct distances *d, const struct bounds *b)
{
    printf("%s, recorded batches: weights within %.1e, %zu of %zu beyond %.0e\n", name, d->worst, d->beyond, d->total,
           b->near);
    ck_assert_double_le(d->worst, b->far);
    ck_assert_double_le((double)d->beyond, (1 - b->most) * (double)d->total);
}

static void check_recorded(const char *name, enum model_task task)
{
    char file[NAME];
    struct replay r;
    struct distances d = {0};
    (void)snprintf(file, sizeof file, "finetune_%s", name);
    open_recorded(file);
    replay_open(&r, name, task);
    for (size_t step = 0; step < STEPS; step++) {
        double length, loss = replay_step(&r, step, &length);
        ck_assert_double_eq_tol(loss, ckpt_value(get("step%zu.loss", step), 0), v2_bounds.loss);
        ck_assert_double_eq_tol(length, ckpt_value(get("step%zu.grad_norm", step), 0),
                                v2_bounds.length * fmax(1, length));
    }
    for (size_t i = 0; i < model_parameter_count(r.m); i++) {
        const struct model_parameter *p = model_parameter_at(r.m, i);
        const struct ckpt_tensor *t = get("final.%s", p->name);
        ck_assert_uint_eq(t->count, p->count);
        for (size_t k = 0; k < p->count; k++)
            add_distance(&d, &v2_bounds, (double)model_values(r.m)[p->offset + k], ckpt_value(t, k));
    }
    check_distances(name, &d, &v2_bounds);
    replay_close(&r);
    ckpt_close(recorded);
}

START_TEST(recorded_batches_give_the_recorded_weights)
{
    check_recorded("v2_6_cls", MODEL_CLASSIFICATION);
    check_recorded("v2_6_reg", MODEL_REGRESSION);
}
END_TEST

/* Runs of which reference/finetune_others has the results. */
static const struct other {
    const char *name, *model;
    enum model_task task;
    const struct bounds *bounds;
} others[] = {{"v2_5_cls", "v2_5_cls", MODEL_CLASSIFICATION, &v2_bounds},
              {"v2_5_reg", "v2_5_reg", MODEL_REGRESSION, &v2_bounds},
              {"v3_cls", "v3_cls", MODEL_CLASSIFICATION, &v3_bounds},
              {"v3_reg", "v3_reg", MODEL_REGRESSION, &v3_bounds},
              {"v3_5_cls", "v3_5", MODEL_CLASSIFICATION, &v3_bounds},
              {"v3_5_reg", "v3_5", MODEL_REGRESSION, &v3_bounds}};

static const struct ckpt_tensor *of_other(const struct ckpt *c, const struct other *o, const char *what,
                                          const char *which)
{
    char key[NAME];
    (void)snprintf(key, sizeof key, "%s.%s%s", o->name, what, which);
    const struct ckpt_tensor *t = ckpt_find(c, key);
    ck_assert_msg(t != NULL, "no tensor %s", key);
    return t;
}

static void check_other(const struct ckpt *results, const struct other *o)
{
    struct tabft_failure f = {0};
    const double unit = 2e-8;
    struct replay r;
    struct distances d = {0};
    float *start;
    replay_open(&r, o->model, o->task);
    const size_t n = model_parameters(r.m);
    MUST(memory_new(&start, n, sizeof *start, "weights", &f));
    memcpy(start, model_values(r.m), n * sizeof *start);
    for (size_t step = 0; step < STEPS; step++) {
        double length, loss = replay_step(&r, step, &length);
        ck_assert_double_eq_tol(loss, ckpt_value(of_other(results, o, "loss", ""), step), o->bounds->loss);
        ck_assert_double_eq_tol(length, ckpt_value(of_other(results, o, "grad_norm", ""), step),
                                o->bounds->length * fmax(1, length));
    }
    for (size_t i = 0; i < model_parameter_count(r.m); i++) {
        const struct model_parameter *p = model_parameter_at(r.m, i);
        const struct ckpt_tensor *t = of_other(results, o, "final.", p->name);
        ck_assert_uint_eq(t->count, p->count);
        for (size_t k = p->offset; k < p->offset + p->count; k++)
            add_distance(&d, o->bounds, (double)model_values(r.m)[k] - (double)start[k],
                         ckpt_value(t, k - p->offset) * unit);
    }
    check_distances(o->name, &d, o->bounds);
    free(start);
    replay_close(&r);
}

START_TEST(batches_give_the_weights_of_other_networks)
{
    struct tabft_failure f = {0};
    struct ckpt *results;
    MUST(ckpt_open(&results, unit_data("reference/finetune_others.vectors.safetensors"), &f));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        open_recorded(others[i].task == MODEL_REGRESSION ? "finetune_v2_6_reg" : "finetune_v2_6_cls");
        check_other(results, &others[i]);
        ckpt_close(recorded);
    }
    ckpt_close(results);
}
END_TEST

/* ---- from the raw table to predictions ---- */

/* The recorded rows as a packed table; labels only for the training rows. */
static void write_table(const char *path, const char *x_name, size_t n_rows, bool with_labels)
{
    static double value[COLUMNS + 1][ROWS];
    static char names[COLUMNS + 1][8];
    static const char *const labels[CLASSES] = {"0", "1"};
    struct table_column column[COLUMNS + 1] = {0};
    struct tabft_failure f = {0};
    for (size_t c = 0; c < COLUMNS; c++) {
        (void)snprintf(names[c], sizeof names[c], "x%zu", c);
        for (size_t i = 0; i < n_rows; i++) value[c][i] = ckpt_value(get("%s", x_name), i * COLUMNS + c);
        column[c] = (struct table_column){.name = names[c], .kind = TABLE_FLOAT, .value = value[c]};
    }
    for (size_t i = 0; with_labels && i < n_rows; i++) value[COLUMNS][i] = ckpt_value(get("raw.y_train"), i);
    column[COLUMNS] = (struct table_column){
        .name = "y", .kind = TABLE_INTEGER, .value = value[COLUMNS], .n_dictionary = CLASSES, .dictionary = labels};
    struct table_output output = {.n_rows = n_rows,
                                  .n_columns = COLUMNS + with_labels,
                                  .column = column,
                                  .target = with_labels ? COLUMNS : SIZE_MAX,
                                  .task = with_labels ? TABLE_CLASSIFICATION : TABLE_NO_TASK,
                                  .provenance = "{}"};
    MUST(table_write(path, false, &output, NULL, &f));
}

static double compare_losses(const char *run)
{
    struct tabft_failure f = {0};
    struct run_record record;
    double worst = 0;
    MUST(run_record_open(&record, run, &f));
    ck_assert_uint_eq(record.n_steps, STEPS);
    for (size_t step = 0; step < STEPS; step++)
        worst = fmax(worst, fabs(record.loss[step] - ckpt_value(get("step%zu.loss", step), 0)));
    run_record_clear(&record);
    return worst;
}

static double compare_predictions(const char *model_path, const char *train_path, const char *test_path)
{
    struct tabft_failure f = {0};
    struct ckpt *c;
    struct model *m;
    struct table *train, *test;
    struct eval_prediction prediction;
    struct eval_options options = {.n_estimators = ESTIMATORS, .seed = 17};
    double worst = 0;
    MUST(ckpt_open(&c, model_path, &f));
    MUST(model_open(&m, c, MODEL_ANY_TASK, &f));
    MUST(table_open(&train, train_path, NULL, &f));
    MUST(table_open(&test, test_path, NULL, &f));
    MUST(eval_predict(m, train, test, &options, NULL, &prediction, &f));
    const struct ckpt_tensor *should = get("predict.proba");
    ck_assert_uint_eq(should->count, TEST_ROWS * CLASSES);
    for (size_t i = 0; i < should->count; i++)
        worst = fmax(worst, fabs(prediction.probability[i] - ckpt_value(should, i)));
    eval_prediction_clear(&prediction);
    table_close(train);
    table_close(test);
    model_close(m);
    ckpt_close(c);
    return worst;
}

START_TEST(raw_rows_give_the_recorded_run)
{
    struct tabft_failure f = {0};
    char folder[] = "/tmp/tabft-train-XXXXXX", train[64], test[64], run[64], weights[96], command[128];
    struct train_result result;
    struct train_options o;
    open_recorded("finetune_v2_6_cls");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(train, sizeof train, "%s/train.tbf", folder);
    (void)snprintf(test, sizeof test, "%s/test.tbf", folder);
    (void)snprintf(run, sizeof run, "%s/run", folder);
    (void)snprintf(weights, sizeof weights, "%s/model.safetensors", run);
    write_table(train, "raw.X_train", ROWS, true);
    write_table(test, "raw.X_test", TEST_ROWS, false);
    train_options_default(&o);
    o.model = unit_data("reference/v2_6_cls.model.safetensors");
    o.data = train;
    o.out = run;
    o.epochs = 2;
    o.learning_rate = 1e-4;
    o.estimators = ESTIMATORS;
    o.chunk_rows = 200;
    o.seed = 17;
    o.validation_split = 0;
    o.threads = 1;
    MUST(train_run(&o, NULL, NULL, &result, &f));
    double loss = compare_losses(run), probability = compare_predictions(weights, train, test);
    printf("from raw rows: losses within %.1e, probabilities within %.1e\n", loss, probability);
    ck_assert_double_le(loss, 2e-3);
    ck_assert_double_le(probability, 5e-3);
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
    ckpt_close(recorded);
}
END_TEST

UNIT_MAIN("finetune", rows_and_inputs_follow_from_the_raw_table, recorded_batches_give_the_recorded_weights,
          batches_give_the_weights_of_other_networks, raw_rows_give_the_recorded_run)
