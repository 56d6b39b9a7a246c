/* The backend: one GPU, one stream, cuBLAS with a workspace of its own. */
#define TABFT_TENSOR_ROOM
#include <stdio.h>
#include <stdlib.h>

#include "tensor/cuda/device_internal.h"

/* What NVIDIA advises for GPUs of the Hopper class. */
static constexpr size_t WORKSPACE_BYTES = 32 << 20;

void cuda_check(struct cuda *c, cudaError_t code, const char *what)
{
    if (code != cudaSuccess && c->failure.code == 0)
        (void)tabft_fail(&c->failure, TABFT_SYSTEM, "GPU %d: %s: %s; see the GPU's state with nvidia-smi", c->device,
                         what, cudaGetErrorString(code));
}

size_t cuda_no_scratch(const void *state, const struct op *op)
{
    (void)state;
    (void)op;
    return 0;
}

static int gpu_memory_new(void *state, void **out, size_t bytes, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)state;
    *out = NULL;
    const cudaError_t code = cudaMalloc(out, bytes == 0 ? 1 : bytes);
    if (code == cudaSuccess) return 0;
    return tabft_fail(f, TABFT_SYSTEM, "GPU %d: no memory for %zu bytes (%s); see --plan for what would fit", c->device,
                      bytes, cudaGetErrorString(code));
}

static void gpu_memory_free(void *state, void *memory)
{
    struct cuda *c = (struct cuda *)state;
    if (memory != NULL) cuda_check(c, cudaFree(memory), "giving memory back");
}

static void gpu_zero(void *state, float *values, size_t count)
{
    struct cuda *c = (struct cuda *)state;
    cuda_check(c, cudaMemsetAsync(values, 0, count * sizeof *values, c->stream), "zeros");
}

__global__ static void add_numbers(const float *from, float *to, size_t count)
{
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) to[i] += from[i];
}

static void gpu_add(void *state, const float *from, float *to, size_t count)
{
    struct cuda *c = (struct cuda *)state;
    if (count == 0) return;
    LAUNCH(add_numbers, grid_of(count, BLOCK), BLOCK, 0, c->stream, from, to, count);
    cuda_launched(c, "a sum of gradients");
}

static int gpu_finish(void *state, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)state;
    cuda_check(c, cudaStreamSynchronize(c->stream), "waiting for it");
    return c->failure.code == 0 ? 0 : tabft_fail(f, c->failure.code, "%s", c->failure.message);
}

static void gpu_close(void *state)
{
    struct cuda *c = (struct cuda *)state;
    if (c->blas != NULL) (void)cublasDestroy(c->blas);
    if (c->workspace != NULL) (void)cudaFree(c->workspace);
    if (c->stream != NULL) (void)cudaStreamDestroy(c->stream);
    free(c);
}

static cublasMath_t math_of(enum cuda_precision precision)
{
    return precision == CUDA_FLOAT32 ? CUBLAS_PEDANTIC_MATH : CUBLAS_DEFAULT_MATH;
}

/* The GPU's parts, into an empty state. */
static int open_parts(struct cuda *c, struct tabft_failure *f)
{
    int n = 0;
    struct cudaDeviceProp about;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess)
        return tabft_fail(f, TABFT_SYSTEM, "no GPU can be used (%s); use --device cpu", cudaGetErrorString(code));
    if (c->device < 0 || c->device >= n)
        return tabft_fail(f, TABFT_SYSTEM,
                          "GPU %d is asked for, this process sees %d; give the job as many GPUs as ranks a node",
                          c->device, n);
    cuda_check(c, cudaSetDevice(c->device), "choosing it");
    cuda_check(c, cudaGetDeviceProperties(&about, c->device), "asking what it is");
    if (c->failure.code == 0)
        (void)snprintf(c->isa, sizeof c->isa, "sm_%d%d", about.major, about.minor);
    cuda_check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream");
    cuda_check(c, cudaMalloc(&c->workspace, WORKSPACE_BYTES), "cuBLAS's workspace");
    if (c->failure.code != 0) return tabft_fail(f, c->failure.code, "%s", c->failure.message);
    if (cublasCreate(&c->blas) != CUBLAS_STATUS_SUCCESS ||
        cublasSetStream(c->blas, c->stream) != CUBLAS_STATUS_SUCCESS ||
        cublasSetWorkspace(c->blas, c->workspace, WORKSPACE_BYTES) != CUBLAS_STATUS_SUCCESS ||
        cublasSetAtomicsMode(c->blas, CUBLAS_ATOMICS_NOT_ALLOWED) != CUBLAS_STATUS_SUCCESS ||
        cublasSetMathMode(c->blas, math_of(c->precision)) != CUBLAS_STATUS_SUCCESS)
        return tabft_fail(f, TABFT_SYSTEM, "GPU %d: cuBLAS does not start; is its version that of the driver?", c->device);
    return 0;
}

int cuda_backend_open(struct tensor_backend *out, int device, enum cuda_precision precision, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)calloc(1, sizeof *c);
    if (c == NULL) return tabft_fail(f, TABFT_SYSTEM, "no memory for the GPU backend");
    c->device = device;
    c->precision = precision;
    const int error = open_parts(c, f);
    if (error < 0) {
        gpu_close(c);
        return error;
    }
    struct tensor_backend b = {};
    b.name = "cuda";
    b.isa = c->isa;
    b.state = c;
    b.kernels[OP_LINEAR] = cuda_linear;
    b.kernels[OP_ATTENTION] = cuda_attention;
    b.kernels[OP_RMS_NORM] = cuda_rms_norm;
    b.kernels[OP_LAYER_NORM] = cuda_layer_norm;
    b.kernels[OP_GELU] = cuda_gelu;
    b.kernels[OP_ASSEMBLE] = cuda_assemble;
    b.kernels[OP_SELECT] = cuda_select;
    b.kernels[OP_PREPEND] = cuda_prepend;
    b.kernels[OP_ADD_ROWS] = cuda_add_rows;
    b.kernels[OP_LOOKUP] = cuda_lookup;
    b.kernels[OP_HEADS] = cuda_heads;
    b.kernels[OP_FOURIER] = cuda_fourier;
    b.kernels[OP_MODULATE] = cuda_modulate;
    b.kernels[OP_VOTE] = cuda_vote;
    b.kernels[OP_CROSS_ENTROPY] = cuda_cross_entropy;
    b.kernels[OP_BAR_LOSS] = cuda_bar_loss;
    b.memory_new = gpu_memory_new;
    b.memory_free = gpu_memory_free;
    b.zero = gpu_zero;
    b.add = gpu_add;
    b.finish = gpu_finish;
    b.close = gpu_close;
    *out = b;
    return 0;
}
