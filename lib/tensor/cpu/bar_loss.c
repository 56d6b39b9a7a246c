/* The losses of a regressor's distribution over buckets, in float64: row by row, summed in the order of rows. */
#define TABFT_TENSOR_ROOM
#include <math.h>
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

enum { BLOCK_ROWS = 16 };

struct bars {
    struct cpu *cpu;
    const struct op_call *call;
    const struct op_bar_loss *s;
    const float *borders, *impossible;
    double scale[2]; /* standard deviations behind the outer buckets' halves of normal distributions */
};

static double bucket_width(const struct bars *b, size_t k) { return (double)b->borders[k + 1] - b->borders[k]; }

static struct bars bars_of(void *state, const struct op_call *call)
{
    const double half = 0.6744897501960817; /* half of a half-normal distribution lies within so many deviations */
    struct bars b = {state, call, &call->op->bar_loss, call->in[2], call->in[3], {0, 0}};
    b.scale[0] = bucket_width(&b, 0) / half;
    b.scale[1] = bucket_width(&b, b.s->width - 1) / half;
    return b;
}

/* The bucket of t: how many borders are below it, less one, within the buckets there are. */
static size_t bucket_of(const struct bars *b, double t)
{
    size_t low = 0, high = b->s->width + 1; /* borders before `low` are below t, from `high` on are not */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (b->borders[middle] < t)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? 0 : smaller(low - 1, b->s->width - 1);
}

/* log of the density of bucket k at t, given the bucket. */
static double log_density(const struct bars *b, size_t k, double t)
{
    const size_t last = b->s->width - 1;
    if (k > 0 && k < last) return -log(bucket_width(b, k));
    const double s = b->scale[k == last], inner = k == last ? t - b->borders[last] : b->borders[1] - t;
    const double x = inner > 1e-8 ? inner : 1e-8;
    return 0.5 * log(2.0 / 3.14159265358979323846) - log(s) - x * x / (2.0 * s * s);
}

static double bucket_mean(const struct bars *b, size_t k)
{
    const size_t last = b->s->width - 1;
    const double half_mean = sqrt(2.0 / 3.14159265358979323846); /* of a half-normal distribution */
    if (k == 0) return b->borders[1] - b->scale[0] * half_mean;
    if (k == last) return b->borders[last] + b->scale[1] * half_mean;
    return b->borders[k] + bucket_width(b, k) / 2;
}

static double logit(const struct bars *b, const float *z, size_t k)
{
    return b->impossible[k] != 0.0f ? -INFINITY : z[k] / b->s->temperature;
}

static double log_sum(const struct bars *b, const float *z)
{
    double top = -INFINITY, sum = 0;
    for (size_t k = 0; k < b->s->width; k++) top = fmax(top, logit(b, z, k));
    for (size_t k = 0; k < b->s->width; k++) sum += exp(logit(b, z, k) - top);
    return top + log(sum);
}

/* crls keeps probabilities this far from 0 and 1: the precision of float32. */
static const double least = 0x1p-23;

/* w log-score of a cumulative probability F. */
static double log_score(double cumulative, bool after)
{
    const double inside = fmin(fmax(cumulative, least), 1.0 - least);
    return after ? -log(inside) : -log1p(-inside);
}

static double log_score_slope(double cumulative, bool after)
{
    if (cumulative < least || cumulative > 1.0 - least) return 0;
    return after ? -1.0 / cumulative : 1.0 / (1.0 - cumulative);
}

static double row_loss(const struct bars *b, const float *z, double t)
{
    const struct op_bar_loss *s = b->s;
    const size_t at = bucket_of(b, t);
    const double total = log_sum(b, z);
    double loss = 0, crps = 0, crls = 0, cumulative = 0, mean = 0;
    if (s->ce > 0) loss = -s->ce * (logit(b, z, at) - total + log_density(b, at, t));
    if (s->crps > 0 || s->crls > 0 || s->mse > 0 || s->mae > 0)
        for (size_t k = 0; k < s->width; k++) {
            const double p = exp(logit(b, z, k) - total), w = bucket_width(b, k);
            cumulative += p;
            mean += p * bucket_mean(b, k);
            const double d = cumulative - (k >= at ? 1.0 : 0.0);
            crps += w * d * d;
            if (s->crls > 0) crls += w * log_score(cumulative, k >= at);
        }
    if (s->crps > 0) loss += s->crps * crps;
    if (s->crls > 0) loss += s->crls * crls;
    if (s->mse > 0) loss += s->mse * fmin((mean - t) * (mean - t), s->mse_most);
    if (s->mae > 0) loss += s->mae * fmin(fabs(mean - t), s->mae_most);
    return loss;
}

/* The loss's slope along the distribution's mean. */
static double mean_slope(const struct op_bar_loss *s, double d)
{
    double slope = 0;
    if (s->mse > 0 && d * d <= s->mse_most) slope += s->mse * 2 * d;
    if (s->mae > 0 && fabs(d) <= s->mae_most) slope += s->mae * ((d > 0) - (d < 0));
    return slope;
}

/* Adds a row's gradient, times `scale`, to d. p and slope: room for `width` numbers each. */
static void row_gradient(const struct bars *b, const float *z, double t, double scale, double *p, double *slope,
                         float *d)
{
    const struct op_bar_loss *s = b->s;
    const size_t at = bucket_of(b, t);
    const double total = log_sum(b, z);
    double cumulative = 0, mean = 0, behind = 0, average = 0;
    for (size_t k = 0; k < s->width; k++) { /* slope: along the cumulative probability of k */
        const double w = bucket_width(b, k);
        p[k] = exp(logit(b, z, k) - total);
        cumulative += p[k];
        mean += p[k] * bucket_mean(b, k);
        slope[k] = s->crps * 2 * w * (cumulative - (k >= at ? 1.0 : 0.0));
        if (s->crls > 0) slope[k] += s->crls * w * log_score_slope(cumulative, k >= at);
    }
    const double along_mean = mean_slope(s, mean - t);
    for (size_t k = s->width; k-- > 0;) { /* slope: along p[k], which all cumulative ones from k on hold */
        behind += slope[k];
        slope[k] = behind + along_mean * bucket_mean(b, k);
        average += p[k] * slope[k];
    }
    for (size_t k = 0; k < s->width; k++) {
        const double ce = s->ce * (p[k] - (k == at ? 1.0 : 0.0));
        d[k] += (float)(scale / s->temperature * (ce + p[k] * (slope[k] - average)));
    }
}

static void forward_block(void *context, size_t block, int thread)
{
    const struct bars *b = context;
    const float *z = b->call->in[0], *target = b->call->in[1];
    double *loss = b->call->scratch;
    const size_t first = block * BLOCK_ROWS;
    (void)thread;
    for (size_t i = first; i < smaller(first + BLOCK_ROWS, b->s->rows); i++)
        loss[i] = isnan(target[i]) ? 0.0 : row_loss(b, z + i * b->s->width, target[i]);
}

static void bar_loss_forward(void *state, const struct op_call *call)
{
    struct bars b = bars_of(state, call);
    const double *of_row = call->scratch;
    double loss = 0;
    threads_run(b.cpu->pool, (b.s->rows + BLOCK_ROWS - 1) / BLOCK_ROWS, forward_block, &b);
    for (size_t i = 0; i < b.s->rows; i++) loss += of_row[i];
    loss *= b.s->scale / (double)b.s->rows;
    memcpy(call->out[0], &loss, sizeof loss);
}

static void backward_block(void *context, size_t block, int thread)
{
    const struct bars *b = context;
    const float *z = b->call->in[0], *target = b->call->in[1];
    const size_t first = block * BLOCK_ROWS, width = b->s->width;
    double *p = (double *)b->call->scratch + (size_t)thread * 2 * width;
    for (size_t i = first; i < smaller(first + BLOCK_ROWS, b->s->rows); i++) {
        float *d = b->call->d_in[0] + i * width;
        if (!b->call->add[0]) memset(d, 0, width * sizeof *d);
        if (!isnan(target[i]))
            row_gradient(b, z + i * width, target[i], b->s->scale / (double)b->s->rows, p, p + width, d);
    }
}

static void bar_loss_backward(void *state, const struct op_call *call)
{
    struct bars b = bars_of(state, call);
    if (call->d_in[0] != NULL)
        threads_run(b.cpu->pool, (b.s->rows + BLOCK_ROWS - 1) / BLOCK_ROWS, backward_block, &b);
}

static size_t forward_scratch(const void *state, const struct op *op)
{
    (void)state;
    return op->bar_loss.rows * sizeof(double);
}

static size_t backward_scratch(const void *state, const struct op *op)
{
    return ((const struct cpu *)state)->n_threads * 2 * op->bar_loss.width * sizeof(double);
}

const struct tensor_kernels cpu_bar_loss = {forward_scratch, backward_scratch, bar_loss_forward, bar_loss_backward};
