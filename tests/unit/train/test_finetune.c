/* A whole fine-tuning run of TabPFN 9.2.0 (reference/finetune_v2_6_cls: 400 rows, 5 estimators, 2 epochs, 4 steps): its
 * rows and network inputs from the raw table, its losses and weights from its recorded batches, and its predictions
 * from end to end. */
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
    ESTIMATORS = 5,
    STEPS = 4,
    CLASSES = 2,
    CONTEXT = 160,
    QUERY = 40,
    NAME = 96
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

static void open_recorded(void)
{
    struct tabft_failure f = {0};
    MUST(ckpt_open(&recorded, unit_data("reference/finetune_v2_6_cls.vectors.safetensors"), &f));
}

static struct model *open_model(void)
{
    struct tabft_failure f = {0};
    struct ckpt *c;
    struct model *m;
    MUST(ckpt_open(&c, unit_data("reference/v2_6_cls.model.safetensors"), &f));
    MUST(model_open(&m, c, MODEL_ANY_TASK, &f));
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
    open_recorded();
    struct model *m = open_model();
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

static double replay_step(size_t step, struct model *m, struct model_run *run, struct reduce *r, struct optimiser *o,
                          float *gradient)
{
    static float x[(CONTEXT + QUERY) * 2 * COLUMNS];
    struct tabft_failure f = {0};
    double losses[ESTIMATORS], sum = 0, squares;
    int32_t y[QUERY], permutation[CLASSES];
    for (size_t i = 0; i < QUERY; i++) y[i] = (int32_t)ckpt_value(get("step%zu.y_query", step), i);
    for (size_t j = 0; j < ESTIMATORS; j++) {
        struct model_input input;
        concatenate(step, j, &input, x);
        for (size_t k = 0; k < CLASSES; k++)
            permutation[k] = (int32_t)ckpt_value(get("step%zu.est%zu.class_permutation", step, j), k);
        struct model_target target = {
            .y_query = y, .class_permutation = permutation, .n_classes = CLASSES, .scale = 1.0 / ESTIMATORS};
        MUST(model_gradient(run, model_values(m), &input, &target, &losses[j], gradient, &f));
        MUST(reduce_add(r, j, gradient, &f));
        sum += losses[j];
    }
    MUST(reduce_finish(r, gradient, &f));
    MUST(reduce_square_sum(r, gradient, &squares, &f));
    ck_assert_double_eq_tol(sqrt(squares), ckpt_value(get("step%zu.grad_norm", step), 0), 1e-5);
    struct optimiser_step update = {.learning_rate = ckpt_value(get("step%zu.lr", step), 0),
                                    .weight_decay = 0.01,
                                    .clip = optimiser_clip(sqrt(squares), 1)};
    optimiser_step(o, &update, model_values_mutable(m), gradient, NULL);
    return sum;
}

START_TEST(recorded_batches_give_the_recorded_weights)
{
    struct tabft_failure f = {0};
    struct model_run *run;
    struct reduce *r;
    struct optimiser *o;
    float *gradient;
    open_recorded();
    struct model *m = open_model();
    size_t n = model_parameters(m), far = 0, total = 0;
    double worst = 0, worst_loss = 0;
    MUST(memory_new_aligned(&gradient, n, sizeof *gradient, "gradient", &f));
    MUST(model_run_open(&run, m, (struct model_shape){CONTEXT, QUERY, 2 * COLUMNS}, MODEL_RECOMPUTE_BLOCK, true, NULL,
                        &f));
    MUST(reduce_open(&r, NULL, NULL, ESTIMATORS, n, &f));
    MUST(optimiser_open(&o, n, &f));
    for (size_t step = 0; step < STEPS; step++) {
        double off = fabs(replay_step(step, m, run, r, o, gradient) - ckpt_value(get("step%zu.loss", step), 0));
        worst_loss = fmax(worst_loss, off);
    }
    for (size_t i = 0; i < model_parameter_count(m); i++) {
        const struct model_parameter *p = model_parameter_at(m, i);
        const struct ckpt_tensor *t = get("final.%s", p->name);
        ck_assert_uint_eq(t->count, p->count);
        for (size_t k = 0; k < p->count; k++) {
            double off = fabs((double)model_values(m)[p->offset + k] - ckpt_value(t, k));
            worst = fmax(worst, off);
            far += off > 3e-7;
            total++;
        }
    }
    printf("recorded batches: losses within %.1e, weights within %.1e, %zu of %zu beyond 3e-7\n", worst_loss, worst,
           far, total);
    ck_assert_double_le(worst_loss, 1e-6);
    ck_assert_double_le(worst, 5e-6);
    ck_assert_uint_le(far * 1000, total);
    optimiser_close(o);
    reduce_close(r);
    model_run_close(run);
    model_close(m);
    free(gradient);
    ckpt_close(recorded);
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
    open_recorded();
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
          raw_rows_give_the_recorded_run)
