/* NCCL over sockets of this machine: every two ranks have a connection, found by the id. A group of calls becomes one task
 * of its stream, which moves what can be moved without waiting. What is sent is announced by its size, so that calls
 * that do not match end the program instead of waiting. A peer that is gone shows in ncclCommGetAsyncError, and what
 * waits for it waits on, as with NCCL.
 * Environment: NCCL_EMULATION_HANG=1: this rank comes to ncclCommInitRank and no further; NCCL_EMULATION_TELL=1: a line on
 * stderr when communication is aborted. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

enum { MOST_RANKS = 64, JOIN_S = 60 };

struct transfer {
    char *data;
    uint64_t size, announced;
    size_t header_done, done; /* bytes */
    struct transfer *next;
};
struct channel {
    struct transfer *first, *last; /* in the order of the calls */
};

struct emulation_comm {
    int size, rank;
    int fd[MOST_RANKS]; /* -1: oneself, or closed */
    ncclResult_t error;
    unsigned users; /* tasks, and the program */
    bool gone;
};

struct group {
    ncclComm_t comm;
    struct channel out[MOST_RANKS], in[MOST_RANKS];
};

/* What rank says first on a connection. */
struct hello {
    int32_t rank, device;
    char node[64];
};

static char last_error[256];
static unsigned depth;
static struct group *current;
static cudaStream_t current_stream;

static void die(const char *what)
{
    (void)fprintf(stderr, "NCCL emulation: %s\n", what);
    abort();
}

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) die("no memory");
    return memory;
}

static ncclResult_t fail(ncclResult_t code, const char *text)
{
    (void)snprintf(last_error, sizeof last_error, "%s", text);
    return code;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = 29999; /* no NCCL has it */
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

/* ---- leaving ---- */

static void let_go(ncclComm_t c)
{
    if (--c->users == 0) free(c);
}

static ncclResult_t leave(ncclComm_t c)
{
    for (int r = 0; r < c->size; r++)
        if (c->fd[r] >= 0) close(c->fd[r]);
    c->gone = true;
    let_go(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    if (getenv("NCCL_EMULATION_TELL") != NULL) (void)fprintf(stderr, "NCCL emulation: rank %d aborts\n", c->rank);
    return leave(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    if (c->users > 1) die("a communicator is destroyed that is in use");
    return leave(c);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    *error = c->error;
    return ncclSuccess;
}

/* ---- joining ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return fail(ncclSystemError, "no random number");
    memset(id, 0, sizeof *id);
    (void)snprintf(id->internal, sizeof id->internal, "nccl-emulation-%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]);
    return ncclSuccess;
}

/* In the abstract namespace, so that nothing is left behind. */
static socklen_t address_of(struct sockaddr_un *a, const ncclUniqueId *id, int rank)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%.60s-%d", id->internal, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool move_all(int fd, void *data, size_t size, bool gives)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = gives ? send(fd, (char *)data + done, size - done, MSG_NOSIGNAL)
                                : recv(fd, (char *)data + done, size - done, 0);
        if (n <= 0 && errno != EINTR) return false;
        if (n > 0) done += (size_t)n;
    }
    return true;
}

static int dial(const ncclUniqueId *id, int rank)
{
    struct sockaddr_un address;
    const socklen_t length = address_of(&address, id, rank);
    const struct timespec pause = {0, 2000000};
    for (int i = 0; i < JOIN_S * 500; i++) {
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, length) == 0) return fd;
        if (fd >= 0) close(fd);
        (void)nanosleep(&pause, NULL);
    }
    return -1;
}

static ncclResult_t meet(ncclComm_t c, int fd, struct hello own)
{
    struct hello other;
    if (fd < 0) return fail(ncclSystemError, "a rank did not come");
    if (!move_all(fd, &own, sizeof own, true) || !move_all(fd, &other, sizeof other, false)) {
        close(fd);
        return fail(ncclRemoteError, "a rank went while joining");
    }
    if (other.rank < 0 || other.rank >= c->size || c->fd[other.rank] >= 0) die("two ranks of one number");
    c->fd[other.rank] = fd;
    if (other.device == own.device && strncmp(other.node, own.node, sizeof own.node) == 0)
        return fail(ncclInvalidUsage, "Duplicate GPU detected: two ranks on one CUDA device");
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    struct sockaddr_un address;
    struct hello own = {.rank = rank};
    const char *node = getenv("SLURMD_NODENAME"); /* tests have several on a machine */
    struct cudaDeviceProp about;
    int device;
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size) return fail(ncclInvalidArgument, "ranks");
    if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&about, device) != cudaSuccess)
        return fail(ncclInvalidUsage, "no device");
    own.device = about.uuid.bytes[sizeof about.uuid.bytes - 1];
    (void)snprintf(own.node, sizeof own.node, "%s", node == NULL ? "" : node);
    while (getenv("NCCL_EMULATION_HANG") != NULL) (void)pause();
    ncclComm_t c = take(sizeof *c);
    *c = (struct emulation_comm){.size = size, .rank = rank, .users = 1};
    for (int r = 0; r < size; r++) c->fd[r] = -1;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const socklen_t length = address_of(&address, &id, rank);
    ncclResult_t code = ncclSuccess;
    if (listener < 0 || bind(listener, (const struct sockaddr *)&address, length) != 0 ||
        listen(listener, MOST_RANKS) != 0)
        code = fail(ncclSystemError, "no socket");
    for (int r = 0; r < rank && code == ncclSuccess; r++) code = meet(c, dial(&id, r), own);
    for (int r = rank + 1; r < size && code == ncclSuccess; r++) code = meet(c, accept4(listener, NULL, NULL, SOCK_CLOEXEC), own);
    if (listener >= 0) close(listener);
    if (code == ncclSuccess) *comm = c;
    else (void)leave(c);
    return code;
}

/* ---- moving ---- */

static void lose(ncclComm_t c, int peer)
{
    c->error = fail(ncclRemoteError, "a rank closed its connection");
    close(c->fd[peer]);
    c->fd[peer] = -1;
}

/* As much as goes without waiting; true when all of [*done, size) is through. */
static bool move_some(ncclComm_t c, int peer, void *data, size_t size, size_t *done, bool gives)
{
    while (*done < size && c->fd[peer] >= 0) {
        const ssize_t n = gives ? send(c->fd[peer], (char *)data + *done, size - *done, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : recv(c->fd[peer], (char *)data + *done, size - *done, MSG_DONTWAIT);
        if (n > 0) *done += (size_t)n;
        else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        else if (n == 0 || errno != EINTR) lose(c, peer);
    }
    return *done == size;
}

static bool move_channel(ncclComm_t c, int peer, struct channel *channel, bool gives)
{
    while (channel->first != NULL) {
        struct transfer *t = channel->first;
        if (gives) t->announced = t->size;
        if (!move_some(c, peer, &t->announced, sizeof t->announced, &t->header_done, gives)) return false;
        if (t->announced != t->size) die("a rank receives another number of bytes than is sent to it");
        if (!move_some(c, peer, t->data, t->size, &t->done, gives)) return false;
        channel->first = t->next;
        free(t);
    }
    return true;
}

static int group_step(void *context)
{
    struct group *g = context;
    bool all = true;
    if (g->comm->gone) return 1;
    for (int r = 0; r < g->comm->size; r++) {
        all = move_channel(g->comm, r, &g->out[r], true) && all;
        all = move_channel(g->comm, r, &g->in[r], false) && all;
    }
    return all;
}

static void group_end(void *context)
{
    struct group *g = context;
    for (int r = 0; r < MOST_RANKS; r++)
        for (int side = 0; side < 2; side++) {
            struct channel *channel = side == 0 ? &g->out[r] : &g->in[r];
            while (channel->first != NULL) {
                struct transfer *t = channel->first;
                channel->first = t->next;
                free(t);
            }
        }
    let_go(g->comm);
    free(g);
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0) return fail(ncclInvalidUsage, "a group ends that was not started");
    if (--depth > 0 || current == NULL) return ncclSuccess;
    struct group *g = current;
    current = NULL;
    if (emulation_put(current_stream, group_step, group_end, g) == cudaSuccess) return ncclSuccess;
    return fail(ncclUnhandledCudaError, "a GPU does not take a group of calls");
}

/* A transfer of the group at hand, or of one of its own. */
static void put(struct channel *channel, void *data, size_t size)
{
    if (!emulation_may_be_gpus(data, size)) die("memory that is not the GPU's");
    struct transfer *t = take(sizeof *t);
    *t = (struct transfer){.data = data, .size = size};
    if (channel->first == NULL) channel->first = t;
    else channel->last->next = t;
    channel->last = t;
}

static struct group *group_of(ncclComm_t comm, cudaStream_t stream)
{
    if (current == NULL) {
        current = take(sizeof *current);
        current->comm = comm;
        comm->users++;
        current_stream = stream;
    } else if (current->comm != comm || current_stream != stream) {
        die("a group of several communicators or streams");
    }
    return current;
}

static bool is_peer(ncclComm_t comm, int peer) { return peer >= 0 && peer < comm->size && peer != comm->rank; }

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int to, ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclInt8 || !is_peer(comm, to) || from == NULL) return fail(ncclInvalidArgument, "ncclSend");
    (void)ncclGroupStart();
    put(&group_of(comm, stream)->out[to], (void *)(uintptr_t)from, count);
    return ncclGroupEnd();
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclInt8 || !is_peer(comm, from) || to == NULL) return fail(ncclInvalidArgument, "ncclRecv");
    (void)ncclGroupStart();
    put(&group_of(comm, stream)->in[from], to, count);
    return ncclGroupEnd();
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    if (type != ncclInt8 || root < 0 || root >= comm->size || from != to || to == NULL)
        return fail(ncclInvalidArgument, "ncclBroadcast");
    (void)ncclGroupStart();
    struct group *g = group_of(comm, stream);
    if (root != comm->rank) put(&g->in[root], to, count);
    else
        for (int r = 0; r < comm->size; r++)
            if (r != root) put(&g->out[r], to, count);
    return ncclGroupEnd();
}
