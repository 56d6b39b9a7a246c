/* What is done to whole vectors: the arithmetic of base/vectors.h, each operation rounded by itself, so that the bits are
 * those of the host. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

__global__ static void add_vector(size_t count, const float *from, float *to)
{
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) to[i] = __fadd_rn(to[i], from[i]);
}

static void vectors_add(void *state, float *to, const float *from, size_t count)
{
    struct cuda *c = (struct cuda *)state;
    if (count == 0) return;
    LAUNCH(add_vector, grid_of(count, BLOCK), BLOCK, 0, c->stream, count, from, to);
    cuda_launched(c, "a sum of vectors");
}

/* Eight neighbouring threads have a block's eight lanes, and add them as base/vectors.h says. */
static constexpr unsigned SQUARE_LANES = 8, SQUARE_BLOCKS = BLOCK / SQUARE_LANES;

__global__ static void sum_squares(size_t count, size_t blocks, const float *x, double *sums)
{
    const size_t lane = threadIdx.x % SQUARE_LANES, place = threadIdx.x / SQUARE_LANES;
    for (size_t first = (size_t)blockIdx.x * SQUARE_BLOCKS; first < blocks; first += (size_t)gridDim.x * SQUARE_BLOCKS) {
        const size_t block = first + place, begin = block * VECTORS_BLOCK;
        const size_t end = begin + VECTORS_BLOCK < count ? begin + VECTORS_BLOCK : count;
        double sum = 0;
        for (size_t i = begin + lane; i < end; i += SQUARE_LANES)
            sum = __dadd_rn(sum, __dmul_rn((double)x[i], (double)x[i]));
        for (int step = 1; step < (int)SQUARE_LANES; step *= 2)
            sum = __dadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
        if (lane == 0 && block < blocks) sums[block] = sum;
    }
}

static void vectors_square_sums(void *state, const float *x, size_t count, double *sums)
{
    struct cuda *c = (struct cuda *)state;
    const size_t blocks = blocks_of(count, VECTORS_BLOCK);
    if (count == 0) return;
    LAUNCH(sum_squares, grid_of(blocks, SQUARE_BLOCKS), BLOCK, 0, c->stream, count, blocks, x, sums);
    cuda_launched(c, "sums of squares");
}

__global__ static void adamw(const struct vectors_adamw s)
{
    for (size_t i = thread_in_grid(); i < s.count; i += threads_in_grid()) {
        const float g = __fmul_rn(s.gradient[i], s.clip), w = __fmul_rn(s.weights[i], s.keep);
        const float m = __fadd_rn(s.moment1[i], __fmul_rn(s.blend1, __fsub_rn(g, s.moment1[i])));
        const float v = __fadd_rn(__fmul_rn(s.moment2[i], s.keep2), __fmul_rn(__fmul_rn(s.blend2, g), g));
        const float below = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), s.root2), s.epsilon);
        s.moment1[i] = m;
        s.moment2[i] = v;
        s.weights[i] = __fsub_rn(w, __fdiv_rn(__fmul_rn(s.rate, m), below));
    }
}

static void vectors_step(void *state, const struct vectors_adamw *step)
{
    struct cuda *c = (struct cuda *)state;
    if (step->count == 0) return;
    LAUNCH(adamw, grid_of(step->count, BLOCK), BLOCK, 0, c->stream, *step);
    cuda_launched(c, "a step of AdamW");
}

void cuda_vectors(struct vectors *out)
{
    out->add = vectors_add;
    out->square_sums = vectors_square_sums;
    out->adamw = vectors_step;
}
