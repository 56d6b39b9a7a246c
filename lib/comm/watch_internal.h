/* What the two halves of the watchdog share: watch.c is called by the main thread, watch_thread.c watches. */
#ifndef TABFT_COMM_WATCH_INTERNAL_H
#define TABFT_COMM_WATCH_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/comm_internal.h"
#include "comm/ring_internal.h"

enum frame_kind { FRAME_HEARTBEAT = 1, FRAME_GOODBYE, FRAME_DIED, FRAME_ABORTED, FRAME_SUSPECT };

/* What neighbours send each other, in one piece; both ends are the same build (the cards were compared). */
struct frame {
    uint32_t kind;
    int32_t rank;          /* the rank it is about */
    uint64_t collectives;  /* FRAME_HEARTBEAT: how many the sender has begun */
    char text[COMM_HOST_SIZE]; /* host of `rank` */
    char why[64];          /* FRAME_SUSPECT */
};

enum side { PREVIOUS, NEXT };

struct neighbour {
    int fd; /* -1: none */
    int rank;
    char host[COMM_HOST_SIZE];
    bool goodbye;
    size_t filled; /* bytes of `partial` that have come */
    struct frame partial;
};

struct watch {
    struct watch_options o;
    char host[COMM_HOST_SIZE];
    struct ring_listener listener;
    struct neighbour neighbours[2];
    pthread_t thread;
    bool started;
    int wake; /* eventfd: look at the fields below */

    pthread_mutex_t lock; /* for the fields down to the next empty line */
    bool closing;
    double patience;      /* seconds as this process lives them: a time in which it was stopped counts little */
    double limit_at;      /* of `patience`; 0: none */
    char what[128];
    uint64_t collectives;
    char suspect[COMM_HOST_SIZE + 128];
    bool met;             /* the neighbours are connected: watch them. Also guards the closing of their sockets */

    /* only the thread's */
    double ticked_at, heard_at, same_since, next_died_at, next_beat_at;
    uint64_t previous_collectives;
    bool suspecting;

    atomic_bool ending; /* the one that ends the process has set it */
    int abort_status;
    atomic_bool abort_done;
};

void *watch_run(void *watch); /* the thread */
/* Sends `kind` about this rank to both neighbours, from either thread. */
void watch_tell_both(struct watch *w, uint32_t kind);

#endif
