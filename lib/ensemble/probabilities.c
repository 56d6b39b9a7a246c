/* Logits of all estimators to class probabilities (spec 4.1). */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

/* An estimator's logits in the table's class order over the temperature. False where one is not finite. */
static bool in_class_order(const struct ensemble *e, size_t estimator, const float *logit, double *out)
{
    const int32_t *permutation = ensemble_class_permutation(e, estimator);
    for (size_t k = 0; k < e->n_classes; k++) {
        out[k] = (double)logit[permutation[k]] / e->config.temperature;
        if (!isfinite(out[k])) return false;
    }
    return true;
}

/* Each class's share of the context's rows; all 1 where nothing is to be balanced. */
static int find_shares(const struct ensemble *e, double *share, struct tabft_failure *f)
{
    for (size_t k = 0; k < e->n_classes; k++) share[k] = e->balance_probabilities ? 0 : 1;
    for (size_t i = 0; e->balance_probabilities && i < e->context->n_rows; i++)
        share[e->y[i]] += 1 / (double)e->context->n_rows;
    for (size_t k = 0; k < e->n_classes; k++)
        if (share[k] == 0)
            return tabft_fail(f, TABFT_INPUT,
                              "labels: class %zu (from 0) has no context row, so its probability cannot be balanced; "
                              "leave that out",
                              k);
    return 0;
}

int ensemble_probabilities(const struct ensemble *e, const float *logits, size_t n_query, size_t n_outputs,
                           double *probability, struct tabft_failure *f)
{
    size_t n = ensemble_count(e), n_classes = ensemble_classes(e);
    double *scratch = NULL, *share = NULL;
    int error;
    if (n_outputs < n_classes)
        FAIL(f, TABFT_INPUT, "the network has %zu outputs for %zu classes; use another checkpoint", n_outputs,
             n_classes);
    TRY(memory_new(&scratch, n_classes, sizeof *scratch, "probabilities", f));
    TRY(memory_new(&share, n_classes, sizeof *share, "shares of classes", f));
    TRY(find_shares(e, share, f));
    for (size_t q = 0; q < n_query; q++) {
        double *row = probability + q * n_classes, total = 0;
        for (size_t k = 0; k < n_classes; k++) row[k] = 0;
        for (size_t i = 0; i < n; i++) {
            if (!in_class_order(e, i, logits + (i * n_query + q) * n_outputs, scratch))
                FAIL(f, TABFT_INPUT,
                     "query row %zu: estimator %zu gives a logit that is not a number; the checkpoint or "
                     "the row is not sound",
                     q + 1, i + 1);
            if (!e->average_before_softmax) (void)numbers_softmax(scratch, n_classes); /* of finite values */
            for (size_t k = 0; k < n_classes; k++) row[k] += scratch[k] / (double)n;
        }
        if (e->average_before_softmax) (void)numbers_softmax(row, n_classes);
        for (size_t k = 0; k < n_classes; k++) total += row[k] /= share[k];
        for (size_t k = 0; k < n_classes; k++) row[k] /= total;
    }
fail:
    free(share);
    free(scratch);
    return error;
}
