/* AdamW against torch's own steps (torch.optim.AdamW and clip_grad_norm_, five numbers, recorded), and the schedules.
 */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "train/optimiser.h"
#include "train/schedule.h"
#include "unit.h"

START_TEST(steps_are_those_of_torch)
{
    struct tabft_failure f = {0};
    struct optimiser *o;
    struct vectors v;
    float weights[5] = {0.5F, -1.25F, 0.003F, 2.0F, 0.0F};
    vectors_host(&v, NULL);
    MUST(optimiser_open(&o, &v, 5, &f));
    FILE *file = fopen(unit_data("train/adamw.txt"), "r");
    ck_assert_ptr_nonnull(file);
    double rate, norm;
    size_t steps = 0;
    while (fscanf(file, "%lf %lf", &rate, &norm) == 2) {
        float gradient[5], expected[5];
        double squares = 0;
        for (int i = 0; i < 5; i++) ck_assert_int_eq(fscanf(file, "%f", &gradient[i]), 1);
        for (int i = 0; i < 5; i++) ck_assert_int_eq(fscanf(file, "%f", &expected[i]), 1);
        for (int i = 0; i < 5; i++) squares += (double)gradient[i] * (double)gradient[i];
        ck_assert_double_eq_tol(sqrt(squares), norm, 1e-6 * norm);
        struct optimiser_step step = {
            .learning_rate = rate, .weight_decay = 0.01, .clip = optimiser_clip(sqrt(squares), 1.0)};
        optimiser_step(o, &step, weights, gradient);
        for (int i = 0; i < 5; i++)
            ck_assert_float_eq_tol(weights[i], expected[i], 1.3e-7F * fmaxf(0.01F, fabsf(expected[i])));
        ck_assert_double_eq_tol(rate, 1e-3 * schedule_factor(SCHEDULE_COSINE, steps++, 6), 1e-18);
    }
    ck_assert_uint_eq(steps, 6);
    (void)fclose(file);
    optimiser_close(o);
}
END_TEST

START_TEST(slices_and_threads_leave_the_bits)
{
    enum { N = 100003 };
    static float whole[N], parts[N], gradient[N];
    struct tabft_failure f = {0};
    struct optimiser *all, *first, *second;
    struct threads *pool;
    struct vectors alone, many;
    for (size_t i = 0; i < N; i++) {
        whole[i] = parts[i] = (float)sin((double)i);
        gradient[i] = (float)cos((double)i * 3) * 1e-3F;
    }
    const size_t cut = 40000;
    MUST(threads_open(&pool, 3, &f));
    vectors_host(&many, pool);
    vectors_host(&alone, NULL);
    MUST(optimiser_open(&all, &many, N, &f));
    MUST(optimiser_open(&first, &alone, cut, &f));
    MUST(optimiser_open(&second, &alone, N - cut, &f));
    struct optimiser_step step = {.learning_rate = 1e-3, .weight_decay = 0.01, .clip = 0.7};
    for (int i = 0; i < 3; i++) {
        optimiser_step(all, &step, whole, gradient);
        optimiser_step(first, &step, parts, gradient);
        optimiser_step(second, &step, parts + cut, gradient + cut);
    }
    ck_assert_mem_eq(whole, parts, sizeof whole);
    optimiser_close(all);
    optimiser_close(first);
    optimiser_close(second);
    threads_close(pool);
}
END_TEST

START_TEST(the_schedules)
{
    /* 30 steps warm up over 3, the first of them with rate 0. */
    ck_assert_double_eq(schedule_factor(SCHEDULE_COSINE, 0, 30), 0);
    ck_assert_double_eq_tol(schedule_factor(SCHEDULE_COSINE, 1, 30), 1.0 / 3, 1e-16);
    ck_assert_double_eq_tol(schedule_factor(SCHEDULE_COSINE, 2, 30), 2.0 / 3, 1e-16);
    ck_assert_double_eq(schedule_factor(SCHEDULE_COSINE, 3, 30), 1);
    ck_assert_double_eq_tol(schedule_factor(SCHEDULE_COSINE, 29, 30), 0.5 * (1 + cos(M_PI * 26 / 27)), 1e-16);
    ck_assert_double_eq_tol(schedule_factor(SCHEDULE_COSINE, 99, 30), 0, 1e-16);
    ck_assert_double_eq(schedule_factor(SCHEDULE_COSINE, 0, 9), 1);
    ck_assert_double_eq(schedule_factor(SCHEDULE_WARMUP, 0, 30), 0);
    ck_assert_double_eq(schedule_factor(SCHEDULE_WARMUP, 29, 30), 1);
    ck_assert_double_eq(schedule_factor(SCHEDULE_CONSTANT, 0, 30), 1);
    ck_assert_double_eq(optimiser_clip(0.5, 1), 1);
    ck_assert_double_eq_tol(optimiser_clip(4, 1), 0.25, 1e-6);
    ck_assert_double_eq(optimiser_clip(4, 0), 1);
}
END_TEST

UNIT_MAIN("optimiser", steps_are_those_of_torch, slices_and_threads_leave_the_bits, the_schedules)
