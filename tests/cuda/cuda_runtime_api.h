/* CUDA's runtime for tests on processors (runtime.c): what lib/tensor/cuda and lib/comm/nccl use of it, and no more. The
 * plugins of a process share one, a library as the real driver is, and so the memory of the emulated GPU. That is the
 * host's memory, so AddressSanitizer sees every access; fresh memory is filled with NaNs. A stream is a list of tasks
 * that are done in order, each as soon as it can be, when somebody puts one in, waits for the stream or asks for an
 * event on it; nothing runs in between. Not thread safe.
 * Environment: CUDA_EMULATION_DEVICES, how many GPUs there are [1], of which CUDA_VISIBLE_DEVICES chooses;
 * CUDA_EMULATION_MEMORY, bytes of each [4 GiB], of which CUDA_EMULATION_TAKEN are taken by others [0];
 * CUDA_EMULATION_LATE=1: nothing is done before somebody waits for it or asks; CUDA_EMULATION_PROTECT=1: a host that
 * reads or writes the GPU's memory itself dies of SIGSEGV; CUDA_EMULATION_OTHER, the number of a GPU of another kind;
 * CUDA_EMULATION_FAILS, as "1:300": GPU 1 fails for good, as of an illegal address, when it was given 300 tasks;
 * CUDA_EMULATION_CAPABILITY, as 90 [0], by which it has shared memory; CUDA_EMULATION_OLD=1: GPUs for which nothing was
 * compiled; CUDA_EMULATION_PRODUCTS: see blas.cc. */
#ifndef TABFT_TESTS_CUDA_RUNTIME_API_H
#define TABFT_TESTS_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMULATION_API __attribute__((visibility("default")))

typedef int cudaError_t;
enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
typedef struct emulation_stream *cudaStream_t;
typedef struct emulation_event *cudaEvent_t;
struct cudaDeviceProp {
    char name[256];
    struct {
        char bytes[16];
    } uuid;
    size_t totalGlobalMem;
    int major, minor;
    size_t sharedMemPerBlockOptin;
};

EMULATION_API cudaError_t cudaGetDeviceCount(int *n);
EMULATION_API cudaError_t cudaSetDevice(int device);
EMULATION_API cudaError_t cudaGetDevice(int *device);
EMULATION_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *about, int device);
EMULATION_API cudaError_t cudaRuntimeGetVersion(int *version);
EMULATION_API cudaError_t cudaMalloc(void **out, size_t bytes);
EMULATION_API cudaError_t cudaFree(void *memory);
EMULATION_API cudaError_t cudaMallocHost(void **out, size_t bytes);
EMULATION_API cudaError_t cudaFreeHost(void *memory);
EMULATION_API cudaError_t cudaMemGetInfo(size_t *left, size_t *all);
EMULATION_API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                          cudaStream_t stream);
EMULATION_API cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
EMULATION_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
EMULATION_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most);
EMULATION_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority);
EMULATION_API cudaError_t cudaStreamSynchronize(cudaStream_t stream);
EMULATION_API cudaError_t cudaStreamDestroy(cudaStream_t stream);
EMULATION_API cudaError_t cudaEventCreate(cudaEvent_t *out);
EMULATION_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
EMULATION_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
EMULATION_API cudaError_t cudaEventQuery(cudaEvent_t event);
EMULATION_API cudaError_t cudaEventSynchronize(cudaEvent_t event);
EMULATION_API cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);
EMULATION_API cudaError_t cudaEventDestroy(cudaEvent_t event);
EMULATION_API const char *cudaGetErrorString(cudaError_t code);
EMULATION_API cudaError_t cudaGetLastError(void);

/* ---- of the emulation itself ---- */

/* Puts a task behind the others of a stream. `step` does as much as can be done without waiting and says whether that was
 * all; `end` frees the context, after the last step or when the stream goes. A GPU that has failed takes none: `end` is called
 * at once, and the error given, to cudaGetLastError too. */
typedef int emulation_step(void *context);
EMULATION_API cudaError_t emulation_put(cudaStream_t stream, emulation_step *step, void (*end)(void *context), void *context);
/* Gives an error to cudaGetLastError. */
EMULATION_API void emulation_set_error(cudaError_t code);
/* Whether it is memory of the GPU; where the host may touch that (no CUDA_EMULATION_PROTECT), any memory may be. */
EMULATION_API int emulation_may_be_gpus(const void *memory, size_t bytes);

/* For tensors so large that most of them must not be touched (blocks.cc, blas.cc): from now on grids may have `most` blocks
 * [3, so that every kernel strides on], and only the last `last` of each are run [0: all]; products then compute their last
 * LAST_COLUMNS columns of the last LAST_TERMS terms of their sums. */
enum { LAST_COLUMNS = 64, LAST_TERMS = 64 };
void emulation_run_last(size_t most, size_t last);

/* What the process has asked for so far. */
struct emulation_counts {
    uint64_t allocations, pinned, frees; /* of the GPU's memory, of pinned memory of the host; of either */
    uint64_t waits; /* for a stream, an event, or a copy from or to memory of the host that is not pinned */
    uint64_t idle;  /* of these, those that left a stream with nothing to do */
    uint64_t copies_in, copies_out;      /* between the host and the GPU */
    uint64_t bytes_in, bytes_out;
};
EMULATION_API struct emulation_counts emulation_counted(void);

#ifdef __cplusplus
}
#endif

#endif
