/* What the kernels share: launches, sums over a warp and a block, sums over rows in parts. A warp is 32 lanes; a lane that
 * takes part in a warp's sum must be joined by the other 31. */
#ifndef TABFT_TENSOR_CUDA_DEVICE_INTERNAL_H
#define TABFT_TENSOR_CUDA_DEVICE_INTERNAL_H
#ifndef TABFT_TENSOR_ROOM
#error "device_internal.h is private to lib/tensor"
#endif

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "tensor/cuda/cuda.h"
}

/* The emulation brings its own: a launch is syntax that only nvcc knows, and so is shared memory of a size that the
 * launch gives. Its grids are so small that every kernel strides on in tests, unless one wants them as large as here.
 * ROUNDED_MOST: bytes of operands that attention rounds beforehand, at once (one sequence may be more). */
#ifdef TABFT_CUDA_EMULATION
static constexpr size_t ROUNDED_MOST = EMULATION_ROUNDED_MOST;
#else
static constexpr size_t GRID_MOST = 1 << 20, ROUNDED_MOST = 128 << 20;
#define LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                     \
    kernel<<<blocks, threads, shared_bytes, stream>>>(__VA_ARGS__)
#define SHARED_FLOATS(name) extern __shared__ __align__(16) float name[]
#endif

static constexpr unsigned WARP = 32, BLOCK = 256, WARPS = BLOCK / WARP;

/* The GPU's memory of a run, and what is cut from it, in ascending order. */
enum { PIECES_MOST = 64 };
struct reserve {
    char *memory;      /* NULL: nothing is reserved */
    size_t begin, end; /* of what pieces are cut from */
    size_t n;
    struct {
        size_t begin, end;
    } piece[PIECES_MOST];
};

/* What NVIDIA advises for GPUs of the Hopper class. */
static constexpr size_t CUDA_WORKSPACE = 32 << 20;

/* The state of a backend. The first error stays; finish tells it. */
struct cuda {
    int device;
    enum tensor_precision precision;
    cudaStream_t stream;
    cudaEvent_t marks[MARKS];
    size_t shared; /* bytes that a block can have of it at most */
    bool wgmma; /* the GPU has Hopper's warpgroup products, and the plugin those of attention */
    cublasHandle_t blas;
    void *workspace; /* of cuBLAS; NULL: it has none yet */
    void *alone;     /* that workspace where it is an allocation of its own, else NULL */
    struct reserve reserve;
    char isa[320]; /* "sm_90a bf16 on NVIDIA H200", with a: by `wgmma`; what cuBLAS chooses depends on the kind of GPU */
    struct tabft_failure failure;
};

__host__ __device__ static inline size_t blocks_of(size_t count, size_t each) { return (count + each - 1) / each; }
__host__ __device__ static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Blocks of a launch: one dimension, whose limit of 2^31 - 1 no grid of ours reaches, as kernels stride on. The others', of
 * 65,535, are not used. */
static inline unsigned grid_of(size_t count, size_t each)
{
    const size_t blocks = blocks_of(count, each);
    return (unsigned)smaller(GRID_MOST, blocks);
}

/* Notes the error of the launch before it, if there was one. */
void cuda_check(struct cuda *c, cudaError_t code, const char *what);
static inline void cuda_launched(struct cuda *c, const char *what) { cuda_check(c, cudaGetLastError(), what); }

__device__ static inline size_t thread_in_grid(void) { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ static inline size_t threads_in_grid(void) { return (size_t)gridDim.x * blockDim.x; }

/* The sum and the largest over a warp's lanes, on every lane the same bits. */
template <typename T> __device__ static inline T warp_sum(T x)
{
    for (int step = (int)WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
template <typename T> __device__ static inline T warp_most(T x)
{
    for (int step = (int)WARP / 2; step > 0; step /= 2) {
        const T other = __shfl_xor_sync(0xffffffffu, x, step);
        x = other > x ? other : x;
    }
    return x;
}

/* The sum over a block of BLOCK threads, on every thread; `room`: WARPS numbers of shared memory. */
template <typename T> __device__ static inline T block_sum(T x, T *room)
{
    x = warp_sum(x);
    __syncthreads(); /* room may still be read from a sum before */
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = x;
    __syncthreads();
    T sum = room[0];
    for (unsigned i = 1; i < WARPS; i++) sum += room[i];
    return sum;
}

/* ---- bf16: the upper half of a float32 ---- */

__device__ static inline float float_of(uint32_t bits) { return __uint_as_float(bits); }

#ifndef TABFT_CUDA_EMULATION
/* Both rounded to the nearest, ties to even: a word, the first its lower half. */
__device__ static inline uint32_t bf16_pair(float first, float second)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
#endif

__device__ static inline float bf16_rounded(float x) { return float_of(bf16_pair(0.0f, x) & 0xffff0000u); }

/* A number of a tensor that is bf16. */
struct bf16 {
    uint16_t bits;
    __device__ operator float() const { return float_of((uint32_t)bits << 16); }
};

/* Where a result or a gradient goes: over what was there, or added to it; nothing is added to bf16. */
__device__ static inline void put(float *to, bool add, float x) { *to = add ? *to + x : x; }
__device__ static inline void put(struct bf16 *to, bool add, float x)
{
    (void)add;
    to->bits = (uint16_t)(bf16_pair(x, 0.0f) & 0xffffu);
}

/* Four numbers that lie together, from one that is a multiple of four numbers away from memory of which is_at_four. */
__host__ __device__ static inline bool is_at_four(const void *x) { return (uintptr_t)x % sizeof(float4) == 0; }
__device__ static inline float4 four_at(const float *x) { return *(const float4 *)x; }
__device__ static inline float4 four_at(const struct bf16 *x)
{
    const uint2 bits = *(const uint2 *)x;
    return float4{float_of(bits.x << 16), float_of(bits.x & 0xffff0000u), float_of(bits.y << 16),
                  float_of(bits.y & 0xffff0000u)};
}
__device__ static inline void put_four(float *to, bool add, float4 x)
{
    if (add) {
        const float4 before = four_at(to);
        x = float4{before.x + x.x, before.y + x.y, before.z + x.z, before.w + x.w};
    }
    *(float4 *)to = x;
}
__device__ static inline void put_four(struct bf16 *to, bool add, float4 x)
{
    (void)add;
    *(uint2 *)to = uint2{bf16_pair(x.x, x.y), bf16_pair(x.z, x.w)};
}

/* ---- sums over rows: target[c] (+)= sum over r < rows of term(r, c), for c < width ----
 * The rows are cut in parts of a size that depends on their number alone; a block sums PART_LANES interleaved runs of a
 * part and then these, and so the second kernel sums the parts, each in order. */
static constexpr unsigned PARTS = 512, PART_ROWS = 64, PART_LANES = WARPS;

static inline size_t sum_part_rows(size_t rows)
{
    const size_t each = blocks_of(rows, PARTS);
    return blocks_of(each == 0 ? 1 : each, PART_ROWS) * PART_ROWS;
}
/* Floats of scratch that a sum needs: grows with rows and width. */
static inline size_t sum_floats(size_t rows, size_t width) { return smaller(PARTS, blocks_of(rows, PART_ROWS)) * width; }

/* What the lanes of a block of PART_LANES warps have summed, each thread for its own column: their sum in order, on the
 * threads of the first warp. */
__device__ static inline float lanes_sum(float sum, float lanes[PART_LANES][WARP])
{
    const unsigned column = threadIdx.x % WARP, lane = threadIdx.x / WARP;
    lanes[lane][column] = sum;
    __syncthreads();
    if (lane == 0)
        for (unsigned i = 1; i < PART_LANES; i++) sum += lanes[i][column];
    __syncthreads(); /* lanes may be written to again */
    return sum;
}

template <typename Term>
__global__ static void sum_parts(const Term term, size_t rows, size_t width, size_t part_rows, size_t column_blocks,
                                 size_t n_units, float *partial)
{
    __shared__ float lanes[PART_LANES][WARP];
    const unsigned column = threadIdx.x % WARP, lane = threadIdx.x / WARP;
    for (size_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
        const size_t part = unit / column_blocks, c = unit % column_blocks * WARP + column;
        const size_t end = (part + 1) * part_rows < rows ? (part + 1) * part_rows : rows;
        float sum = 0.0f;
        if (c < width)
            for (size_t r = part * part_rows + lane; r < end; r += PART_LANES) sum += term(r, c);
        sum = lanes_sum(sum, lanes);
        if (lane == 0 && c < width) partial[part * width + c] = sum;
    }
}

__global__ static void sum_up_parts(const float *partial, size_t parts, size_t width, bool add, float *target)
{
    __shared__ float lanes[PART_LANES][WARP];
    const unsigned column = threadIdx.x % WARP, lane = threadIdx.x / WARP;
    for (size_t first = (size_t)blockIdx.x * WARP; first < width; first += (size_t)gridDim.x * WARP) {
        const size_t c = first + column;
        float sum = 0.0f;
        if (c < width)
            for (size_t part = lane; part < parts; part += PART_LANES) sum += partial[part * width + c];
        sum = lanes_sum(sum, lanes);
        if (lane == 0 && c < width) put(target + c, add, sum);
    }
}
/* The second half of a sum over rows: what is in `partial` [parts][width]. */
static inline void sum_parts_up(struct cuda *c, const float *partial, size_t parts, size_t width, bool add, float *target)
{
    LAUNCH(sum_up_parts, grid_of(width, WARP), PART_LANES * WARP, 0, c->stream, partial, parts, width, add, target);
    cuda_launched(c, "a sum over rows");
}

template <typename Term>
static void sum_rows(struct cuda *c, const Term &term, size_t rows, size_t width, float *partial, bool add,
                     float *target)
{
    const size_t part_rows = sum_part_rows(rows), parts = blocks_of(rows, part_rows);
    const size_t column_blocks = blocks_of(width, WARP), units = parts * column_blocks;
    if (units > 0)
        LAUNCH(sum_parts<Term>, grid_of(units, 1), PART_LANES * WARP, 0, c->stream, term, rows, width, part_rows,
               column_blocks, units, partial);
    sum_parts_up(c, partial, parts, width, add, target);
}

/* A term of such a sum: numbers that each row of a tensor has, rows `stride` numbers apart. */
struct row_term {
    const float *x;
    size_t stride;
    __device__ float operator()(size_t r, size_t c) const { return x[r * stride + c]; }
};

/* The operations; each file fills its entries. */
extern const struct tensor_kernels cuda_linear, cuda_attention, cuda_rms_norm, cuda_layer_norm, cuda_gelu,
    cuda_assemble, cuda_select, cuda_prepend, cuda_add_rows, cuda_lookup, cuda_heads, cuda_fourier, cuda_modulate,
    cuda_vote, cuda_cross_entropy, cuda_bar_loss;

/* attention_wgmma.cu: whether it was compiled for Hopper. */
bool attention_wgmma_there(void);

/* memory.cu: its memory into a table; cuBLAS's workspace where nothing was reserved; the end. */
void cuda_memory(struct tensor_backend *out);
int cuda_workspace(struct cuda *c, struct tabft_failure *f) TABFT_MUST_CHECK;
void cuda_memory_close(struct cuda *c);

/* vectors.cu: what it does to whole vectors into a table that has the rest. */
void cuda_vectors(struct vectors *out);

/* The scratch of an operation that needs none: 0 bytes. */
size_t cuda_no_scratch(const void *state, const struct op *op);

#endif
