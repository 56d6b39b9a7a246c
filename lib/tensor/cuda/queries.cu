/* What happens to queries and keys before they meet, and numbers turned into sines and cosines. In heads a warp has a
 * row, a lane the two numbers of a point in the plane, and as many lanes a head as it has points. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

/* ---- heads ---- */

struct point {
    float a, b;
};

/* The numbers of a head that a lane has at a time are j and j + half; of an odd width, which is never turned, the last j
 * stands alone. */
__device__ static size_t half_of(const struct op_heads &s) { return (s.head_width + 1) / 2; }
__device__ static bool in_pair(const struct op_heads &s, size_t j) { return j + half_of(s) < s.head_width; }

/* Numbers j and j + half of a head after the turn, 0 where there is no second. */
template <typename X>
__device__ static struct point turned(const struct op_heads &s, const X *x, const float *turns, size_t j)
{
    const size_t half = half_of(s);
    const float a = x[j], b = in_pair(s, j) ? (float)x[j + half] : 0.0f;
    if (turns == NULL) return point{a, b};
    const float c = turns[j], sine = turns[j + half];
    return point{a * c - b * sine, b * c + a * sine};
}

__device__ static const float *turns_of(const struct op_heads &s, const float *turns, size_t row)
{
    return turns == NULL ? NULL : turns + row % s.tokens * s.head_width;
}

/* A lane's share of a row: `lanes` lanes, a power of two, have a head, so that a warp has WARP / lanes heads at once. */
struct share {
    unsigned lanes, first, head; /* of the head: the lane's number in it; of those at once: its own */
};
__device__ static struct share share_of(unsigned log2_lanes)
{
    const unsigned lane = threadIdx.x % WARP, lanes = 1u << log2_lanes;
    return share{lanes, lane % lanes, lane >> log2_lanes};
}

/* The sum over the lanes of a head, on each of them the same bits. All lanes of the warp must come here. */
__device__ static float head_sum(float x, const struct share &own)
{
    for (unsigned step = own.lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, (int)step);
    return x;
}

/* 1 / root mean square of a turned head, on each of its lanes; `there`: of those without a head nothing is read. */
template <typename X>
__device__ static float inverse_of(const struct op_heads &s, const struct share &own, bool there, const X *x,
                                   const float *turns)
{
    const size_t half = half_of(s);
    float squares = 0.0f;
    for (size_t j = own.first; j < half && there; j += own.lanes) {
        const struct point p = turned(s, x, turns, j);
        squares += p.a * p.a + p.b * p.b;
    }
    return 1.0f / sqrtf(head_sum(squares, own) / (float)s.head_width + s.epsilon);
}

/* The weights of a head's norm. */
__device__ static const float *weights_of(const struct op_heads &s, const float *w, size_t h)
{
    return w + (unsigned)h / (unsigned)(s.heads / s.norms) * s.head_width;
}

template <typename X, typename Y>
__global__ static void heads_rows(const struct op_heads s, unsigned log2_lanes, const X *x, const float *turns,
                                  const float *w, Y *y)
{
    const struct share own = share_of(log2_lanes);
    const size_t half = half_of(s), all = s.heads * s.head_width;
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        for (size_t begin = 0; begin < s.heads; begin += WARP / own.lanes) {
            const size_t h = begin + own.head, at = row * s.width + h * s.head_width;
            const bool there = h < s.heads;
            const float inverse = s.norms == 0 ? 1.0f : inverse_of(s, own, there, x + at, of_row);
            if (!there) continue;
            const float *of_head = s.norms == 0 ? NULL : weights_of(s, w, h);
            for (size_t j = own.first; j < half; j += own.lanes) {
                const struct point p = turned(s, x + at, of_row, j);
                put(y + at + j, false, of_head == NULL ? p.a : of_head[j] * (p.a * inverse));
                if (in_pair(s, j)) put(y + at + j + half, false, of_head == NULL ? p.b : of_head[j + half] * (p.b * inverse));
            }
        }
        for (size_t j = all + threadIdx.x % WARP; j < s.width; j += WARP)
            put(y + row * s.width + j, false, x[row * s.width + j]);
    }
}

template <typename X>
__global__ static void heads_inverses(const struct op_heads s, unsigned log2_lanes, const X *x, const float *turns,
                                      float *inverses)
{
    const struct share own = share_of(log2_lanes);
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        for (size_t begin = 0; begin < s.heads; begin += WARP / own.lanes) {
            const size_t h = begin + own.head;
            const bool there = h < s.heads;
            const float inverse = inverse_of(s, own, there, x + row * s.width + h * s.head_width, of_row);
            if (there && own.first == 0) inverses[row * s.heads + h] = inverse;
        }
    }
}

/* Of a head with a norm: what its gradient has along the head itself, over all of its lanes. */
template <typename X, typename Y>
__device__ static float along_head(const struct op_heads &s, const struct share &own, bool there, const X *x,
                                   const float *turns, const float *w, float inverse, const Y *dy)
{
    const size_t half = half_of(s);
    float along = 0.0f;
    for (size_t j = own.first; j < half && there; j += own.lanes) {
        const struct point p = turned(s, x, turns, j);
        along += w[j] * dy[j] * p.a;
        if (in_pair(s, j)) along += w[j + half] * dy[j + half] * p.b;
    }
    return head_sum(along, own) * inverse * inverse / (float)s.head_width;
}

/* dx may be dy. */
template <typename X, typename Y, typename D>
__global__ static void heads_back(const struct op_heads s, unsigned log2_lanes, const X *x, const float *turns,
                                  const float *w, const float *inverses, const Y *dy, D *dx, bool add)
{
    const struct share own = share_of(log2_lanes);
    const size_t half = half_of(s), all = s.heads * s.head_width;
    for (size_t row = thread_in_grid() / WARP; row < s.rows; row += threads_in_grid() / WARP) {
        const float *of_row = turns_of(s, turns, row);
        for (size_t begin = 0; begin < s.heads; begin += WARP / own.lanes) {
            const size_t h = begin + own.head, at = row * s.width + h * s.head_width;
            const bool there = h < s.heads;
            const float *of_head = s.norms == 0 || !there ? NULL : weights_of(s, w, h);
            const float inverse = of_head == NULL ? 1.0f : inverses[row * s.heads + h];
            const float along =
                s.norms == 0 ? 0.0f : along_head(s, own, there, x + at, of_row, of_head, inverse, dy + at);
            for (size_t j = own.first; j < half && there; j += own.lanes) {
                struct point d = {dy[at + j], in_pair(s, j) ? (float)dy[at + j + half] : 0.0f};
                if (of_head != NULL) {
                    const struct point p = turned(s, x + at, of_row, j);
                    d.a = inverse * (of_head[j] * d.a - p.a * along);
                    if (in_pair(s, j)) d.b = inverse * (of_head[j + half] * d.b - p.b * along);
                }
                if (of_row != NULL) {
                    const float c = of_row[j], sine = -of_row[j + half], a = d.a, b = d.b;
                    d.a = a * c - b * sine;
                    d.b = b * c + a * sine;
                }
                put(dx + at + j, add, d.a);
                if (in_pair(s, j)) put(dx + at + j + half, add, d.b);
            }
        }
        if ((const void *)dx != (const void *)dy)
            for (size_t j = all + threadIdx.x % WARP; j < s.width; j += WARP)
                put(dx + row * s.width + j, add, dy[row * s.width + j]);
    }
}

/* log2 of the lanes that a head has. */
static unsigned lanes_of(const struct op_heads &s)
{
    unsigned log2_lanes = 0;
    while (1u << log2_lanes < WARP && (size_t)1 << log2_lanes < (s.head_width + 1) / 2) log2_lanes++;
    return log2_lanes;
}

template <typename X, typename Y> struct heads_term { /* c: norm * head_width + number */
    struct op_heads s;
    const X *x;
    const float *turns;
    const Y *dy;
    const float *inverses;
    __device__ float operator()(size_t r, size_t c) const
    {
        const size_t each = s.heads / s.norms, half = half_of(s), j = c % s.head_width;
        const size_t begin = c / s.head_width * each;
        const float *of_row = turns_of(s, turns, r);
        float sum = 0.0f;
        for (size_t h = begin; h < begin + each; h++) {
            const size_t at = r * s.width + h * s.head_width;
            const struct point p = turned(s, x + at, of_row, j % half);
            sum += dy[at + j] * ((j < half ? p.a : p.b) * inverses[r * s.heads + h]);
        }
        return sum;
    }
};

template <typename X, typename Y> static void heads_forward_of(struct cuda *c, const struct op_call *call)
{
    const struct op_heads s = call->op->heads;
    LAUNCH((heads_rows<X, Y>), grid_of(s.rows, WARPS), BLOCK, 0, c->stream, s, lanes_of(s), (const X *)call->in[0],
           (const float *)call->in[1], (const float *)call->in[2], (Y *)call->out[0]);
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
    const struct op_heads s = call->op->heads;
    const X *x = (const X *)call->in[0];
    const Y *dy = (const Y *)(const void *)call->d_out;
    const float *turns = (const float *)call->in[1];
    float *inverses = (float *)call->scratch;
    const unsigned grid = grid_of(s.rows, WARPS);
    if (s.norms > 0) {
        LAUNCH(heads_inverses<X>, grid, BLOCK, 0, c->stream, s, lanes_of(s), x, turns, inverses);
        cuda_launched(c, "heads' norms");
        if (call->d_in[2] != NULL)
            sum_rows(c, heads_term<X, Y>{s, x, turns, dy, inverses}, s.rows, s.norms * s.head_width,
                     inverses + s.rows * s.heads, call->add[2], call->d_in[2]);
    }
    LAUNCH((heads_back<X, Y, D>), grid, BLOCK, 0, c->stream, s, lanes_of(s), x, turns, (const float *)call->in[2],
           inverses, dy, (D *)(void *)call->d_in[0], call->add[0]);
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
