/* The runtime: memory, copies, one stream, and what GPUs there are. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <chrono>
#include <map>
#include <vector>

#include "cuda_runtime.h"

static size_t size_from(const char *name, size_t otherwise)
{
    const char *said = getenv(name);
    return said == NULL ? otherwise : (size_t)strtoull(said, NULL, 10);
}
static bool asked(const char *name) { return size_from(name, 0) != 0; }

/* ---- memory ---- */

/* By address: bytes. `mapped`: that may be closed to the host. */
static std::map<char *, size_t> on_gpu, pinned;
static size_t taken;
static bool mapped(void) { return asked("CUDA_EMULATION_PROTECT"); }

static bool is_within(const std::map<char *, size_t> &blocks, const void *at, size_t bytes)
{
    auto after = blocks.upper_bound((char *)at);
    if (after == blocks.begin()) return false;
    const auto block = *--after;
    const size_t from = (size_t)((char *)at - block.first);
    return from <= block.second && bytes <= block.second - from;
}

static void gate(int protection)
{
    if (!mapped()) return;
    for (const auto &block : on_gpu) (void)mprotect(block.first, block.second == 0 ? 1 : block.second, protection);
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (bytes > size_from("CUDA_EMULATION_MEMORY", (size_t)4 << 30) - taken) return cudaErrorMemoryAllocation;
    void *memory;
    if (mapped()) {
        memory = mmap(NULL, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return cudaErrorMemoryAllocation;
    } else if (posix_memalign(&memory, 256, bytes) != 0) {
        return cudaErrorMemoryAllocation;
    }
    memset(memory, 0xff, bytes);
    on_gpu[(char *)memory] = bytes;
    taken += bytes;
    gate(PROT_NONE);
    *out = memory;
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory)
{
    (void)cudaStreamSynchronize(NULL);
    const auto block = on_gpu.find((char *)memory);
    if (block == on_gpu.end()) return cudaErrorInvalidValue;
    const size_t bytes = block->second;
    on_gpu.erase(block);
    taken -= bytes;
    if (mapped()) (void)munmap(memory, bytes == 0 ? 1 : bytes);
    else free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    *all = size_from("CUDA_EMULATION_MEMORY", (size_t)4 << 30);
    *left = *all - taken;
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    if (posix_memalign(out, 256, bytes) != 0) return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    pinned[(char *)*out] = bytes;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *memory)
{
    (void)cudaStreamSynchronize(NULL);
    if (pinned.erase((char *)memory) == 0) return cudaErrorInvalidValue;
    free(memory);
    return cudaSuccess;
}

/* ---- the stream ---- */

static std::vector<std::function<void()>> waiting;

static void run(const std::function<void()> &work)
{
    gate(PROT_READ | PROT_WRITE);
    work();
    gate(PROT_NONE);
}

void emulation_do(std::function<void()> work)
{
    if (asked("CUDA_EMULATION_LATE")) waiting.push_back(work);
    else run(work);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    if (waiting.empty()) return cudaSuccess;
    std::vector<std::function<void()>> now;
    now.swap(waiting);
    run([&]() {
        for (const auto &work : now) work();
    });
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    *out = NULL;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

/* ---- events ---- */

struct emulation_event {
    bool is_due; /* recorded, but not come to */
    double at;   /* milliseconds; 0: never recorded */
};

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = new emulation_event();
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    event->is_due = true;
    emulation_do([=]() {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        *event = {false, std::chrono::duration<double, std::milli>(now).count()};
    });
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    if (from->is_due || to->is_due) return cudaErrorNotReady;
    if (from->at == 0 || to->at == 0) return cudaErrorInvalidValue;
    *milliseconds = (float)(to->at - from->at);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)cudaStreamSynchronize(NULL);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    emulation_do([=]() { memset(memory, value, bytes); });
    return cudaSuccess;
}

/* As on a GPU: memory of the host that is not pinned has been read, or written, when the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    const bool to_gpu = is_within(on_gpu, to, bytes), from_gpu = is_within(on_gpu, from, bytes);
    if (to_gpu != (kind != cudaMemcpyDeviceToHost) || from_gpu != (kind != cudaMemcpyHostToDevice))
        return cudaErrorInvalidValue;
    if (kind == cudaMemcpyHostToDevice && !is_within(pinned, from, bytes)) {
        const std::vector<char> copy((const char *)from, (const char *)from + bytes);
        emulation_do([=]() { memcpy(to, copy.data(), bytes); });
        return cudaSuccess;
    }
    emulation_do([=]() { memcpy(to, from, bytes); });
    if (kind == cudaMemcpyDeviceToHost && !is_within(pinned, to, bytes)) return cudaStreamSynchronize(stream);
    return cudaSuccess;
}

/* ---- GPUs ---- */

/* The numbers of those that the process may use, as CUDA_VISIBLE_DEVICES has them. */
static std::vector<int> visible(void)
{
    std::vector<int> out;
    const int all = (int)size_from("CUDA_EMULATION_DEVICES", 1);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; list == NULL && i < all; i++) out.push_back(i);
    for (const char *at = list; at != NULL && *at != '\0';) {
        char *end;
        const long number = strtol(at, &end, 10);
        if (end == at || number < 0 || number >= all) break;
        out.push_back((int)number);
        at = *end == ',' ? end + 1 : end;
    }
    return out;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = (int)visible().size();
    return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device)
{
    return device >= 0 && device < (int)visible().size() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *about, int device)
{
    if (cudaSetDevice(device) != cudaSuccess) return cudaErrorInvalidDevice;
    *about = {};
    (void)snprintf(about->name, sizeof about->name, "CUDA emulation");
    about->uuid.bytes[15] = (char)visible()[(size_t)device];
    about->totalGlobalMem = size_from("CUDA_EMULATION_MEMORY", (size_t)4 << 30);
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    default: return "invalid argument";
    }
}
