/* tabft-eval score: how good predictions are, as text or JSON. */
#include <getopt.h>
#include <math.h>

#include "eval/eval.h"
#include "eval/json_value.h"
#include "eval_verbs.h"
#include "tool.h"

static const char unseen_rule[] =
    "wrong in accuracy, a label of recall 0 in balanced_accuracy, left out of log_loss and roc_auc";

static int put_labels_json(const struct eval_prediction *p, const struct eval_scores *s, struct tabft_failure *f)
{
    json_t *classes = json_array(), *unseen = json_array();
    for (size_t c = 0; c < p->n_labels; c++)
        (void)json_array_append_new(c < p->n_classes ? classes : unseen, eval_json_text(p->label[c]));
    json_t *root = json_object();
    bool whole = root != NULL;
    eval_json_add(root, "schema", json_integer(1), &whole);
    eval_json_add(root, "accuracy", eval_json_number(s->accuracy), &whole);
    eval_json_add(root, "balanced_accuracy", eval_json_number(s->balanced_accuracy), &whole);
    eval_json_add(root, "log_loss", eval_json_number(s->log_loss), &whole);
    eval_json_add(root, "roc_auc", eval_json_number(s->roc_auc), &whole);
    eval_json_add(root, "rows", eval_json_size(s->n_rows), &whole);
    eval_json_add(root, "rows_with_label", eval_json_size(s->n_labelled), &whole);
    eval_json_add(root, "rows_with_unseen_label", eval_json_size(s->n_unseen), &whole);
    eval_json_add(root, "unseen_label_counts_as", json_string(unseen_rule), &whole);
    eval_json_add(root, "unseen_labels", unseen, &whole);
    eval_json_add(root, "classes", classes, &whole);
    return tool_put_json(root, whole, f);
}

static void put_figure(const char *name, double value, const char *why_not)
{
    if (isfinite(value)) printf("%-18s %.6f\n", name, value);
    else printf("%-18s undefined: %s\n", name, why_not);
}

static void put_labels_text(const struct eval_prediction *p, const struct eval_scores *s)
{
    printf("%-18s %zu, %zu with a label\n", "rows", s->n_rows, s->n_labelled);
    put_figure("accuracy", s->accuracy, "");
    put_figure("balanced accuracy", s->balanced_accuracy, "");
    put_figure("log loss", s->log_loss, "no row's label is a class");
    put_figure("roc auc", s->roc_auc, "a class has no row, or all of them");
    if (s->n_unseen == 0) return;
    printf("%zu row%s with a label that the training table has not (", s->n_unseen, s->n_unseen > 1 ? "s" : "");
    for (size_t c = p->n_classes; c < p->n_labels; c++) {
        if (c > p->n_classes) printf(", ");
        tool_put_text(stdout, p->label[c]);
    }
    printf("): %s\n", unseen_rule);
}

static int put_numbers_json(const struct eval_scores *s, struct tabft_failure *f)
{
    json_t *root = json_object();
    bool whole = root != NULL;
    eval_json_add(root, "schema", json_integer(1), &whole);
    eval_json_add(root, "rmse", eval_json_number(sqrt(s->errors.mse)), &whole);
    eval_json_add(root, "mae", eval_json_number(s->errors.mae), &whole);
    eval_json_add(root, "r2", eval_json_number(s->errors.r2), &whole);
    eval_json_add(root, "mse", eval_json_number(s->errors.mse), &whole);
    eval_json_add(root, "rows", eval_json_size(s->n_rows), &whole);
    eval_json_add(root, "rows_with_target", eval_json_size(s->n_labelled), &whole);
    return tool_put_json(root, whole, f);
}

static void put_numbers_text(const struct eval_scores *s)
{
    printf("%-18s %zu, %zu with a target\n", "rows", s->n_rows, s->n_labelled);
    printf("%-18s %.9g\n", "rmse", sqrt(s->errors.mse));
    printf("%-18s %.9g\n", "mae", s->errors.mae);
    put_figure("r2", s->errors.r2, "the targets do not vary");
}

int eval_score_run(int argc, char **argv, struct tabft_failure *f)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    int error = 0, found;
    bool json = false;
    struct eval_prediction prediction = {0};
    struct eval_scores scores;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (found != 'j') return tool_bad_option(argv, found, f);
        json = true;
    }
    if (argc - optind != 1) FAIL(f, TABFT_USE, "score: needs one table of predictions; see --help");
    TRY(eval_prediction_open(argv[optind], NULL, &prediction, f));
    error = eval_score(&prediction, &scores, f);
    if (error < 0) {
        (void)tabft_fail_prefix(f, "%s", argv[optind]);
        goto fail;
    }
    if (json) TRY(prediction.is_regression ? put_numbers_json(&scores, f) : put_labels_json(&prediction, &scores, f));
    else if (prediction.is_regression) put_numbers_text(&scores);
    else put_labels_text(&prediction, &scores);
fail:
    eval_prediction_clear(&prediction);
    return error;
}
