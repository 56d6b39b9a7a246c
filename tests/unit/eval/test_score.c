/* lib/eval: scores against scikit-learn's figures, labels that no class has, and predictions in files. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "eval/eval.h"
#include "table/table.h"
#include "unit.h"

static struct tabft_failure f;

/* Label 3 is no class. Figures: sklearn.metrics of these numbers (accuracy_score and balanced_accuracy_score on all
 * rows, log_loss and roc_auc_score(multi_class="ovr") on those whose label is a class). */
static double three[12][3] = {{0.51, 0.06, 0.43}, {0.08, 0.5, 0.42}, {0.22, 0.54, 0.24}, {0.44, 0.28, 0.28},
                              {0.01, 0.24, 0.75}, {0.39, 0.51, 0.1}, {0.06, 0.39, 0.55}, {0.3, 0.05, 0.65},
                              {0.69, 0.11, 0.2},  {0.1, 0.29, 0.61}, {0.04, 0.95, 0.01}, {0.49, 0.04, 0.47}};
static int32_t three_truth[12] = {0, 2, 1, 3, 0, 0, 1, 2, 3, 2, 1, 0};
static char *labels[4] = {"0", "7", "high", "unseen"};
static struct eval_prediction three_classes = {
    .n_rows = 12, .n_classes = 3, .n_labels = 4, .label = labels, .probability = &three[0][0], .truth = three_truth};

START_TEST(three_classes_one_label_unseen)
{
    struct eval_scores s;
    MUST(eval_score(&three_classes, &s, &f));
    ck_assert(s.n_rows == 12 && s.n_labelled == 12 && s.n_unseen == 2);
    ck_assert_double_eq(s.accuracy, 0.5);
    ck_assert_double_eq_tol(s.balanced_accuracy, 0.45833333333333326, 1e-15);
    ck_assert_double_eq_tol(s.log_loss, 1.0335140946269536, 1e-14);
    ck_assert_double_eq_tol(s.roc_auc, 0.7896825396825397, 1e-14);
}
END_TEST

START_TEST(two_classes_rows_without_label)
{
    double two[12][2] = {{0.51, 0.49}, {0.08, 0.92}, {0.22, 0.78}, {0.01, 0.99}, {0.39, 0.61}, {0.06, 0.94},
                         {0.3, 0.7},   {0.1, 0.9},   {0.04, 0.96}, {0.49, 0.51}, {0.9, 0.1},   {0.2, 0.8}};
    int32_t truth[12] = {0, 1, 1, 0, 0, 1, 1, 1, 1, 0, EVAL_NO_LABEL, EVAL_NO_LABEL};
    struct eval_prediction p = {
        .n_rows = 12, .n_classes = 2, .n_labels = 2, .label = labels, .probability = &two[0][0], .truth = truth};
    struct eval_scores s;
    MUST(eval_score(&p, &s, &f));
    ck_assert(s.n_rows == 12 && s.n_labelled == 10 && s.n_unseen == 0);
    ck_assert_double_eq(s.accuracy, 0.7);
    ck_assert_double_eq_tol(s.balanced_accuracy, 0.625, 1e-15);
    ck_assert_double_eq_tol(s.log_loss, 0.7830048993060218, 1e-14);
    ck_assert_double_eq_tol(s.roc_auc, 0.75, 1e-15);
}
END_TEST

/* Figures: mean_squared_error, mean_absolute_error and r2_score of sklearn.metrics; the last row has no target. */
START_TEST(numbers)
{
    double target[6] = {1.5, -2.25, 3, 0.125, 7, NAN}, mean[6] = {1, -2, 3.5, 0.25, 6, 9};
    double equal[6] = {2, 2, 2, 2, 2, 2};
    struct eval_prediction p = {.is_regression = true, .n_rows = 6, .target = target, .mean = mean};
    struct eval_scores s;
    MUST(eval_score(&p, &s, &f));
    ck_assert(s.n_rows == 6 && s.n_labelled == 5);
    ck_assert_double_eq_tol(s.errors.mse, 0.315625, 1e-15);
    ck_assert_double_eq_tol(s.errors.mae, 0.475, 1e-15);
    ck_assert_double_eq_tol(s.errors.r2, 0.9669502617801047, 1e-15);
    p.target = equal;
    MUST(eval_score(&p, &s, &f));
    ck_assert(isnan(s.errors.r2));
    for (int i = 0; i < 6; i++) equal[i] = NAN;
    MUST_FAIL(eval_score(&p, &s, &f), TABFT_INPUT, "no row has a target");
}
END_TEST

START_TEST(undefined_scores)
{
    double two[2][2] = {{0.9, 0.1}, {0.2, 0.8}};
    int32_t truth[2] = {1, 1};
    struct eval_prediction p = {
        .n_rows = 2, .n_classes = 2, .n_labels = 3, .label = labels, .probability = &two[0][0], .truth = truth};
    struct eval_scores s;
    MUST(eval_score(&p, &s, &f));
    ck_assert(isnan(s.roc_auc) && s.accuracy == 0.5 && s.balanced_accuracy == 0.5);
    truth[0] = truth[1] = 2; /* only labels that are no class */
    MUST(eval_score(&p, &s, &f));
    ck_assert(isnan(s.roc_auc) && isnan(s.log_loss) && s.accuracy == 0 && s.balanced_accuracy == 0 && s.n_unseen == 2);
    truth[0] = truth[1] = EVAL_NO_LABEL;
    MUST_FAIL(eval_score(&p, &s, &f), TABFT_INPUT, "no row has a label");
}
END_TEST

START_TEST(files)
{
    struct eval_prediction back;
    int32_t truth[12];
    struct eval_prediction p = three_classes;
    memcpy(truth, three_truth, sizeof truth);
    truth[5] = EVAL_NO_LABEL;
    p.truth = truth;
    MUST(eval_prediction_write(&p, "pred.tbf", false, "{}", NULL, &f));
    MUST_FAIL(eval_prediction_write(&p, "pred.tbf", false, "{}", NULL, &f), TABFT_USE, "pred.tbf");
    MUST(eval_prediction_write(&p, "pred.tbf", true, "{}", NULL, &f));
    MUST(eval_prediction_open("pred.tbf", NULL, &back, &f));
    ck_assert(back.n_rows == 12 && back.n_classes == 3 && back.n_labels == 4);
    for (int i = 0; i < 4; i++) ck_assert_str_eq(back.label[i], labels[i]);
    ck_assert_mem_eq(back.probability, three, sizeof three);
    ck_assert_mem_eq(back.truth, truth, sizeof truth);
    eval_prediction_clear(&back);
    ck_assert_int_eq(unlink("pred.tbf"), 0);
}
END_TEST

/* A table of `n` rows and two classes, whatever the values. */
static void write_table(const char *first, const double *row, const double *a, const double *b, size_t n)
{
    static const double label[4] = {NAN, NAN, NAN, NAN};
    static const char *const dictionary[1] = {"x"};
    const struct table_column column[4] = {
        {.name = first, .kind = TABLE_INTEGER, .value = row},
        {.name = "label", .kind = TABLE_TEXT, .value = label, .n_dictionary = 1, .dictionary = dictionary},
        {.name = "a", .kind = TABLE_FLOAT, .value = a},
        {.name = "b", .kind = TABLE_FLOAT, .value = b}};
    const struct table_output output = {
        .n_rows = n, .n_columns = 4, .column = column, .target = SIZE_MAX, .task = TABLE_NO_TASK, .provenance = "{}"};
    MUST(table_write("other.tbf", true, &output, NULL, &f));
}

START_TEST(other_tables)
{
    const double rows[3] = {0, 1, 2}, gap[3] = {0, 2, 3}, a[3] = {0.5, 0.25, 1}, b[3] = {0.5, 0.75, 0},
                 c[3] = {0.5, 0.75, NAN};
    const double d[3] = {0.5, 0.7, 0}, e[3] = {0.5, 0.75, -1};
    struct eval_prediction p;
    write_table("row", rows, a, b, 3);
    MUST(eval_prediction_open("other.tbf", NULL, &p, &f));
    ck_assert(p.n_labels == 2 && p.truth[1] == EVAL_NO_LABEL);
    eval_prediction_clear(&p);
    write_table("row", gap, a, b, 3);
    MUST_FAIL(eval_prediction_open("other.tbf", NULL, &p, &f), TABFT_INPUT, "row 1 (from 0) is missing");
    write_table("id", rows, a, b, 3);
    MUST_FAIL(eval_prediction_open("other.tbf", NULL, &p, &f), TABFT_INPUT, "not a table of predictions");
    write_table("row", rows, a, c, 3);
    MUST_FAIL(eval_prediction_open("other.tbf", NULL, &p, &f), TABFT_INPUT, "row 2 (from 0): nan is no probability");
    write_table("row", rows, a, e, 3);
    MUST_FAIL(eval_prediction_open("other.tbf", NULL, &p, &f), TABFT_INPUT, "row 2 (from 0): -1 is no probability");
    write_table("row", rows, a, d, 3);
    MUST_FAIL(eval_prediction_open("other.tbf", NULL, &p, &f), TABFT_INPUT,
              "row 1 (from 0): its probabilities sum to 0.95");
    ck_assert_int_eq(unlink("other.tbf"), 0);
}
END_TEST

UNIT_MAIN("scores", three_classes_one_label_unseen, two_classes_rows_without_label, undefined_scores, numbers, files,
          other_tables)
