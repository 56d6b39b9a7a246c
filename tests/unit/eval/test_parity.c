/* lib/eval/parity: two runs that are one are held; every way in which they are not is a reason, and never passes. Runs
 * are made here: a small random network and the records a training run leaves. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "eval/parity.h"
#include "file/file.h"
#include "model/model.h"
#include "table/table.h"
#include "unit.h"

static struct tabft_failure f;
static const struct parity_tolerance exact = {1, 0, 0, 0, true}, published = {0.9975, 0.0120, 0.00037, 5.5e-5, false};

enum { TRAIN_ROWS = 40, TEST_ROWS = 15, COLUMNS = 3 };

/* A table with labels "no" and "yes" that its first column tells. shift makes another one. */
static void make_table(const char *path, size_t n_rows, double shift, bool with_target)
{
    static const char *const labels[2] = {"no", "yes"}, *const names[COLUMNS + 1] = {"a", "b", "c", "y"};
    double values[COLUMNS + 1][TRAIN_ROWS];
    struct table_column column[COLUMNS + 1];
    for (size_t i = 0; i < n_rows; i++) {
        for (size_t c = 0; c < COLUMNS; c++)
            values[c][i] = sin(1.7 * (double)(i * COLUMNS + c) + shift) * (double)(c + 1);
        values[COLUMNS][i] = values[0][i] > 0.1 ? 1 : 0;
    }
    for (size_t c = 0; c <= COLUMNS; c++)
        column[c] = (struct table_column){.name = names[c], .kind = TABLE_FLOAT, .value = values[c]};
    column[COLUMNS].kind = TABLE_TEXT;
    column[COLUMNS].n_dictionary = 2;
    column[COLUMNS].dictionary = labels;
    const struct table_output output = {.n_rows = n_rows,
                                        .n_columns = with_target ? COLUMNS + 1 : COLUMNS,
                                        .column = column,
                                        .target = with_target ? COLUMNS : SIZE_MAX,
                                        .task = with_target ? TABLE_CLASSIFICATION : TABLE_NO_TASK,
                                        .provenance = "{}"};
    MUST(table_write(path, true, &output, NULL, &f));
}

static void put(const char *path, const char *text) { MUST(file_write_all(path, true, text, strlen(text), &f)); }

static void put_metrics(const char *run, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    put(path, text);
}

/* run.json; `sha256` NULL: of the weights as they are. */
static void put_record(const char *run, const char *sha256, const char *base_sha256, const char *labels,
                       const char *rate)
{
    char path[256], text[2048], digest[65];
    struct table *train;
    struct ckpt *c;
    (void)snprintf(path, sizeof path, "%s/model.safetensors", run);
    MUST(ckpt_open(&c, path, &f));
    ckpt_digest(c, digest);
    ckpt_close(c);
    MUST(table_open_schema(&train, "train.tbf", &f));
    (void)snprintf(
        text, sizeof text,
        "{\"schema\": 1, \"version\": \"0\", \"model_sha256\": \"%s\", \"base_model_sha256\": \"%s\", \"train\": "
        "{\"path\": "
        "\"train.tbf\", \"digest\": \"%s\", \"rows\": %d, \"columns\": %d, \"labels\": %s}, \"valid\": null, "
        "\"options\": {\"out\": "
        "\"%s\", "
        "\"epochs\": 2, \"learning_rate\": %s, \"estimators\": 2, \"seed\": 17, \"threads\": %zu}, \"world_size\": %d, "
        "\"engine\": \"self\", \"isa\": \"x\", \"cpu\": \"A processor\", \"threads\": 1, \"host\": \"h\", \"steps\": "
        "3}",
        sha256 != NULL ? sha256 : digest, base_sha256, train->digest, TRAIN_ROWS, COLUMNS, labels, run, rate,
        strlen(run), strcmp(run, "base") == 0 ? 1 : 4);
    table_close(train);
    (void)snprintf(path, sizeof path, "%s/run.json", run);
    put(path, text);
}

#define LABELS "[\"no\", \"yes\"]"
#define METRICS                                                                                                     \
    "{\"kind\": \"step\", \"step\": 1, \"loss\": 0.6931471805599453}\n{\"kind\": \"step\", \"step\": 2, \"loss\": " \
    "0.5}\n{\"kind\": \"validation\", \"step\": 2}\n{\"kind\": \"step\", \"step\": 3, "                             \
    "\"loss\": 0.25}\n"

static void make_run(const char *run)
{
    static const char config[] = "{\"emsize\": 16, \"nlayers\": 2, \"nhead\": 2, \"features_per_group\": 1, "
                                 "\"num_thinking_rows\": 2, \"max_num_classes\": 10}";
    char path[256];
    struct model *m;
    (void)mkdir(run, 0777);
    MUST(model_init(&m, "tabpfn_v2_6", config, 3, &f));
    for (size_t i = 0; i < model_parameters(m);
         i++) /* what is drawn as zero, as before training, would let nothing through */
        if (model_values(m)[i] == 0) model_values_mutable(m)[i] = 0.2f * sinf((float)i);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", run);
    MUST(model_write(m, model_values(m), path, true, &f));
    model_close(m);
    put_record(run, NULL, "b", LABELS, "1e-5");
    put_metrics(run, METRICS);
}

/* Clears and flips bits of the first class's bias in other/; the record stays as it is. */
static void change_bias(uint32_t clear, uint32_t flip)
{
    struct ckpt *c;
    struct model *m;
    size_t i = 0;
    uint32_t value;
    MUST(ckpt_open(&c, "other/model.safetensors", &f));
    MUST(model_open(&m, c, MODEL_ANY_TASK, &f));
    ckpt_close(c);
    while (strcmp(model_parameter_at(m, i)->name, "output_projection.2.bias") != 0) i++;
    float *bias = model_values_mutable(m) + model_parameter_at(m, i)->offset;
    memcpy(&value, bias, sizeof value);
    value = (value & ~clear) ^ flip;
    memcpy(bias, &value, sizeof value);
    MUST(model_write(m, model_values(m), "other/model.safetensors", true, &f));
    model_close(m);
}

/* Every test is a process of its own and works in a folder of its own. */
static char folder[] = "parity-XXXXXX";

static void setup(void)
{
    ck_assert(mkdtemp(folder) != NULL && chdir(folder) == 0);
    make_table("train.tbf", TRAIN_ROWS, 0, true);
    make_table("test.tbf", TEST_ROWS, 0.5, true);
    make_run("base");
    make_run("other");
}

static void cleanup(void)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -r ../%s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Compares; `held` as told, and `why` in a reason where not. The caller owns the report. */
static json_t *verdict(const struct parity_tolerance *tolerance, bool held, const char *why)
{
    json_t *report;
    bool found;
    MUST(parity_compare("base", "other", "test.tbf", NULL, tolerance, NULL, &report, &found, &f));
    char *text = json_dumps(report, 0);
    ck_assert_msg(found == held, "%s", text);
    ck_assert_str_eq(json_string_value(json_object_get(report, "status")), held ? "held" : "not held");
    ck_assert_msg((json_array_size(json_object_get(report, "reasons")) == 0) == held, "%s", text);
    char *reasons = json_dumps(json_object_get(report, "reasons"), 0);
    ck_assert_msg(why == NULL || strstr(reasons, why) != NULL, "no reason has \"%s\": %s", why, reasons);
    free(reasons);
    free(text);
    return report;
}

static void expect(const struct parity_tolerance *tolerance, bool held, const char *why)
{
    json_decref(verdict(tolerance, held, why));
}

static double number(const json_t *report, const char *key) { return json_number_value(json_object_get(report, key)); }

START_TEST(same_runs)
{
    static const char *const fields[] = {"status",
                                         "gpu_name",
                                         "world_size",
                                         "train_rows",
                                         "test_rows",
                                         "epochs",
                                         "n_estimators",
                                         "unsharded_accuracy",
                                         "sharded_accuracy",
                                         "prediction_agreement",
                                         "probability_max_abs_difference",
                                         "probability_mean_abs_difference",
                                         "weight_max_abs_difference"};
    size_t i = 0;
    const char *key;
    json_t *value;
    setup();
    json_t *report = verdict(&exact, true, NULL);
    json_object_foreach (report, key, value) {
        if (i < sizeof fields / sizeof *fields) ck_assert_str_eq(key, fields[i]);
        i++;
    }
    ck_assert_str_eq(json_string_value(json_object_get(report, "gpu_name")), "A processor");
    ck_assert(number(report, "world_size") == 4 && number(report, "unsharded_world_size") == 1);
    ck_assert(number(report, "train_rows") == TRAIN_ROWS && number(report, "test_rows") == TEST_ROWS);
    ck_assert(number(report, "epochs") == 2 && number(report, "n_estimators") == 2 &&
              number(report, "prediction_agreement") == 1);
    ck_assert(number(report, "probability_max_abs_difference") == 0 &&
              number(report, "weight_max_abs_difference") == 0);
    ck_assert(json_is_true(json_object_get(report, "bit_identical")));
    ck_assert_uint_eq(json_array_size(json_object_get(report, "worst_cells")), 0);
    json_decref(report);
    expect(&published, true, NULL);
    cleanup();
}
END_TEST

START_TEST(one_bit_of_one_weight)
{
    setup();
    change_bias(0, 1);
    expect(&exact, false, "damaged or replaced"); /* not the file that the run recorded */
    expect(&published, false, "damaged or replaced");
    put_record("other", NULL, "b", LABELS, "1e-5");
    expect(&exact, false, "not bit-identical");
    json_t *report = verdict(&published, true, NULL);
    ck_assert(json_is_false(json_object_get(report, "bit_identical")));
    ck_assert(number(report, "weight_max_abs_difference") > 0 && number(report, "tensors_different") == 1);
    json_decref(report);
    change_bias(0, 1u << 23); /* twice or half of it */
    put_record("other", NULL, "b", LABELS, "1e-5");
    report = verdict(&published, false, "weights differ by");
    const json_t *worst = json_object_get(report, "worst_cells");
    ck_assert(json_array_size(worst) > 0 &&
              number(json_array_get(worst, 0), "abs_difference") == number(report, "probability_max_abs_difference"));
    json_decref(report);
    cleanup();
}
END_TEST

START_TEST(not_finite)
{
    const struct parity_tolerance lax = {0, 1e300, 1e300, 1e300, false};
    setup();
    change_bias(UINT32_MAX, 0x7fc00000); /* NaN */
    put_record("other", NULL, "b", LABELS, "1e-5");
    json_t *report = verdict(&lax, false, "weights differ by");
    ck_assert(json_is_null(json_object_get(report, "weight_max_abs_difference")));
    json_decref(report);
    make_run("other");
    put_metrics("other", "{\"kind\": \"step\", \"step\": 1, \"loss\": null}\n{\"kind\": \"step\", \"step\": 2, "
                         "\"loss\": 0.5}\n{\"kind\": \"step\", \"step\": 3, \"loss\": 0.25}\n");
    expect(&lax, false, "a loss is not finite");
    cleanup();
}
END_TEST

START_TEST(other_records)
{
    setup();
    put_record("other", NULL, "c", LABELS, "1e-5");
    expect(&published, false, "different base models");
    put_record("other", NULL, "b", "[\"yes\", \"no\"]", "1e-5");
    expect(&published, false, "different label lists");
    put_record("other", NULL, "b", LABELS, "1e-4");
    expect(&published, false, "option learning_rate differs");
    make_table("train.tbf", TRAIN_ROWS, 0.25, true);
    put_record("other", NULL, "b", LABELS, "1e-5");
    make_table("train.tbf", TRAIN_ROWS, 0, true);
    expect(&published, false, "trained on different tables");
    cleanup();
}
END_TEST

START_TEST(other_losses)
{
    setup();
    put_metrics("other", "{\"kind\": \"step\", \"step\": 1, \"loss\": 0.6931471805599454}\n{\"kind\": \"step\", "
                         "\"step\": 2, \"loss\": 0.5}\n{\"kind\": \"step\", \"step\": 3, \"loss\": 0.25}\n");
    expect(&exact, false, "not bit-identical");
    expect(&published, true, NULL);
    put_metrics("other", "{\"kind\": \"step\", \"step\": 1, \"loss\": 0.6931471805599453}\n{\"kind\": \"step\", "
                         "\"step\": 2, \"loss\": 0.5}\n");
    expect(&published, false, "logged 3 and 2 steps");
    put_metrics("base", "");
    put_metrics("other", "");
    expect(&published, false, "logged 0 and 0 steps");
    cleanup();
}
END_TEST

START_TEST(no_verdict)
{
    json_t *report;
    bool held;
    setup();
#define COMPARE(test, train) parity_compare("base", "other", test, train, &exact, NULL, &report, &held, &f)
    MUST_FAIL(COMPARE("none.tbf", NULL), TABFT_INPUT, "none.tbf");
    make_table("no-labels.tbf", TEST_ROWS, 0.5, false);
    MUST_FAIL(COMPARE("no-labels.tbf", NULL), TABFT_INPUT, "no row has a label");
    MUST_FAIL(COMPARE("test.tbf", "test.tbf"), TABFT_INPUT, "not the table that base was trained on");
    put_metrics("other", "{\"kind\": \"step\", \"step\": 2, \"loss\": 0.5}\n");
    MUST_FAIL(COMPARE("test.tbf", NULL), TABFT_INPUT, "metrics.jsonl:1: step 1 is due");
    put_metrics("other", "{\"kind\": \"step\", \"step\": 1, \"loss\": 0.5");
    MUST_FAIL(COMPARE("test.tbf", NULL), TABFT_INPUT, "not JSON");
    put_metrics("other", "{\"step\": 1, \"loss\": 0.5}");
    MUST_FAIL(COMPARE("test.tbf", NULL), TABFT_INPUT, "not a run's log");
    put_metrics("other", METRICS);
    put("other/run.json", "{\"schema\": 2}");
    MUST_FAIL(COMPARE("test.tbf", NULL), TABFT_INPUT, "later version");
    put("other/run.json", "{\"schema\": 1}");
    MUST_FAIL(COMPARE("test.tbf", NULL), TABFT_INPUT, "not a run's record");
    ck_assert_int_eq(unlink("other/run.json"), 0);
    MUST_FAIL(COMPARE("test.tbf", NULL), TABFT_INPUT, "other/run.json");
    cleanup();
}
END_TEST

START_TEST(tolerances)
{
    struct parity_tolerance t;
    setup();
    MUST(parity_tolerance_read("exact", &t, &f));
    ck_assert(t.prediction_agreement == 1 && t.weight_max_abs_difference == 0 && t.bit_identical);
    MUST(parity_tolerance_read("published", &t, &f));
    ck_assert(t.prediction_agreement == 0.9975 && t.probability_max_abs_difference == 0.0120 && !t.bit_identical);
    ck_assert(t.probability_mean_abs_difference == 0.00037 && t.weight_max_abs_difference == 5.5e-5);
#define BOUNDS \
    "\"prediction_agreement\": 0.5, \"probability_max_abs_difference\": 0.25, \"probability_mean_abs_difference\": 1"
    put("t.json", "{" BOUNDS ", \"weight_max_abs_difference\": 2e-3}");
    MUST(parity_tolerance_read("t.json", &t, &f));
    ck_assert(t.prediction_agreement == 0.5 && t.probability_max_abs_difference == 0.25 &&
              t.weight_max_abs_difference == 2e-3);
    ck_assert(t.probability_mean_abs_difference == 1 && !t.bit_identical);
    put("t.json", "{" BOUNDS "}");
    MUST_FAIL(parity_tolerance_read("t.json", &t, &f), TABFT_INPUT, "weight_max_abs_difference");
    put("t.json", "{" BOUNDS ", \"weight_max_abs_difference\": -1}");
    MUST_FAIL(parity_tolerance_read("t.json", &t, &f), TABFT_INPUT, "weight_max_abs_difference");
    put("t.json", "{" BOUNDS ", \"weight_max_abs_difference\": 1, \"weights\": 1}");
    MUST_FAIL(parity_tolerance_read("t.json", &t, &f), TABFT_INPUT, "no tolerance");
    put("t.json", "{" BOUNDS ", \"weight_max_abs_difference\": 1, \"bit_identical\": 1}");
    MUST_FAIL(parity_tolerance_read("t.json", &t, &f), TABFT_INPUT, "no tolerance");
    MUST_FAIL(parity_tolerance_read("exactly", &t, &f), TABFT_INPUT, "exactly");
    cleanup();
}
END_TEST

UNIT_MAIN("parity", same_runs, one_bit_of_one_weight, not_finite, other_records, other_losses, no_verdict, tolerances)
