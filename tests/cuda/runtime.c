/* GPUs, their memory, streams and events of the emulation. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cuda_runtime_api.h"

enum { VISIBLE_MOST = 64 };

static struct emulation_counts counts;
static uint64_t given; /* tasks, to all streams */
static cudaStream_t streams; /* all of them */
static _Thread_local int device_now; /* of a thread, as with CUDA: 0 until it says otherwise */
static _Thread_local cudaError_t last_error;

struct emulation_counts emulation_counted(void) { return counts; }

static size_t size_from(const char *name, size_t otherwise)
{
    const char *said = getenv(name);
    return said == NULL ? otherwise : (size_t)strtoull(said, NULL, 10);
}
static bool asked(const char *name) { return size_from(name, 0) != 0; }

void emulation_set_error(cudaError_t code) { last_error = code; }
cudaError_t cudaGetLastError(void)
{
    const cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        (void)fputs("CUDA emulation: no memory\n", stderr);
        abort();
    }
    return memory;
}

/* ---- GPUs ---- */

/* The numbers of those that the process may use, as CUDA_VISIBLE_DEVICES has them. */
static int visible(int number[VISIBLE_MOST])
{
    const int all = (int)size_from("CUDA_EMULATION_DEVICES", 1);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    for (int i = 0; list == NULL && i < all && n < VISIBLE_MOST; i++) number[n++] = i;
    for (const char *at = list; at != NULL && *at != '\0' && n < VISIBLE_MOST;) {
        char *end;
        const long one = strtol(at, &end, 10);
        if (end == at || one < 0 || one >= all) break;
        number[n++] = (int)one;
        at = *end == ',' ? end + 1 : end;
    }
    return n;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    int number[VISIBLE_MOST];
    *n = visible(number);
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

/* What a block can have of shared memory at most, beside a KiB that the system takes (CUDA C++ Programming Guide, technical
 * specifications per compute capability). */
static size_t shared_most(int capability)
{
    if (capability >= 90 && capability < 120) return 227 << 10;
    return capability == 86 || capability == 89 || capability >= 120 ? 99 << 10 : 163 << 10;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_now;
    return cudaSuccess;
}

static size_t memory_of_gpu(void) { return size_from("CUDA_EMULATION_MEMORY", (size_t)4 << 30); }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *about, int device)
{
    int number[VISIBLE_MOST];
    if (device < 0 || device >= visible(number)) return cudaErrorInvalidDevice;
    const int capability = (int)size_from("CUDA_EMULATION_CAPABILITY", 0);
    *about = (struct cudaDeviceProp){
        .totalGlobalMem = memory_of_gpu(),
        .major = capability / 10,
        .minor = capability % 10,
        .sharedMemPerBlockOptin = shared_most(capability)};
    const bool other = (size_t)number[device] == size_from("CUDA_EMULATION_OTHER", VISIBLE_MOST);
    (void)snprintf(about->name, sizeof about->name, "%s", other ? "CUDA emulation of another kind" : "CUDA emulation");
    about->uuid.bytes[15] = (char)number[device];
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

/* ---- memory ---- */

struct block {
    char *memory;
    size_t bytes, room; /* asked for, and at least one */
    struct block *next;
};
static struct block *on_gpu, *pinned;
static size_t taken;

static bool is_protected(void) { return asked("CUDA_EMULATION_PROTECT"); }

static bool is_within(const struct block *b, const void *at, size_t bytes)
{
    const char *begin = at;
    for (; b != NULL; b = b->next)
        if (begin >= b->memory && begin <= b->memory + b->bytes && bytes <= b->bytes - (size_t)(begin - b->memory)) return true;
    return false;
}

int emulation_may_be_gpus(const void *memory, size_t bytes) { return !is_protected() || is_within(on_gpu, memory, bytes); }

/* Opens the GPU's memory to those who work for it, or closes it to the host. */
static void gate(bool open)
{
    if (!is_protected()) return;
    for (const struct block *b = on_gpu; b != NULL; b = b->next)
        (void)mprotect(b->memory, b->room, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void keep(struct block **list, void *memory, size_t bytes, size_t room)
{
    struct block *b = take(sizeof *b);
    *b = (struct block){memory, bytes, room, *list};
    *list = b;
}

/* Takes a block out of a list; NULL: there is none. */
static struct block *find(struct block **list, const void *memory)
{
    while (*list != NULL && (*list)->memory != memory) list = &(*list)->next;
    struct block *b = *list;
    if (b != NULL) *list = b->next;
    return b;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    const size_t others = size_from("CUDA_EMULATION_TAKEN", 0);
    *all = memory_of_gpu();
    *left = *all > others && *all - others > taken ? *all - others - taken : 0;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    size_t left, all;
    void *memory;
    const size_t room = bytes == 0 ? 1 : bytes;
    (void)cudaMemGetInfo(&left, &all);
    if (bytes > left) return cudaErrorMemoryAllocation;
    if (is_protected()) {
        memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return cudaErrorMemoryAllocation;
    } else if (posix_memalign(&memory, 256, room) != 0) {
        return cudaErrorMemoryAllocation;
    }
    memset(memory, 0xff, bytes);
    keep(&on_gpu, memory, bytes, room);
    counts.allocations++;
    taken += bytes;
    gate(false);
    *out = memory;
    return cudaSuccess;
}

static void finish_all(void);

cudaError_t cudaFree(void *memory)
{
    finish_all();
    struct block *b = find(&on_gpu, memory);
    if (b == NULL) return cudaErrorInvalidValue;
    taken -= b->bytes;
    counts.frees++;
    if (is_protected()) (void)munmap(b->memory, b->room);
    else free(b->memory);
    free(b);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    const size_t room = bytes == 0 ? 1 : bytes;
    if (posix_memalign(out, 256, room) != 0) return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    keep(&pinned, *out, bytes, room);
    counts.pinned++;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    finish_all();
    struct block *b = find(&pinned, memory);
    if (b == NULL) return cudaErrorInvalidValue;
    counts.frees++;
    free(b->memory);
    free(b);
    return cudaSuccess;
}

/* Whether the process's GPU has failed: for good, as on a GPU, until the process ends. */
static cudaError_t state_of_gpu(void)
{
    static bool failed;
    int number[VISIBLE_MOST];
    char *end;
    const char *said = getenv("CUDA_EMULATION_FAILS");
    if (!failed && said != NULL) {
        const int gpu = (int)strtol(said, &end, 10);
        failed = *end == ':' && device_now < visible(number) && number[device_now] == gpu &&
                 given >= strtoull(end + 1, NULL, 10);
    }
    return failed ? cudaErrorIllegalAddress : cudaSuccess;
}

/* ---- streams ---- */

struct task {
    emulation_step *step;
    void (*end)(void *context);
    void *context;
    struct task *next;
};

struct emulation_stream {
    int device;
    struct task *first, *last;
    struct emulation_stream *next;
};

/* The task at the head, out of its stream. */
static void end_first(cudaStream_t s)
{
    struct task *t = s->first;
    s->first = t->next;
    if (s->first == NULL) s->last = NULL;
    t->end(t->context);
    free(t);
}

/* As far as it goes without waiting, and no further than `*due` being 0, unless that is NULL. */
static void advance(cudaStream_t s, const unsigned *due)
{
    while (s->first != NULL && state_of_gpu() != cudaSuccess) end_first(s);
    if (s->first == NULL) return;
    gate(true);
    while (s->first != NULL && (due == NULL || *due > 0) && s->first->step(s->first->context)) end_first(s);
    gate(false);
}

static void finish(cudaStream_t s)
{
    const struct timespec pause = {0, 100000};
    for (advance(s, NULL); s->first != NULL; advance(s, NULL)) (void)nanosleep(&pause, NULL);
}

/* What giving memory back does: the GPU comes to rest. */
static void finish_all(void)
{
    for (cudaStream_t s = streams; s != NULL; s = s->next) finish(s);
}

cudaError_t emulation_put(cudaStream_t stream, emulation_step *step, void (*end)(void *context), void *context)
{
    if (stream->device != device_now) {
        (void)fputs("CUDA emulation: a stream of another GPU than this thread's\n", stderr);
        abort();
    }
    given++;
    const cudaError_t code = state_of_gpu();
    if (code != cudaSuccess) {
        end(context);
        emulation_set_error(code);
        return code;
    }
    struct task *t = take(sizeof *t);
    *t = (struct task){.step = step, .end = end, .context = context};
    if (stream->last != NULL) stream->last->next = t;
    else stream->first = t;
    stream->last = t;
    if (!asked("CUDA_EMULATION_LATE")) advance(stream, NULL);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *out = take(sizeof **out);
    (*out)->device = device_now;
    (*out)->next = streams;
    streams = *out;
    return cudaSuccess;
}

/* Streams do not share anything that one could have before another. */
enum { PRIORITY_LEAST = 0, PRIORITY_MOST = -5 };

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most)
{
    *least = PRIORITY_LEAST;
    *most = PRIORITY_MOST;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    if (priority > PRIORITY_LEAST || priority < PRIORITY_MOST) return cudaErrorInvalidValue;
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    counts.waits++;
    counts.idle++;
    finish(stream);
    return state_of_gpu();
}

/* What is left to do is dropped. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaStream_t *at = &streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    while (stream->first != NULL) end_first(stream);
    free(stream);
    return cudaSuccess;
}

/* ---- copies ---- */

struct copy {
    void *to;
    const void *from;
    void *own; /* where `from` need not stay as it is */
    size_t bytes;
};

static int copy_step(void *context)
{
    const struct copy *c = context;
    memcpy(c->to, c->from, c->bytes);
    return 1;
}

static void copy_end(void *context)
{
    struct copy *c = context;
    free(c->own);
    free(c);
}

/* As on a GPU: memory of the host that is not pinned has been read, or written, when the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    const bool to_gpu = is_within(on_gpu, to, bytes), from_gpu = is_within(on_gpu, from, bytes);
    if (to_gpu != (kind != cudaMemcpyDeviceToHost) || from_gpu != (kind != cudaMemcpyHostToDevice))
        return cudaErrorInvalidValue;
    if (bytes == 0) return cudaSuccess;
    const bool in = kind == cudaMemcpyHostToDevice, out = kind == cudaMemcpyDeviceToHost;
    const bool waits = (in && !is_within(pinned, from, bytes)) || (out && !is_within(pinned, to, bytes));
    struct copy *c = take(sizeof *c);
    *c = (struct copy){.to = to, .from = from, .bytes = bytes};
    if (in && waits) {
        c->from = c->own = take(bytes);
        memcpy(c->own, from, bytes);
    }
    counts.copies_in += in;
    counts.bytes_in += in ? bytes : 0;
    counts.copies_out += out;
    counts.bytes_out += out ? bytes : 0;
    counts.waits += waits;
    counts.idle += out && waits;
    const cudaError_t code = emulation_put(stream, copy_step, copy_end, c);
    if (out && waits) finish(stream);
    return code;
}

struct fill {
    void *to;
    int value;
    size_t bytes;
};

static int fill_step(void *context)
{
    const struct fill *f = context;
    memset(f->to, f->value, f->bytes);
    return 1;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    if (!is_within(on_gpu, memory, bytes)) return cudaErrorInvalidValue;
    struct fill *f = take(sizeof *f);
    *f = (struct fill){memory, value, bytes};
    return emulation_put(stream, fill_step, free, f);
}

/* ---- events ---- */

struct emulation_event {
    bool timed;
    cudaStream_t stream; /* NULL: never recorded */
    double at;           /* milliseconds, when it was come to */
    unsigned due;        /* how often it is recorded and not come to */
};

static cudaError_t event_new(cudaEvent_t *out, bool timed)
{
    *out = take(sizeof **out);
    (*out)->timed = timed;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) { return event_new(out, true); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    return flags == cudaEventDisableTiming ? event_new(out, false) : cudaErrorInvalidValue;
}

static int event_step(void *context)
{
    cudaEvent_t event = context;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    event->at = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    return 1;
}

static void event_end(void *context)
{
    cudaEvent_t event = context;
    event->due--;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->stream = stream;
    event->due++;
    return emulation_put(stream, event_step, event_end, event);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const cudaError_t state = state_of_gpu();
    if (state != cudaSuccess) return state;
    if (event->stream == NULL) return cudaSuccess;
    if (event->due > 0) advance(event->stream, &event->due);
    return event->due == 0 ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const struct timespec pause = {0, 100000};
    while (cudaEventQuery(event) == cudaErrorNotReady) (void)nanosleep(&pause, NULL);
    counts.waits++;
    counts.idle += event->stream == NULL || event->stream->first == NULL;
    return state_of_gpu();
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->timed || !to->timed || from->stream == NULL || to->stream == NULL) return cudaErrorInvalidValue;
    if (from->due > 0 || to->due > 0) return cudaErrorNotReady;
    *milliseconds = (float)(to->at - from->at);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event->due > 0) finish(event->stream);
    free(event);
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
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    default: return "invalid argument";
    }
}
