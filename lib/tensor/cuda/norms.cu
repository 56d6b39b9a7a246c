/* Normalisation of rows and GELU. A warp has a row; the gradients of w and bias are sums over rows, for which each row's
 * mean and 1 / deviation are kept in scratch. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

/* A row's moments: with `centred` its mean and 1 / deviation, else 0 and 1 / root mean square. */
struct moments {
    float mean, inverse;
};

__device__ static struct moments moments_of(const float *x, size_t width, float epsilon, bool centred)
{
    const size_t lane = threadIdx.x % WARP;
    float sum = 0.0f, squares = 0.0f;
    if (centred) {
        for (size_t j = lane; j < width; j += WARP) sum += x[j];
        sum = warp_sum(sum) / (float)width;
    }
    for (size_t j = lane; j < width; j += WARP) squares += (x[j] - sum) * (x[j] - sum);
    squares = warp_sum(squares) / (float)width;
    return moments{sum, 1.0f / sqrtf(squares + epsilon)};
}

/* w NULL: ones, bias NULL: zeros. */
__global__ static void norm_rows(size_t rows, size_t width, float epsilon, bool centred, const float *x, const float *w,
                                 const float *bias, float *y)
{
    for (size_t r = thread_in_grid() / WARP; r < rows; r += threads_in_grid() / WARP) {
        const float *row = x + r * width;
        const struct moments m = moments_of(row, width, epsilon, centred);
        for (size_t j = threadIdx.x % WARP; j < width; j += WARP) {
            float z = (row[j] - m.mean) * m.inverse;
            if (w != NULL) z *= w[j];
            if (bias != NULL) z += bias[j];
            y[r * width + j] = z;
        }
    }
}

/* kept: [rows][2], a row's moments. */
__global__ static void norm_moments(size_t rows, size_t width, float epsilon, bool centred, const float *x, float *kept)
{
    for (size_t r = thread_in_grid() / WARP; r < rows; r += threads_in_grid() / WARP) {
        const struct moments m = moments_of(x + r * width, width, epsilon, centred);
        if (threadIdx.x % WARP != 0) continue;
        kept[2 * r] = m.mean;
        kept[2 * r + 1] = m.inverse;
    }
}

/* dx may be dy: a lane reads each of its numbers before it writes it. */
__global__ static void norm_rows_backward(size_t rows, size_t width, bool centred, const float *x, const float *w,
                                          const float *dy, const float *kept, float *dx, bool add)
{
    for (size_t r = thread_in_grid() / WARP; r < rows; r += threads_in_grid() / WARP) {
        const float *row = x + r * width, *d = dy + r * width;
        const float mean = kept[2 * r], inverse = kept[2 * r + 1];
        float along = 0.0f, sum = 0.0f;
        for (size_t j = threadIdx.x % WARP; j < width; j += WARP) {
            const float g = w == NULL ? d[j] : w[j] * d[j];
            along += g * ((row[j] - mean) * inverse);
            sum += g;
        }
        along = warp_sum(along) / (float)width;
        sum = centred ? warp_sum(sum) / (float)width : 0.0f;
        for (size_t j = threadIdx.x % WARP; j < width; j += WARP) {
            const float g = w == NULL ? d[j] : w[j] * d[j], z = (row[j] - mean) * inverse;
            put(dx + r * width + j, add, inverse * (g - sum - z * along));
        }
    }
}

struct weight_term {
    const float *x, *dy, *kept;
    size_t width;
    __device__ float operator()(size_t r, size_t c) const
    {
        return dy[r * width + c] * ((x[r * width + c] - kept[2 * r]) * kept[2 * r + 1]);
    }
};

struct norm_sizes {
    size_t rows, width;
    float epsilon;
    bool centred;
};
static struct norm_sizes norm_of(const struct op *op)
{
    if (op->kind == OP_RMS_NORM)
        return norm_sizes{op->rms_norm.rows, op->rms_norm.width, op->rms_norm.epsilon, false};
    return norm_sizes{op->layer_norm.rows, op->layer_norm.width, op->layer_norm.epsilon, true};
}

static void norm_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct norm_sizes n = norm_of(call->op);
    LAUNCH(norm_rows, grid_of(n.rows, WARPS), BLOCK, 0, c->stream, n.rows, n.width, n.epsilon, n.centred,
           (const float *)call->in[0], (const float *)call->in[1], n.centred ? (const float *)call->in[2] : NULL,
           (float *)call->out[0]);
    cuda_launched(c, "a norm");
}

/* The sums come first: dx may take the place of dy. */
static void norm_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct norm_sizes n = norm_of(call->op);
    const float *x = (const float *)call->in[0], *w = (const float *)call->in[1], *dy = call->d_out;
    float *kept = (float *)call->scratch, *partial = kept + 2 * n.rows;
    LAUNCH(norm_moments, grid_of(n.rows, WARPS), BLOCK, 0, c->stream, n.rows, n.width, n.epsilon, n.centred, x, kept);
    cuda_launched(c, "a norm's moments");
    if (call->d_in[1] != NULL)
        sum_rows(c, weight_term{x, dy, kept, n.width}, n.rows, n.width, partial, call->add[1], call->d_in[1]);
    if (n.centred && call->d_in[2] != NULL)
        sum_rows(c, row_term{dy, n.width}, n.rows, n.width, partial, call->add[2], call->d_in[2]);
    LAUNCH(norm_rows_backward, grid_of(n.rows, WARPS), BLOCK, 0, c->stream, n.rows, n.width, n.centred, x, w, dy, kept,
           call->d_in[0], call->add[0]);
    cuda_launched(c, "a norm's gradient");
}

static size_t norm_scratch(const void *state, const struct op *op)
{
    const struct norm_sizes n = norm_of(op);
    (void)state;
    return (2 * n.rows + sum_floats(n.rows, n.width)) * sizeof(float);
}

/* ---- GELU ---- */

__global__ static void gelu(size_t count, const float *x, float *y)
{
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid())
        y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
}

__global__ static void gelu_slopes(size_t count, const float *x, const float *dy, bool add, float *dx)
{
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) {
        const float z = x[i], inside = 0.5f * (1.0f + erff(z * 0.70710678118654752f));
        put(dx + i, add, dy[i] * (inside + z * 0.39894228040143268f * expf(-0.5f * z * z)));
    }
}

static void gelu_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const size_t count = call->op->gelu.rows * call->op->gelu.width;
    LAUNCH(gelu, grid_of(count, BLOCK), BLOCK, 0, c->stream, count, (const float *)call->in[0], (float *)call->out[0]);
    cuda_launched(c, "GELU");
}

static void gelu_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const size_t count = call->op->gelu.rows * call->op->gelu.width;
    LAUNCH(gelu_slopes, grid_of(count, BLOCK), BLOCK, 0, c->stream, count, (const float *)call->in[0], call->d_out,
           call->add[0], call->d_in[0]);
    cuda_launched(c, "GELU's gradient");
}

const struct tensor_kernels cuda_rms_norm = {cuda_no_scratch, norm_scratch, norm_forward, norm_backward};
const struct tensor_kernels cuda_layer_norm = {cuda_no_scratch, norm_scratch, norm_forward, norm_backward};
const struct tensor_kernels cuda_gelu = {cuda_no_scratch, cuda_no_scratch, gelu_forward, gelu_backward};
