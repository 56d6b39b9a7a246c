/* The part of CUDA's runtime that plain C uses, for tests on processors (runtime.c). The GPU's memory is the host's, fresh
 * memory is filled with NaNs. A stream is a list of tasks that are done in order: each as soon as it can be, when
 * somebody asks for the stream or an event on it; nothing runs in between.
 * CUDA_EMULATION_DEVICES: how many GPUs the machine has [1]. */
#ifndef TABFT_TESTS_CUDA_RUNTIME_API_H
#define TABFT_TESTS_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int cudaError_t;
enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
typedef struct emulation_stream *cudaStream_t;
typedef struct emulation_event *cudaEvent_t;

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **out, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
const char *cudaGetErrorString(cudaError_t code);

/* Puts a task behind the others of a stream. `step` does as much as can be done without waiting and says whether that was
 * all; `end` frees the context, after the last step or when the stream goes. */
typedef int emulation_step(void *context);
void emulation_put(cudaStream_t stream, emulation_step *step, void (*end)(void *context), void *context);

#ifdef __cplusplus
}
#endif

#endif
