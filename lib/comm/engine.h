/* What carries bytes between ranks: a table of functions that an engine fills. self is built in; others are
 * plugins, shared objects "tabft-engine-NAME.so" that export `tabft_comm_engine` and use nothing of libtabft.
 *
 * An operation is started, then tested until it is done; one at a time. Buffers, and the arrays of their sizes, stay with
 * the engine until then.
 * Every function that can fail returns 0, COMM_ENGINE_LOST or COMM_ENGINE_OWN with a line in `message`; after a failure only
 * close may follow, or nothing. */
#ifndef TABFT_COMM_ENGINE_H
#define TABFT_COMM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

enum { COMM_ENGINE_ABI = 5, COMM_ENGINE_MESSAGE = 512, COMM_ENGINE_INVITATION = 512, COMM_ENGINE_UNIQUE = 128 };

/* How it failed: by another rank or the way to it, as far as the engine can tell; or by what is this rank's own, its GPU. */
enum { COMM_ENGINE_LOST = -1, COMM_ENGINE_OWN = -2 };

/* Where this process stands. */
struct comm_engine_place {
    int rank, size;
    int local_rank; /* among the ranks of this node: says which GPU is its own (base/gpu.h) */
    size_t chunk;   /* the largest piece of bytes at once, <= 2^31 - 1 */
};

/* What a rank says in open, for the others to know before ready: texts without blanks and control characters, empty
 * before. */
struct comm_engine_words {
    char invitation[COMM_ENGINE_INVITATION]; /* rank 0's, which ready needs on every rank */
    char unique[COMM_ENGINE_UNIQUE];         /* what no other rank on this host may have: its GPU; "": nothing */
};

struct comm_engine {
    int abi;          /* COMM_ENGINE_ABI */
    const char *name; /* "mpi" */
    bool invites;       /* the words of all ranks are exchanged before ready; without it nobody looks at them */
    bool device_memory; /* gather_all and exchange take memory of this rank's GPU too: `device` says what theirs is */
    /* Sets environment variables if the library needs any; called before open, while no other thread reads them. */
    void (*prepare)(void);
    /* The library's name and version, without starting it. */
    void (*version)(char *text, size_t size);
    /* Joins; fails unless the library sees this rank and size. Blocks. */
    int (*open)(void **state, const struct comm_engine_place *place, struct comm_engine_words *words,
                char message[COMM_ENGINE_MESSAGE]);
    /* Collective, after every rank has returned from open: the first messages. Blocks. Open MPI 4.1 ends its start with
     * a fence that under Slurm waits for nobody, and dies of a message that comes before its handlers are there.
     * `invitation`: rank 0's. */
    int (*ready)(void *state, const char *invitation, char message[COMM_ENGINE_MESSAGE]);
    int (*barrier)(void *state, char message[COMM_ENGINE_MESSAGE]);
    int (*broadcast)(void *state, void *data, size_t bytes, int root, char message[COMM_ENGINE_MESSAGE]);
    /* Rank r's bytes[r] come to the running sum of bytes[0..r-1]; the own part is already in place in `receive`. */
    int (*gather_all)(void *state, const size_t *bytes, void *receive, bool device, char message[COMM_ENGINE_MESSAGE]);
    /* The part to oneself is already copied. */
    int (*exchange)(void *state, const char *send, const size_t *send_bytes, const size_t *send_offset, char *receive,
                    const size_t *receive_bytes, const size_t *receive_offset, bool device,
                    char message[COMM_ENGINE_MESSAGE]);
    /* Moves the started operation on; *done when it is complete, *moved when something happened since the last call. */
    int (*test)(void *state, bool *done, bool *moved, char message[COMM_ENGINE_MESSAGE]);
    /* After a failure, or where an operation takes too long: ends what is under way without the other ranks, so that its
     * memory can be given back. NULL: nothing holds it. */
    void (*give_up)(void *state);
    /* Collective: leaves the ranks, frees state. Blocks. NULL is fine. */
    void (*close)(void *state);
};

/* The symbol that a plugin exports, and its type: it gives the struct comm_engine (base/plugin.h). */
typedef const void *comm_engine_entry(void);
#define COMM_ENGINE_ENTRY "tabft_comm_engine"

#endif
