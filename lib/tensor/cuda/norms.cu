/* Normalisation of rows and GELU. A warp has a row, which it reads once, from memory or then from its cache; backward sums
 * the gradients of w and bias over rows while it goes through them. */
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

/* What backward works with; NULL: not there, or not asked for. */
struct norm_gradients {
    const float *x, *w, *dy;
    float *dx, *w_parts, *bias_parts; /* [parts][width] */
    bool add;
};

/* A block goes through a part of the rows as sum_parts does, a warp through a run of them, each lane with NUMBERS sums
 * over them for every 32nd column from `first`. dx may be dy: a lane reads each of its numbers before it writes it. */
template <unsigned NUMBERS>
__global__ static void norm_back(size_t rows, size_t width, float epsilon, bool centred, size_t part_rows, size_t parts,
                                 size_t first, const struct norm_gradients n)
{
    __shared__ float lanes[PART_LANES][WARP];
    const size_t lane = threadIdx.x % WARP;
    const bool sums = n.w_parts != NULL || n.bias_parts != NULL;
    for (size_t part = blockIdx.x; part < parts; part += gridDim.x) {
        const size_t end = (part + 1) * part_rows < rows ? (part + 1) * part_rows : rows;
        float of_w[NUMBERS], of_bias[NUMBERS];
        for (unsigned i = 0; i < NUMBERS; i++) of_w[i] = of_bias[i] = 0.0f;
        for (size_t r = part * part_rows + threadIdx.x / WARP; r < end; r += PART_LANES) {
            const float *x = n.x + r * width, *d = n.dy + r * width;
            const struct moments m = moments_of(x, width, epsilon, centred);
            float along = 0.0f, sum = 0.0f;
            for (size_t j = lane; j < width; j += WARP) {
                const float g = n.w == NULL ? d[j] : n.w[j] * d[j];
                along += g * ((x[j] - m.mean) * m.inverse);
                sum += g;
            }
            along = warp_sum(along) / (float)width;
            sum = centred ? warp_sum(sum) / (float)width : 0.0f;
#pragma unroll
            for (unsigned i = 0; i < NUMBERS; i++) {
                const size_t j = first + i * WARP + lane;
                if (!sums || j >= width) continue;
                of_w[i] += d[j] * ((x[j] - m.mean) * m.inverse);
                of_bias[i] += d[j];
            }
            if (n.dx == NULL) continue;
            for (size_t j = lane; j < width; j += WARP) {
                const float g = n.w == NULL ? d[j] : n.w[j] * d[j], z = (x[j] - m.mean) * m.inverse;
                put(n.dx + r * width + j, n.add, m.inverse * (g - sum - z * along));
            }
        }
#pragma unroll
        for (unsigned i = 0; i < NUMBERS; i++) {
            const size_t j = first + i * WARP + lane;
            const float sum_w = n.w_parts == NULL ? 0.0f : lanes_sum(of_w[i], lanes);
            const float sum_bias = n.bias_parts == NULL ? 0.0f : lanes_sum(of_bias[i], lanes);
            if (threadIdx.x >= WARP || j >= width) continue;
            if (n.w_parts != NULL) n.w_parts[part * width + j] = sum_w;
            if (n.bias_parts != NULL) n.bias_parts[part * width + j] = sum_bias;
        }
    }
}

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

/* Columns whose sums a warp keeps in registers, for narrow rows and for wide ones. */
static constexpr unsigned NARROW = 8, WIDE = 32;

/* Rows so wide that not all their sums fit take a pass for each WIDE * 32 of them; the last writes dx, as that may take the
 * place of dy. */
static void norm_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct norm_sizes n = norm_of(call->op);
    const bool wants_bias = n.centred && call->d_in[2] != NULL, sums = call->d_in[1] != NULL || wants_bias;
    const size_t part_rows = sum_part_rows(n.rows), parts = blocks_of(n.rows, part_rows), step = WIDE * WARP;
    const auto kernel = n.width <= NARROW * WARP ? norm_back<NARROW> : norm_back<WIDE>;
    float *const scratch = (float *)call->scratch;
    struct norm_gradients g = {};
    g.x = (const float *)call->in[0];
    g.w = (const float *)call->in[1];
    g.dy = call->d_out;
    g.w_parts = call->d_in[1] == NULL ? NULL : scratch;
    g.bias_parts = wants_bias ? scratch + sum_floats(n.rows, n.width) : NULL;
    g.add = call->add[0];
    for (size_t first = sums ? 0 : (n.width - 1) / step * step; first < n.width && parts > 0; first += step) {
        g.dx = first + step < n.width ? NULL : call->d_in[0];
        LAUNCH(kernel, grid_of(parts, 1), BLOCK, 0, c->stream, n.rows, n.width, n.epsilon, n.centred, part_rows, parts, first,
               g);
        cuda_launched(c, "a norm's gradient");
    }
    if (g.w_parts != NULL) sum_parts_up(c, g.w_parts, parts, n.width, call->add[1], call->d_in[1]);
    if (g.bias_parts != NULL) sum_parts_up(c, g.bias_parts, parts, n.width, call->add[2], call->d_in[2]);
}

static size_t norm_scratch(const void *state, const struct op *op)
{
    const struct norm_sizes n = norm_of(op);
    (void)state;
    return (n.centred ? 2 : 1) * sum_floats(n.rows, n.width) * sizeof(float);
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
