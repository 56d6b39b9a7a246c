/* What happens to queries and keys before they meet, and numbers turned into sines and cosines. In heads a warp has a
 * row, a lane the two numbers of a point in the plane, and as many lanes a head as it has points. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

/* ---- heads ---- */

/* A row's numbers are below 2^31, which heads_of sees to; its place among all may be beyond. A head's points are the numbers
 * j and j + half; of an odd width, which is never turned, the last j stands alone. `lanes`, a power of two, of a warp have a
 * head, and the warp has `at_once` heads; `whole`: a lane has one point. */
struct heads {
    size_t rows, tokens;
    unsigned width, heads, head_width, half, of_norm; /* of_norm: heads that share a row of weights; 0: no norms */
    unsigned lanes, at_once;
    float epsilon;
};

struct point {
    float a, b;
};

__device__ static bool in_pair(const struct heads &s, unsigned j) { return j + s.half < s.head_width; }

/* Point j of a head after the turn, 0 where there is no second number. */
template <typename X>
__device__ static struct point turned(const struct heads &s, const X *x, const float *turns, unsigned j)
{
    const float a = x[j], b = in_pair(s, j) ? (float)x[j + s.half] : 0.0f;
    if (turns == NULL) return point{a, b};
    const float c = turns[j], sine = turns[j + s.half];
    return point{a * c - b * sine, b * c + a * sine};
}

__device__ static const float *turns_of(const struct heads &s, const float *turns, size_t row)
{
    return turns == NULL ? NULL : turns + row % s.tokens * s.head_width;
}
__device__ static const float *weights_of(const struct heads &s, const float *w, unsigned h)
{
    return w + h / s.of_norm * s.head_width;
}

/* The points of a lane of head h: none where there is no such head. */
__device__ static unsigned first_point(const struct heads &s, unsigned h)
{
    return h < s.heads ? threadIdx.x & (s.lanes - 1) : s.half;
}
template <bool whole> __device__ static unsigned next_point(const struct heads &s, unsigned j)
{
    return whole ? s.half : j + s.lanes;
}

/* The sum over the lanes of a head, on each of them the same bits. All lanes of the warp must come here. */
__device__ static float head_sum(const struct heads &s, float x)
{
    for (unsigned step = s.lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, (int)step);
    return x;
}

/* 1 / root mean square of a turned head, on each of its lanes. */
template <bool whole, typename X>
__device__ static float inverse_of(const struct heads &s, unsigned first, const X *x, const float *turns)
{
    float squares = 0.0f;
    for (unsigned j = first; j < s.half; j = next_point<whole>(s, j)) {
        const struct point p = turned(s, x, turns, j);
        squares += p.a * p.a + p.b * p.b;
    }
    return 1.0f / sqrtf(head_sum(s, squares) / (float)s.head_width + s.epsilon);
}

template <bool whole, typename X, typename Y>
__global__ static void heads_rows(const struct heads s, const X *x, const float *turns, const float *w, Y *y)
{
    const unsigned lane = threadIdx.x % WARP, own = lane / s.lanes;
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        const X *from = x + row * s.width;
        Y *to = y + row * s.width;
        for (unsigned h = own; h < s.heads + own; h += s.at_once) {
            const unsigned first = first_point(s, h);
            const X *head = from + h * s.head_width;
            const float inverse = s.of_norm == 0 ? 1.0f : inverse_of<whole>(s, first, head, of_row);
            const float *of_head = s.of_norm == 0 ? NULL : weights_of(s, w, h);
            Y *out = to + h * s.head_width;
            for (unsigned j = first; j < s.half; j = next_point<whole>(s, j)) {
                const struct point p = turned(s, head, of_row, j);
                put(out + j, false, of_head == NULL ? p.a : of_head[j] * (p.a * inverse));
                if (in_pair(s, j))
                    put(out + j + s.half, false, of_head == NULL ? p.b : of_head[j + s.half] * (p.b * inverse));
            }
        }
        for (unsigned j = s.heads * s.head_width + lane; j < s.width; j += WARP) put(to + j, false, from[j]);
    }
}

template <bool whole, typename X>
__global__ static void heads_inverses(const struct heads s, const X *x, const float *turns, float *inverses)
{
    const unsigned own = threadIdx.x % WARP / s.lanes;
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        const X *from = x + row * s.width;
        for (unsigned h = own; h < s.heads + own; h += s.at_once) {
            const unsigned first = first_point(s, h);
            const float inverse = inverse_of<whole>(s, first, from + h * s.head_width, of_row);
            if (first == 0) inverses[row * s.heads + h] = inverse;
        }
    }
}

/* What a head's gradient has along the head itself, on each of its lanes. */
template <bool whole, typename X, typename Y>
__device__ static float along_head(const struct heads &s, unsigned first, const X *x, const float *turns, const float *w,
                                   float inverse, const Y *dy)
{
    float along = 0.0f;
    for (unsigned j = first; j < s.half; j = next_point<whole>(s, j)) {
        const struct point p = turned(s, x, turns, j);
        along += w[j] * dy[j] * p.a;
        if (in_pair(s, j)) along += w[j + s.half] * dy[j + s.half] * p.b;
    }
    return head_sum(s, along) * inverse * inverse / (float)s.head_width;
}

/* dx may be dy. */
template <bool whole, typename X, typename Y, typename D>
__global__ static void heads_back(const struct heads s, const X *x, const float *turns, const float *w,
                                  const float *inverses, const Y *dy, D *dx, bool add)
{
    const unsigned lane = threadIdx.x % WARP, own = lane / s.lanes;
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        const X *from = x + row * s.width;
        const Y *of_out = dy + row * s.width;
        D *to = dx + row * s.width;
        for (unsigned h = own; h < s.heads + own; h += s.at_once) {
            const bool norms = s.of_norm > 0;
            const unsigned first = first_point(s, h);
            const X *head = from + h * s.head_width;
            const Y *slope = of_out + h * s.head_width;
            const float *of_head = norms ? weights_of(s, w, h) : NULL;
            const float inverse = norms && h < s.heads ? inverses[row * s.heads + h] : 1.0f;
            const float along = norms ? along_head<whole>(s, first, head, of_row, of_head, inverse, slope) : 0.0f;
            D *out = to + h * s.head_width;
            for (unsigned j = first; j < s.half; j = next_point<whole>(s, j)) {
                struct point d = {slope[j], in_pair(s, j) ? (float)slope[j + s.half] : 0.0f};
                if (norms) {
                    const struct point p = turned(s, head, of_row, j);
                    d.a = inverse * (of_head[j] * d.a - p.a * along);
                    if (in_pair(s, j)) d.b = inverse * (of_head[j + s.half] * d.b - p.b * along);
                }
                if (of_row != NULL) {
                    const float c = of_row[j], sine = -of_row[j + s.half], a = d.a, b = d.b;
                    d.a = a * c - b * sine;
                    d.b = b * c + a * sine;
                }
                put(out + j, add, d.a);
                if (in_pair(s, j)) put(out + j + s.half, add, d.b);
            }
        }
        if ((const void *)dx != (const void *)dy)
            for (unsigned j = s.heads * s.head_width + lane; j < s.width; j += WARP) put(to + j, add, of_out[j]);
    }
}

template <typename X, typename Y> struct heads_term { /* c: norm * head_width + number */
    struct heads s;
    const X *x;
    const float *turns;
    const Y *dy;
    const float *inverses;
    __device__ float operator()(size_t r, size_t c) const
    {
        const unsigned j = (unsigned)c % s.head_width, begin = (unsigned)c / s.head_width * s.of_norm;
        const float *of_row = turns_of(s, turns, r);
        float sum = 0.0f;
        for (unsigned h = begin; h < begin + s.of_norm; h++) {
            const size_t at = r * s.width + h * s.head_width;
            const struct point p = turned(s, x + at, of_row, j % s.half);
            sum += dy[at + j] * ((j < s.half ? p.a : p.b) * inverses[r * s.heads + h]);
        }
        return sum;
    }
};

/* As the kernels see them. False, and why is in *c: rows that are too wide. */
static bool heads_of(struct cuda *c, const struct op_heads &s, struct heads *out)
{
    if (s.width >> 31 != 0) {
        if (c->failure.code == 0)
            (void)tabft_fail(&c->failure, TABFT_INPUT,
                             "GPU %d: heads of rows of %zu numbers: fewer than 2^31 are taken; use --device cpu", c->device,
                             s.width);
        return false;
    }
    *out = {s.rows,
            s.tokens,
            (unsigned)s.width,
            (unsigned)s.heads,
            (unsigned)s.head_width,
            (unsigned)(s.head_width + 1) / 2,
            s.norms == 0 ? 0 : (unsigned)(s.heads / s.norms),
            1,
            0,
            s.epsilon};
    while (out->lanes < WARP && out->lanes < out->half) out->lanes *= 2;
    out->at_once = WARP / out->lanes;
    return true;
}

template <typename X, typename Y> static void heads_forward_of(struct cuda *c, const struct op_call *call)
{
    struct heads s;
    if (!heads_of(c, call->op->heads, &s)) return;
    const auto kernel = s.half <= s.lanes ? heads_rows<true, X, Y> : heads_rows<false, X, Y>;
    LAUNCH(kernel, grid_of(s.rows, WARPS), BLOCK, 0, c->stream, s, (const X *)call->in[0], (const float *)call->in[1],
           (const float *)call->in[2], (Y *)call->out[0]);
    cuda_launched(c, "heads");
}

static void heads_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_bf16 b = call->op->bf16;
    if (b.in != 0) b.out ? heads_forward_of<struct bf16, struct bf16>(c, call) : heads_forward_of<struct bf16, float>(c, call);
    else b.out ? heads_forward_of<float, struct bf16>(c, call) : heads_forward_of<float, float>(c, call);
}

template <typename X, typename Y, typename D> static void heads_backward_of(struct cuda *c, const struct op_call *call)
{
    struct heads s;
    const X *x = (const X *)call->in[0];
    const Y *dy = (const Y *)(const void *)call->d_out;
    const float *turns = (const float *)call->in[1];
    float *inverses = (float *)call->scratch;
    if (!heads_of(c, call->op->heads, &s)) return;
    const bool whole = s.half <= s.lanes;
    const unsigned grid = grid_of(s.rows, WARPS);
    if (s.of_norm > 0) {
        const auto kernel = whole ? heads_inverses<true, X> : heads_inverses<false, X>;
        LAUNCH(kernel, grid, BLOCK, 0, c->stream, s, x, turns, inverses);
        cuda_launched(c, "heads' norms");
        if (call->d_in[2] != NULL)
            sum_rows(c, heads_term<X, Y>{s, x, turns, dy, inverses}, s.rows, s.heads / s.of_norm * s.head_width,
                     inverses + s.rows * s.heads, call->add[2], call->d_in[2]);
    }
    const auto kernel = whole ? heads_back<true, X, Y, D> : heads_back<false, X, Y, D>;
    LAUNCH(kernel, grid, BLOCK, 0, c->stream, s, x, turns, (const float *)call->in[2], inverses, dy,
           (D *)(void *)call->d_in[0], call->add[0]);
    cuda_launched(c, "the gradient of heads");
}

template <typename X> static void heads_backward_from(struct cuda *c, const struct op_call *call)
{
    const struct op_bf16 b = call->op->bf16;
    if (b.d_out)
        b.d_in != 0 ? heads_backward_of<X, struct bf16, struct bf16>(c, call) : heads_backward_of<X, struct bf16, float>(c, call);
    else b.d_in != 0 ? heads_backward_of<X, float, struct bf16>(c, call) : heads_backward_of<X, float, float>(c, call);
}

static void heads_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    if (call->op->bf16.in != 0) heads_backward_from<struct bf16>(c, call);
    else heads_backward_from<float>(c, call);
}

static size_t heads_scratch(const void *state, const struct op *op)
{
    const struct op_heads *s = &op->heads;
    (void)state;
    return s->norms == 0 ? 0 : (s->rows * s->heads + sum_floats(s->rows, s->norms * s->head_width)) * sizeof(float);
}

/* ---- modulate ---- */

__global__ static void modulate(size_t rows, size_t width, const float *q, const float *m, const float *base, float *y)
{
    for (size_t i = thread_in_grid(); i < rows * width; i += threads_in_grid())
        y[i] = q[i] * (base[i % width] * (1.0f + tanhf(m[i])));
}

__global__ static void modulate_back(size_t rows, size_t width, const float *q, const float *m, const float *base,
                                     const float *d, float *dq, bool add_q, float *dm, bool add_m)
{
    for (size_t i = thread_in_grid(); i < rows * width; i += threads_in_grid()) {
        const float t = tanhf(m[i]), by_base = d[i] * base[i % width];
        if (dq != NULL) put(dq + i, add_q, by_base * (1.0f + t));
        if (dm != NULL) put(dm + i, add_m, by_base * q[i] * (1.0f - t * t));
    }
}

struct base_term {
    const float *q, *m, *d;
    size_t width;
    __device__ float operator()(size_t r, size_t c) const
    {
        const size_t i = r * width + c;
        return d[i] * q[i] * (1.0f + tanhf(m[i]));
    }
};

static void modulate_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_modulate s = call->op->modulate;
    LAUNCH(modulate, grid_of(s.rows * s.width, BLOCK), BLOCK, 0, c->stream, s.rows, s.width, (const float *)call->in[0],
           (const float *)call->in[1], (const float *)call->in[2], (float *)call->out[0]);
    cuda_launched(c, "modulated queries");
}

static void modulate_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_modulate s = call->op->modulate;
    const float *q = (const float *)call->in[0], *m = (const float *)call->in[1], *base = (const float *)call->in[2];
    if (call->d_in[2] != NULL)
        sum_rows(c, base_term{q, m, call->d_out, s.width}, s.rows, s.width, (float *)call->scratch, call->add[2],
                 call->d_in[2]);
    LAUNCH(modulate_back, grid_of(s.rows * s.width, BLOCK), BLOCK, 0, c->stream, s.rows, s.width, q, m, base,
           call->d_out, call->d_in[0], call->add[0], call->d_in[1], call->add[1]);
    cuda_launched(c, "the gradient of modulated queries");
}

static size_t modulate_scratch(const void *state, const struct op *op)
{
    (void)state;
    return sum_floats(op->modulate.rows, op->modulate.width) * sizeof(float);
}

/* ---- fourier ---- */

__global__ static void fourier(const struct op_fourier s, const float *x, const float *frequency, float *y)
{
    for (size_t i = thread_in_grid(); i < s.rows * s.frequencies; i += threads_in_grid()) {
        const size_t row = i / s.frequencies, j = i % s.frequencies;
        float sines = 0.0f, cosines = 0.0f;
        for (size_t n = 0; n < s.numbers; n++) {
            float sine, cosine;
            sincosf(x[row * s.x_width + n] * frequency[n * s.frequencies + j], &sine, &cosine);
            sines += sine;
            cosines += cosine;
        }
        y[row * 2 * s.frequencies + j] = sines;
        y[row * 2 * s.frequencies + s.frequencies + j] = cosines;
    }
}

struct frequency_term { /* c: number * frequencies + j */
    struct op_fourier s;
    const float *x, *frequency, *dy;
    __device__ float operator()(size_t r, size_t c) const
    {
        const float number = x[r * s.x_width + c / s.frequencies];
        const float *d = dy + r * 2 * s.frequencies + c % s.frequencies;
        float sine, cosine;
        sincosf(number * frequency[c], &sine, &cosine);
        return number * (cosine * d[0] - sine * d[s.frequencies]);
    }
};

static void fourier_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_fourier s = call->op->fourier;
    LAUNCH(fourier, grid_of(s.rows * s.frequencies, BLOCK), BLOCK, 0, c->stream, s, (const float *)call->in[0],
           (const float *)call->in[1], (float *)call->out[0]);
    cuda_launched(c, "sines and cosines");
}

static void fourier_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_fourier s = call->op->fourier;
    if (call->d_in[1] != NULL)
        sum_rows(c, frequency_term{s, (const float *)call->in[0], (const float *)call->in[1], call->d_out}, s.rows,
                 s.numbers * s.frequencies, (float *)call->scratch, call->add[1], call->d_in[1]);
}

static size_t fourier_scratch(const void *state, const struct op *op)
{
    (void)state;
    return sum_floats(op->fourier.rows, op->fourier.numbers * op->fourier.frequencies) * sizeof(float);
}

const struct tensor_kernels cuda_heads = {cuda_no_scratch, heads_scratch, heads_forward, heads_backward};
const struct tensor_kernels cuda_modulate = {cuda_no_scratch, modulate_scratch, modulate_forward, modulate_backward};
const struct tensor_kernels cuda_fourier = {cuda_no_scratch, fourier_scratch, fourier_forward, fourier_backward};
