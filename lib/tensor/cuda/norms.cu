/* Normalisation of rows and GELU. A warp has a row, which it reads once, from memory or then from its cache; backward sums
 * the gradients of w and bias over rows while it goes through them. Rows as networks have them are kept in registers. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/tensor_core_internal.h"

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
template <typename Y>
__global__ static void norm_rows(size_t rows, size_t width, float epsilon, bool centred, const float *x, const float *w,
                                 const float *bias, Y *y)
{
    for (size_t r = thread_in_grid() / WARP; r < rows; r += threads_in_grid() / WARP) {
        const float *row = x + r * width;
        const struct moments m = moments_of(row, width, epsilon, centred);
        for (size_t j = threadIdx.x % WARP; j < width; j += WARP) {
            float z = (row[j] - m.mean) * m.inverse;
            if (w != NULL) z *= w[j];
            if (bias != NULL) z += bias[j];
            put(y + r * width + j, false, z);
        }
    }
}

/* What backward works with; NULL: not there, or not asked for. */
template <typename Y> struct norm_gradients {
    const float *x, *w;
    const Y *dy;
    float *dx, *w_parts, *bias_parts; /* [parts][width] */
    bool add;
};

/* A block goes through a part of the rows as sum_parts does, a warp through a run of them, each lane with NUMBERS sums
 * over them for every 32nd column from `first`. dx may be dy: a lane reads each of its numbers before it writes it. */
template <unsigned NUMBERS, typename Y>
__global__ static void norm_back(size_t rows, size_t width, float epsilon, bool centred, size_t part_rows, size_t parts,
                                 size_t first, const struct norm_gradients<Y> n)
{
    __shared__ float lanes[PART_LANES][WARP];
    const size_t lane = threadIdx.x % WARP;
    const bool sums = n.w_parts != NULL || n.bias_parts != NULL;
    for (size_t part = blockIdx.x; part < parts; part += gridDim.x) {
        const size_t end = (part + 1) * part_rows < rows ? (part + 1) * part_rows : rows;
        float of_w[NUMBERS], of_bias[NUMBERS];
        for (unsigned i = 0; i < NUMBERS; i++) of_w[i] = of_bias[i] = 0.0f;
        for (size_t r = part * part_rows + threadIdx.x / WARP; r < end; r += PART_LANES) {
            const float *x = n.x + r * width;
            const Y *d = n.dy + r * width;
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

/* ---- rows of few fours of numbers, divided by their root mean square ----
 * Number 4 (lane + 32 f) + i of a row is number i of its lane's four f; what is behind the width is 0. */

__device__ static size_t place_of_four(unsigned f) { return 4 * (size_t)(threadIdx.x % WARP + f * WARP); }

template <unsigned FOURS, typename X> __device__ static void load_row(float4 *row, const X *x, size_t width)
{
#pragma unroll
    for (unsigned f = 0; f < FOURS; f++)
        row[f] = place_of_four(f) < width ? four_at(x + place_of_four(f)) : float4{0.0f, 0.0f, 0.0f, 0.0f};
}

/* Weights may begin anywhere. */
template <unsigned FOURS> __device__ static void load_weights(float4 *row, const float *w, size_t width)
{
#pragma unroll
    for (unsigned f = 0; f < FOURS; f++) {
        const float *four = w + place_of_four(f);
        row[f] = place_of_four(f) < width ? float4{four[0], four[1], four[2], four[3]} : float4{0.0f, 0.0f, 0.0f, 0.0f};
    }
}

__device__ static float along_four(const float4 &a, const float4 &b) { return a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w); }
__device__ static float4 product_of_fours(const float4 &a, const float4 &b)
{
    return float4{a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ static float4 four_times(const float4 &a, float by) { return float4{a.x * by, a.y * by, a.z * by, a.w * by}; }
/* a by + b. */
__device__ static float4 four_plus(const float4 &a, float by, const float4 &b)
{
    return float4{a.x * by + b.x, a.y * by + b.y, a.z * by + b.z, a.w * by + b.w};
}

template <unsigned FOURS, typename Y>
__global__ static void rms_rows(size_t rows, size_t width, float epsilon, const float *x, const float *w, Y *y)
{
    const float share = 1.0f / (float)width;
    float4 weights[FOURS];
    load_weights<FOURS>(weights, w, width);
    for (size_t r = thread_in_grid() / WARP; r < rows; r += threads_in_grid() / WARP) {
        float4 row[FOURS];
        float squares = 0.0f;
        load_row<FOURS>(row, x + r * width, width);
#pragma unroll
        for (unsigned f = 0; f < FOURS; f++) squares += along_four(row[f], row[f]);
        const float inverse = 1.0f / sqrtf(warp_sum(squares) * share + epsilon);
#pragma unroll
        for (unsigned f = 0; f < FOURS; f++) {
            if (place_of_four(f) < width)
                put_four(y + r * width + place_of_four(f), false, product_of_fours(four_times(row[f], inverse), weights[f]));
        }
    }
}

/* As norm_back. */
template <unsigned FOURS, typename Y>
__global__ static void rms_back(size_t rows, size_t width, float epsilon, size_t part_rows, size_t parts,
                                const struct norm_gradients<Y> n)
{
    __shared__ float4 lanes[PART_LANES][WARP];
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float share = 1.0f / (float)width;
    float4 weights[FOURS];
    load_weights<FOURS>(weights, n.w, width);
    for (size_t part = blockIdx.x; part < parts; part += gridDim.x) {
        const size_t end = (part + 1) * part_rows < rows ? (part + 1) * part_rows : rows;
        float4 of_w[FOURS];
#pragma unroll
        for (unsigned f = 0; f < FOURS; f++) of_w[f] = float4{0.0f, 0.0f, 0.0f, 0.0f};
        for (size_t r = part * part_rows + warp; r < end; r += PART_LANES) {
            float4 row[FOURS], d[FOURS];
            float squares = 0.0f, along = 0.0f;
            load_row<FOURS>(row, n.x + r * width, width);
            load_row<FOURS>(d, n.dy + r * width, width);
#pragma unroll
            for (unsigned f = 0; f < FOURS; f++) {
                squares += along_four(row[f], row[f]);
                along += along_four(product_of_fours(weights[f], d[f]), row[f]);
            }
            const float inverse = 1.0f / sqrtf(warp_sum(squares) * share + epsilon);
            const float back = -(warp_sum(along) * share) * inverse * inverse * inverse;
#pragma unroll
            for (unsigned f = 0; f < FOURS; f++) {
                const float4 g = product_of_fours(weights[f], d[f]);
                of_w[f] = four_plus(product_of_fours(d[f], row[f]), inverse, of_w[f]);
                if (n.dx != NULL && place_of_four(f) < width)
                    put_four(n.dx + r * width + place_of_four(f), n.add, four_plus(row[f], back, four_times(g, inverse)));
            }
        }
        if (n.w_parts == NULL) continue;
#pragma unroll
        for (unsigned f = 0; f < FOURS; f++) {
            lanes[warp][lane] = of_w[f];
            __syncthreads();
            for (unsigned i = 1; warp == 0 && i < PART_LANES; i++) of_w[f] = four_plus(lanes[i][lane], 1.0f, of_w[f]);
            if (warp == 0 && place_of_four(f) < width)
                put_four(n.w_parts + part * width + place_of_four(f), false, of_w[f]);
            __syncthreads(); /* lanes may be written to again */
        }
    }
}

/* How many fours a lane has of such a row, which lies at `a`, `b` and `c`; 0: rows are for norm_rows and norm_back. */
static unsigned fours_of(size_t width, const void *w, const void *a, const void *b, const void *c)
{
    if (w == NULL || width % 4 != 0 || !is_at_four(a) || !is_at_four(b) || !is_at_four(c)) return 0;
    const size_t fours = blocks_of(width, 4 * WARP);
    return fours > 4 ? 0 : fours > 2 ? 4 : (unsigned)fours;
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

template <typename Y> static void norm_forward_of(struct cuda *c, const struct op_call *call)
{
    const struct norm_sizes n = norm_of(call->op);
    const float *x = (const float *)call->in[0], *w = (const float *)call->in[1],
                *bias = n.centred ? (const float *)call->in[2] : NULL;
    Y *y = (Y *)call->out[0];
    const unsigned fours = n.centred ? 0 : fours_of(n.width, w, x, y, NULL);
    const auto kernel = fours == 1 ? rms_rows<1, Y> : fours == 2 ? rms_rows<2, Y> : rms_rows<4, Y>;
    if (fours > 0)
        LAUNCH(kernel, grid_of(n.rows, WARPS), BLOCK, 0, c->stream, n.rows, n.width, n.epsilon, x, w, y);
    else
        LAUNCH(norm_rows<Y>, grid_of(n.rows, WARPS), BLOCK, 0, c->stream, n.rows, n.width, n.epsilon, n.centred, x, w, bias,
               y);
    cuda_launched(c, "a norm");
}

static void norm_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    if (call->op->bf16.out) norm_forward_of<struct bf16>(c, call);
    else norm_forward_of<float>(c, call);
}

/* Columns whose sums a warp keeps in registers, for narrow rows and for wide ones. */
static constexpr unsigned NARROW = 8, WIDE = 32;

/* Rows so wide that not all their sums fit take a pass for each WIDE * 32 of them; the last writes dx, as that may take the
 * place of dy. */
template <typename Y>
static void norm_back_in_passes(struct cuda *c, const struct norm_sizes &n, size_t part_rows, size_t parts,
                                struct norm_gradients<Y> g)
{
    const bool sums = g.w_parts != NULL || g.bias_parts != NULL;
    const size_t step = WIDE * WARP;
    const auto kernel = n.width <= NARROW * WARP ? norm_back<NARROW, Y> : norm_back<WIDE, Y>;
    float *const dx = g.dx;
    for (size_t first = sums ? 0 : (n.width - 1) / step * step; first < n.width; first += step) {
        g.dx = first + step < n.width ? NULL : dx;
        LAUNCH(kernel, grid_of(parts, 1), BLOCK, 0, c->stream, n.rows, n.width, n.epsilon, n.centred, part_rows, parts, first,
               g);
        cuda_launched(c, "a norm's gradient");
    }
}

template <typename Y> static void norm_backward_of(struct cuda *c, const struct op_call *call)
{
    const struct norm_sizes n = norm_of(call->op);
    const size_t part_rows = sum_part_rows(n.rows), parts = blocks_of(n.rows, part_rows);
    float *const scratch = (float *)call->scratch;
    struct norm_gradients<Y> g = {};
    g.x = (const float *)call->in[0];
    g.w = (const float *)call->in[1];
    g.dy = (const Y *)(const void *)call->d_out;
    g.w_parts = call->d_in[1] == NULL ? NULL : scratch;
    g.bias_parts = n.centred && call->d_in[2] != NULL ? scratch + sum_floats(n.rows, n.width) : NULL;
    g.dx = call->d_in[0];
    g.add = call->add[0];
    const unsigned fours = n.centred ? 0 : fours_of(n.width, g.w, g.x, g.dy, g.dx);
    const auto rms = fours == 1 ? rms_back<1, Y> : fours == 2 ? rms_back<2, Y> : rms_back<4, Y>;
    if (parts > 0 && fours > 0) {
        LAUNCH(rms, grid_of(parts, 1), BLOCK, 0, c->stream, n.rows, n.width, n.epsilon, part_rows, parts, g);
        cuda_launched(c, "a norm's gradient");
    } else if (parts > 0) {
        norm_back_in_passes(c, n, part_rows, parts, g);
    }
    if (g.w_parts != NULL) sum_parts_up(c, g.w_parts, parts, n.width, call->add[1], call->d_in[1]);
    if (g.bias_parts != NULL) sum_parts_up(c, g.bias_parts, parts, n.width, call->add[2], call->d_in[2]);
}

static void norm_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    if (call->op->bf16.d_out) norm_backward_of<struct bf16>(c, call);
    else norm_backward_of<float>(c, call);
}

static size_t norm_scratch(const void *state, const struct op *op)
{
    const struct norm_sizes n = norm_of(op);
    (void)state;
    return (n.centred ? 2 : 1) * sum_floats(n.rows, n.width) * sizeof(float);
}

/* ---- GELU ---- */

/* How much of the standard normal distribution is below x, and its density there. */
struct normal {
    float below, density;
};
template <bool exact> __device__ static struct normal normal_at(float x)
{
    if (exact)
        return normal{0.5f * (1.0f + erff(x * 0.70710678118654752f)), 0.39894228040143268f * expf(-0.5f * x * x)};
    /* To 8e-8, and to 0.2 % of the tail to -5, which bf16 has no room for (Abramowitz and Stegun, 7.1.26). */
    const float power = power_of_2(x * x * -0.72134752044448170f), t = reciprocal(fmaf(fabsf(x), 0.23164189f, 1.0f));
    const float polynomial =
        t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 0.5307027145f, -0.7265760135f), 0.7107068705f), -0.142248368f), 0.127414796f);
    const float tail = polynomial * power;
    return normal{x < 0.0f ? tail : 1.0f - tail, 0.39894228040143268f * power};
}

template <bool exact> __device__ static float gelu_of(float x) { return x * normal_at<exact>(x).below; }

/* dx, for the output's gradient d. */
template <bool exact> __device__ static float gelu_slope(float x, float d)
{
    const struct normal n = normal_at<exact>(x);
    return d * (n.below + x * n.density);
}

/* What is kept in two bytes need not be right to four. */
template <typename Y> static constexpr bool is_exact = sizeof(Y) == sizeof(float);

/* Fours of numbers, then what is left of them. y may be x. */
template <typename X, typename Y> __global__ static void gelu(size_t count, const X *x, Y *y)
{
    constexpr bool exact = is_exact<Y>;
    for (size_t i = 4 * thread_in_grid(); i + 4 <= count; i += 4 * threads_in_grid()) {
        const float4 z = four_at(x + i);
        put_four(y + i, false, float4{gelu_of<exact>(z.x), gelu_of<exact>(z.y), gelu_of<exact>(z.z), gelu_of<exact>(z.w)});
    }
    for (size_t i = count / 4 * 4 + thread_in_grid(); i < count; i += threads_in_grid())
        put(y + i, false, gelu_of<exact>(x[i]));
}

/* dx may be dy. */
template <typename X, typename Y, typename D>
__global__ static void gelu_slopes(size_t count, const X *x, const Y *dy, bool add, D *dx)
{
    constexpr bool exact = is_exact<D>;
    for (size_t i = 4 * thread_in_grid(); i + 4 <= count; i += 4 * threads_in_grid()) {
        const float4 z = four_at(x + i), d = four_at(dy + i);
        put_four(dx + i, add,
                 float4{gelu_slope<exact>(z.x, d.x), gelu_slope<exact>(z.y, d.y), gelu_slope<exact>(z.z, d.z),
                        gelu_slope<exact>(z.w, d.w)});
    }
    for (size_t i = count / 4 * 4 + thread_in_grid(); i < count; i += threads_in_grid())
        put(dx + i, add, gelu_slope<exact>(x[i], dy[i]));
}

template <typename X, typename Y> static void gelu_forward_of(struct cuda *c, const struct op_call *call)
{
    const size_t count = call->op->gelu.rows * call->op->gelu.width;
    LAUNCH((gelu<X, Y>), grid_of(blocks_of(count, 4), BLOCK), BLOCK, 0, c->stream, count, (const X *)call->in[0],
           (Y *)call->out[0]);
    cuda_launched(c, "GELU");
}

static void gelu_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_bf16 s = call->op->bf16;
    if (s.in != 0) s.out ? gelu_forward_of<struct bf16, struct bf16>(c, call) : gelu_forward_of<struct bf16, float>(c, call);
    else s.out ? gelu_forward_of<float, struct bf16>(c, call) : gelu_forward_of<float, float>(c, call);
}

template <typename X, typename Y, typename D> static void gelu_backward_of(struct cuda *c, const struct op_call *call)
{
    const size_t count = call->op->gelu.rows * call->op->gelu.width;
    LAUNCH((gelu_slopes<X, Y, D>), grid_of(blocks_of(count, 4), BLOCK), BLOCK, 0, c->stream, count, (const X *)call->in[0],
           (const Y *)(const void *)call->d_out, call->add[0], (D *)(void *)call->d_in[0]);
    cuda_launched(c, "GELU's gradient");
}
template <typename X> static void gelu_backward_from(struct cuda *c, const struct op_call *call)
{
    const struct op_bf16 s = call->op->bf16;
    if (s.d_out) s.d_in != 0 ? gelu_backward_of<X, struct bf16, struct bf16>(c, call) : gelu_backward_of<X, struct bf16, float>(c, call);
    else s.d_in != 0 ? gelu_backward_of<X, float, struct bf16>(c, call) : gelu_backward_of<X, float, float>(c, call);
}

static void gelu_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    if (call->op->bf16.in != 0) gelu_backward_from<struct bf16>(c, call);
    else gelu_backward_from<float>(c, call);
}

const struct tensor_kernels cuda_rms_norm = {cuda_no_scratch, norm_scratch, norm_forward, norm_backward};
const struct tensor_kernels cuda_layer_norm = {cuda_no_scratch, norm_scratch, norm_forward, norm_backward};
const struct tensor_kernels cuda_gelu = {cuda_no_scratch, cuda_no_scratch, gelu_forward, gelu_backward};
