/* The nccl engine: bytes between GPUs by NCCL. A plugin, tabft-engine-nccl.so, so that TabFT itself needs no CUDA. Each
 * rank has one GPU (base/gpu.h) and one stream; what is started is asked for by an event, and NCCL for errors of
 * its own. Memory of GPUs is sent as it lies. Small things that lie on the host (agreements, losses) go through a block
 * of pinned memory and one on the GPU, in as many rounds as they need. */
#include <assert.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/gpu.h"
#include "comm/engine.h"

enum { STAGE_BYTES = 4 << 20 };
#define GPU_ADVICE "; see its state with nvidia-smi"

/* What is under way with memory of the host: rounds, each of which moves a piece between each two ranks that still have
 * some, `each` bytes at most. */
enum staged_kind { STAGED_NONE, STAGED_BROADCAST, STAGED_GATHER, STAGED_EXCHANGE };
struct staged {
    enum staged_kind kind;
    size_t round, n_rounds, each;
    int root;
    const char *send;
    char *receive;
    const size_t *send_bytes, *send_offset, *receive_bytes, *receive_offset; /* borrowed until the operation's end */
};

struct nccl {
    struct comm_engine_place place;
    int device;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t event;
    bool has_comm, has_stream, has_event, started, failed;
    char *host, *gpu; /* [STAGE_BYTES] */
    struct staged staged;
    size_t *sizes, *offsets; /* [size] of a gather or a broadcast */
};

static int cuda_failed(struct nccl *n, cudaError_t code, const char *call, char message[COMM_ENGINE_MESSAGE])
{
    n->failed = true;
    (void)snprintf(message, COMM_ENGINE_MESSAGE, "GPU %d: %.100s: %.250s" GPU_ADVICE, n->device, call,
                   cudaGetErrorString(code));
    return COMM_ENGINE_OWN;
}

static int nccl_failed(struct nccl *n, ncclResult_t code, const char *call, char message[COMM_ENGINE_MESSAGE])
{
    n->failed = true;
    const char *more = ncclGetLastError(n->has_comm ? n->comm : NULL);
    const bool own = code == ncclUnhandledCudaError;
    char gpu[24] = "";
    if (own) (void)snprintf(gpu, sizeof gpu, "GPU %d: ", n->device);
    (void)snprintf(message, COMM_ENGINE_MESSAGE, "%s%.60s: %.120s%s%.200s%s", gpu, call, ncclGetErrorString(code),
                   more != NULL && *more != '\0' ? ": " : "", more != NULL ? more : "", own ? GPU_ADVICE : "");
    for (char *p = message; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    /* What NCCL calls wrong use is two ranks with one GPU. */
    if (code == ncclInvalidUsage) {
        const size_t used = strlen(message);
        (void)snprintf(message + used, COMM_ENGINE_MESSAGE - used,
                       "; start as many ranks a node as it has GPUs, with srun --gpus-per-task=1");
    }
    return own ? COMM_ENGINE_OWN : COMM_ENGINE_LOST;
}

/* In a function that has `n` and `message`: the call, or its error as the function's; PART_TRY: a call of this file. */
#define CUDA_TRY(call)                                                                                                 \
    do {                                                                                                               \
        const cudaError_t cuda_code = (call);                                                                          \
        if (cuda_code != cudaSuccess) return cuda_failed(n, cuda_code, #call, message);                                \
    } while (0)
#define NCCL_TRY(call)                                                                                                 \
    do {                                                                                                               \
        const ncclResult_t nccl_code = (call);                                                                         \
        if (nccl_code != ncclSuccess) return nccl_failed(n, nccl_code, #call, message);                                \
    } while (0)
#define PART_TRY(call)                                                                                                 \
    do {                                                                                                               \
        const int part_code = (call);                                                                                  \
        if (part_code < 0) return part_code;                                                                           \
    } while (0)

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* ---- joining and leaving ---- */

static void nccl_prepare(void) {}

static void nccl_version(char *text, size_t size)
{
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess) version = 0;
    const int major = version / 10000, rest = version % 10000; /* since 2.9 */
    (void)snprintf(text, size, "NCCL %d.%d.%d", major, rest / 100, rest % 100);
}

static void nccl_close(void *state);

static int take_gpu(struct nccl *n, char uuid[COMM_ENGINE_UNIQUE], char message[COMM_ENGINE_MESSAGE])
{
    static_assert((int)GPU_UUID_SIZE <= (int)COMM_ENGINE_UNIQUE, "a GPU's name fits");
    int n_visible = 0;
    void *memory = NULL;
    struct cudaDeviceProp about;
    const cudaError_t code = cudaGetDeviceCount(&n_visible);
    if (code != cudaSuccess || n_visible < 1) {
        (void)snprintf(message, COMM_ENGINE_MESSAGE, "no GPU can be used (%.300s); without GPUs use --engine mpi",
                       cudaGetErrorString(code));
        return COMM_ENGINE_OWN;
    }
    n->device = gpu_index(n->place.local_rank, n_visible);
    CUDA_TRY(cudaSetDevice(n->device));
    CUDA_TRY(cudaGetDeviceProperties(&about, n->device));
    gpu_uuid_text(about.uuid.bytes, uuid);
    /* Before the networks' kernels, of which an item's worth may be due when ranks agree. */
    int least, most;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &most));
    CUDA_TRY(cudaStreamCreateWithPriority(&n->stream, cudaStreamNonBlocking, most));
    n->has_stream = true;
    CUDA_TRY(cudaEventCreateWithFlags(&n->event, cudaEventDisableTiming));
    n->has_event = true;
    CUDA_TRY(cudaMallocHost(&memory, STAGE_BYTES));
    n->host = memory;
    CUDA_TRY(cudaMalloc(&memory, STAGE_BYTES));
    n->gpu = memory;
    return 0;
}

/* NCCL's id of the ranks that belong together, as text. */
static void write_id(const ncclUniqueId *id, char text[COMM_ENGINE_INVITATION])
{
    static_assert(2 * sizeof *id < COMM_ENGINE_INVITATION, "an invitation holds an id");
    const unsigned char *byte = (const unsigned char *)id;
    for (size_t i = 0; i < sizeof *id; i++) (void)snprintf(text + 2 * i, 3, "%02x", byte[i]);
}

static bool read_id(ncclUniqueId *id, const char *text)
{
    unsigned char *byte = (unsigned char *)id;
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 2 * sizeof *id || strspn(text, digits) != strlen(text)) return false;
    for (size_t i = 0; i < sizeof *id; i++)
        byte[i] = (unsigned char)((strchr(digits, text[2 * i]) - digits) << 4 | (strchr(digits, text[2 * i + 1]) - digits));
    return true;
}

static int nccl_open(void **state, const struct comm_engine_place *place, struct comm_engine_words *words,
                     char message[COMM_ENGINE_MESSAGE])
{
    const size_t size = (size_t)place->size;
    ncclUniqueId id;
    struct nccl *n = calloc(1, sizeof *n);
    if (n != NULL) {
        n->place = *place;
        n->sizes = calloc(size, sizeof *n->sizes);
        n->offsets = calloc(size, sizeof *n->offsets);
    }
    if (n == NULL || n->sizes == NULL || n->offsets == NULL) {
        (void)snprintf(message, COMM_ENGINE_MESSAGE, "no memory");
    } else if (take_gpu(n, words->unique, message) == 0) {
        const ncclResult_t code = place->rank == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
        if (code == ncclSuccess) {
            if (place->rank == 0) write_id(&id, words->invitation);
            *state = n;
            return 0;
        }
        (void)nccl_failed(n, code, "ncclGetUniqueId", message);
    }
    nccl_close(n);
    return COMM_ENGINE_OWN;
}

/* ---- what is sent, on the stream; in pieces of `chunk` ---- */

static int send_pieces(struct nccl *n, const char *from, size_t bytes, int to, char message[COMM_ENGINE_MESSAGE])
{
    for (size_t at = 0; at < bytes; at += n->place.chunk)
        NCCL_TRY(ncclSend(from + at, smaller(bytes - at, n->place.chunk), ncclInt8, to, n->comm, n->stream));
    return 0;
}

static int receive_pieces(struct nccl *n, char *to, size_t bytes, int from, char message[COMM_ENGINE_MESSAGE])
{
    for (size_t at = 0; at < bytes; at += n->place.chunk)
        NCCL_TRY(ncclRecv(to + at, smaller(bytes - at, n->place.chunk), ncclInt8, from, n->comm, n->stream));
    return 0;
}

/* In place on every rank. */
static int broadcast_pieces(struct nccl *n, char *data, size_t bytes, int root, char message[COMM_ENGINE_MESSAGE])
{
    for (size_t at = 0; at < bytes; at += n->place.chunk)
        NCCL_TRY(ncclBroadcast(data + at, data + at, smaller(bytes - at, n->place.chunk), ncclInt8, root, n->comm,
                               n->stream));
    return 0;
}

/* A group of calls is started as one: NCCL makes no progress with one of its members alone. It must be ended also where
 * a member failed. */
static int gather_pieces(struct nccl *n, const size_t *bytes, char *data, char message[COMM_ENGINE_MESSAGE])
{
    int error = 0;
    NCCL_TRY(ncclGroupStart());
    for (int r = 0; r < n->place.size && error == 0; data += bytes[r], r++)
        error = broadcast_pieces(n, data, bytes[r], r, message);
    const ncclResult_t code = ncclGroupEnd();
    if (error < 0) return error;
    return code == ncclSuccess ? 0 : nccl_failed(n, code, "ncclGroupEnd", message);
}

static int exchange_pieces(struct nccl *n, const char *send, const size_t *send_bytes, const size_t *send_offset,
                           char *receive, const size_t *receive_bytes, const size_t *receive_offset,
                           char message[COMM_ENGINE_MESSAGE])
{
    int error = 0;
    const int size = n->place.size, rank = n->place.rank;
    NCCL_TRY(ncclGroupStart());
    for (int i = 1; i < size && error == 0; i++) {
        const int to = (rank + i) % size, from = (rank + size - i) % size;
        error = send_pieces(n, send + send_offset[to], send_bytes[to], to, message);
        if (error == 0) error = receive_pieces(n, receive + receive_offset[from], receive_bytes[from], from, message);
    }
    const ncclResult_t code = ncclGroupEnd();
    if (error < 0) return error;
    return code == ncclSuccess ? 0 : nccl_failed(n, code, "ncclGroupEnd", message);
}

/* What was started ends with this event. */
static int mark_end(struct nccl *n, char message[COMM_ENGINE_MESSAGE])
{
    CUDA_TRY(cudaEventRecord(n->event, n->stream));
    n->started = true;
    return 0;
}

/* ---- memory of the host ---- */

/* The bytes of a whole of `bytes` that round `round` moves, and where they begin. */
static size_t round_bytes(const struct staged *s, size_t bytes, size_t *begin)
{
    *begin = smaller(s->round * s->each, bytes);
    return smaller(s->each, bytes - *begin);
}

/* Rounds that wholes of at most `most` bytes take, where `n_parts` pieces lie in the block at once. */
static void plan_rounds(struct staged *s, size_t most, size_t n_parts)
{
    s->each = STAGE_BYTES / n_parts;
    s->n_rounds = most / s->each + (most % s->each > 0);
    s->round = 0;
}

static int start_broadcast_round(struct nccl *n, char message[COMM_ENGINE_MESSAGE])
{
    const struct staged *s = &n->staged;
    size_t begin;
    const size_t bytes = round_bytes(s, s->receive_bytes[0], &begin);
    const bool gives = s->root == n->place.rank;
    if (gives) {
        memcpy(n->host, s->receive + begin, bytes);
        CUDA_TRY(cudaMemcpyAsync(n->gpu, n->host, bytes, cudaMemcpyHostToDevice, n->stream));
    }
    PART_TRY(broadcast_pieces(n, n->gpu, bytes, s->root, message));
    if (!gives) CUDA_TRY(cudaMemcpyAsync(n->host, n->gpu, bytes, cudaMemcpyDeviceToHost, n->stream));
    return 0;
}

/* Every rank's piece in a row, as long as it is. */
static int start_gather_round(struct nccl *n, char message[COMM_ENGINE_MESSAGE])
{
    const struct staged *s = &n->staged;
    size_t at = 0, whole_at = 0, begin;
    for (int r = 0; r < n->place.size; whole_at += s->receive_bytes[r], r++) {
        n->sizes[r] = round_bytes(s, s->receive_bytes[r], &begin);
        if (r == n->place.rank && n->sizes[r] > 0) {
            memcpy(n->host + at, s->receive + whole_at + begin, n->sizes[r]);
            CUDA_TRY(cudaMemcpyAsync(n->gpu + at, n->host + at, n->sizes[r], cudaMemcpyHostToDevice, n->stream));
        }
        at += n->sizes[r];
    }
    PART_TRY(gather_pieces(n, n->sizes, n->gpu, message));
    if (at > 0) CUDA_TRY(cudaMemcpyAsync(n->host, n->gpu, at, cudaMemcpyDeviceToHost, n->stream));
    return 0;
}

/* The block's first half is sent, rank r's piece at r * each, the second half received. */
static int start_exchange_round(struct nccl *n, char message[COMM_ENGINE_MESSAGE])
{
    const struct staged *s = &n->staged;
    const size_t size = (size_t)n->place.size, half = size * s->each;
    int error = 0;
    for (size_t r = 0; r < size; r++) {
        size_t begin;
        const size_t bytes = (int)r == n->place.rank ? 0 : round_bytes(s, s->send_bytes[r], &begin);
        n->sizes[r] = bytes;
        n->offsets[r] = r * s->each;
        if (bytes == 0) continue;
        memcpy(n->host + r * s->each, s->send + s->send_offset[r] + begin, bytes);
        CUDA_TRY(cudaMemcpyAsync(n->gpu + r * s->each, n->host + r * s->each, bytes, cudaMemcpyHostToDevice, n->stream));
    }
    NCCL_TRY(ncclGroupStart());
    for (size_t r = 0; r < size && error == 0; r++) {
        size_t begin;
        if ((int)r == n->place.rank) continue;
        error = send_pieces(n, n->gpu + n->offsets[r], n->sizes[r], (int)r, message);
        if (error == 0)
            error = receive_pieces(n, n->gpu + half + r * s->each, round_bytes(s, s->receive_bytes[r], &begin), (int)r,
                                   message);
    }
    const ncclResult_t code = ncclGroupEnd();
    if (error < 0) return error;
    if (code != ncclSuccess) return nccl_failed(n, code, "ncclGroupEnd", message);
    CUDA_TRY(cudaMemcpyAsync(n->host + half, n->gpu + half, half, cudaMemcpyDeviceToHost, n->stream));
    return 0;
}

static int start_round(struct nccl *n, char message[COMM_ENGINE_MESSAGE])
{
    const struct staged *s = &n->staged;
    PART_TRY(s->kind == STAGED_BROADCAST ? start_broadcast_round(n, message)
             : s->kind == STAGED_GATHER  ? start_gather_round(n, message)
                                         : start_exchange_round(n, message));
    return mark_end(n, message);
}

/* What a round has brought to the pinned block goes where it belongs. */
static void end_round(struct nccl *n)
{
    const struct staged *s = &n->staged;
    const int size = n->place.size, own = n->place.rank;
    size_t begin, at = 0, whole_at = 0;
    if (s->kind == STAGED_BROADCAST) {
        const size_t bytes = round_bytes(s, s->receive_bytes[0], &begin);
        if (s->root != own) memcpy(s->receive + begin, n->host, bytes);
        return;
    }
    if (s->kind == STAGED_EXCHANGE) at = (size_t)size * s->each;
    for (int r = 0; r < size; whole_at += s->receive_bytes[r], r++) {
        const size_t bytes = round_bytes(s, s->receive_bytes[r], &begin);
        const size_t to = (s->kind == STAGED_GATHER ? whole_at : s->receive_offset[r]) + begin;
        if (r != own && bytes > 0) memcpy(s->receive + to, n->host + at, bytes);
        at += s->kind == STAGED_GATHER ? bytes : s->each;
    }
}

/* Begins what was put into n->staged. */
static int start_staged(struct nccl *n, char message[COMM_ENGINE_MESSAGE])
{
    if (n->staged.n_rounds > 0) return start_round(n, message);
    n->staged.kind = STAGED_NONE;
    return 0;
}

/* ---- the table ---- */

static int nccl_broadcast(void *state, void *data, size_t bytes, int root, char message[COMM_ENGINE_MESSAGE])
{
    struct nccl *n = state;
    n->sizes[0] = bytes; /* the only operation whose rounds do not write there */
    n->staged = (struct staged){.kind = STAGED_BROADCAST, .root = root, .receive = data, .receive_bytes = n->sizes};
    plan_rounds(&n->staged, bytes, 1);
    return start_staged(n, message);
}

static int nccl_barrier(void *state, char message[COMM_ENGINE_MESSAGE])
{
    struct nccl *n = state;
    /* A byte from each to all. */
    for (int r = 0; r < n->place.size; r++) n->sizes[r] = 1;
    PART_TRY(gather_pieces(n, n->sizes, n->gpu, message));
    return mark_end(n, message);
}

static int nccl_gather_all(void *state, const size_t *bytes, void *receive, bool device,
                           char message[COMM_ENGINE_MESSAGE])
{
    struct nccl *n = state;
    size_t most = 0;
    if (device) {
        PART_TRY(gather_pieces(n, bytes, receive, message));
        return mark_end(n, message);
    }
    for (int r = 0; r < n->place.size; r++)
        if (bytes[r] > most) most = bytes[r];
    n->staged = (struct staged){.kind = STAGED_GATHER, .receive = receive, .receive_bytes = bytes};
    plan_rounds(&n->staged, most, (size_t)n->place.size);
    return start_staged(n, message);
}

static int nccl_exchange(void *state, const char *send, const size_t *send_bytes, const size_t *send_offset,
                         char *receive, const size_t *receive_bytes, const size_t *receive_offset, bool device,
                         char message[COMM_ENGINE_MESSAGE])
{
    struct nccl *n = state;
    size_t most = 0;
    if (device) {
        PART_TRY(exchange_pieces(n, send, send_bytes, send_offset, receive, receive_bytes, receive_offset, message));
        return mark_end(n, message);
    }
    for (int r = 0; r < n->place.size; r++) {
        if (r == n->place.rank) continue;
        if (send_bytes[r] > most) most = send_bytes[r];
        if (receive_bytes[r] > most) most = receive_bytes[r];
    }
    n->staged = (struct staged){.kind = STAGED_EXCHANGE,
                                .send = send,
                                .receive = receive,
                                .send_bytes = send_bytes,
                                .send_offset = send_offset,
                                .receive_bytes = receive_bytes,
                                .receive_offset = receive_offset};
    plan_rounds(&n->staged, most, 2 * (size_t)n->place.size);
    return start_staged(n, message);
}

static int nccl_test(void *state, bool *done, bool *moved, char message[COMM_ENGINE_MESSAGE])
{
    struct nccl *n = state;
    ncclResult_t error = ncclSuccess;
    *done = *moved = false;
    if (!n->started) {
        *done = true;
        return 0;
    }
    const cudaError_t code = cudaEventQuery(n->event);
    if (code == cudaErrorNotReady) {
        NCCL_TRY(ncclCommGetAsyncError(n->comm, &error));
        if (error == ncclSuccess || error == ncclInProgress) return 0;
        return nccl_failed(n, error, "NCCL's connections", message);
    }
    if (code != cudaSuccess) return cuda_failed(n, code, "waiting for the ranks", message);
    n->started = false;
    *moved = true;
    if (n->staged.kind != STAGED_NONE) {
        end_round(n);
        if (++n->staged.round < n->staged.n_rounds) return start_round(n, message);
        n->staged.kind = STAGED_NONE;
    }
    *done = true;
    return 0;
}

/* NCCL's threads and kernels would wait for ever for a rank that is gone, and a GPU gives no memory back meanwhile. */
static void nccl_give_up(void *state)
{
    struct nccl *n = state;
    n->failed = true;
    if (n->has_comm) (void)ncclCommAbort(n->comm);
    n->has_comm = false;
}

/* What was started, to its end. */
static int wait_for_end(struct nccl *n, char message[COMM_ENGINE_MESSAGE])
{
    const struct timespec pause = {0, 200000};
    bool done = false, moved;
    for (;;) {
        PART_TRY(nccl_test(n, &done, &moved, message));
        if (done) return 0;
        (void)nanosleep(&pause, NULL);
    }
}

/* Every kind of call once, between every two ranks: connections that cannot be made are found now, and what NCCL takes of
 * the GPU's memory for them is taken before the rest of it is planned. */
static int use_all(struct nccl *n, char message[COMM_ENGINE_MESSAGE])
{
    const size_t size = (size_t)n->place.size;
    for (size_t r = 0; r < size; r++) {
        n->sizes[r] = r != (size_t)n->place.rank;
        n->offsets[r] = r;
    }
    CUDA_TRY(cudaMemsetAsync(n->gpu, 0, 2 * size, n->stream));
    PART_TRY(exchange_pieces(n, n->gpu, n->sizes, n->offsets, n->gpu + size, n->sizes, n->offsets, message));
    PART_TRY(mark_end(n, message));
    PART_TRY(wait_for_end(n, message));
    PART_TRY(nccl_barrier(n, message));
    return wait_for_end(n, message);
}

static int nccl_ready(void *state, const char *invitation, char message[COMM_ENGINE_MESSAGE])
{
    struct nccl *n = state;
    ncclUniqueId id;
    if (!read_id(&id, invitation)) {
        (void)snprintf(message, COMM_ENGINE_MESSAGE, "what rank 0 sent is no id of NCCL's");
        return COMM_ENGINE_LOST;
    }
    NCCL_TRY(ncclCommInitRank(&n->comm, n->place.size, id, n->place.rank));
    n->has_comm = true;
    return use_all(n, message);
}

/* All ranks come here before any goes on. Where one ended instead, whoever watches the ranks has the time to say so. */
static void leave_together(struct nccl *n)
{
    char ignored[COMM_ENGINE_MESSAGE];
    const struct timespec long_pause = {2, 0};
    if (nccl_barrier(n, ignored) < 0 || wait_for_end(n, ignored) < 0) (void)nanosleep(&long_pause, NULL);
}

static void nccl_close(void *state)
{
    struct nccl *n = state;
    if (n == NULL) return;
    if (n->has_comm && !n->failed && !n->started) leave_together(n);
    /* After a failure, or with something under way, destroying would wait for ranks that may be gone. */
    if (n->has_comm) (void)(n->failed || n->started ? ncclCommAbort(n->comm) : ncclCommDestroy(n->comm));
    if (n->has_event) (void)cudaEventDestroy(n->event);
    if (n->has_stream) (void)cudaStreamDestroy(n->stream);
    if (n->host != NULL) (void)cudaFreeHost(n->host);
    if (n->gpu != NULL) (void)cudaFree(n->gpu);
    free(n->sizes);
    free(n->offsets);
    free(n);
}

static const struct comm_engine engine = {
    .abi = COMM_ENGINE_ABI,
    .name = "nccl",
    .invites = true,
    .device_memory = true,
    .prepare = nccl_prepare,
    .version = nccl_version,
    .open = nccl_open,
    .ready = nccl_ready,
    .barrier = nccl_barrier,
    .broadcast = nccl_broadcast,
    .gather_all = nccl_gather_all,
    .exchange = nccl_exchange,
    .test = nccl_test,
    .give_up = nccl_give_up,
    .close = nccl_close,
};

__attribute__((visibility("default"))) comm_engine_entry tabft_comm_engine;
const void *tabft_comm_engine(void) { return &engine; }
