/* Logits of all estimators to class probabilities (spec 4.1). */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

/* Adds softmax(logits in the table's class order / temperature) to sum[n_classes]. False where a logit is not finite.
 */
static bool add_softmax(const float *logit, const int32_t *permutation, size_t n_classes, double temperature,
                        double *sum, double *scratch)
{
    double most = -INFINITY, total = 0;
    for (size_t k = 0; k < n_classes; k++) {
        scratch[k] = (double)logit[permutation[k]] / temperature;
        if (!isfinite(scratch[k])) return false;
        if (scratch[k] > most) most = scratch[k];
    }
    for (size_t k = 0; k < n_classes; k++) total += scratch[k] = exp(scratch[k] - most);
    for (size_t k = 0; k < n_classes; k++) sum[k] += scratch[k] / total;
    return true;
}

int ensemble_probabilities(const struct ensemble *e, const float *logits, size_t n_query, size_t n_outputs,
                           double *probability, struct tabft_failure *f)
{
    size_t n = ensemble_count(e), n_classes = ensemble_classes(e);
    double *scratch = NULL;
    int error;
    if (n_outputs < n_classes)
        FAIL(f, TABFT_INPUT, "the network has %zu outputs for %zu classes; use another checkpoint", n_outputs,
             n_classes);
    TRY(memory_new(&scratch, n_classes, sizeof *scratch, "probabilities", f));
    for (size_t q = 0; q < n_query; q++) {
        double *row = probability + q * n_classes, total = 0;
        for (size_t k = 0; k < n_classes; k++) row[k] = 0;
        for (size_t i = 0; i < n; i++)
            if (!add_softmax(logits + (i * n_query + q) * n_outputs, ensemble_class_permutation(e, i), n_classes,
                             ensemble_temperature(e), row, scratch))
                FAIL(f, TABFT_INPUT,
                     "query row %zu: estimator %zu gives a logit that is not a number; the checkpoint or "
                     "the row is not sound",
                     q + 1, i + 1);
        for (size_t k = 0; k < n_classes; k++) total += row[k];
        for (size_t k = 0; k < n_classes; k++) row[k] /= total;
    }
fail:
    free(scratch);
    return error;
}
