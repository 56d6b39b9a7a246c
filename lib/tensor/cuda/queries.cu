/* What happens to queries and keys before they meet, and numbers turned into sines and cosines. In heads a warp has a
 * row, a lane one point in the plane or four beside each other, and as many lanes a head as it takes of these. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

/* ---- heads ---- */

/* A row's numbers are below 2^31, which heads_of sees to; its place among all may be beyond. A head's points are the numbers
 * j and j + half; of an odd width, which is never turned, the last j stands alone. A lane takes N of them, which lie together:
 * 4, where heads and memory allow it (takes_fours), or 1. `lanes`, a power of two, of a warp have a head, and the warp has
 * `at_once` heads; `whole`: a lane comes once to a head. */
struct heads {
    size_t rows, tokens;
    unsigned width, heads, head_width, half, of_norm; /* of_norm: heads that share a row of weights; 0: no norms */
    unsigned lanes, at_once;
    float epsilon;
};

/* N numbers that lie together. */
template <unsigned N> struct some {
    float x[N];
};
template <typename X> __device__ static void take(struct some<1> *to, const X *from) { to->x[0] = *from; }
template <typename X> __device__ static void take(struct some<4> *to, const X *from)
{
    const float4 four = four_at(from);
    *to = some<4>{{four.x, four.y, four.z, four.w}};
}
template <typename Y> __device__ static void give(Y *to, bool add, const struct some<1> &x) { put(to, add, x.x[0]); }
template <typename Y> __device__ static void give(Y *to, bool add, const struct some<4> &x)
{
    put_four(to, add, float4{x.x[0], x.x[1], x.x[2], x.x[3]});
}

template <unsigned N> struct points {
    struct some<N> a, b;
};

/* Always, but for an odd width. */
template <unsigned N> __device__ static bool in_pair(const struct heads &s, unsigned j)
{
    return N > 1 || j + s.half < s.head_width;
}

/* Points of a head from j on, 0 where there is no second number. */
template <unsigned N, typename X> __device__ static struct points<N> points_of(const struct heads &s, const X *x, unsigned j)
{
    struct points<N> p = {};
    take(&p.a, x + j);
    if (in_pair<N>(s, j)) take(&p.b, x + j + s.half);
    return p;
}
template <unsigned N, typename Y>
__device__ static void give_points(const struct heads &s, Y *to, bool add, unsigned j, const struct points<N> &p)
{
    give(to + j, add, p.a);
    if (in_pair<N>(s, j)) give(to + j + s.half, add, p.b);
}

/* Turns them, or back: `way` 1 or -1. */
template <unsigned N>
__device__ static void turn(const struct heads &s, struct points<N> *p, const float *turns, unsigned j, float way)
{
    if (turns == NULL) return;
    const struct points<N> by = points_of<N>(s, turns, j);
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
        const float a = p->a.x[i], b = p->b.x[i], c = by.a.x[i], sine = way * by.b.x[i];
        p->a.x[i] = a * c - b * sine;
        p->b.x[i] = b * c + a * sine;
    }
}

template <unsigned N, typename X>
__device__ static struct points<N> turned(const struct heads &s, const X *x, const float *turns, unsigned j)
{
    struct points<N> p = points_of<N>(s, x, j);
    turn(s, &p, turns, j, 1.0f);
    return p;
}

/* Weights may begin anywhere. */
template <unsigned N> __device__ static struct points<N> weights_at(const struct heads &s, const float *w, unsigned j)
{
    struct points<N> p = {};
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
        p.a.x[i] = w[j + i];
        if (in_pair<N>(s, j)) p.b.x[i] = w[j + i + s.half];
    }
    return p;
}

__device__ static const float *turns_of(const struct heads &s, const float *turns, size_t row)
{
    if (turns == NULL) return NULL;
    const size_t token = (row | s.tokens) >> 32 == 0 ? (uint32_t)row % (uint32_t)s.tokens : row % s.tokens;
    return turns + token * s.head_width;
}
__device__ static const float *weights_of(const struct heads &s, const float *w, unsigned h)
{
    return w + h / s.of_norm * s.head_width;
}

/* The points of a lane of head h: none where there is no such head. */
template <unsigned N> __device__ static unsigned first_point(const struct heads &s, unsigned h)
{
    return h < s.heads ? N * (threadIdx.x & (s.lanes - 1)) : s.half;
}
template <unsigned N, bool whole> __device__ static unsigned next_point(const struct heads &s, unsigned j)
{
    return whole ? s.half : j + N * s.lanes;
}

/* The sum over the lanes of a head, on each of them the same bits. All lanes of the warp must come here. */
__device__ static float head_sum(const struct heads &s, float x)
{
    for (unsigned step = s.lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, (int)step);
    return x;
}

/* 1 / root mean square of a turned head, on each of its lanes. */
template <unsigned N, bool whole, typename X>
__device__ static float inverse_of(const struct heads &s, unsigned first, const X *x, const float *turns)
{
    float squares = 0.0f;
    for (unsigned j = first; j < s.half; j = next_point<N, whole>(s, j)) {
        const struct points<N> p = turned<N>(s, x, turns, j);
#pragma unroll
        for (unsigned i = 0; i < N; i++) squares += p.a.x[i] * p.a.x[i] + p.b.x[i] * p.b.x[i];
    }
    return 1.0f / sqrtf(head_sum(s, squares) / (float)s.head_width + s.epsilon);
}

/* What of a row is behind its heads. */
template <unsigned N, typename X, typename Y>
__device__ static void pass_on(const struct heads &s, const X *from, Y *to, bool add)
{
    for (unsigned j = s.heads * s.head_width + N * (threadIdx.x % WARP); j < s.width; j += N * WARP) {
        struct some<N> x;
        take(&x, from + j);
        give(to + j, add, x);
    }
}

template <unsigned N, bool whole, typename X, typename Y>
__global__ static void heads_rows(const struct heads s, const X *x, const float *turns, const float *w, Y *y)
{
    const unsigned own = threadIdx.x % WARP / s.lanes;
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        const X *from = x + row * s.width;
        Y *to = y + row * s.width;
        for (unsigned h = own; h < s.heads + own; h += s.at_once) {
            const unsigned first = first_point<N>(s, h);
            const X *head = from + h * s.head_width;
            const float inverse = s.of_norm == 0 ? 1.0f : inverse_of<N, whole>(s, first, head, of_row);
            for (unsigned j = first; j < s.half; j = next_point<N, whole>(s, j)) {
                struct points<N> p = turned<N>(s, head, of_row, j);
                if (s.of_norm > 0) {
                    const struct points<N> of = weights_at<N>(s, weights_of(s, w, h), j);
#pragma unroll
                    for (unsigned i = 0; i < N; i++) {
                        p.a.x[i] = of.a.x[i] * (p.a.x[i] * inverse);
                        p.b.x[i] = of.b.x[i] * (p.b.x[i] * inverse);
                    }
                }
                give_points(s, to + h * s.head_width, false, j, p);
            }
        }
        pass_on<N>(s, from, to, false);
    }
}

template <unsigned N, bool whole, typename X>
__global__ static void heads_inverses(const struct heads s, const X *x, const float *turns, float *inverses)
{
    const unsigned own = threadIdx.x % WARP / s.lanes;
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        const X *from = x + row * s.width;
        for (unsigned h = own; h < s.heads + own; h += s.at_once) {
            const unsigned first = first_point<N>(s, h);
            const float inverse = inverse_of<N, whole>(s, first, from + h * s.head_width, of_row);
            if (first == 0) inverses[row * s.heads + h] = inverse;
        }
    }
}

/* What a head's gradient has along the head itself, on each of its lanes. */
template <unsigned N, bool whole, typename X, typename Y>
__device__ static float along_head(const struct heads &s, unsigned first, const X *x, const float *turns, const float *w,
                                   float inverse, const Y *dy)
{
    float along = 0.0f;
    for (unsigned j = first; j < s.half; j = next_point<N, whole>(s, j)) {
        const struct points<N> p = turned<N>(s, x, turns, j), of = weights_at<N>(s, w, j), d = points_of<N>(s, dy, j);
#pragma unroll
        for (unsigned i = 0; i < N; i++) along += of.a.x[i] * d.a.x[i] * p.a.x[i] + of.b.x[i] * d.b.x[i] * p.b.x[i];
    }
    return head_sum(s, along) * inverse * inverse / (float)s.head_width;
}

/* dx may be dy. */
template <unsigned N, bool whole, typename X, typename Y, typename D>
__global__ static void heads_back(const struct heads s, const X *x, const float *turns, const float *w,
                                  const float *inverses, const Y *dy, D *dx, bool add)
{
    const unsigned own = threadIdx.x % WARP / s.lanes;
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        const X *from = x + row * s.width;
        const Y *of_out = dy + row * s.width;
        D *to = dx + row * s.width;
        for (unsigned h = own; h < s.heads + own; h += s.at_once) {
            const bool norms = s.of_norm > 0;
            const unsigned first = first_point<N>(s, h);
            const X *head = from + h * s.head_width;
            const Y *slope = of_out + h * s.head_width;
            const float *of_head = norms ? weights_of(s, w, h) : NULL;
            const float inverse = norms && h < s.heads ? inverses[row * s.heads + h] : 1.0f;
            const float along = norms ? along_head<N, whole>(s, first, head, of_row, of_head, inverse, slope) : 0.0f;
            for (unsigned j = first; j < s.half; j = next_point<N, whole>(s, j)) {
                struct points<N> d = points_of<N>(s, slope, j);
                if (norms) {
                    const struct points<N> p = turned<N>(s, head, of_row, j), of = weights_at<N>(s, of_head, j);
#pragma unroll
                    for (unsigned i = 0; i < N; i++) {
                        d.a.x[i] = inverse * (of.a.x[i] * d.a.x[i] - p.a.x[i] * along);
                        d.b.x[i] = inverse * (of.b.x[i] * d.b.x[i] - p.b.x[i] * along);
                    }
                }
                turn(s, &d, of_row, j, -1.0f);
                give_points(s, to + h * s.head_width, add, j, d);
            }
        }
        if ((const void *)dx != (const void *)dy) pass_on<N>(s, of_out, to, add);
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
            const struct points<1> p = turned<1>(s, x + at, of_row, j % s.half);
            sum += dy[at + j] * ((j < s.half ? p.a : p.b).x[0] * inverses[r * s.heads + h]);
        }
        return sum;
    }
};

/* Whether heads are an even number of fours, and no more points than a warp takes at once, and all that lies at `a` to `c` can be
 * read so. */
static bool takes_fours(const struct op_heads &s, const void *turns, const void *a, const void *b, const void *c)
{
    return s.head_width % 8 == 0 && s.head_width / 8 <= WARP && s.width % 4 == 0 && is_at_four(turns) && is_at_four(a) &&
           is_at_four(b) && is_at_four(c);
}

/* As the kernels see them. False, and why is in *c: rows that are too wide. */
static bool heads_of(struct cuda *c, const struct op_heads &s, bool fours, struct heads *out)
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
    while (out->lanes < WARP && (fours ? 4 : 1) * out->lanes < out->half) out->lanes *= 2;
    out->at_once = WARP / out->lanes;
    return true;
}

template <typename X, typename Y> static void heads_forward_of(struct cuda *c, const struct op_call *call)
{
    struct heads s;
    const bool fours = takes_fours(call->op->heads, call->in[1], call->in[0], call->out[0], NULL);
    if (!heads_of(c, call->op->heads, fours, &s)) return;
    const auto kernel = fours              ? heads_rows<4, true, X, Y>
                        : s.half <= s.lanes ? heads_rows<1, true, X, Y>
                                            : heads_rows<1, false, X, Y>;
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
    const bool fours = takes_fours(call->op->heads, turns, x, dy, call->d_in[0]);
    if (!heads_of(c, call->op->heads, fours, &s)) return;
    const bool whole = s.half <= s.lanes;
    const unsigned grid = grid_of(s.rows, WARPS);
    if (s.of_norm > 0) {
        const auto kernel = fours ? heads_inverses<4, true, X> : whole ? heads_inverses<1, true, X> : heads_inverses<1, false, X>;
        LAUNCH(kernel, grid, BLOCK, 0, c->stream, s, x, turns, inverses);
        cuda_launched(c, "heads' norms");
        if (call->d_in[2] != NULL)
            sum_rows(c, heads_term<X, Y>{s, x, turns, dy, inverses}, s.rows, s.heads / s.of_norm * s.head_width,
                     inverses + s.rows * s.heads, call->add[2], call->d_in[2]);
    }
    const auto kernel = fours   ? heads_back<4, true, X, Y, D>
                        : whole ? heads_back<1, true, X, Y, D>
                                : heads_back<1, false, X, Y, D>;
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
