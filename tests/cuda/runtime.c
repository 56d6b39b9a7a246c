/* Memory, streams and events of the emulation. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime_api.h"

struct task {
    emulation_step *step;
    void (*end)(void *context);
    void *context;
    struct task *next;
};

struct emulation_stream {
    struct task *first, *last;
    uint64_t n_put, n_done;
};

struct emulation_event {
    cudaStream_t stream;
    uint64_t after; /* so many tasks of the stream must be done */
};

static int device_now;

static void *take(size_t bytes)
{
    void *memory = malloc(bytes == 0 ? 1 : bytes);
    if (memory == NULL) {
        (void)fputs("CUDA emulation: no memory\n", stderr);
        abort();
    }
    return memory;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    const char *said = getenv("CUDA_EMULATION_DEVICES");
    *n = said == NULL ? 1 : atoi(said);
    return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
    int n;
    if (cudaGetDeviceCount(&n) != cudaSuccess) return cudaErrorNoDevice;
    if (device < 0 || device >= n) return cudaErrorInvalidDevice;
    device_now = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_now;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (posix_memalign(out, 256, bytes == 0 ? 1 : bytes) != 0) return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes) { return cudaMalloc(out, bytes); }
cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }

/* ---- streams ---- */

static void advance(struct emulation_stream *s)
{
    while (s->first != NULL && s->first->step(s->first->context)) {
        struct task *t = s->first;
        s->first = t->next;
        if (s->first == NULL) s->last = NULL;
        s->n_done++;
        t->end(t->context);
        free(t);
    }
}

void emulation_put(cudaStream_t stream, emulation_step *step, void (*end)(void *context), void *context)
{
    struct task *t = take(sizeof *t);
    *t = (struct task){.step = step, .end = end, .context = context};
    if (stream->last != NULL) stream->last->next = t;
    else stream->first = t;
    stream->last = t;
    stream->n_put++;
    advance(stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *out = take(sizeof **out);
    **out = (struct emulation_stream){0};
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    while (stream->first != NULL) {
        struct task *t = stream->first;
        stream->first = t->next;
        t->end(t->context);
        free(t);
    }
    free(stream);
    return cudaSuccess;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static int copy_step(void *context)
{
    const struct copy *c = context;
    memcpy(c->to, c->from, c->bytes);
    return 1;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct copy *c;
    if (kind > cudaMemcpyDefault || (bytes > 0 && (to == NULL || from == NULL))) return cudaErrorInvalidValue;
    if (bytes == 0) return cudaSuccess;
    c = take(sizeof *c);
    *c = (struct copy){to, from, bytes};
    emulation_put(stream, copy_step, free, c);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    if (flags != cudaEventDisableTiming) return cudaErrorInvalidValue;
    *out = take(sizeof **out);
    **out = (struct emulation_event){0};
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    *event = (struct emulation_event){stream, stream->n_put};
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event->stream == NULL) return cudaSuccess;
    advance(event->stream);
    return event->stream->n_done >= event->after ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    default: return "unrecognized error code";
    }
}
