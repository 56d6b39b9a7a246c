/* A small CUDA for tests on processors: what lib/tensor/cuda uses of the language, and no more; the runtime is
 * cuda_runtime_api.h's. Kernels are plain functions; a launch runs block by block in one thread of the host, the threads
 * of a block taking turns at barriers and warp exchanges (blocks.cc). A barrier that not all threads of a block reach,
 * or an exchange that not all lanes of a warp reach, ends the program with a message. */
#ifndef TABFT_TESTS_CUDA_RUNTIME_H
#define TABFT_TESTS_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>

#include "cuda_runtime_api.h"

#define TABFT_CUDA_EMULATION
#define GRID_MOST emulation_grid_most()
#define EMULATION_ROUNDED_MOST (48 << 10)
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __align__(n) alignas(n)
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
extern uint3 threadIdx, blockIdx, blockDim, gridDim;

/* ---- launches ---- */
size_t emulation_grid_most(void); /* blocks of a grid: see emulation_run_last */
size_t emulation_last(void);
void emulation_launch(const char *kernel, unsigned blocks, unsigned threads, size_t shared_bytes, cudaStream_t stream,
                      std::function<void()> run);
cudaError_t emulation_do(cudaStream_t stream, std::function<void()> work); /* in the stream's order */
float *emulation_shared(void); /* of the block at hand, as many bytes as the launch said */

/* Arguments have their values when the kernel is launched. */
template <typename... P, typename... A>
static void emulation_call(const char *name, unsigned blocks, unsigned threads, size_t shared_bytes, cudaStream_t stream,
                           void (*kernel)(P...), A... given)
{
    const std::tuple<P...> arguments(given...);
    emulation_launch(name, blocks, threads, shared_bytes, stream, [=]() { std::apply(kernel, arguments); });
}
#define LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...) \
    emulation_call(#kernel, blocks, threads, shared_bytes, stream, kernel, __VA_ARGS__)
#define SHARED_FLOATS(name) float *const name = emulation_shared()

/* ---- between threads ---- */
/* Where in the source a warp's lanes meet, which must be the same for all of them: given by no caller. (The place in what is
 * compiled may be two, as a compiler makes copies of a call.) */
#define EMULATION_PLACE unsigned line = __builtin_LINE()
void __syncthreads(EMULATION_PLACE);
void __syncwarp(EMULATION_PLACE);
/* Every lane of the warp brings `count` words and sees those of all, [32][count], until the warp's next exchange. */
const uint32_t *emulation_exchange(const uint32_t *words, unsigned count, unsigned line);

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int step, EMULATION_PLACE)
{
    uint32_t words[sizeof(T) / 4];
    T result;
    (void)mask;
    memcpy(words, &x, sizeof x);
    const uint32_t *all = emulation_exchange(words, sizeof(T) / 4, line);
    memcpy(&result, all + (threadIdx.x % 32 ^ (unsigned)step) * (sizeof(T) / 4), sizeof x);
    return result;
}

static inline bool __any_sync(unsigned mask, bool x, EMULATION_PLACE)
{
    const uint32_t word = x;
    bool any = false;
    (void)mask;
    const uint32_t *all = emulation_exchange(&word, 1, line);
    for (unsigned i = 0; i < 32; i++) any |= all[i] != 0;
    return any;
}

static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounded by itself: this is compiled without fused operations. */
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }

/* ---- tensor cores: the functions of tensor_core_internal.h ---- */
struct tile_c;
uint32_t tf32_of(float x);
void multiply_tf32(struct tile_c *c, const uint32_t *a, const uint32_t *b, EMULATION_PLACE);
uint32_t bf16_pair(float first, float second);
void multiply_bf16(struct tile_c *c, const uint32_t *a, const uint32_t *b, EMULATION_PLACE);
void load_matrices(uint32_t *x, const uint16_t *row, EMULATION_PLACE);
void load_matrices_turned(uint32_t *x, const uint16_t *row, EMULATION_PLACE);
/* Copies are made as late as can be: when the thread that asked for them waits; what was there before is gone at once. */
void copy_16(void *shared, const void *from, bool there);
void copies_wait(void);
float power_of_2(float x);
static inline float reciprocal(float x) { return 1.0f / x; }
/* A warpgroup's products are made when a thread waits for them: c has its numbers only then, and what was read from shared
 * memory is what is there then. What it must not do in between ends the program: touch c or a; and so does what it must do
 * before: begin products, wait for copies and fence them. */
uint32_t shared_address(const void *at);
void fence_shared(void);
void begin_products(void);
void multiply_columns(struct tile_c *c, bool add, uint64_t a, uint64_t b);
void multiply_rows(struct tile_c *c, const uint32_t *a, uint64_t b, EMULATION_PLACE);
void end_products(void);
void emulation_products_wait(unsigned left);
template <unsigned left> static inline void products_wait(void) { emulation_products_wait(left); }
static inline void hold(struct tile_c *c) { (void)c; }
static inline void hold(uint32_t (*a)[4]) { (void)a; }

/* ---- what the runtime knows of kernels ---- */
struct cudaFuncAttributes {
    int numRegs;
};
cudaError_t emulation_has_code(void);
template <typename Kernel> static cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, Kernel kernel)
{
    (void)kernel;
    *out = {};
    return emulation_has_code();
}
enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
typedef enum { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;
/* Notes what a kernel may use; a launch that wants more than 48 KiB and was not allowed so much fails as on a GPU. */
cudaError_t emulation_allow_shared(size_t bytes);
template <typename Kernel> static cudaError_t cudaFuncSetAttribute(Kernel kernel, int attribute, int value)
{
    (void)kernel;
    (void)attribute;
    return emulation_allow_shared((size_t)value);
}

#endif
