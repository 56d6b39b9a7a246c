/* Softens outliers for prediction: values far outside mean +- n standard deviations are drawn in by a logarithm (spec
 * 3.11). On the network's float32, statistics from the context rows, gaps and infinities left alone. */
#define TABFT_ENSEMBLE_ROOM
#include <float.h>
#include <math.h>

#include "ensemble/ensemble_internal.h"

struct job {
    float *x;
    size_t n_context, n_rows, n_columns;
    const bool *clips;
    double n_std;
};

struct bounds {
    float low, high;
};

/* mean +- n_std sample standard deviations of the values within `within`. Squares are those of float32 and sums beyond it
 * infinite, as TabPFN's: then nothing lies outside the bounds, or where it is the mean's, they are no numbers. */
static struct bounds bounds_of(const struct job *job, size_t column, struct bounds within)
{
    const float *first = job->x + column;
    double sum = 0, squares = 0, count = 0;
    for (size_t i = 0; i < job->n_context; i++) {
        float value = first[i * job->n_columns];
        if (!isfinite(value) || value > within.high || value < within.low) continue;
        sum += (double)value;
        count += 1;
    }
    if (fabs(sum) > (double)FLT_MAX) sum = copysign((double)INFINITY, sum);
    const float mean = (float)(sum / fmax(count, 1.0));
    for (size_t i = 0; i < job->n_context; i++) {
        float value = first[i * job->n_columns];
        if (!isfinite(value) || value > within.high || value < within.low) continue;
        const float d = value - mean, square = d * d;
        squares += (double)square;
    }
    if (squares > (double)FLT_MAX) squares = (double)INFINITY;
    double reach = job->n_std * sqrt(squares / fmax(count - 1, 1.0));
    return (struct bounds){(float)((double)mean - reach), (float)((double)mean + reach)};
}

static void clip_column(void *context, size_t column, int thread)
{
    (void)thread;
    const struct job *job = context;
    if (!job->clips[column]) return;
    struct bounds b = bounds_of(job, column, (struct bounds){-INFINITY, INFINITY});
    b = bounds_of(job, column, b);
    for (size_t i = 0; i < job->n_rows; i++) {
        float *value = &job->x[i * job->n_columns + column];
        if (!isfinite(*value)) continue;
        float raised = b.low - logf(1 + fabsf(*value));
        if (!(*value >= raised)) *value = raised; /* bounds that are no numbers leave none */
        float lowered = b.high + logf(1 + fabsf(*value));
        if (!(*value <= lowered)) *value = lowered;
    }
}

void step_clip(float *x, size_t n_context, size_t n_rows, size_t n_columns, const bool *clips, double n_std,
               struct threads *pool)
{
    if (n_context <= 1) return;
    struct job job = {x, n_context, n_rows, n_columns, clips, n_std};
    threads_run(pool, n_columns, clip_column, &job);
}
