/* How the emulation runs a block: each thread has a stack of its own and runs until it waits, then the next one does. A
 * thread that never waits runs to its end on the same stack as the one before it. Contexts are switched by setjmp and
 * longjmp, which unlike swapcontext make no system call. */
#undef _FORTIFY_SOURCE /* its longjmp refuses to go to another stack */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <vector>

#define TABFT_TENSOR_ROOM
#include "tensor/cuda/tensor_core_internal.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define ENTER_FIBER(save, to) __sanitizer_start_switch_fiber(save, (to).stack, STACK)
#define LEAVE_FIBER(save) __sanitizer_start_switch_fiber(save, main_bottom, main_size)
#define ARRIVED(save, bottom, size) __sanitizer_finish_switch_fiber(save, bottom, size)
#else
#define ENTER_FIBER(save, to) ((void)(save))
#define LEAVE_FIBER(save) ((void)(save))
#define ARRIVED(save, bottom, size) ((void)(save), (void)(bottom), (void)(size))
#endif

thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;

static constexpr unsigned STACK = 256 << 10, THREADS_MOST = 1024, LANES = 32, WORDS_MOST = 8;

struct fiber {
    char *stack;
    ucontext_t first;
    jmp_buf at;
    void *fake_stack;
    bool started;
};
enum wait { NOTHING, WARP_EXCHANGE, BLOCK_BARRIER };
struct thread {
    struct fiber *fiber; /* NULL before the start and after the end */
    bool done;
    enum wait waits;
    unsigned generation; /* of what it waits for */
};
struct warp {
    uint32_t words[2][LANES * WORDS_MOST];
    unsigned arrived, generation;
};

static std::vector<struct fiber *> idle;
static struct thread threads[THREADS_MOST];
static struct warp warps[THREADS_MOST / LANES];
static unsigned n_threads, current, block_arrived, block_generation;
static jmp_buf scheduler;
static void *scheduler_fake_stack;
static const void *main_bottom;
static size_t main_size;
static void (*body)(void *);
static void *body_context;
static const char *kernel_name;
static float *shared;
static size_t shared_allowed = 48 << 10;
static cudaError_t last_error;

static void die(const char *what)
{
    (void)fprintf(stderr, "CUDA emulation: %s, block %u, thread %u: %s\n", kernel_name, blockIdx.x, threadIdx.x, what);
    abort();
}

float *emulation_shared(void) { return shared; }

/* Back to the scheduler until what the thread waits for has come. */
static void wait_for(enum wait what, unsigned generation)
{
    struct thread *t = &threads[current];
    t->waits = what;
    t->generation = generation;
    if (_setjmp(t->fiber->at) == 0) {
        LEAVE_FIBER(&t->fiber->fake_stack);
        _longjmp(scheduler, 1);
    }
    ARRIVED(t->fiber->fake_stack, &main_bottom, &main_size);
}

void __syncthreads(void)
{
    const unsigned generation = block_generation;
    if (++block_arrived == n_threads) {
        block_arrived = 0;
        block_generation++;
        return;
    }
    wait_for(BLOCK_BARRIER, generation);
}

const uint32_t *emulation_exchange(const uint32_t *words, unsigned count)
{
    struct warp *w = &warps[threadIdx.x / LANES];
    const unsigned generation = w->generation, lanes = n_threads - threadIdx.x / LANES * LANES;
    uint32_t *all = w->words[generation % 2];
    if (count > WORDS_MOST) die("too many words in an exchange");
    if (count > 0) memcpy(all + threadIdx.x % LANES * count, words, count * sizeof *words);
    if (++w->arrived == (lanes < LANES ? lanes : LANES)) {
        w->arrived = 0;
        w->generation++;
    } else {
        wait_for(WARP_EXCHANGE, generation);
    }
    return all;
}

void __syncwarp(void) { (void)emulation_exchange(NULL, 0); }

/* A stack runs threads one after the other as long as they do not wait. */
static void fiber_main(void)
{
    ARRIVED(NULL, &main_bottom, &main_size);
    for (;;) {
        struct fiber *own = threads[current].fiber;
        body(body_context);
        threads[current].done = true;
        threads[current].fiber = NULL;
        if (_setjmp(own->at) == 0) {
            idle.push_back(own);
            LEAVE_FIBER(&own->fake_stack);
            _longjmp(scheduler, 1);
        }
        ARRIVED(own->fake_stack, &main_bottom, &main_size);
    }
}

static struct fiber *new_fiber(void)
{
    struct fiber *f = new fiber();
    f->stack = (char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (f->stack == MAP_FAILED || getcontext(&f->first) != 0) die("no memory for a thread");
    f->first.uc_stack.ss_sp = f->stack;
    f->first.uc_stack.ss_size = STACK;
    f->first.uc_link = NULL;
    makecontext(&f->first, fiber_main, 0);
    return f;
}

/* Lets a thread run until it waits or ends. */
static void resume(unsigned number)
{
    struct thread *t = &threads[number];
    current = number;
    threadIdx.x = number;
    if (t->fiber == NULL) {
        if (idle.empty()) idle.push_back(new_fiber());
        t->fiber = idle.back();
        idle.pop_back();
    }
    struct fiber *f = t->fiber;
    if (_setjmp(scheduler) == 0) {
        ENTER_FIBER(&scheduler_fake_stack, *f);
        if (f->started) _longjmp(f->at, 1);
        f->started = true;
        (void)setcontext(&f->first);
    }
    ARRIVED(scheduler_fake_stack, NULL, NULL);
}

static bool may_run(const struct thread *t, unsigned number)
{
    if (t->done) return false;
    if (t->waits == WARP_EXCHANGE) return warps[number / LANES].generation != t->generation;
    return t->waits == NOTHING || block_generation != t->generation;
}

static void run_block(void)
{
    memset(warps, 0, sizeof warps);
    for (unsigned i = 0; i < n_threads; i++) threads[i] = {};
    block_arrived = block_generation = 0;
    for (unsigned left = n_threads; left > 0;) {
        bool moved = false;
        for (unsigned i = 0; i < n_threads; i++) {
            if (!may_run(&threads[i], i)) continue;
            threads[i].waits = NOTHING;
            moved = true;
            resume(i);
            left -= threads[i].done;
        }
        if (!moved) die("threads wait for others of their block or warp that have ended or wait elsewhere");
    }
    if (block_arrived != 0) die("a barrier that not all threads have reached");
}

void emulation_launch(const char *kernel, unsigned blocks, unsigned n, size_t shared_bytes, void (*run)(void *),
                      void *context)
{
    kernel_name = kernel;
    if (n == 0 || n > THREADS_MOST || shared_bytes > shared_allowed || blocks > 0x7fffffffu) {
        last_error = 1; /* cudaErrorInvalidValue */
        return;
    }
    if (blocks == 0) {
        last_error = 9; /* cudaErrorInvalidConfiguration */
        return;
    }
    n_threads = n;
    body = run;
    body_context = context;
    shared = (float *)malloc(shared_bytes == 0 ? 1 : shared_bytes);
    if (shared == NULL) die("no memory for shared memory");
    blockDim = {n, 1, 1};
    gridDim = {blocks, 1, 1};
    for (unsigned b = 0; b < blocks; b++) {
        blockIdx = {b, 0, 0};
        memset(shared, 0xff, shared_bytes);
        run_block();
    }
    free(shared);
    shared_allowed = 48 << 10;
}

/* ---- tensor cores ---- */

/* To the nearest number of 10 bits of mantissa, ties away from zero. */
uint32_t tf32_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0x7f800000u) return bits & 0xffffe000u;
    return (bits + 0x1000u) & 0xffffe000u;
}

void multiply_tf32(struct tile_c *c, const uint32_t *a, const uint32_t *b)
{
    const unsigned g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const uint32_t *all = emulation_exchange(words, 6);
    for (unsigned i = 0; i < 4; i++) {
        float sum = c->x[i];
        for (unsigned k = 0; k < 8; k++) {
            const uint32_t *of_a = all + (g * 4 + k % 4) * 6, *of_b = all + ((2 * t + i % 2) * 4 + k % 4) * 6;
            sum += float_of(of_a[(i < 2 ? 0 : 1) + (k < 4 ? 0 : 2)]) * float_of(of_b[k < 4 ? 4 : 5]);
        }
        c->x[i] = sum;
    }
}

/* ---- the runtime ---- */

cudaError_t cudaGetDeviceCount(int *n)
{
    const char *said = getenv("CUDA_EMULATION_DEVICES");
    *n = said == NULL ? 1 : atoi(said);
    return *n > 0 ? cudaSuccess : 100; /* cudaErrorNoDevice */
}
cudaError_t cudaSetDevice(int device)
{
    int n;
    (void)cudaGetDeviceCount(&n);
    return device >= 0 && device < n ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *about, int device)
{
    (void)device;
    *about = {"CUDA emulation", 0, 0};
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (posix_memalign(out, 256, bytes) != 0) return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(memory, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    *out = NULL;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case 100: return "no CUDA-capable device is detected";
    default: return "invalid argument";
    }
}
cudaError_t emulation_allow_shared(size_t bytes)
{
    if (bytes > 227 << 10) return 1; /* what a block can have at most on sm_90 */
    shared_allowed = bytes > 48 << 10 ? bytes : 48 << 10;
    return cudaSuccess;
}

/* ---- cuBLAS ---- */

cublasStatus_t cublasCreate(cublasHandle_t *out)
{
    *out = NULL;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    (void)handle;
    return workspace != NULL && bytes > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode)
{
    (void)handle;
    (void)mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    (void)handle;
    (void)mode;
    return CUBLAS_STATUS_SUCCESS;
}

/* To the nearest of 7 bits of mantissa, ties to even. */
static float bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x7fffu + (bits >> 16 & 1u);
    return float_of(bits & 0xffff0000u);
}

static float operand(float x, cublasComputeType_t compute)
{
    if (compute == CUBLAS_COMPUTE_32F_PEDANTIC) return x;
    return compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? float_of(tf32_of(x)) : bf16_of(x);
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b, int64_t m,
                               int64_t n, int64_t k, const void *alpha, const void *a, cudaDataType a_type,
                               int64_t a_stride, const void *b, cudaDataType b_type, int64_t b_stride, const void *beta,
                               void *c, cudaDataType c_type, int64_t c_stride, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm)
{
    const float *of_a = (const float *)a, *of_b = (const float *)b, one = *(const float *)alpha, init = *(const float *)beta;
    float *to = (float *)c;
    (void)handle;
    (void)a_type;
    (void)b_type;
    (void)c_type;
    (void)algorithm;
    if (a_stride < (turn_a == CUBLAS_OP_N ? m : k) || b_stride < (turn_b == CUBLAS_OP_N ? k : n) || c_stride < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum += (double)operand(of_a[turn_a == CUBLAS_OP_N ? p * a_stride + i : i * a_stride + p], compute) *
                       (double)operand(of_b[turn_b == CUBLAS_OP_N ? j * b_stride + p : p * b_stride + j], compute);
            float *at = to + j * c_stride + i;
            *at = (float)(one * sum + (init == 0.0f ? 0.0 : (double)init * *at));
        }
    return CUBLAS_STATUS_SUCCESS;
}
