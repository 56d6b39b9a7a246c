/* The losses, in float64: a block has a row; the rows' losses are summed by one block in a fixed order. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

/* *loss = scale / rows * the sum of a row's each; one block. */
__global__ static void sum_losses(size_t rows, const double *of_row, double scale, double *loss)
{
    __shared__ double room[WARPS];
    double sum = 0;
    for (size_t i = threadIdx.x; i < rows; i += BLOCK) sum += of_row[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) *loss = sum * (scale / (double)rows);
}

static size_t losses_scratch(const void *state, const struct op *op)
{
    (void)state;
    return (op->kind == OP_BAR_LOSS ? op->bar_loss.rows : op->cross_entropy.rows) * sizeof(double);
}

/* ---- cross-entropy: a thread has a row ---- */

__device__ static double log_sum_classes(const float *z, const int32_t *permutation, size_t n_classes)
{
    double top = z[permutation[0]], sum = 0;
    for (size_t c = 1; c < n_classes; c++)
        if (z[permutation[c]] > top) top = z[permutation[c]];
    for (size_t c = 0; c < n_classes; c++) sum += exp(z[permutation[c]] - top);
    return top + log(sum);
}

__global__ static void cross_entropy(const struct op_cross_entropy s, const float *z, const int32_t *label,
                                     const int32_t *permutation, double *of_row)
{
    for (size_t i = thread_in_grid(); i < s.rows; i += threads_in_grid())
        of_row[i] = log_sum_classes(z + i * s.width, permutation, s.n_classes) - z[i * s.width + permutation[label[i]]];
}

__global__ static void cross_entropy_back(const struct op_cross_entropy s, const float *z, const int32_t *label,
                                          const int32_t *permutation, bool add, float *d)
{
    const double scale = s.scale / (double)s.rows;
    for (size_t i = thread_in_grid(); i < s.rows; i += threads_in_grid()) {
        const float *row = z + i * s.width;
        float *to = d + i * s.width;
        const double total = log_sum_classes(row, permutation, s.n_classes);
        for (size_t j = 0; j < s.width && !add; j++) to[j] = 0.0f;
        for (size_t c = 0; c < s.n_classes; c++)
            to[permutation[c]] +=
                (float)(scale * (exp(row[permutation[c]] - total) - ((int32_t)c == label[i] ? 1.0 : 0.0)));
    }
}

static void cross_entropy_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_cross_entropy s = call->op->cross_entropy;
    double *of_row = (double *)call->scratch;
    LAUNCH(cross_entropy, grid_of(s.rows, BLOCK), BLOCK, 0, c->stream, s, (const float *)call->in[0],
           (const int32_t *)call->in[1], (const int32_t *)call->in[2], of_row);
    LAUNCH(sum_losses, 1, BLOCK, 0, c->stream, s.rows, of_row, s.scale, (double *)call->out[0]);
    cuda_launched(c, "cross-entropy");
}

static void cross_entropy_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_cross_entropy s = call->op->cross_entropy;
    LAUNCH(cross_entropy_back, grid_of(s.rows, BLOCK), BLOCK, 0, c->stream, s, (const float *)call->in[0],
           (const int32_t *)call->in[1], (const int32_t *)call->in[2], call->add[0], call->d_in[0]);
    cuda_launched(c, "the gradient of cross-entropy");
}

/* ---- the bar distribution: thread i of a block has the i-th run of buckets ---- */

struct bars {
    struct op_bar_loss s;
    const float *z, *target, *borders, *impossible;
    double scale[2]; /* standard deviations behind the outer buckets' halves of normal distributions; set on the GPU */
};

__device__ static double bucket_width(const struct bars &b, size_t k) { return (double)b.borders[k + 1] - b.borders[k]; }

__device__ static void set_scales(struct bars *b)
{
    const double half = 0.6744897501960817; /* half of a half-normal distribution lies within so many deviations */
    b->scale[0] = bucket_width(*b, 0) / half;
    b->scale[1] = bucket_width(*b, b->s.width - 1) / half;
}

__device__ static size_t bucket_of(const struct bars &b, double t)
{
    size_t low = 0, high = b.s.width + 1; /* borders before `low` are below t, from `high` on are not */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (b.borders[middle] < t) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return 0;
    return low - 1 < b.s.width - 1 ? low - 1 : b.s.width - 1;
}

__device__ static double log_density(const struct bars &b, size_t k, double t)
{
    const size_t last = b.s.width - 1;
    if (k > 0 && k < last) return -log(bucket_width(b, k));
    const double s = b.scale[k == last], inner = k == last ? t - b.borders[last] : b.borders[1] - t;
    const double x = inner > 1e-8 ? inner : 1e-8;
    return 0.5 * log(2.0 / 3.14159265358979323846) - log(s) - x * x / (2.0 * s * s);
}

__device__ static double bucket_mean(const struct bars &b, size_t k)
{
    const size_t last = b.s.width - 1;
    const double half_mean = sqrt(2.0 / 3.14159265358979323846); /* of a half-normal distribution */
    if (k == 0) return b.borders[1] - b.scale[0] * half_mean;
    if (k == last) return b.borders[last] + b.scale[1] * half_mean;
    return b.borders[k] + bucket_width(b, k) / 2;
}

__device__ static double logit(const struct bars &b, const float *z, size_t k)
{
    return b.impossible[k] != 0.0f ? -(double)INFINITY : z[k] / b.s.temperature;
}

struct run_of_buckets {
    size_t begin, end;
};
__device__ static struct run_of_buckets run_of(const struct bars &b)
{
    const size_t each = (b.s.width + BLOCK - 1) / BLOCK, begin = threadIdx.x * each;
    const size_t end = begin + each < b.s.width ? begin + each : b.s.width;
    return run_of_buckets{begin < end ? begin : end, end};
}

/* log of the sum of exp of a row's logits, on every thread. */
__device__ static double log_sum_buckets(const struct bars &b, const float *z, double *room)
{
    const struct run_of_buckets run = run_of(b);
    double top = -(double)INFINITY, sum = 0;
    for (size_t k = run.begin; k < run.end; k++) top = fmax(top, logit(b, z, k));
    top = warp_most(top);
    __syncthreads();
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = top;
    __syncthreads();
    for (unsigned i = 0; i < WARPS; i++) top = fmax(top, room[i]);
    for (size_t k = run.begin; k < run.end; k++) sum += exp(logit(b, z, k) - top);
    return top + log(block_sum(sum, room));
}

/* The sum of what the threads before this one have; `room`: BLOCK numbers of shared memory. */
__device__ static double sum_before(double x, double *room)
{
    __syncthreads();
    room[threadIdx.x] = x;
    __syncthreads();
    double sum = 0;
    for (unsigned i = 0; i < threadIdx.x; i++) sum += room[i];
    return sum;
}
__device__ static double sum_behind(double x, double *room)
{
    __syncthreads();
    room[threadIdx.x] = x;
    __syncthreads();
    double sum = 0;
    for (unsigned i = BLOCK - 1; i > threadIdx.x; i--) sum += room[i];
    return sum;
}

/* crls keeps probabilities this far from 0 and 1: the precision of float32. */
__device__ static double log_score(double cumulative, bool after)
{
    const double least = 0x1p-23, inside = fmin(fmax(cumulative, least), 1.0 - least);
    return after ? -log(inside) : -log1p(-inside);
}
__device__ static double log_score_slope(double cumulative, bool after)
{
    const double least = 0x1p-23;
    if (cumulative < least || cumulative > 1.0 - least) return 0;
    return after ? -1.0 / cumulative : 1.0 / (1.0 - cumulative);
}

/* A run's probability, and the whole distribution's mean where it is asked for. */
struct first_pass {
    double before, mean;
};
__device__ static struct first_pass pass_once(const struct bars &b, const float *z, double total, double *room)
{
    const struct run_of_buckets run = run_of(b);
    double sum = 0, mean = 0;
    for (size_t k = run.begin; k < run.end; k++) {
        const double p = exp(logit(b, z, k) - total);
        sum += p;
        mean += p * bucket_mean(b, k);
    }
    const double before = sum_before(sum, room);
    return first_pass{before, block_sum(mean, room)};
}

__global__ static void bar_loss(struct bars b, double *of_row)
{
    __shared__ double room[BLOCK];
    set_scales(&b);
    const struct run_of_buckets run = run_of(b);
    for (size_t i = blockIdx.x; i < b.s.rows; i += gridDim.x) {
        const float *z = b.z + i * b.s.width;
        const double t = b.target[i];
        if (isnan(t)) { /* the same in all threads */
            if (threadIdx.x == 0) of_row[i] = 0;
            continue;
        }
        const size_t at = bucket_of(b, t);
        const double total = log_sum_buckets(b, z, room);
        const struct first_pass first = pass_once(b, z, total, room);
        double cumulative = first.before, crps = 0, crls = 0;
        for (size_t k = run.begin; k < run.end; k++) {
            const double w = bucket_width(b, k);
            cumulative += exp(logit(b, z, k) - total);
            const double d = cumulative - (k >= at ? 1.0 : 0.0);
            crps += w * d * d;
            if (b.s.crls > 0) crls += w * log_score(cumulative, k >= at);
        }
        crps = block_sum(crps, room);
        crls = block_sum(crls, room);
        const double off = first.mean - t;
        if (threadIdx.x != 0) continue;
        double loss = 0;
        if (b.s.ce > 0) loss = -b.s.ce * (logit(b, z, at) - total + log_density(b, at, t));
        if (b.s.crps > 0) loss += b.s.crps * crps;
        if (b.s.crls > 0) loss += b.s.crls * crls;
        if (b.s.mse > 0) loss += b.s.mse * fmin(off * off, b.s.mse_most);
        if (b.s.mae > 0) loss += b.s.mae * fmin(fabs(off), b.s.mae_most);
        of_row[i] = loss;
    }
}

/* The loss's slope along the distribution's mean. */
__device__ static double mean_slope(const struct op_bar_loss &s, double d)
{
    double slope = 0;
    if (s.mse > 0 && d * d <= s.mse_most) slope += s.mse * 2 * d;
    if (s.mae > 0 && fabs(d) <= s.mae_most) slope += s.mae * ((d > 0) - (d < 0));
    return slope;
}

/* A bucket's slope along its cumulative probability. */
__device__ static double cumulative_slope(const struct bars &b, size_t k, size_t at, double cumulative)
{
    const double w = bucket_width(b, k);
    double slope = b.s.crps * 2 * w * (cumulative - (k >= at ? 1.0 : 0.0));
    if (b.s.crls > 0) slope += b.s.crls * w * log_score_slope(cumulative, k >= at);
    return slope;
}

/* p[k] stands in all cumulative probabilities from k on: its slope is the sum of theirs, which is taken from the end of
 * the row; `keep` is room for a row of slopes a block. */
__global__ static void bar_loss_back(struct bars b, double *keep, bool add, float *d)
{
    __shared__ double room[BLOCK];
    set_scales(&b);
    const struct run_of_buckets run = run_of(b);
    for (size_t i = blockIdx.x; i < b.s.rows; i += gridDim.x) {
        const float *z = b.z + i * b.s.width;
        const double t = b.target[i];
        double *slopes = keep + (size_t)blockIdx.x * b.s.width;
        if (isnan(t)) {
            for (size_t k = run.begin; k < run.end && !add; k++) d[i * b.s.width + k] = 0.0f;
            continue;
        }
        const size_t at = bucket_of(b, t);
        const double total = log_sum_buckets(b, z, room);
        const struct first_pass first = pass_once(b, z, total, room);
        double cumulative = first.before, own = 0, average = 0;
        for (size_t k = run.begin; k < run.end; k++) {
            cumulative += exp(logit(b, z, k) - total);
            slopes[k] = cumulative_slope(b, k, at, cumulative);
            own += slopes[k];
        }
        const double along_mean = mean_slope(b.s, first.mean - t);
        double behind = sum_behind(own, room);
        for (size_t k = run.end; k-- > run.begin;) {
            behind += slopes[k];
            slopes[k] = behind + along_mean * bucket_mean(b, k);
            average += exp(logit(b, z, k) - total) * slopes[k];
        }
        average = block_sum(average, room);
        const double scale = b.s.scale / (double)b.s.rows / b.s.temperature;
        for (size_t k = run.begin; k < run.end; k++) {
            const double p = exp(logit(b, z, k) - total), ce = b.s.ce * (p - (k == at ? 1.0 : 0.0));
            put(d + i * b.s.width + k, add, (float)(scale * (ce + p * (slopes[k] - average))));
        }
    }
}

/* Blocks of the backward pass, each with room for a row's slopes. */
static size_t bar_blocks(size_t rows) { return smaller(smaller(GRID_MOST, 1024), rows); }

static struct bars bars_of(const struct op_call *call)
{
    struct bars b = {};
    b.s = call->op->bar_loss;
    b.z = (const float *)call->in[0];
    b.target = (const float *)call->in[1];
    b.borders = (const float *)call->in[2];
    b.impossible = (const float *)call->in[3];
    return b;
}

static void bar_loss_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct bars b = bars_of(call);
    double *of_row = (double *)call->scratch;
    LAUNCH(bar_loss, grid_of(b.s.rows, 1), BLOCK, 0, c->stream, b, of_row);
    LAUNCH(sum_losses, 1, BLOCK, 0, c->stream, b.s.rows, of_row, b.s.scale, (double *)call->out[0]);
    cuda_launched(c, "the loss of a distribution");
}

static void bar_loss_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct bars b = bars_of(call);
    if (call->d_in[0] == NULL) return;
    LAUNCH(bar_loss_back, (unsigned)bar_blocks(b.s.rows), BLOCK, 0, c->stream, b, (double *)call->scratch,
           call->add[0], call->d_in[0]);
    cuda_launched(c, "the gradient of a distribution's loss");
}

static size_t bar_backward_scratch(const void *state, const struct op *op)
{
    (void)state;
    return bar_blocks(op->bar_loss.rows) * op->bar_loss.width * sizeof(double);
}

const struct tensor_kernels cuda_cross_entropy = {losses_scratch, cuda_no_scratch, cross_entropy_forward,
                                                 cross_entropy_backward};
const struct tensor_kernels cuda_bar_loss = {losses_scratch, bar_backward_scratch, bar_loss_forward, bar_loss_backward};
