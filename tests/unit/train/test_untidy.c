/* Fine-tuning on a table with texts (one column has 36), gaps, whole numbers and booleans: from CSV files to what
 * TabPFN 9.2.0's networks were given (tests/data/train/make_untidy_runs.py), within 1e-5, in two chunks for each task.
 * Columns of these rows have well apart singular values, so that fingerprints behind SVD columns are mostly equal as
 * well. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "ensemble/regression.h"
#include "model/model.h"
#include "table/prep.h"
#include "train/data.h"
#include "unit.h"

enum { CONTEXT = 96, QUERY = 24, COLUMNS = 6, ESTIMATORS = 4, STEPS = 2, SEED = 5 };

static struct tabft_failure f;

static void quiet(void *context, bool warning, const char *text)
{
    (void)context;
    (void)warning;
    (void)text;
}

static void pack(const char *csv, const char *path, enum table_task task)
{
    const char *input = unit_data(csv);
    const struct pack_options o = {.input = &input,
                                   .n_inputs = 1,
                                   .output = path,
                                   .point = '.',
                                   .target = "y",
                                   .task = task,
                                   .block_bytes = PACK_BLOCK_BYTES};
    const struct prep_say say = {.line = quiet};
    MUST(prep_pack(&o, NULL, &say, &f));
}

struct tally {
    size_t cells, fingerprints, equal;
    double worst;
};

static void compare(const struct ensemble_call *call, const struct ckpt_tensor *t, struct tally *tally)
{
    ck_assert_uint_eq(t->shape[1], call->n_columns);
    ck_assert_uint_eq(t->shape[0], CONTEXT + QUERY);
    for (size_t i = 0; i < t->count; i++) {
        double is = (double)call->x[i], should = ckpt_value(t, i);
        double difference = isnan(is) && isnan(should) ? 0 : fabs(is - should) / fmax(1, fabs(should));
        if (call->fingerprint_may_differ && (int)(i % call->n_columns) == call->fingerprint_column) {
            tally->fingerprints++;
            tally->equal += difference <= 1e-5;
            continue;
        }
        ck_assert_msg(difference <= 1e-5, "row %zu, column %zu of %zu is %.9g instead of %.9g", i / call->n_columns,
                      i % call->n_columns, call->n_columns, is, should);
        tally->cells++;
        tally->worst = fmax(tally->worst, difference);
    }
}

static const struct ckpt_tensor *get(const struct ckpt *c, const char *task, size_t step, size_t estimator, char what)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.step%zu.est%zu.%c", task, step, estimator, what);
    const struct ckpt_tensor *t = ckpt_find(c, name);
    ck_assert_msg(t != NULL, "no tensor %s", name);
    return t;
}

static void compare_step(const struct ckpt *recorded, struct train_data *d, const struct model *m,
                         const struct chunk *chunk, size_t step, struct tally *tally)
{
    static double context[CONTEXT * COLUMNS], query[QUERY * COLUMNS], target[CONTEXT];
    static int32_t label[CONTEXT];
    const char *task = d->is_regression ? "reg" : "cls";
    ck_assert(chunk->n_context == CONTEXT && chunk->n_query == QUERY && d->n_columns == COLUMNS);
    MUST(train_data_gather(d, false, chunk->context, CONTEXT, context, &f));
    MUST(train_data_gather(d, false, chunk->query, QUERY, query, &f));
    for (size_t i = 0; i < CONTEXT; i++) {
        if (d->is_regression) target[i] = d->train_target[chunk->context[i]];
        else label[i] = d->train_label[chunk->context[i]];
    }
    const struct ensemble_columns c = train_data_columns(d, context, CONTEXT), q = train_data_columns(d, query, QUERY);
    const struct ensemble_options options = {.n_estimators = ESTIMATORS,
                                             .seed = SEED,
                                             .phase = ENSEMBLE_FINETUNING,
                                             .n_classes = d->n_classes,
                                             .architecture = model_architecture(m),
                                             .inference_config = model_inference_config(m)};
    struct ensemble *e;
    if (d->is_regression) MUST(ensemble_open_regression(&e, &options, &c, target, &q, &f));
    else MUST(ensemble_open(&e, &options, &c, label, &q, &f));
    for (size_t j = 0; j < ESTIMATORS; j++) {
        struct ensemble_call call;
        MUST(ensemble_call(e, j, NULL, NULL, &call, &f));
        compare(&call, get(recorded, task, step, j, 'x'), tally);
        const struct ckpt_tensor *y = get(recorded, task, step, j, 'y');
        for (size_t i = 0; i < CONTEXT; i++)
            ck_assert_double_eq_tol((double)call.y_context[i], ckpt_value(y, i), 1e-5);
        ensemble_call_clear(&call);
    }
    ensemble_close(e);
}

static void compare_task(const char *task, enum model_task what)
{
    char csv[64], file[64], path[64];
    struct ckpt *recorded, *weights;
    struct model *m;
    struct train_data d;
    struct train_sizes sizes;
    struct chunks *chunks;
    struct train_options o;
    struct tally tally = {0};
    (void)snprintf(path, sizeof path, "untidy_%s.tbf", task);
    (void)snprintf(csv, sizeof csv, "train/untidy_%s.csv", task);
    (void)snprintf(file, sizeof file, "reference/v2_6_%s.model.safetensors", task);
    pack(csv, path, (enum table_task)what);
    MUST(ckpt_open(&recorded, unit_data("train/untidy.safetensors"), &f));
    MUST(ckpt_open(&weights, unit_data(file), &f));
    MUST(model_open(&m, weights, what, &f));
    train_options_default(&o);
    o.data = path;
    o.chunk_rows = CONTEXT + QUERY;
    o.seed = SEED;
    o.validation_split = 0;
    MUST(train_data_open(&d, &o, NULL, &f));
    MUST(train_data_sizes(&d, &o, &sizes, &f));
    ck_assert_uint_eq(sizes.n_texts, 2);
    MUST(train_data_stream(&d, &o, &sizes, &f));
    const struct chunks_rules rules = train_data_rules(&d, &o);
    MUST(chunks_open(&chunks, &rules, 0, &f));
    ck_assert_uint_eq(chunks_count(chunks), STEPS);
    for (size_t step = 0; step < STEPS; step++) compare_step(recorded, &d, m, chunks_at(chunks, step), step, &tally);
    printf("%s: %zu cells within %.1e, %zu of %zu fingerprints behind SVD equal\n", task, tally.cells, tally.worst,
           tally.equal, tally.fingerprints);
    (void)fflush(stdout);
    ck_assert_uint_gt(tally.cells, 5000);
    ck_assert_double_ge((double)tally.equal, 0.9 * (double)tally.fingerprints);
    chunks_close(chunks);
    train_data_clear(&d);
    model_close(m);
    ckpt_close(weights);
    ckpt_close(recorded);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(classifier) { compare_task("cls", MODEL_CLASSIFICATION); }
END_TEST

START_TEST(regressor) { compare_task("reg", MODEL_REGRESSION); }
END_TEST

int main(void)
{
    char folder[] = "/tmp/tabft-untidy-XXXXXX", data[4096];
    if (realpath(unit_data(""), data) == NULL || setenv("TABFT_DATA", data, 1) != 0) return EXIT_FAILURE;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return EXIT_FAILURE;
    Suite *suite = suite_create("untidy");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, classifier);
    tcase_add_test(tcase, regressor);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 && rmdir(folder) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
