#define TABFT_IN_PARITY
#include "eval/parity_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "ensemble/score.h"
#include "eval/json_value.h"
#include "model/model.h"
#include "table/table.h"

static void reason(struct parity *p, const char *format, ...) TABFT_PRINTF(2, 3);
static void reason(struct parity *p, const char *format, ...)
{
    struct tabft_failure text = {0};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text.message, sizeof text.message, format, arguments);
    va_end(arguments);
    (void)json_array_append_new(p->reasons, eval_json_text(text.message));
}

/* What has no bearing on the result, or is compared by its content instead of its name. */
static bool may_differ(const char *option)
{
    static const char *const names[] = {"model",  "data",      "valid",  "out",          "threads", "device",
                                        "engine", "recompute", "memory", "comm_timeout", "resume"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(option, names[i]) == 0) return true;
    return false;
}

/* Every option of `from` must be in `to`, and be the same where `values` says so. */
static void compare_options(struct parity *p, const json_t *from, const json_t *to, bool values)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value)
    {
        const json_t *other = json_object_get(to, key);
        if (may_differ(key)) continue;
        if (other == NULL) {
            reason(p, "option %s is recorded by one run alone", key);
            continue;
        }
        if (!values || json_equal(value, other)) continue;
        char *a = json_dumps(value, JSON_ENCODE_ANY), *b = json_dumps(other, JSON_ENCODE_ANY);
        reason(p, "option %s differs: %s and %s", key, a != NULL ? a : "?", b != NULL ? b : "?");
        free(a);
        free(b);
    }
}

/* Of the table given for validation; "" without one. */
static const char *validation_digest(const struct run_record *r)
{
    const char *digest = json_string_value(json_object_get(json_object_get(r->json, "valid"), "digest"));
    return digest != NULL ? digest : "";
}

/* Were both given the same, and are their files the ones they wrote? */
static int compare_records(struct parity *p, struct tabft_failure *f)
{
    const struct run_record *a = &p->run[0], *b = &p->run[1];
    if (strcmp(a->base_model_sha256, b->base_model_sha256) != 0) reason(p, "the runs began with different base models");
    if (strcmp(a->train_digest, b->train_digest) != 0) reason(p, "the runs were trained on different tables");
    if (!json_equal(a->labels, b->labels)) reason(p, "the runs have different label lists");
    const char *valid_a = validation_digest(a), *valid_b = validation_digest(b);
    if (strcmp(valid_a, valid_b) != 0) reason(p, "the runs were validated on different tables");
    compare_options(p, a->options, b->options, true);
    compare_options(p, b->options, a->options, false);
    for (int i = 0; i < 2; i++) {
        struct tabft_failure damage = {0};
        const char *where;
        int error = ckpt_check_digest(p->run[i].weights, &where, &damage);
        if (error == TABFT_INPUT) reason(p, "%s", damage.message);
        else if (error < 0) return tabft_fail(f, error, "%s", damage.message);
    }
    return 0;
}

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static void compare_losses(struct parity *p)
{
    const struct run_record *a = &p->run[0], *b = &p->run[1];
    if (a->n_steps != b->n_steps || a->n_steps == 0) {
        reason(p, "the runs logged %zu and %zu steps", a->n_steps, b->n_steps);
        p->loss_max = NAN;
        return;
    }
    for (size_t i = 0; i < a->n_steps; i++) {
        double difference = fabs(a->loss[i] - b->loss[i]);
        if (!same_bits(a->loss[i], b->loss[i])) p->losses_different++;
        if (!isnan(p->loss_max) && !(difference <= p->loss_max)) p->loss_max = difference;
    }
    if (!isfinite(p->loss_max)) reason(p, "a loss is not finite");
}

/* Keeps the largest differences, largest first, the earlier cell first among equals. */
static void keep_worst(struct parity *p, struct parity_cell c)
{
    size_t at = p->n_worst;
    while (at > 0 && p->worst[at - 1].difference < c.difference) at--;
    if (at == PARITY_WORST) return;
    if (p->n_worst < PARITY_WORST) p->n_worst++;
    for (size_t i = p->n_worst - 1; i > at; i--) p->worst[i] = p->worst[i - 1];
    p->worst[at] = c;
}

static void add_difference(struct parity *p, struct parity_cell c)
{
    if (!isnan(p->difference_max) && !(c.difference <= p->difference_max)) p->difference_max = c.difference;
    if (c.difference > 0) keep_worst(p, c);
}

static void compare_classes(struct parity *p)
{
    const struct eval_prediction *a = &p->prediction[0], *b = &p->prediction[1];
    const size_t n = a->n_rows, k = a->n_classes;
    size_t agreed = 0;
    double sum = 0;
    p->same_predictions = memcmp(a->probability, b->probability, n * k * sizeof *a->probability) == 0;
    for (size_t i = 0; i < n; i++) {
        agreed += score_predicted(a->probability + i * k, k) == score_predicted(b->probability + i * k, k);
        for (size_t c = 0; c < k; c++) {
            double difference = fabs(a->probability[i * k + c] - b->probability[i * k + c]);
            sum += difference;
            add_difference(p, (struct parity_cell){i, c, difference});
        }
    }
    p->agreement = (double)agreed / (double)n;
    p->difference_mean = sum / (double)(n * k);
}

/* Of the training targets, all finite (eval_predict has checked them). */
static double standard_deviation(const double *y, size_t n)
{
    double shift = 0, squares = 0;
    for (size_t i = 0; i < n; i++) shift += (y[i] - y[0]) / (double)n;
    for (size_t i = 0; i < n; i++) squares += (y[i] - y[0] - shift) * (y[i] - y[0] - shift);
    return sqrt(squares / (double)n);
}

/* Where the targets do not vary, anything but 0 is infinitely far. */
static void compare_numbers(struct parity *p, const struct table *train)
{
    const struct eval_prediction *a = &p->prediction[0], *b = &p->prediction[1];
    const size_t n = a->n_rows;
    const double unit = standard_deviation(train->target.value, train->n_rows);
    size_t agreed = 0;
    double sum = 0;
    p->same_predictions = memcmp(a->mean, b->mean, n * sizeof *a->mean) == 0;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs(a->mean[i] - b->mean[i]);
        if (!(difference <= 0)) difference /= unit;
        agreed += difference <= PARITY_CLOSE;
        sum += difference;
        add_difference(p, (struct parity_cell){i, 0, difference});
    }
    p->agreement = (double)agreed / (double)n;
    p->difference_mean = sum / (double)n;
}

static int compare_predictions(struct parity *p, const struct table *train, struct tabft_failure *f)
{
    int error = 0;
    const struct eval_prediction *a = &p->prediction[0], *b = &p->prediction[1];
    struct eval_scores scores;
    bool same = a->n_rows == b->n_rows && a->n_classes == b->n_classes && a->is_regression == b->is_regression;
    for (size_t c = 0; same && c < a->n_classes; c++) same = strcmp(a->label[c], b->label[c]) == 0;
    if (!same) {
        reason(p, "the predictions have other rows or classes");
        return 0;
    }
    p->difference_max = 0;
    if (a->is_regression) compare_numbers(p, train);
    else compare_classes(p);
    for (int i = 0; i < 2; i++) {
        TRY(eval_score(&p->prediction[i], &scores, f));
        p->score[i] = a->is_regression ? sqrt(scores.errors.mse) : scores.accuracy;
    }
    p->predicted = true;
fail:
    return error;
}

/* The weights of both runs, as files that are open; predictions are small beside them. */
static size_t held_bytes(const struct parity *p)
{
    return (size_t)(ckpt_file_size(p->run[0].weights) + ckpt_file_size(p->run[1].weights));
}

/* Both models on the test table. A model that cannot predict is a reason, not an error: its weights may be damaged. */
static int predict_both(struct parity *p, const char *test_path, const char *train_path, struct threads *pool,
                        struct tabft_failure *f)
{
    int error = 0;
    struct table *train = NULL, *test = NULL;
    struct model *model = NULL;
    bool both = true;
    TRY(table_open_parts(&train, train_path != NULL ? train_path : p->run[0].train_path, pool, f));
    if (strcmp(train->digest, p->run[0].train_digest) != 0)
        FAIL(f, TABFT_INPUT, "%s: not the table that %s was trained on; name that one with --train", train->path,
             p->run[0].path);
    TRY(table_open_parts(&test, test_path, pool, f));
    p->test_rows = test->n_rows;
    p->is_regression = train->task == TABLE_REGRESSION;
    for (int i = 0; i < 2; i++) {
        struct tabft_failure why = {0};
        const struct run_record *r = &p->run[i];
        const struct eval_options options = {
            .n_estimators = r->n_estimators, .seed = r->seed, .held = held_bytes(p)};
        error = model_open(&model, r->weights, (enum model_task)train->task, &why);
        if (error == 0) error = eval_predict(model, train, test, &options, pool, &p->prediction[i], &why);
        model_close(model);
        model = NULL;
        if (error == TABFT_INPUT) {
            reason(p, "%s: %s", r->path, why.message);
            both = false;
        } else if (error < 0) FAIL(f, error, "%s", why.message);
    }
    TRY(table_unchanged(train, f));
    TRY(table_unchanged(test, f));
    error = both ? compare_predictions(p, train, f) : 0;
fail:
    table_close(test);
    table_close(train);
    return error;
}

static void judge(struct parity *p, const struct parity_tolerance *t)
{
    if (!p->weights.comparable) reason(p, "the weights have other tensors or shapes");
    else if (!(p->weights.max_abs <= t->weight_max_abs_difference))
        reason(p, "weights differ by %.9g, more than %.9g", p->weights.max_abs, t->weight_max_abs_difference);
    if (p->predicted) {
        const char *what = p->is_regression ? "predictions (in standard deviations of the targets)" : "probabilities";
        if (!(p->agreement >= t->prediction_agreement))
            reason(p, "predictions agree on %.9g of the rows, less than %.9g", p->agreement, t->prediction_agreement);
        if (!(p->difference_max <= t->probability_max_abs_difference))
            reason(p, "%s differ by %.9g, more than %.9g", what, p->difference_max, t->probability_max_abs_difference);
        if (!(p->difference_mean <= t->probability_mean_abs_difference))
            reason(p, "%s differ by %.9g in the mean, more than %.9g", what, p->difference_mean,
                   t->probability_mean_abs_difference);
    }
    if (t->bit_identical && !parity_bit_identical(p)) reason(p, "not bit-identical");
}

int parity_compare(const char *base, const char *other, const char *test, const char *train,
                   const struct parity_tolerance *tolerance, struct threads *pool, json_t **report, bool *held,
                   struct tabft_failure *f)
{
    int error = 0;
    struct parity p = {.reasons = json_array()};
    if (p.reasons == NULL) FAIL(f, TABFT_SYSTEM, "no memory for the report; give the job more memory");
    TRY(run_record_open(&p.run[0], base, f));
    TRY(run_record_open(&p.run[1], other, f));
    TRY(compare_records(&p, f));
    compare_losses(&p);
    TRY(ckpt_compare(p.run[0].weights, p.run[1].weights, &p.weights, f));
    TRY(predict_both(&p, test, train, pool, f));
    judge(&p, tolerance);
    *held = json_array_size(p.reasons) == 0;
    TRY(parity_report(&p, tolerance, *held, report, f));
fail:
    ckpt_comparison_clear(&p.weights);
    for (int i = 0; i < 2; i++) {
        eval_prediction_clear(&p.prediction[i]);
        run_record_clear(&p.run[i]);
    }
    json_decref(p.reasons);
    return error;
}
