#include "train/ahead.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/store.h"
#include "table/table.h"
#include "train/chunks.h"

enum {
    WINDOWS = 2,
    POLITE = 10 /* niceness of the threads that read: what is computed goes first */
};

struct window {
    void *memory;
    struct table_store *store;
    size_t begin, end; /* chunks of the list that it holds */
    bool filled;
};

struct ahead {
    struct ahead_rules rules;
    size_t room;         /* rows of a window */
    struct table *table; /* a handle of the thread's own */
    struct window window[WINDOWS];
    size_t *row; /* [room] of the table, for the window being filled */

    pthread_t thread;
    bool running; /* the thread was started and not yet joined */
    pthread_mutex_t lock;
    pthread_cond_t moved;       /* any change of what follows */
    const struct chunk **chunk; /* [n] expected */
    size_t n, planned;          /* planned: chunks before it have a window, or had one */
    size_t filling, using;      /* number of the window being filled; of the one being used */
    atomic_bool stop;
    struct tabft_failure failure;
    double waited;
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t rows_of(const struct chunk *c) { return c->n_context + c->n_query; }

/* ---- sizes ---- */

static struct table_part part_of(const struct ahead_rules *r, const struct table *t, size_t n_rows)
{
    return (struct table_part){.table = t, .column = r->column, .n_columns = r->n_columns, .n_rows = n_rows};
}

/* Rows of a window: as many whole chunks as half the bytes hold, one at least and no more than an epoch's. */
static size_t window_rows(const struct ahead_rules *r, size_t epoch_rows)
{
    struct table_part one = part_of(r, r->table, r->chunk_rows);
    size_t bytes = table_part_bytes(&one), chunks = 1;
    if (bytes > 0 && bytes != SIZE_MAX && r->window / WINDOWS / bytes > 1) chunks = r->window / WINDOWS / bytes;
    if (chunks >= epoch_rows / (r->chunk_rows > 0 ? r->chunk_rows : 1) + 1) return epoch_rows;
    return chunks * r->chunk_rows;
}

size_t ahead_bytes(const struct ahead_rules *r, size_t epoch_rows)
{
    size_t rows = window_rows(r, epoch_rows),
           beside = table_pick_bytes(r->table, rows, r->n_threads) + rows * sizeof(size_t);
    struct table_part part = part_of(r, r->table, rows);
    size_t bytes = table_part_bytes(&part);
    return bytes > (SIZE_MAX - beside) / WINDOWS ? SIZE_MAX : WINDOWS * bytes + beside;
}

/* ---- the reading thread ---- */

/* Chunks from a->planned on for the next window; with the lock held. */
static void plan_window(struct ahead *a, struct window *w)
{
    size_t rows = 0;
    w->begin = w->end = a->planned;
    while (w->end < a->n && rows + rows_of(a->chunk[w->end]) <= a->room) rows += rows_of(a->chunk[w->end++]);
    a->planned = w->end;
}

static int fill(struct ahead *a, struct threads *pool, struct window *w, struct tabft_failure *f)
{
    size_t n = 0;
    for (size_t i = w->begin; i < w->end; i++) {
        const struct chunk *c = a->chunk[i];
        for (size_t k = 0; k < c->n_context; k++) a->row[n++] = a->rules.train_row[c->context[k]];
        for (size_t k = 0; k < c->n_query; k++) a->row[n++] = a->rules.train_row[c->query[k]];
    }
    return table_store_pick(w->store, pool, a->row, n, &a->stop, f);
}

static void *read_ahead(void *argument)
{
    struct ahead *a = argument;
    struct threads *pool = NULL;
    struct tabft_failure f = {0};
    /* On Linux that of this thread, which the pool's inherit. Where it fails nothing else changes. */
    (void)setpriority(PRIO_PROCESS, 0, POLITE);
    int opened = threads_open(&pool, a->rules.n_threads, &f);
    pthread_mutex_lock(&a->lock);
    if (opened < 0) a->failure = f;
    if (opened < 0) pthread_cond_broadcast(&a->moved);
    while (!a->stop && a->failure.code == 0 && a->planned < a->n) {
        if (a->filling >= a->using + WINDOWS) {
            pthread_cond_wait(&a->moved, &a->lock);
            continue;
        }
        struct window *w = &a->window[a->filling % WINDOWS];
        plan_window(a, w);
        pthread_mutex_unlock(&a->lock);
        int code = fill(a, pool, w, &f);
        pthread_mutex_lock(&a->lock);
        if (code < 0) a->failure = f;
        w->filled = code == 0;
        a->filling++;
        pthread_cond_broadcast(&a->moved);
    }
    pthread_mutex_unlock(&a->lock);
    threads_close(pool);
    return NULL;
}

/* ---- opening and closing ---- */

int ahead_open(struct ahead **out, const struct ahead_rules *rules, size_t epoch_rows, struct tabft_failure *f)
{
    int error = 0;
    struct ahead *a = NULL;
    TRY(memory_new(&a, 1, sizeof *a, "reading ahead", f));
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->moved, NULL);
    a->rules = *rules;
    a->room = window_rows(rules, epoch_rows);
    TRY(table_open_cells(&a->table, rules->table->path, rules->n_threads, f));
    if (strcmp(a->table->digest, rules->table->digest) != 0)
        FAIL(f, TABFT_INPUT, "%s: was replaced while it was read; run again when nothing writes to it",
             rules->table->path);
    TRY(memory_new(&a->row, a->room, sizeof *a->row, "reading ahead", f));
    struct table_part part = part_of(&a->rules, a->table, a->room);
    for (int i = 0; i < WINDOWS; i++) {
        TRY(memory_new_aligned(&a->window[i].memory, table_part_bytes(&part), 1, "a window of rows", f));
        TRY(table_store_open(&a->window[i].store, &part, a->window[i].memory, f));
    }
    *out = a;
    return 0;
fail:
    ahead_close(a);
    return error;
}

void ahead_forget(struct ahead *a)
{
    if (a == NULL || !a->running) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->moved);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    a->running = false;
    a->n = a->planned = 0;
}

void ahead_close(struct ahead *a)
{
    if (a == NULL) return;
    ahead_forget(a);
    for (int i = 0; i < WINDOWS; i++) {
        table_store_close(a->window[i].store);
        free(a->window[i].memory);
    }
    table_close(a->table);
    free(a->chunk);
    free(a->row);
    pthread_cond_destroy(&a->moved);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* ---- what is expected, what is taken ---- */

int ahead_expect(struct ahead *a, const struct chunk *const *chunk, size_t n, struct tabft_failure *f)
{
    int error = 0;
    ahead_forget(a);
    for (size_t i = 0; i < n; i++)
        if (rows_of(chunk[i]) > a->room)
            FAIL(f, TABFT_USE, "chunk %zu has %zu rows where a window has room for %zu", chunk[i]->id,
                 rows_of(chunk[i]), a->room);
    TRY(memory_grow(&a->chunk, n, sizeof *a->chunk, "reading ahead", f));
    if (n > 0) memcpy(a->chunk, chunk, n * sizeof *a->chunk);
    a->n = n;
    a->planned = a->filling = a->using = 0;
    a->stop = false;
    for (int i = 0; i < WINDOWS; i++) a->window[i].filled = false;
    if (n == 0) return 0;
    int cause = pthread_create(&a->thread, NULL, read_ahead, a);
    if (cause != 0) FAIL(f, TABFT_SYSTEM, "cannot start the thread that reads ahead: %s", strerror(cause));
    a->running = true;
fail:
    return error;
}

/* The chunk of the list whose context or query is `row`; a->n: none. */
static size_t find(const struct ahead *a, const size_t *row)
{
    size_t i = 0;
    while (i < a->n && a->chunk[i]->context != row && a->chunk[i]->query != row) i++;
    return i;
}

/* Goes on to the window that holds chunk i, and waits until it is filled: that window, or NULL where reading failed or
 * the chunk has been passed. With the lock held. */
static const struct window *wait_for(struct ahead *a, size_t i)
{
    for (;;) {
        const struct window *w = &a->window[a->using % WINDOWS];
        bool tried = a->using < a->filling;
        if (tried && w->filled && i >= w->begin && i < w->end) return w;
        if (tried && w->filled && i < w->begin) return NULL;
        if (a->failure.code != 0 && a->using + 1 >= a->filling) return NULL;
        if (tried && i >= w->end) {
            a->using ++; /* its memory may be filled again */
            pthread_cond_broadcast(&a->moved);
        } else {
            pthread_cond_wait(&a->moved, &a->lock);
        }
    }
}

int ahead_take(struct ahead *a, const size_t *row, size_t n_rows, double *x, bool *found, struct tabft_failure *f)
{
    *found = false;
    size_t i = a->running ? find(a, row) : a->n;
    if (i == a->n) return 0;
    double start = now();
    pthread_mutex_lock(&a->lock);
    const struct window *w = wait_for(a, i);
    const struct tabft_failure failure = a->failure;
    pthread_mutex_unlock(&a->lock);
    a->waited += now() - start;
    if (w == NULL) return failure.code == 0 ? 0 : tabft_fail(f, failure.code, "%s", failure.message);
    size_t first = row == a->chunk[i]->query ? a->chunk[i]->n_context : 0;
    for (size_t k = w->begin; k < i; k++) first += rows_of(a->chunk[k]);
    table_store_gather(w->store, NULL, first, n_rows, x);
    *found = true;
    return 0;
}

double ahead_waited(const struct ahead *a) { return a->waited; }
