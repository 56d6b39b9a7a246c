/* The watchdog. Every rank holds a connection to its two neighbours in a ring (two sockets a rank, however many
 * ranks), and a thread watches them: a connection that ends without a goodbye means that the neighbour's process
 * ended, whatever the engine or the launcher notice. The neighbour says so on stderr, tells the others along the
 * ring, asks the launcher to end the job and ends. Heartbeats show a neighbour that is stopped or behind; that only
 * goes into messages, the limit on what a rank waits for ends the run. Nothing rests on PMIx events or on srun's
 * kill options. */
#include "comm/watch_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/memory.h"

enum { GRACE_S = 3 }; /* the caller's own limit comes first */

static void watch_wake(struct watch *w)
{
    const uint64_t one = 1;
    if (write(w->wake, &one, sizeof one) < 0) return; /* full: it is awake already */
}

int watch_open(struct watch **out, const struct watch_options *options, struct tabft_failure *f)
{
    int error = 0;
    struct watch *w = NULL;
    TRY(memory_new(&w, 1, sizeof *w, "the watchdog", f));
    w->o = *options;
    (void)snprintf(w->host, sizeof w->host, "%s", options->host);
    w->wake = -1;
    w->neighbours[PREVIOUS].fd = w->neighbours[NEXT].fd = -1;
    ring_listener_none(&w->listener);
    pthread_mutex_init(&w->lock, NULL);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake < 0) FAIL(f, TABFT_SYSTEM, "the watchdog: %s", strerror(errno));
    const int e = pthread_create(&w->thread, NULL, watch_run, w);
    if (e != 0) FAIL(f, TABFT_SYSTEM, "the watchdog's thread: %s", strerror(e));
    w->started = true;
    *out = w;
    return 0;
fail:
    watch_close(w);
    return error;
}

int watch_connect(struct watch *w, const char *agreement, struct tabft_failure *f)
{
    int error = 0;
    struct ring_card mine, next, previous;
    char text[COMM_CARD_SIZE];
    const double until = comm_now() + w->o.timeout_s;
    struct neighbour *n = w->neighbours;
    int fd[2] = {-1, -1}; /* while they are waited for the thread may end the process, and looks at its own */
    n[NEXT].rank = (w->o.rank + 1) % w->o.size;
    n[PREVIOUS].rank = (w->o.rank + w->o.size - 1) % w->o.size;
    TRY(ring_listen(&w->listener, f));
    TRY(ring_card_make(&mine, &w->listener, w->host, agreement, f));
    ring_card_print(&mine, text);
    TRY(launcher_publish(w->o.launcher, text, f));
    TRY(launcher_card(w->o.launcher, n[NEXT].rank, text, f));
    TRY(ring_card_parse(&next, n[NEXT].rank, text, f));
    TRY(launcher_card(w->o.launcher, n[PREVIOUS].rank, text, f));
    TRY(ring_card_parse(&previous, n[PREVIOUS].rank, text, f));
    (void)snprintf(n[NEXT].host, sizeof n[NEXT].host, "%s", next.host);
    (void)snprintf(n[PREVIOUS].host, sizeof n[PREVIOUS].host, "%s", previous.host);
    if (strcmp(previous.agreement, agreement) != 0)
        FAIL(f, TABFT_USE, "rank %d (%s) runs %s, rank %d (%s) runs %s; all ranks must be one build with one engine",
             n[PREVIOUS].rank, previous.host, previous.agreement, w->o.rank, w->host, agreement);
    TRY(ring_dial(&fd[NEXT], &mine, &next, w->o.rank, n[NEXT].rank, until, f));
    TRY(ring_accept(&fd[PREVIOUS], &w->listener, &mine, n[PREVIOUS].rank, previous.host, until, f));
    ring_listener_close(&w->listener);
fail:
    pthread_mutex_lock(&w->lock);
    for (int side = 0; side < 2; side++) n[side].fd = fd[side]; /* of a failure, too, one neighbour may be told */
    w->met = error == 0;
    pthread_mutex_unlock(&w->lock);
    watch_wake(w);
    return error;
}

void watch_limit(struct watch *w, const char *what)
{
    pthread_mutex_lock(&w->lock);
    w->limit_at = w->patience + w->o.timeout_s + GRACE_S;
    (void)snprintf(w->what, sizeof w->what, "%s", what);
    const bool asleep = !w->met; /* without neighbours the thread looks at no clock by itself */
    pthread_mutex_unlock(&w->lock);
    if (asleep) watch_wake(w);
}

void watch_relax(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->limit_at = 0;
    pthread_mutex_unlock(&w->lock);
}

void watch_advance(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->collectives++;
    pthread_mutex_unlock(&w->lock);
}

void watch_suspect(struct watch *w, char *text, size_t size)
{
    pthread_mutex_lock(&w->lock);
    (void)snprintf(text, size, "%s", w->suspect);
    pthread_mutex_unlock(&w->lock);
}

void watch_await_end(struct watch *w)
{
    while (atomic_load(&w->ending)) (void)pause();
}

void watch_goodbye(struct watch *w)
{
    watch_tell_both(w, FRAME_GOODBYE);
}

void watch_close(struct watch *w)
{
    if (w == NULL) return;
    if (w->started) {
        pthread_mutex_lock(&w->lock);
        w->closing = true;
        pthread_mutex_unlock(&w->lock);
        watch_wake(w);
        pthread_join(w->thread, NULL);
    }
    for (int side = 0; side < 2; side++)
        if (w->neighbours[side].fd >= 0) close(w->neighbours[side].fd);
    ring_listener_close(&w->listener);
    if (w->wake >= 0) close(w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
