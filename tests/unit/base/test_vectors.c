#include "base/vectors.h"

#include "base/threads.h"
#include "vectors_check.h"
#include "vectors_far.h"

START_TEST(the_host_keeps_the_promises)
{
    struct vectors v;
    vectors_host(&v, NULL);
    ck_assert(v.host);
    vectors_check(&v);
    for (int count = 2; count <= 3; count++) {
        struct tabft_failure f = {0};
        struct threads *pool;
        MUST(threads_open(&pool, count, &f));
        vectors_host(&v, pool);
        vectors_check(&v);
        threads_close(pool);
    }
}
END_TEST

/* The check itself keeps to what is promised of `finish`. */
START_TEST(far_memory_keeps_them_too)
{
    struct vectors v;
    struct vectors_far far;
    vectors_far(&v, &far, NULL);
    vectors_check(&v);
    ck_assert_uint_eq(far.n_calls, 0);
}
END_TEST

START_TEST(too_much_memory_is_refused)
{
    struct tabft_failure f = {0};
    struct vectors v;
    void *memory = NULL;
    vectors_host(&v, NULL);
    MUST_FAIL(v.memory_new(v.state, &memory, SIZE_MAX / 2, "the moments", &f), TABFT_SYSTEM, "the moments");
}
END_TEST

UNIT_MAIN("base/vectors", the_host_keeps_the_promises, far_memory_keeps_them_too, too_much_memory_is_refused)
