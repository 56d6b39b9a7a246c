#include <check.h>
#include <stdatomic.h>
#include <string.h>

#include "base/threads.h"
#include "unit.h"

enum { BLOCKS = 1000 };
static atomic_int seen[BLOCKS];

static void count_block(void *context, size_t block, int thread)
{
    ck_assert_int_lt(thread, *(const int *)context);
    atomic_fetch_add(&seen[block], 1);
}

START_TEST(each_block_runs_once)
{
    for (int count = 1; count <= 5; count++) {
        struct tabft_failure f = {0};
        struct threads *pool;
        MUST(threads_open(&pool, count, &f));
        ck_assert_int_eq(threads_count(pool), count);
        for (int repeat = 0; repeat < 50; repeat++) {
            memset(seen, 0, sizeof seen);
            threads_run(pool, BLOCKS, count_block, &count);
            for (int i = 0; i < BLOCKS; i++) ck_assert_int_eq(atomic_load(&seen[i]), 1);
        }
        threads_run(pool, 0, count_block, &count);
        threads_close(pool);
    }
}
END_TEST

START_TEST(no_threads_is_wrong_use)
{
    struct tabft_failure f = {0};
    struct threads *pool;
    MUST_FAIL(threads_open(&pool, 0, &f), TABFT_USE, "--threads 0");
}
END_TEST

UNIT_MAIN("base/threads", each_block_runs_once, no_threads_is_wrong_use)
