#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct threads {
    int count;
    pthread_t *workers;      /* count - 1 of them */
    pthread_mutex_t lock;
    pthread_cond_t start;    /* a loop is there, or the end */
    pthread_cond_t finished; /* the last worker has left the loop */
    unsigned long generation;
    int inside; /* workers that have not yet left the current loop */
    int stop;
    threads_body *body;
    void *context;
    size_t n_blocks;
    atomic_size_t next;
    struct start_argument {
        struct threads *pool;
        int thread;
    } *arguments;
};

static void take_blocks(struct threads *pool, int thread)
{
    for (;;) {
        size_t block = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (block >= pool->n_blocks) return;
        pool->body(pool->context, block, thread);
    }
}

static void *work(void *argument)
{
    const struct start_argument *a = argument;
    struct threads *pool = a->pool;
    unsigned long seen = 0;
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        while (pool->generation == seen && !pool->stop) pthread_cond_wait(&pool->start, &pool->lock);
        if (pool->stop) {
            pthread_mutex_unlock(&pool->lock);
            return NULL;
        }
        seen = pool->generation;
        pthread_mutex_unlock(&pool->lock);
        take_blocks(pool, a->thread);
        pthread_mutex_lock(&pool->lock);
        if (--pool->inside == 0) pthread_cond_signal(&pool->finished);
        pthread_mutex_unlock(&pool->lock);
    }
}

int threads_open(struct threads **out, int count, struct tabft_failure *f)
{
    int error = 0;
    int started = 0;
    struct threads *pool = NULL;
    if (count < 1) return tabft_fail(f, TABFT_USE, "--threads %d: at least 1 is needed", count);
    TRY(memory_new(&pool, 1, sizeof *pool, "the thread pool", f));
    pool->count = 1;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->finished, NULL);
    TRY(memory_new(&pool->workers, (size_t)count, sizeof *pool->workers, "the thread pool", f));
    TRY(memory_new(&pool->arguments, (size_t)count, sizeof *pool->arguments, "the thread pool", f));
    for (started = 0; started < count - 1; started++) {
        pool->arguments[started] = (struct start_argument){pool, started + 1};
        int e = pthread_create(&pool->workers[started], NULL, work, &pool->arguments[started]);
        if (e != 0) FAIL(f, TABFT_SYSTEM, "cannot start thread %d of %d: %s; use fewer --threads", started + 2, count, strerror(e));
        pool->count = started + 2;
    }
    *out = pool;
    return 0;
fail:
    threads_close(pool);
    return error;
}

void threads_close(struct threads *pool)
{
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->count - 1; i++) pthread_join(pool->workers[i], NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->start);
    pthread_cond_destroy(&pool->finished);
    free(pool->workers);
    free(pool->arguments);
    free(pool);
}

int threads_count(const struct threads *pool) { return pool == NULL ? 1 : pool->count; }

void threads_run(struct threads *pool, size_t n_blocks, threads_body *body, void *context)
{
    if (pool == NULL || pool->count == 1 || n_blocks <= 1) {
        for (size_t block = 0; block < n_blocks; block++) body(context, block, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->body = body;
    pool->context = context;
    pool->n_blocks = n_blocks;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->inside = pool->count - 1;
    pool->generation++;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    take_blocks(pool, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->inside > 0) pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

int threads_default_count(void)
{
    cpu_set_t set;
    int n = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    const char *text = getenv("SLURM_CPUS_PER_TASK");
    if (text != NULL) {
        char *end;
        long slurm = strtol(text, &end, 10);
        if (end != text && *end == '\0' && slurm >= 1 && slurm < n) n = (int)slurm;
    }
    return n < 1 ? 1 : n;
}
