/* Scores of a prediction; the formulas are lib/ensemble's, shared with validation in training. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/score.h"
#include "eval/eval.h"

/* Labels that occur, classes and others apart. */
static int count_labels(const struct eval_prediction *p, size_t *n_classes, size_t *n_others, struct tabft_failure *f)
{
    int error = 0;
    bool *seen = NULL;
    TRY(memory_new(&seen, p->n_labels, sizeof *seen, "labels", f));
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->truth[i] != EVAL_NO_LABEL) seen[p->truth[i]] = true;
    *n_classes = *n_others = 0;
    for (size_t c = 0; c < p->n_labels; c++)
        if (seen[c]) *(c < p->n_classes ? n_classes : n_others) += 1;
fail:
    free(seen);
    return error;
}

/* The scores over rows whose label is a class. */
static int score_known(const double *probability, const int32_t *label, size_t n, size_t n_classes,
                       struct eval_scores *s, struct tabft_failure *f)
{
    int error = 0;
    struct tabft_failure undefined = {0};
    s->accuracy = score_accuracy(probability, label, n, n_classes);
    TRY(score_balanced_accuracy(probability, label, n, n_classes, &s->balanced_accuracy, f));
    s->log_loss = score_log_loss(probability, label, n, n_classes);
    error = score_roc_auc(probability, label, n, n_classes, &s->roc_auc, &undefined);
    if (error == TABFT_NOT_HELD) {
        s->roc_auc = NAN;
        error = 0;
    } else if (error < 0) FAIL(f, error, "%s", undefined.message);
fail:
    return error;
}

static int score_numbers(const struct eval_prediction *p, struct eval_scores *out, struct tabft_failure *f)
{
    int error = 0;
    double *predicted = NULL, *truth = NULL;
    size_t n = 0;
    TRY(memory_new(&predicted, p->n_rows, sizeof *predicted, "predictions", f));
    TRY(memory_new(&truth, p->n_rows, sizeof *truth, "targets", f));
    for (size_t i = 0; i < p->n_rows; i++) {
        if (isnan(p->target[i])) continue;
        predicted[n] = p->mean[i];
        truth[n++] = p->target[i];
    }
    if (n == 0) FAIL(f, TABFT_INPUT, "no row has a target to score against; pack the test table with its target");
    *out = (struct eval_scores){.n_rows = p->n_rows, .n_labelled = n, .errors = score_errors(predicted, truth, n)};
fail:
    free(truth);
    free(predicted);
    return error;
}

static int score_labels(const struct eval_prediction *p, struct eval_scores *out, struct tabft_failure *f)
{
    int error = 0;
    struct eval_scores s = {.n_rows = p->n_rows, .log_loss = NAN, .roc_auc = NAN};
    double *probability = NULL;
    int32_t *label = NULL;
    size_t n = 0, classes, others;
    const size_t row = p->n_classes * sizeof *probability;
    TRY(memory_new(&probability, p->n_rows, row, "probabilities", f));
    TRY(memory_new(&label, p->n_rows, sizeof *label, "labels", f));
    for (size_t i = 0; i < p->n_rows; i++) {
        if (p->truth[i] == EVAL_NO_LABEL) continue;
        s.n_labelled++;
        if ((size_t)p->truth[i] >= p->n_classes) {
            s.n_unseen++;
            continue;
        }
        memcpy(probability + n * p->n_classes, p->probability + i * p->n_classes, row);
        label[n++] = p->truth[i];
    }
    if (s.n_labelled == 0)
        FAIL(f, TABFT_INPUT, "no row has a label to score against; pack the test table with its target");
    if (n > 0) TRY(score_known(probability, label, n, p->n_classes, &s, f));
    TRY(count_labels(p, &classes, &others, f));
    if (s.n_unseen > 0) {
        s.accuracy = round(s.accuracy * (double)n) / (double)s.n_labelled;
        s.balanced_accuracy = s.balanced_accuracy * (double)classes / (double)(classes + others);
    }
    *out = s;
fail:
    free(label);
    free(probability);
    return error;
}

int eval_score(const struct eval_prediction *p, struct eval_scores *out, struct tabft_failure *f)
{
    return p->is_regression ? score_numbers(p, out, f) : score_labels(p, out, f);
}
