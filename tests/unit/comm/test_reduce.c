/* The fixed-shape reduction with many ranks in one process: threads are the ranks, and the few functions of comm.h that
 * reduce.c calls are defined here over shared memory (so libtabft's own are not linked). */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "base/vectors_far.h"
#include "comm/comm.h"
#include "comm/reduce.h"
#include "unit.h"

enum { RANKS_MAX = 16 };

/* ---- ranks as threads ---- */

struct world {
    int size;
    pthread_barrier_t meet;
    const void *send[RANKS_MAX];
    const size_t *send_bytes[RANKS_MAX], *send_offset[RANKS_MAX];
};

struct comm {
    struct world *world;
    int rank;
};

int comm_rank(const struct comm *c) { return c == NULL ? 0 : c->rank; }
int comm_size(const struct comm *c) { return c == NULL ? 1 : c->world->size; }

int comm_barrier(struct comm *c, struct tabft_failure *f)
{
    (void)f;
    pthread_barrier_wait(&c->world->meet);
    return 0;
}

int comm_exchange(struct comm *c, const void *send, const size_t *send_bytes, const size_t *send_offset, void *receive,
                  const size_t *receive_bytes, const size_t *receive_offset, struct tabft_failure *f)
{
    (void)f;
    struct world *w = c->world;
    w->send[c->rank] = send;
    w->send_bytes[c->rank] = send_bytes;
    w->send_offset[c->rank] = send_offset;
    pthread_barrier_wait(&w->meet);
    for (int r = 0; r < w->size; r++) {
        ck_assert_uint_eq(w->send_bytes[r][c->rank], receive_bytes[r]);
        if (receive_bytes[r] > 0)
            memcpy((char *)receive + receive_offset[r], (const char *)w->send[r] + w->send_offset[r][c->rank],
                   receive_bytes[r]);
    }
    pthread_barrier_wait(&w->meet);
    return 0;
}

int comm_gather_all_v(struct comm *c, const void *send, const size_t *bytes, void *receive, struct tabft_failure *f)
{
    (void)f;
    struct world *w = c->world;
    w->send[c->rank] = send;
    w->send_bytes[c->rank] = bytes;
    pthread_barrier_wait(&w->meet);
    size_t offset = 0;
    for (int r = 0; r < w->size; offset += bytes[r], r++) {
        ck_assert_uint_eq(w->send_bytes[r][r], bytes[r]);
        if (bytes[r] > 0 && (char *)receive + offset != w->send[r])
            memcpy((char *)receive + offset, w->send[r], bytes[r]);
    }
    pthread_barrier_wait(&w->meet);
    return 0;
}

/* Memory of a GPU: the engine sees it, the host does not; a part to oneself is there already. */
int comm_exchange_device(struct comm *c, const void *send, const size_t *send_bytes, const size_t *send_offset,
                         void *receive, const size_t *receive_bytes, const size_t *receive_offset,
                         struct tabft_failure *f)
{
    const size_t own = receive_offset[c->rank], bytes = receive_bytes[c->rank];
    ck_assert_uint_eq(send_bytes[c->rank], bytes);
    if (bytes > 0)
        ck_assert_mem_eq((char *)vectors_near(receive) + own,
                         (const char *)vectors_near(send) + send_offset[c->rank], bytes);
    return comm_exchange(c, vectors_near(send), send_bytes, send_offset, vectors_near(receive), receive_bytes,
                         receive_offset, f);
}

int comm_gather_all_device(struct comm *c, const size_t *bytes, void *values, struct tabft_failure *f)
{
    size_t offset = 0;
    for (int r = 0; r < c->rank; r++) offset += bytes[r];
    char *near = vectors_near(values);
    return comm_gather_all_v(c, near + offset, bytes, near, f);
}

/* ---- a step on `size` ranks ---- */

struct step {
    size_t n_items, n_parameters;
    int threads;
    bool far; /* in memory that the host cannot read */
    float (*gradient)(size_t item, size_t parameter);
    /* what rank 0 has at the end */
    float *sum;
    double square;
    double *losses;
};

static float ordinary(size_t item, size_t parameter)
{
    uint32_t x = (uint32_t)(item * 2654435761u + parameter * 40503u + 12345u);
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ldexpf((float)(int32_t)x, -31 - (int)(x % 23));
}

/* An item's gradient goes where it belongs. */
static void put(struct reduce *r, const struct vectors *v, size_t item, const float *g, size_t n)
{
    struct tabft_failure f = {0};
    float *place;
    bool add;
    MUST(reduce_place(r, item, &place, &add, &f));
    if (add) v->add(v->state, place, g, n);
    else v->copy(v->state, place, g, n * sizeof *g);
    reduce_placed(r);
}

struct rank_job {
    struct comm c;
    struct step *step;
};

static void *run_rank(void *argument)
{
    struct rank_job *job = argument;
    struct step *s = job->step;
    struct comm *c = job->c.world->size == 1 ? NULL : &job->c;
    struct tabft_failure f = {0};
    struct threads *pool = NULL;
    struct reduce *r = NULL;
    const size_t n = s->n_parameters, bytes = n * sizeof(float);
    float *g = NULL, *there, *slice;
    double *losses = NULL;
    struct vectors v;
    struct vectors_far far;
    void *memory;
    MUST(memory_new(&g, n, sizeof *g, "a gradient", &f));
    MUST(memory_new(&losses, s->n_items, sizeof *losses, "losses", &f));
    MUST(threads_open(&pool, s->threads, &f));
    if (s->far) vectors_far(&v, &far, pool);
    else vectors_host(&v, pool);
    MUST(v.memory_new(v.state, &memory, bytes, "a gradient", &f));
    there = memory;
    MUST(reduce_open(&r, c, &v, s->n_items, n, &f));
    double square = 0;
    for (int twice = 0; twice < 2; twice++) { /* the second step starts clean */
        size_t begin, end;
        reduce_items(r, &begin, &end);
        for (size_t item = begin; item < end; item++) {
            for (size_t p = 0; p < n; p++) g[p] = s->gradient(item, p);
            losses[item] = ldexp(1.0, (int)item % 50);
            v.copy_in(v.state, there, g, bytes);
            put(r, &v, item, there, n);
            MUST(v.finish(v.state, &f));
        }
        reduce_slice(r, &begin, &end);
        MUST(reduce_finish(r, &slice, &f));
        MUST(reduce_square_sum(r, slice, &square, &f));
        v.copy(v.state, there + begin, slice, (end - begin) * sizeof *slice);
        MUST(reduce_gather(r, there, &f));
        MUST(reduce_item_values(r, losses, &f));
    }
    v.copy_out(v.state, g, there, bytes);
    MUST(v.finish(v.state, &f));
    for (size_t item = 0; item < s->n_items; item++) ck_assert(losses[item] == ldexp(1.0, (int)item % 50));
    if (job->c.rank == 0) {
        memcpy(s->sum, g, n * sizeof *g);
        s->square = square;
    }
    /* Every rank has the same weights afterwards. */
    if (c != NULL) MUST(comm_barrier(c, &f));
    ck_assert(memcmp(s->sum, g, n * sizeof *g) == 0 && memcmp(&s->square, &square, sizeof square) == 0);
    reduce_close(r);
    v.memory_free(v.state, there);
    threads_close(pool);
    free(g);
    free(losses);
    return NULL;
}

static void run_step(struct step *s, int size)
{
    struct world world = {.size = size};
    struct rank_job jobs[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    pthread_barrier_init(&world.meet, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        jobs[r] = (struct rank_job){{&world, r}, s};
        if (r > 0) ck_assert_int_eq(pthread_create(&threads[r], NULL, run_rank, &jobs[r]), 0);
    }
    run_rank(&jobs[0]);
    for (int r = 1; r < size; r++) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&world.meet);
}

static float *new_floats(size_t n)
{
    float *p = calloc(n, sizeof *p);
    ck_assert_ptr_nonnull(p);
    return p;
}

/* The sum as reduce.h promises it, written down once more: halves at the largest power of two below. */
static float tree_sum(const struct step *s, size_t begin, size_t end, size_t p)
{
    if (end - begin == 1) return s->gradient(begin, p);
    size_t half = 1;
    while (2 * half < end - begin) half *= 2;
    return tree_sum(s, begin, begin + half, p) + tree_sum(s, begin + half, end, p);
}

START_TEST(the_same_bits_for_every_number_of_ranks)
{
    static const size_t items[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 15, 24};
    static const size_t parameters[] = {1, 1023, 5000, 20000};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        for (size_t j = 0; j < sizeof parameters / sizeof *parameters; j++) {
            const size_t n = parameters[j];
            struct step s = {.n_items = items[i], .n_parameters = n, .threads = 1, .gradient = ordinary};
            s.sum = new_floats(n);
            double square = 0;
            for (int size = 1; size <= 11; size += n == 20000 ? 3 : 1) {
                s.threads = 1 + size % 2;
                s.far = size % 3 == 2;
                run_step(&s, size);
                if (size == 1) {
                    square = s.square;
                    for (size_t p = 0; p < n; p++) ck_assert(s.sum[p] == tree_sum(&s, 0, s.n_items, p));
                }
                for (size_t p = 0; p < n; p += 7) ck_assert(s.sum[p] == tree_sum(&s, 0, s.n_items, p));
                ck_assert_msg(s.square == square, "%zu items, %zu parameters, %d ranks: %a instead of %a", s.n_items,
                              n, size, s.square, square);
            }
            free(s.sum);
        }
}
END_TEST

/* A slice longer than one exchange carries, cut unevenly. */
START_TEST(long_slices_travel_in_pieces)
{
    const size_t n = 1500000 + 77;
    struct step s = {.n_items = 7, .n_parameters = n, .threads = 2, .gradient = ordinary, .sum = new_floats(n)};
    run_step(&s, 1);
    const double square = s.square;
    run_step(&s, 2);
    for (size_t p = 0; p < n; p += 101) ck_assert(s.sum[p] == tree_sum(&s, 0, 7, p));
    ck_assert(s.sum[n - 1] == tree_sum(&s, 0, 7, n - 1));
    ck_assert(s.square == square);
    free(s.sum);
}
END_TEST

/* Whole numbers: exact in any order, so this sees a lost or doubled item, not a rounding. */
static float whole(size_t item, size_t parameter) { return (float)((item + 1) * (parameter % 1000 + 1) % 4096); }

START_TEST(every_item_counts_once)
{
    const size_t n = 3000;
    for (size_t items = 1; items <= 13; items++)
        for (int size = 1; size <= RANKS_MAX; size += 5) {
            struct step s = {.n_items = items, .n_parameters = n, .threads = 1, .gradient = whole,
            .sum = new_floats(n)};
            run_step(&s, size);
            double square = 0;
            for (size_t p = 0; p < n; p++) {
                double expected = 0;
                for (size_t item = 0; item < items; item++) expected += (double)whole(item, p);
                ck_assert((double)s.sum[p] == expected);
                square += expected * expected;
            }
            ck_assert(s.square == square);
            free(s.sum);
        }
}
END_TEST

/* Case 11: six estimators with uneven gradients; the step's loss and gradient are means over estimators, not over
 * ranks. */
static double case11[6][3];

static float case11_gradient(size_t item, size_t parameter) { return (float)case11[item][1 + parameter]; }

START_TEST(uneven_shares_give_the_mean_over_estimators)
{
    FILE *file = fopen(unit_data("comm/per_estimator.csv"), "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*[^\n]"), 0);
    double loss = 0;
    for (int i = 0; i < 6; i++) {
        int estimator;
        ck_assert_int_eq(fscanf(file, "%d,%lf,%lf,%lf", &estimator, &case11[i][0], &case11[i][1], &case11[i][2]), 4);
        ck_assert_int_eq(estimator, i);
        loss += case11[i][0];
    }
    fclose(file);
    ck_assert(loss / 6 == 10.5);
    for (int size = 1; size <= 8; size++) {
        float sum[2];
        struct step s = {.n_items = 6, .n_parameters = 2, .threads = 1, .gradient = case11_gradient, .sum = sum};
        run_step(&s, size);
        ck_assert(sum[0] / 6.0f == -1.75f && sum[1] / 6.0f == 3.0f);
    }
}
END_TEST

START_TEST(shares_are_contiguous_and_even)
{
    for (size_t n = 0; n < 30; n++)
        for (int size = 1; size < 12; size++) {
            size_t at = 0;
            for (int r = 0; r < size; r++) {
                size_t begin, end;
                reduce_share(n, size, r, &begin, &end);
                ck_assert_uint_eq(begin, at);
                ck_assert_uint_eq(end - begin, n / (size_t)size + ((size_t)r < n % (size_t)size));
                at = end;
            }
            ck_assert_uint_eq(at, n);
        }
}
END_TEST

#ifdef __SANITIZE_ADDRESS__
size_t __sanitizer_get_current_allocated_bytes(void); /* its header does not come with every compiler */
#endif

/* What malloc's own books say is taken. */
static size_t bytes_taken(void)
{
#ifdef __SANITIZE_ADDRESS__
    return __sanitizer_get_current_allocated_bytes();
#else
    const struct mallinfo2 books = mallinfo2();
    return books.uordblks + books.hblkhd;
#endif
}

/* --plan's number is what is allocated; malloc adds some bytes a block, at most a page to a large one. */
START_TEST(the_plan_is_what_is_taken)
{
    struct tabft_failure f = {0};
    struct vectors v;
    vectors_host(&v, NULL);
    const size_t shapes[][3] = {{4, 300000, 1}, {5, 300000, 2}, {8, 12345, 8}, {3, 4000, 8}, {64, 100000, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct world world = {.size = (int)shapes[i][2]};
        for (int rank = 0; rank < world.size; rank++) {
            struct comm c = {&world, rank};
            struct reduce *r = NULL;
            const size_t before = bytes_taken();
            MUST(reduce_open(&r, &c, &v, shapes[i][0], shapes[i][1], &f));
            const size_t taken = bytes_taken() - before;
            const size_t planned = reduce_bytes(shapes[i][0], shapes[i][1], world.size, rank);
            ck_assert_msg(taken >= planned && taken - planned <= 9 * 4096, "shape %zu, rank %d: planned %zu, took %zu",
                          i, rank, planned, taken);
            reduce_close(r);
        }
    }
    ck_assert_uint_eq(reduce_bytes(1 << 20, SIZE_MAX / 16, 4, 0), SIZE_MAX);
}
END_TEST

START_TEST(wrong_use_is_refused)
{
    struct tabft_failure f = {0};
    struct reduce *r = NULL;
    struct vectors v;
    const float g[4] = {1, 2, 3, 4};
    float *place;
    bool add;
    vectors_host(&v, NULL);
    MUST_FAIL(reduce_open(&r, NULL, &v, 0, 4, &f), TABFT_USE, "0 items");
    MUST_FAIL(reduce_open(&r, NULL, &v, 4, 0, &f), TABFT_USE, "0 parameters");
    MUST(reduce_open(&r, NULL, &v, 2, 4, &f));
    MUST_FAIL(reduce_place(r, 1, &place, &add, &f), TABFT_SYSTEM, "item 1");
    put(r, &v, 0, g, 4);
    MUST_FAIL(reduce_finish(r, &place, &f), TABFT_SYSTEM, "before item 1");
    put(r, &v, 1, g, 4);
    MUST_FAIL(reduce_place(r, 2, &place, &add, &f), TABFT_SYSTEM, "item 2");
    MUST(reduce_finish(r, &place, &f));
    ck_assert(place[3] == 8);
    reduce_close(r);
}
END_TEST

UNIT_MAIN("comm/reduce", the_same_bits_for_every_number_of_ranks, long_slices_travel_in_pieces, every_item_counts_once,
          uneven_shares_give_the_mean_over_estimators, shares_are_contiguous_and_even, the_plan_is_what_is_taken,
          wrong_use_is_refused)
