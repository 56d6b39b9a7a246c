/* The mpi engine: bytes between ranks by the site's MPI. A plugin, tabft-engine-mpi.so, so that TabFT itself needs
 * no MPI. Everything is nonblocking and tested by the caller, who sleeps between tests: MPI's own waiting would
 * keep a core busy. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/engine.h"

enum { TAG = 1 };

struct mpi {
    MPI_Comm comm;
    int rank, size;
    size_t chunk;
    int *counts, *offsets;   /* [size], for an operation under way */
    MPI_Request *requests;
    int *indices;            /* scratch of MPI_Testsome */
    int n_requests, n_room, n_left;
};

static int failed(int code, const char *call, char message[COMM_ENGINE_MESSAGE])
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) (void)snprintf(text, sizeof text, "error %d", code);
    (void)snprintf(message, COMM_ENGINE_MESSAGE, "%s: %.400s", call, text);
    return COMM_ENGINE_LOST;
}

/* In a function that has `message`: the call, or its error as the function's. */
#define MPI_TRY(call)                                                                                                  \
    do {                                                                                                               \
        int mpi_code = (call);                                                                                         \
        if (mpi_code != MPI_SUCCESS) return failed(mpi_code, #call, message);                                          \
    } while (0)

static void mpi_prepare(void)
{
    /* Open MPI: where it waits by itself (start, end), it leaves the processor to others. The user's setting wins. */
    (void)setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

static void mpi_version(char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS) (void)snprintf(version, sizeof version, "MPI");
    /* "Open MPI v4.1.4, package: …", "MPICH Version: 4.0.2\nMPICH Release date: …" */
    version[strcspn(version, ",\n")] = '\0';
    for (char *p = version; *p; p++)
        if (*p == '\t') *p = ' ';
    (void)snprintf(text, size, "%s", version);
}

static void mpi_close(void *state)
{
    struct mpi *m = state;
    int finalized = 0, initialized = 0;
    if (MPI_Initialized(&initialized) == MPI_SUCCESS && initialized && MPI_Finalized(&finalized) == MPI_SUCCESS &&
        !finalized) {
        if (m != NULL && m->comm != MPI_COMM_NULL) (void)MPI_Comm_free(&m->comm);
        (void)MPI_Finalize();
    }
    if (m == NULL) return;
    free(m->counts);
    free(m->offsets);
    free(m->requests);
    free(m->indices);
    free(m);
}

static int join(struct mpi *m, int rank, int size, char message[COMM_ENGINE_MESSAGE])
{
    int provided = 0;
    MPI_TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided));
    if (provided < MPI_THREAD_FUNNELED) {
        (void)snprintf(message, COMM_ENGINE_MESSAGE, "this MPI does not allow threads beside it");
        return COMM_ENGINE_LOST;
    }
    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &m->rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &m->size));
    if (m->rank != rank || m->size != size) {
        (void)snprintf(message, COMM_ENGINE_MESSAGE,
                       "MPI calls this rank %d of %d, the launcher rank %d of %d; use the MPI that it starts",
                       m->rank, m->size, rank, size);
        return COMM_ENGINE_LOST;
    }
    return 0;
}

static int mpi_ready(void *state, const char *invitation, char message[COMM_ENGINE_MESSAGE])
{
    struct mpi *m = state;
    (void)invitation;
    MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &m->comm));
    MPI_TRY(MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN));
    return 0;
}

static int mpi_open(void **state, const struct comm_engine_place *place, struct comm_engine_words *words,
                    char message[COMM_ENGINE_MESSAGE])
{
    const size_t size = (size_t)place->size;
    struct mpi *m = calloc(1, sizeof *m);
    (void)words;
    if (m != NULL) {
        m->comm = MPI_COMM_NULL;
        m->chunk = place->chunk;
        m->counts = calloc(size, sizeof *m->counts);
        m->offsets = calloc(size, sizeof *m->offsets);
    }
    if (m == NULL || m->counts == NULL || m->offsets == NULL) {
        (void)snprintf(message, COMM_ENGINE_MESSAGE, "no memory");
    } else if (join(m, place->rank, place->size, message) == 0) {
        *state = m;
        return 0;
    }
    /* No MPI_Finalize: it would wait for ranks that this one is about to end. */
    if (m != NULL) {
        free(m->counts);
        free(m->offsets);
    }
    free(m);
    return COMM_ENGINE_LOST;
}

/* The next free request, NULL without memory. */
static MPI_Request *new_request(struct mpi *m, char message[COMM_ENGINE_MESSAGE])
{
    if (m->n_requests == m->n_room) {
        const int room = m->n_room == 0 ? 64 : 2 * m->n_room;
        MPI_Request *requests = realloc(m->requests, (size_t)room * sizeof *requests);
        if (requests != NULL) m->requests = requests;
        int *indices = realloc(m->indices, (size_t)room * sizeof *indices);
        if (indices != NULL) m->indices = indices;
        if (requests == NULL || indices == NULL) {
            (void)snprintf(message, COMM_ENGINE_MESSAGE, "no memory for %d requests", room);
            return NULL;
        }
        m->n_room = room;
    }
    m->n_left++;
    m->requests[m->n_requests] = MPI_REQUEST_NULL;
    return &m->requests[m->n_requests++];
}

static int mpi_barrier(void *state, char message[COMM_ENGINE_MESSAGE])
{
    struct mpi *m = state;
    MPI_Request *request = new_request(m, message);
    if (request == NULL) return COMM_ENGINE_LOST;
    MPI_TRY(MPI_Ibarrier(m->comm, request));
    return 0;
}

static int mpi_broadcast(void *state, void *data, size_t bytes, int root, char message[COMM_ENGINE_MESSAGE])
{
    struct mpi *m = state;
    for (size_t at = 0; at < bytes; at += m->chunk) {
        const size_t n = bytes - at < m->chunk ? bytes - at : m->chunk;
        MPI_Request *request = new_request(m, message);
        if (request == NULL) return COMM_ENGINE_LOST;
        MPI_TRY(MPI_Ibcast((char *)data + at, (int)n, MPI_BYTE, root, m->comm, request));
    }
    return 0;
}

static int mpi_gather_all(void *state, const size_t *bytes, void *receive, bool device,
                          char message[COMM_ENGINE_MESSAGE])
{
    struct mpi *m = state;
    (void)device;
    size_t total = 0;
    for (int r = 0; r < m->size; r++) total += bytes[r];
    if (total <= m->chunk) {
        for (int r = 0, at = 0; r < m->size; at += (int)bytes[r], r++) {
            m->counts[r] = (int)bytes[r];
            m->offsets[r] = at;
        }
        MPI_Request *request = new_request(m, message);
        if (request == NULL) return COMM_ENGINE_LOST;
        MPI_TRY(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, receive, m->counts, m->offsets, MPI_BYTE, m->comm, request));
        return 0;
    }
    /* More than MPI's int offsets reach: a broadcast from each rank. */
    char *at = receive;
    for (int r = 0; r < m->size; at += bytes[r], r++)
        if (mpi_broadcast(m, at, bytes[r], r, message) < 0) return COMM_ENGINE_LOST;
    return 0;
}

static int mpi_exchange(void *state, const char *send, const size_t *send_bytes, const size_t *send_offset,
                        char *receive, const size_t *receive_bytes, const size_t *receive_offset, bool device,
                        char message[COMM_ENGINE_MESSAGE])
{
    struct mpi *m = state;
    (void)device;
    /* Pieces between two ranks keep their order; each rank begins with its next one: not all send to rank 0 at once. */
    for (int i = 1; i < m->size; i++) {
        const int r = (m->rank + m->size - i) % m->size;
        for (size_t at = 0; at < receive_bytes[r]; at += m->chunk) {
            const size_t n = receive_bytes[r] - at < m->chunk ? receive_bytes[r] - at : m->chunk;
            MPI_Request *request = new_request(m, message);
            if (request == NULL) return COMM_ENGINE_LOST;
            MPI_TRY(MPI_Irecv(receive + receive_offset[r] + at, (int)n, MPI_BYTE, r, TAG, m->comm, request));
        }
    }
    for (int i = 1; i < m->size; i++) {
        const int r = (m->rank + i) % m->size;
        for (size_t at = 0; at < send_bytes[r]; at += m->chunk) {
            const size_t n = send_bytes[r] - at < m->chunk ? send_bytes[r] - at : m->chunk;
            MPI_Request *request = new_request(m, message);
            if (request == NULL) return COMM_ENGINE_LOST;
            MPI_TRY(MPI_Isend(send + send_offset[r] + at, (int)n, MPI_BYTE, r, TAG, m->comm, request));
        }
    }
    return 0;
}

static int mpi_test(void *state, bool *done, bool *moved, char message[COMM_ENGINE_MESSAGE])
{
    struct mpi *m = state;
    int completed = 0;
    *moved = false;
    if (m->n_left > 0)
        MPI_TRY(MPI_Testsome(m->n_requests, m->requests, &completed, m->indices, MPI_STATUSES_IGNORE));
    if (completed > 0) {
        *moved = true;
        m->n_left -= completed;
    }
    *done = m->n_left == 0;
    if (*done) m->n_requests = 0;
    return 0;
}

static const struct comm_engine engine = {
    .abi = COMM_ENGINE_ABI,
    .name = "mpi",
    .prepare = mpi_prepare,
    .version = mpi_version,
    .open = mpi_open,
    .ready = mpi_ready,
    .barrier = mpi_barrier,
    .broadcast = mpi_broadcast,
    .gather_all = mpi_gather_all,
    .exchange = mpi_exchange,
    .test = mpi_test,
    .close = mpi_close,
};

__attribute__((visibility("default"))) comm_engine_entry tabft_comm_engine;
const void *tabft_comm_engine(void) { return &engine; }
