/* The backend: one GPU, one stream, cuBLAS with a workspace of its own. */
#define TABFT_TENSOR_ROOM
#include <stdio.h>
#include <stdlib.h>

#include "base/gpu.h"
#include "tensor/cuda/device_internal.h"

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

/* ---- copies ---- */

static void copy_bytes(void *state, void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    struct cuda *c = (struct cuda *)state;
    if (bytes > 0) cuda_check(c, cudaMemcpyAsync(to, from, bytes, kind, c->stream), "a copy");
}
static void gpu_copy_in(void *state, void *to, const void *from, size_t bytes)
{
    copy_bytes(state, to, from, bytes, cudaMemcpyHostToDevice);
}
static void gpu_copy_out(void *state, void *to, const void *from, size_t bytes)
{
    copy_bytes(state, to, from, bytes, cudaMemcpyDeviceToHost);
}
static void gpu_copy(void *state, void *to, const void *from, size_t bytes)
{
    copy_bytes(state, to, from, bytes, cudaMemcpyDeviceToDevice);
}

static void gpu_zero(void *state, void *to, size_t bytes)
{
    struct cuda *c = (struct cuda *)state;
    if (bytes > 0) cuda_check(c, cudaMemsetAsync(to, 0, bytes, c->stream), "zeros");
}

/* The end of waiting, of which `code` came: the first error that there was. */
static int waited(struct cuda *c, cudaError_t code, struct tabft_failure *f)
{
    cuda_check(c, code, "waiting for it");
    return c->failure.code == 0 ? 0 : tabft_fail(f, c->failure.code, "%s", c->failure.message);
}

static int gpu_finish(void *state, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)state;
    return waited(c, cudaStreamSynchronize(c->stream), f);
}

/* ---- time ---- */

static void gpu_mark(void *state, unsigned place)
{
    struct cuda *c = (struct cuda *)state;
    cuda_check(c, cudaEventRecord(c->marks[place], c->stream), "noting the time");
}

static int gpu_wait(void *state, unsigned place, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)state;
    return waited(c, cudaEventSynchronize(c->marks[place]), f);
}

static double gpu_between(void *state, unsigned from, unsigned to)
{
    struct cuda *c = (struct cuda *)state;
    float milliseconds = 0.0f;
    cuda_check(c, cudaEventElapsedTime(&milliseconds, c->marks[from], c->marks[to]), "telling the time");
    return 1e-3 * (double)milliseconds;
}

/* ---- opening ---- */

static void gpu_close(void *state)
{
    struct cuda *c = (struct cuda *)state;
    if (c->blas != NULL) (void)cublasDestroy(c->blas);
    cuda_memory_close(c);
    for (unsigned i = 0; i < MARKS; i++)
        if (c->marks[i] != NULL) (void)cudaEventDestroy(c->marks[i]);
    if (c->stream != NULL) (void)cudaStreamDestroy(c->stream);
    free(c);
}

static cublasMath_t math_of(enum tensor_precision precision)
{
    if (precision == TENSOR_FLOAT32) return CUBLAS_PEDANTIC_MATH;
    return (cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
}

int cuda_count(int *n, struct tabft_failure *f)
{
    *n = 0;
    const cudaError_t code = cudaGetDeviceCount(n);
    if (code == cudaSuccess && *n > 0) return 0;
    return tabft_fail(f, TABFT_SYSTEM,
                      "no GPU can be used (%s); see nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu",
                      code == cudaSuccess ? "none is visible" : cudaGetErrorString(code));
}

static int ask(int index, struct cudaDeviceProp *about, struct tabft_failure *f)
{
    int n;
    const int error = cuda_count(&n, f);
    if (error < 0) return error;
    if (index < 0 || index >= n)
        return tabft_fail(f, TABFT_SYSTEM,
                          "GPU %d is asked for, this process sees %d; give the job as many GPUs as ranks a node", index,
                          n);
    const cudaError_t code = cudaGetDeviceProperties(about, index);
    if (code == cudaSuccess) return 0;
    return tabft_fail(f, TABFT_SYSTEM, "GPU %d: does not tell what it is: %s; see nvidia-smi", index,
                      cudaGetErrorString(code));
}

int cuda_about(int index, struct tensor_gpu *out, struct tabft_failure *f)
{
    struct cudaDeviceProp about;
    const int error = ask(index, &about, f);
    if (error < 0) return error;
    (void)snprintf(out->name, sizeof out->name, "%s", about.name);
    out->bytes = about.totalGlobalMem;
    gpu_uuid_text(about.uuid.bytes, out->uuid);
    return 0;
}

int cuda_taken(int index, size_t *bytes, struct tabft_failure *f)
{
    size_t left, all;
    cudaError_t code = cudaSetDevice(index);
    if (code == cudaSuccess) code = cudaMemGetInfo(&left, &all);
    if (code != cudaSuccess)
        return tabft_fail(f, TABFT_SYSTEM, "GPU %d: does not tell how much memory is free: %s; see nvidia-smi", index,
                          cudaGetErrorString(code));
    *bytes = all - left + CUDA_LOADED_LATER;
    return 0;
}

/* What would have cuBLAS compute in another precision than it is told. */
static int check_environment(int device, struct tabft_failure *f)
{
    static const char *const names[] = {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION",
                                        "CUBLAS_EMULATION_STRATEGY"};
    for (const char *name : names)
        if (getenv(name) != NULL)
            return tabft_fail(
                f, TABFT_USE,
                "GPU %d: %s is set in the environment, so that cuBLAS may compute otherwise than --precision says; "
                "unset it",
                device, name);
    return 0;
}

__global__ static void nothing(void) {}

/* Whether the plugin has code for it. */
static int check_code(const struct cuda *c, const struct cudaDeviceProp *about, struct tabft_failure *f)
{
    struct cudaFuncAttributes kernel;
    const cudaError_t code = cudaFuncGetAttributes(&kernel, nothing);
    if (code == cudaSuccess) return 0;
    return tabft_fail(
        f, TABFT_SYSTEM,
        "GPU %d: %s is of compute capability %d.%d, for which the plugin cannot be used: %s; it needs 8.0 or later, "
        "see CUDA_ARCHS of configure",
        c->device, about->name, about->major, about->minor, cudaGetErrorString(code));
}

/* The GPU's parts, into an empty state. */
static int open_parts(struct cuda *c, struct tabft_failure *f)
{
    struct cudaDeviceProp about;
    int error = check_environment(c->device, f);
    if (error == 0) error = ask(c->device, &about, f);
    if (error < 0) return error;
    c->shared = about.sharedMemPerBlockOptin;
    c->wgmma = about.major == 9 && attention_wgmma_there();
    (void)snprintf(c->isa, sizeof c->isa, "sm_%d%d%s %s on %s", about.major, about.minor, c->wgmma ? "a" : "",
                   tensor_precision_name(c->precision), about.name);
    cuda_check(c, cudaSetDevice(c->device), "choosing it");
    if (c->failure.code == 0 && (error = check_code(c, &about, f)) < 0) return error;
    cuda_check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream");
    for (unsigned i = 0; i < MARKS; i++) cuda_check(c, cudaEventCreate(&c->marks[i]), "an event");
    if (c->failure.code != 0) return tabft_fail(f, c->failure.code, "%s", c->failure.message);
    if (cublasCreate(&c->blas) != CUBLAS_STATUS_SUCCESS ||
        cublasSetStream(c->blas, c->stream) != CUBLAS_STATUS_SUCCESS ||
        cublasSetAtomicsMode(c->blas, CUBLAS_ATOMICS_NOT_ALLOWED) != CUBLAS_STATUS_SUCCESS ||
        cublasSetMathMode(c->blas, math_of(c->precision)) != CUBLAS_STATUS_SUCCESS)
        return tabft_fail(f, TABFT_SYSTEM, "GPU %d: cuBLAS does not start; is its version that of the driver?",
                          c->device);
    return 0;
}

/* What may be bf16. Operands of products and of attention are read rounded anyway. Beside them it is what lies between
 * a product and the operation before or behind it: what GELU reads, and gradients. Not what heads read: rounded before
 * it is turned and after, v3's gradients would be off by a ninth more. */
static void fill_bf16(struct tensor_backend *b)
{
    b->bf16[OP_LINEAR] = op_bf16{1u << 0, 1u << 0, true, true};
    b->bf16[OP_ATTENTION] = op_bf16{7, 7, true, true};
    b->bf16[OP_RMS_NORM] = b->bf16[OP_LAYER_NORM] = op_bf16{0, 0, true, true};
    b->bf16[OP_GELU] = op_bf16{1u << 0, 1u << 0, true, true};
    b->bf16[OP_HEADS] = op_bf16{0, 1u << 0, true, true};
}

static void fill_table(struct tensor_backend *out, struct cuda *c)
{
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
    b.in_place[OP_LINEAR] = 1u << 3;
    b.in_place[OP_RMS_NORM] = b.in_place[OP_LAYER_NORM] = b.in_place[OP_GELU] = 1u << 0;
    b.in_place[OP_ADD_ROWS] = b.in_place[OP_HEADS] = b.in_place[OP_MODULATE] = 1u << 0;
    if (c->precision == TENSOR_BF16) fill_bf16(&b);
    b.vectors.state = c;
    b.vectors.host = false;
    b.vectors.copy_in = gpu_copy_in;
    b.vectors.copy_out = gpu_copy_out;
    b.vectors.copy = gpu_copy;
    b.vectors.zero = gpu_zero;
    b.vectors.finish = gpu_finish;
    cuda_vectors(&b.vectors);
    cuda_memory(&b);
    b.mark = gpu_mark;
    b.wait = gpu_wait;
    b.between = gpu_between;
    b.close = gpu_close;
    *out = b;
}

static int new_state(struct cuda **out, int device, enum tensor_precision precision, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)calloc(1, sizeof *c);
    if (c == NULL) return tabft_fail(f, TABFT_SYSTEM, "no memory for the GPU backend");
    c->device = device;
    c->precision = precision;
    *out = c;
    return 0;
}

int cuda_backend_open(struct tensor_backend *out, int index, enum tensor_precision precision, struct tabft_failure *f)
{
    struct cuda *c = NULL;
    int error = new_state(&c, index, precision, f);
    if (error == 0 && (error = open_parts(c, f)) < 0) gpu_close(c);
    if (error == 0) fill_table(out, c);
    return error;
}

int cuda_backend_open_planning(struct tensor_backend *out, enum tensor_precision precision, struct tabft_failure *f)
{
    struct cuda *c = NULL;
    const int error = new_state(&c, 0, precision, f);
    if (error == 0) fill_table(out, c);
    return error;
}
