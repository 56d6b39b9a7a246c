/* TabPFN 9.2.0's ten recorded fine-tuning runs (recorded.h): trained on the recorded batches, losses, lengths of
 * gradients and weights; and whole runs, from the raw table through training to predictions. What goes into the
 * networks is held by test_inputs. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "comm/reduce.h"
#include "eval/eval.h"
#include "eval/run_record.h"
#include "recorded.h"
#include "table/table.h"
#include "tensor/device.h"
#include "train/optimiser.h"
#include "train/train.h"
#include "unit_backend.h"

/* ---- training on the recorded batches ---- */

/* What may differ: `most` of the weights by `near`, all by `far`. */
struct bounds {
    double loss, length, most, near, far;
};
static const struct bounds v2_bounds = {1e-6, 1e-5, 0.999, 3e-7, 5e-6}, v3_bounds = {2e-6, 1e-5, 0.999, 5e-7, 5e-5};

/* What the replay of a run computes with. */
struct replay {
    const struct recorded_run *recorded;
    struct model *m;
    struct model_run *run;
    struct vectors vectors;
    struct reduce *reduce;
    struct optimiser *optimiser;
    float *gradient; /* where the next estimator's goes, or is added; then the step's */
    bool add;
    float *start; /* the base model's weights */
};

static void replay_open(struct replay *r, const struct recorded_run *run)
{
    struct tabft_failure f = {0};
    r->recorded = run;
    r->m = open_model(run);
    const size_t n = model_parameters(r->m);
    MUST(memory_new(&r->start, n, sizeof *r->start, "weights", &f));
    memcpy(r->start, model_values(r->m), n * sizeof *r->start);
    MUST(model_run_open(&r->run, r->m, (struct model_shape){CONTEXT, QUERY, COLUMNS_MAX}, MODEL_RECOMPUTE_BLOCK, true,
                        unit_cpu(NULL), &f));
    vectors_host(&r->vectors, NULL);
    MUST(reduce_open(&r->reduce, NULL, &r->vectors, ESTIMATORS, n, &f));
    MUST(optimiser_open(&r->optimiser, &r->vectors, n, &f));
}

static void replay_close(struct replay *r)
{
    optimiser_close(r->optimiser);
    reduce_close(r->reduce);
    model_run_close(r->run);
    model_close(r->m);
    free(r->start);
}

/* The loss of one estimator and its gradient. A regressor's is crps + mse of logits divided by 0.9. */
static double replay_estimator(struct replay *r, size_t step, size_t estimator)
{
    static struct batch b;
    struct tabft_failure f = {0};
    double loss;
    read_batch(r->recorded, step, estimator, &b);
    const struct model_input input = {.shape = {CONTEXT, QUERY, b.n_columns}, .x = b.x, .y_context = b.y_context};
    if (r->recorded->task == MODEL_REGRESSION) {
        const struct model_regression_target target = {.y_query = b.asked,
                                                       .temperature = 0.9,
                                                       .crps = 1.0,
                                                       .mse = 1.0,
                                                       .mse_most = INFINITY,
                                                       .scale = 1.0 / ESTIMATORS,
                                                       .add = r->add};
        MUST(model_gradient_regression(r->run, model_values(r->m), &input, &target, &loss, r->gradient, &f));
        return loss;
    }
    int32_t label[QUERY];
    for (size_t i = 0; i < QUERY; i++) label[i] = (int32_t)b.asked[i];
    const struct model_target target = {.y_query = label,
                                        .class_permutation = b.permutation,
                                        .n_classes = CLASSES,
                                        .scale = 1.0 / ESTIMATORS,
                                        .add = r->add};
    MUST(model_gradient(r->run, model_values(r->m), &input, &target, &loss, r->gradient, &f));
    return loss;
}

/* One step; gives its loss and the length of its gradient. */
static double replay_step(struct replay *r, size_t step, double *length)
{
    struct tabft_failure f = {0};
    double sum = 0, squares;
    for (size_t j = 0; j < ESTIMATORS; j++) {
        MUST(reduce_place(r->reduce, j, &r->gradient, &r->add, &f));
        sum += replay_estimator(r, step, j);
        reduce_placed(r->reduce);
    }
    MUST(reduce_finish(r->reduce, &r->gradient, &f));
    MUST(reduce_square_sum(r->reduce, r->gradient, &squares, &f));
    *length = sqrt(squares);
    struct optimiser_step update = {.learning_rate = ckpt_value(get("%s.lr", r->recorded->name), step),
                                    .weight_decay = 0.01,
                                    .clip = optimiser_clip(*length, 1)};
    optimiser_step(r->optimiser, &update, model_values_mutable(r->m), r->gradient);
    return sum;
}

static void check_weights(const struct replay *r, const struct bounds *b)
{
    const double unit = 0x1p-26;
    size_t beyond = 0, total = model_parameters(r->m);
    double worst = 0;
    for (size_t i = 0; i < model_parameter_count(r->m); i++) {
        const struct model_parameter *p = model_parameter_at(r->m, i);
        const struct ckpt_tensor *t = get("%s.weights.%s", r->recorded->name, p->name);
        ck_assert_uint_eq(t->count, p->count);
        for (size_t k = p->offset; k < p->offset + p->count; k++) {
            double went = (double)model_values(r->m)[k] - (double)r->start[k];
            double off = fabs(went - unit * ckpt_value(t, k - p->offset));
            worst = fmax(worst, off);
            beyond += off > b->near;
        }
    }
    printf("weights within %.1e, %zu of %zu beyond %.0e\n", worst, beyond, total, b->near);
    (void)fflush(stdout);
    ck_assert_double_le(worst, b->far);
    ck_assert_double_le((double)beyond, (1 - b->most) * (double)total);
}

START_TEST(recorded_batches_give_the_recorded_weights)
{
    const struct recorded_run *run = &recorded_runs[_i];
    const struct bounds *b = strncmp(run->name, "v3", 2) == 0 ? &v3_bounds : &v2_bounds;
    struct replay r;
    double worst = 0;
    open_recorded();
    replay_open(&r, run);
    for (size_t step = 0; step < STEPS; step++) {
        double length, loss = replay_step(&r, step, &length);
        double should = ckpt_value(get("%s.grad_norm", run->name), step);
        worst = fmax(worst, fabs(loss - ckpt_value(get("%s.loss", run->name), step)));
        ck_assert_double_eq_tol(length, should, b->length * fmax(1, should));
    }
    printf("%s: losses within %.1e, ", run->name, worst);
    ck_assert_double_le(worst, b->loss);
    check_weights(&r, b);
    replay_close(&r);
    ckpt_close(recorded);
}
END_TEST

/* ---- from the raw table to predictions ---- */

/* The recorded rows as a packed table; labels or targets only for the training rows. */
static void write_table(const char *path, const char *x_name, size_t n_rows, const char *y_name, enum model_task task)
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
    const bool asks = y_name != NULL;
    for (size_t i = 0; asks && i < n_rows; i++) value[COLUMNS][i] = ckpt_value(get("%s", y_name), i);
    column[COLUMNS] = (struct table_column){.name = "y", .kind = TABLE_FLOAT, .value = value[COLUMNS]};
    if (task == MODEL_CLASSIFICATION) {
        column[COLUMNS].kind = TABLE_INTEGER;
        column[COLUMNS].n_dictionary = CLASSES;
        column[COLUMNS].dictionary = labels;
    }
    struct table_output output = {.n_rows = n_rows,
                                  .n_columns = COLUMNS + asks,
                                  .column = column,
                                  .target = asks ? COLUMNS : SIZE_MAX,
                                  .task = asks ? (enum table_task)task : TABLE_NO_TASK,
                                  .provenance = "{}"};
    MUST(table_write(path, false, &output, NULL, &f));
}

static double compare_losses(const struct recorded_run *r, const char *run)
{
    struct tabft_failure f = {0};
    struct run_record record;
    double worst = 0;
    MUST(run_record_open(&record, run, &f));
    ck_assert_uint_eq(record.n_steps, STEPS);
    for (size_t step = 0; step < STEPS; step++)
        worst = fmax(worst, fabs(record.loss[step] - ckpt_value(get("%s.loss", r->name), step)));
    run_record_clear(&record);
    return worst;
}

/* The largest difference from TabPFN's probabilities or means. */
static double compare_predictions(const struct recorded_run *r, const char *weights, const char *train_path,
                                  const char *test_path)
{
    struct tabft_failure f = {0};
    struct ckpt *c;
    struct model *m;
    struct table *train, *test;
    struct eval_prediction prediction;
    struct eval_options options = {.n_estimators = ESTIMATORS, .seed = SEED};
    double worst = 0;
    MUST(ckpt_open(&c, weights, &f));
    MUST(model_open(&m, c, r->task, &f));
    MUST(table_open(&train, train_path, NULL, &f));
    MUST(table_open(&test, test_path, NULL, &f));
    MUST(eval_predict(m, train, test, &options, NULL, &prediction, &f));
    const struct ckpt_tensor *should = get("%s.predicted", r->name);
    const double *is = r->task == MODEL_REGRESSION ? prediction.mean : prediction.probability;
    ck_assert_uint_eq(should->count, TEST_ROWS * (r->task == MODEL_REGRESSION ? 1 : CLASSES));
    for (size_t i = 0; i < should->count; i++) worst = fmax(worst, fabs(is[i] - ckpt_value(should, i)));
    eval_prediction_clear(&prediction);
    table_close(train);
    table_close(test);
    model_close(m);
    ckpt_close(c);
    return worst;
}

/* Not the bits: fingerprints that hash last bits differ (test_inputs). v2's do on half of the rows. */
static const struct whole {
    const char *name;
    double loss, prediction;
} wholes[] = {{"v2_6_cls", 1e-3, 5e-3}, {"v2_6_reg", 1e-3, 5e-3}, {"v2_5_reg", 1e-3, 1e-2}, {"v2_reg", 1e-3, 1e-2}};
enum { WHOLES = sizeof wholes / sizeof *wholes };

START_TEST(raw_rows_give_the_recorded_run)
{
    const struct whole *w = &wholes[_i];
    const struct recorded_run *r = recorded_runs;
    while (strcmp(r->name, w->name) != 0) r++;
    struct tabft_failure f = {0};
    char folder[] = "/tmp/tabft-train-XXXXXX", train[64], test[64], run[64], weights[96], command[128], model[NAME];
    struct train_result result;
    struct train_options o;
    open_recorded();
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(train, sizeof train, "%s/train.tbf", folder);
    (void)snprintf(test, sizeof test, "%s/test.tbf", folder);
    (void)snprintf(run, sizeof run, "%s/run", folder);
    (void)snprintf(weights, sizeof weights, "%s/model.safetensors", run);
    write_table(train, "raw.X_train", ROWS, r->task == MODEL_REGRESSION ? "raw.y_reg" : "raw.y_cls", r->task);
    write_table(test, "raw.X_test", TEST_ROWS, NULL, MODEL_ANY_TASK);
    model_path(r, model);
    struct tensor_device device;
    train_options_default(&o);
    o.model = unit_data(model);
    o.data = train;
    o.out = run;
    o.epochs = 2;
    o.learning_rate = 1e-4;
    o.estimators = ESTIMATORS;
    o.chunk_rows = CONTEXT + QUERY;
    o.seed = SEED;
    o.validation_split = 0;
    o.threads = 1;
    MUST(tensor_device_find(&device, "cpu", false, NULL, &f));
    MUST(train_run(&o, &device, NULL, NULL, &result, &f));
    double loss = compare_losses(r, run), prediction = compare_predictions(r, weights, train, test);
    printf("%s from raw rows: losses within %.1e, predictions within %.1e\n", r->name, loss, prediction);
    (void)fflush(stdout);
    ck_assert_double_le(loss, w->loss);
    ck_assert_double_le(prediction, w->prediction);
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
    ckpt_close(recorded);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("finetune");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, recorded_batches_give_the_recorded_weights, 0, RUNS);
    tcase_add_loop_test(tcase, raw_rows_give_the_recorded_run, 0, WHOLES);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
