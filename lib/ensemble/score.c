#include "ensemble/score.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"

size_t score_predicted(const double *probability, size_t n_classes)
{
    size_t best = 0;
    for (size_t k = 1; k < n_classes; k++)
        if (probability[k] > probability[best]) best = k;
    return best;
}

double score_accuracy(const double *probability, const int32_t *label, size_t n, size_t n_classes)
{
    size_t right = 0;
    for (size_t i = 0; i < n; i++) right += score_predicted(probability + i * n_classes, n_classes) == (size_t)label[i];
    return (double)right / (double)n;
}

int score_balanced_accuracy(const double *probability, const int32_t *label, size_t n, size_t n_classes, double *out,
                            struct tabft_failure *f)
{
    int error = 0;
    size_t *count = NULL, present = 0; /* rows of a class, then rows of it that are right */
    double sum = 0;
    TRY(memory_new(&count, n_classes, 2 * sizeof *count, "scores", f));
    for (size_t i = 0; i < n; i++) {
        size_t k = (size_t)label[i];
        count[2 * k]++;
        count[2 * k + 1] += score_predicted(probability + i * n_classes, n_classes) == k;
    }
    for (size_t k = 0; k < n_classes; k++)
        if (count[2 * k] > 0) {
            sum += (double)count[2 * k + 1] / (double)count[2 * k];
            present++;
        }
    *out = sum / (double)present;
fail:
    free(count);
    return error;
}

double score_log_loss(const double *probability, const int32_t *label, size_t n, size_t n_classes)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double p = probability[i * n_classes + (size_t)label[i]];
        p = p < DBL_EPSILON ? DBL_EPSILON : p > 1 - DBL_EPSILON ? 1 - DBL_EPSILON : p;
        sum -= log(p);
    }
    return sum / (double)n;
}

struct scored {
    double score;
    bool positive;
};

static int by_score(const void *a, const void *b)
{
    double x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    return (x > y) - (x < y);
}

/* Mann and Whitney: how often a positive row has the larger score. Ranks are halves of integers, so the sum is exact.
 */
static int area_of_class(struct scored *row, size_t n, size_t class, double *out, struct tabft_failure *f)
{
    size_t positives = 0;
    double ranks = 0;
    for (size_t i = 0; i < n; i++) positives += row[i].positive;
    if (positives == 0 || positives == n)
        return tabft_fail(f, TABFT_NOT_HELD, "ROC AUC: class %zu has %s of the %zu rows, so the area is undefined",
                          class, positives == 0 ? "none" : "all", n);
    qsort(row, n, sizeof *row, by_score);
    for (size_t i = 0, end; i < n; i = end) {
        size_t tied = 0;
        for (end = i; end < n && row[end].score <= row[i].score; end++) tied += row[end].positive;
        ranks += (double)tied * ((double)(i + 1 + end) / 2); /* ranks from 1; ties share their mean */
    }
    double p = (double)positives;
    *out = (ranks - p * (p + 1) / 2) / (p * (double)(n - positives));
    return 0;
}

int score_roc_auc(const double *probability, const int32_t *label, size_t n, size_t n_classes, double *out,
                  struct tabft_failure *f)
{
    int error = 0;
    struct scored *row = NULL;
    double sum = 0, area = 0;
    size_t first = n_classes == 2 ? 1 : 0;
    TRY(memory_new(&row, n, sizeof *row, "scores", f));
    for (size_t k = first; k < n_classes; k++) {
        for (size_t i = 0; i < n; i++)
            row[i] = (struct scored){.score = probability[i * n_classes + k], .positive = (size_t)label[i] == k};
        TRY(area_of_class(row, n, k, &area, f));
        sum += area;
    }
    *out = sum / (double)(n_classes - first);
fail:
    free(row);
    return error;
}

struct score_errors score_errors(const double *predicted, const double *truth, size_t n)
{
    double squares = 0, absolutes = 0, shift = 0, spread = 0;
    /* The mean as a distance from the first, so that nothing is lost where the truth is far from 0. */
    for (size_t i = 0; i < n; i++) shift += truth[i] - truth[0];
    shift /= (double)n;
    for (size_t i = 0; i < n; i++) {
        double error = predicted[i] - truth[i], from_mean = truth[i] - truth[0] - shift;
        squares += error * error;
        absolutes += fabs(error);
        spread += from_mean * from_mean;
    }
    return (struct score_errors){.mse = squares / (double)n,
                                 .mae = absolutes / (double)n,
                                 .r2 = spread > 0 ? 1 - squares / spread : (double)NAN};
}
