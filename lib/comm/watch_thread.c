/* The watchdog's thread: heartbeats, what neighbours say, and the end of the process when one of them is gone. */
#include "comm/watch_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEARTBEAT_MS = 1000,
    SILENT_S = 4,     /* a neighbour without a heartbeat for so long is named as silent */
    BEHIND_S = 4,     /* a neighbour that has not joined a collective for so long is named as behind */
    NOTICE_MS = 500,  /* what the rank after the dead one has said reaches us within this */
    READ_MS = 2500,   /* how long who reads our stderr may take for our last line, */
    FORWARD_MS = 200, /* and to bring it from the node to the user: srun drops what comes after the ranks' end */
    ABORT_MS = 3000,  /* how long the launcher may take before this process ends by itself */
    FOLLOW_MS = 6000  /* longer: the status of the rank that spoke shall be the first the launcher sees */
};

static void pause_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Never waits: to a neighbour whose buffer is full (stopped for hours) nothing more is said. */
static void frame_send(struct neighbour *n, const struct frame *frame)
{
    if (n->fd < 0) return;
    const ssize_t sent = send(n->fd, frame, sizeof *frame, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && (size_t)sent < sizeof *frame) (void)shutdown(n->fd, SHUT_WR);
}

static struct frame frame_about(uint32_t kind, int rank, const char *host)
{
    struct frame frame = {.kind = kind, .rank = rank};
    (void)snprintf(frame.text, sizeof frame.text, "%s", host);
    return frame;
}

/* ---- the end of the process ---- */

static void *call_abort(void *argument)
{
    struct watch *w = argument;
    launcher_abort(w->o.launcher, w->abort_status);
    atomic_store(&w->abort_done, true);
    return NULL;
}

/* A launcher that is asked to end the job ends its own reading, too: first our last line shall be out of the pipe to
 * it. */
static void let_read(void)
{
    struct stat status;
    int unread = 1;
    if (fstat(STDERR_FILENO, &status) < 0 || !S_ISFIFO(status.st_mode)) return;
    for (int waited = 0; waited < READ_MS && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; waited += 10)
        pause_ms(10);
    pause_ms(FORWARD_MS);
}

/* The launcher may answer, hang, or kill us meanwhile; in any case this process ends. */
static void end_process(struct watch *w, int status) __attribute__((noreturn));
static void end_process(struct watch *w, int status)
{
    pthread_t thread;
    w->abort_status = status;
    if (w->o.launcher != NULL) let_read();
    if (w->o.launcher != NULL && pthread_create(&thread, NULL, call_abort, w) == 0)
        for (int waited = 0; waited < ABORT_MS && !atomic_load(&w->abort_done); waited += 10) pause_ms(10);
    _exit(status);
}

/* Only one thread may end the process; another that comes here waits for that. */
static void take_the_end(struct watch *w)
{
    while (atomic_exchange(&w->ending, true)) pause_ms(1000);
}

/* `message` NULL: another rank has said it. */
static void say(const struct watch *w, const char *message)
{
    if (w->o.last_words != NULL) {
        w->o.last_words(w->o.last_words_context, w->o.rank, w->host, message);
        return;
    }
    if (message == NULL) return;
    char line[TABFT_MESSAGE_SIZE];
    int n = snprintf(line, sizeof line, "%s: rank %d (%s): %s\n", program_invocation_short_name, w->o.rank, w->host,
                     message);
    if (n >= (int)sizeof line) n = (int)sizeof line - 1;
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) return; /* nobody listens: nothing more can be done */
}

static void neighbour_died(struct watch *w, const struct neighbour *n) __attribute__((noreturn));
static void neighbour_died(struct watch *w, const struct neighbour *n)
{
    char message[256];
    take_the_end(w);
    const struct frame frame = frame_about(FRAME_DIED, n->rank, n->host);
    (void)snprintf(message, sizeof message,
                   "rank %d on %s ended without finishing (killed? out of memory?); all ranks end", n->rank, n->host);
    say(w, message);
    frame_send(&w->neighbours[PREVIOUS], &frame);
    frame_send(&w->neighbours[NEXT], &frame);
    end_process(w, 5);
}

/* A limit has passed: a blocking call of the main thread did not come back. */
static void limit_passed(struct watch *w) __attribute__((noreturn));
static void limit_passed(struct watch *w)
{
    char message[512], late[256];
    take_the_end(w);
    watch_suspect(w, late, sizeof late);
    pthread_mutex_lock(&w->lock);
    (void)snprintf(message, sizeof message, "waited %d s for the other ranks: %s%s; all ranks end (--comm-timeout)",
                   w->o.timeout_s, w->what, late);
    pthread_mutex_unlock(&w->lock);
    say(w, message);
    watch_tell_both(w, FRAME_ABORTED);
    end_process(w, 5);
}

/* Another rank has spoken and asked the launcher to end the job with its status: leave that time to arrive. */
static void follow(struct watch *w, enum side from, const struct frame *frame) __attribute__((noreturn));
static void follow(struct watch *w, enum side from, const struct frame *frame)
{
    take_the_end(w);
    frame_send(&w->neighbours[from == PREVIOUS ? NEXT : PREVIOUS], frame);
    say(w, NULL);
    pause_ms(FOLLOW_MS);
    _exit(5);
}

/* The main thread may be connecting, or the watchdog's closing a connection. */
void watch_tell_both(struct watch *w, uint32_t kind)
{
    const struct frame frame = frame_about(kind, w->o.rank, w->host);
    pthread_mutex_lock(&w->lock);
    frame_send(&w->neighbours[PREVIOUS], &frame);
    frame_send(&w->neighbours[NEXT], &frame);
    pthread_mutex_unlock(&w->lock);
}

void watch_abort(struct watch *w, struct launcher *launcher, int status)
{
    if (w == NULL) {
        if (launcher != NULL) let_read();
        launcher_abort(launcher, status);
        _exit(status);
    }
    take_the_end(w);
    watch_tell_both(w, FRAME_ABORTED);
    end_process(w, status);
}

/* ---- the thread ---- */

static void frame_take(struct watch *w, enum side side, const struct frame *frame)
{
    struct neighbour *n = &w->neighbours[side];
    switch ((enum frame_kind)frame->kind) {
    case FRAME_HEARTBEAT:
        w->heard_at = comm_now();
        if (frame->collectives != w->previous_collectives) w->same_since = w->heard_at;
        w->previous_collectives = frame->collectives;
        break;
    case FRAME_GOODBYE: n->goodbye = true; break;
    case FRAME_DIED:
    case FRAME_ABORTED: follow(w, side, frame);
    case FRAME_SUSPECT:
        pthread_mutex_lock(&w->lock);
        if (frame->why[0] == '\0') w->suspect[0] = '\0';
        else
            (void)snprintf(w->suspect, sizeof w->suspect, "; rank %d on %.*s %.*s", frame->rank, COMM_HOST_SIZE - 1,
                           frame->text, (int)sizeof frame->why - 1, frame->why);
        pthread_mutex_unlock(&w->lock);
        if (w->neighbours[NEXT].rank != frame->rank) frame_send(&w->neighbours[NEXT], frame);
        break;
    }
}

/* Reads what has come from one neighbour. False when its connection is over. */
static bool neighbour_read(struct watch *w, enum side side)
{
    struct neighbour *n = &w->neighbours[side];
    for (;;) {
        const ssize_t got = recv(n->fd, (char *)&n->partial + n->filled, sizeof n->partial - n->filled, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (got <= 0) return false;
        n->filled += (size_t)got;
        if (n->filled < sizeof n->partial) continue;
        n->filled = 0;
        n->partial.text[sizeof n->partial.text - 1] = n->partial.why[sizeof n->partial.why - 1] = '\0';
        const struct frame frame = n->partial;
        frame_take(w, side, &frame);
    }
}

static void neighbour_ready(struct watch *w, enum side side)
{
    struct neighbour *n = &w->neighbours[side];
    if (neighbour_read(w, side)) return;
    if (!n->goodbye && (side == PREVIOUS || w->o.size == 2)) neighbour_died(w, n);
    /* The rank after the dead one speaks first and its word comes round the ring; if it died too, we speak. */
    if (!n->goodbye) w->next_died_at = comm_now();
    pthread_mutex_lock(&w->lock);
    close(n->fd);
    n->fd = -1;
    pthread_mutex_unlock(&w->lock);
}

/* Tells the others who may be the cause when a collective takes long: the previous rank silent, or behind. */
static void suspect_previous(struct watch *w, double t)
{
    const struct neighbour *p = &w->neighbours[PREVIOUS];
    struct frame frame = frame_about(FRAME_SUSPECT, p->rank, p->host);
    pthread_mutex_lock(&w->lock);
    const bool waiting = w->limit_at > 0, behind = waiting && w->previous_collectives < w->collectives;
    if (p->goodbye || p->fd < 0) (void)0;
    else if (t - w->heard_at > SILENT_S)
        (void)snprintf(frame.why, sizeof frame.why, "has been silent for %.0f s", t - w->heard_at);
    else if (behind && t - w->same_since > BEHIND_S)
        (void)snprintf(frame.why, sizeof frame.why, "has been elsewhere for %.0f s", t - w->same_since);
    const bool tell = frame.why[0] != '\0' || w->suspecting;
    w->suspecting = frame.why[0] != '\0';
    if (tell && !w->suspecting) w->suspect[0] = '\0';
    if (w->suspecting) (void)snprintf(w->suspect, sizeof w->suspect, "; rank %d on %s %s", p->rank, p->host, frame.why);
    pthread_mutex_unlock(&w->lock);
    if (tell && w->neighbours[NEXT].rank != p->rank) frame_send(&w->neighbours[NEXT], &frame);
}

static void beat(struct watch *w)
{
    const double t = comm_now();
    if (t < w->next_beat_at) return;
    /* After a pause of this very process the neighbour's heartbeats are still in the socket: they come first. */
    if (t - w->next_beat_at > SILENT_S) w->heard_at = w->same_since = t;
    w->next_beat_at = t + 1e-3 * HEARTBEAT_MS;
    struct frame frame = frame_about(FRAME_HEARTBEAT, w->o.rank, w->host);
    pthread_mutex_lock(&w->lock);
    frame.collectives = w->collectives;
    pthread_mutex_unlock(&w->lock);
    frame_send(&w->neighbours[NEXT], &frame);
    suspect_previous(w, t);
}

/* How long poll may sleep, in ms; -1 for ever. A limit is looked at each second. */
static int poll_time(const struct watch *w, bool limited, bool met)
{
    double until = 0;
    if (limited || met) until = met ? w->next_beat_at : comm_now() + 1e-3 * HEARTBEAT_MS;
    if (w->next_died_at > 0 && (until == 0 || w->next_died_at + 1e-3 * NOTICE_MS < until))
        until = w->next_died_at + 1e-3 * NOTICE_MS;
    if (until == 0) return -1;
    const double left = (until - comm_now()) * 1000;
    return left < 0 ? 0 : (int)left + 1;
}

/* One look at the clocks; false when the thread shall end. */
static bool watch_tick(struct watch *w, bool *limited, bool *met)
{
    const double t = comm_now();
    pthread_mutex_lock(&w->lock);
    if (w->ticked_at > 0) w->patience += t - w->ticked_at < 2 ? t - w->ticked_at : 2;
    w->ticked_at = t;
    const bool closing = w->closing, late = w->limit_at > 0 && w->patience > w->limit_at;
    *limited = w->limit_at > 0;
    *met = w->met;
    pthread_mutex_unlock(&w->lock);
    if (closing) return false;
    if (late) limit_passed(w);
    if (w->next_died_at > 0 && t > w->next_died_at + 1e-3 * NOTICE_MS) neighbour_died(w, &w->neighbours[NEXT]);
    if (*met && w->next_beat_at == 0) w->heard_at = w->same_since = w->next_beat_at = t;
    if (*met) beat(w);
    return true;
}

void *watch_run(void *argument)
{
    struct watch *w = argument;
    bool limited, met;
    while (watch_tick(w, &limited, &met)) {
        struct pollfd fds[3] = {{.fd = w->wake, .events = POLLIN}, {.fd = -1}, {.fd = -1}};
        for (int side = 0; met && side < 2; side++)
            fds[1 + side] = (struct pollfd){.fd = w->neighbours[side].fd, .events = POLLIN};
        if (poll(fds, 3, poll_time(w, limited, met)) < 0) continue;
        uint64_t count;
        if (fds[0].revents != 0 && read(w->wake, &count, sizeof count) < 0) continue;
        for (int side = 0; side < 2; side++)
            if (fds[1 + side].revents != 0) neighbour_ready(w, (enum side)side);
    }
    return NULL;
}
