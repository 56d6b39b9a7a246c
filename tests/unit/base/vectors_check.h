/* What base/vectors.h promises of a table, bit for bit, written down once more: for the host's and for every backend's. */
#ifndef TABFT_TESTS_VECTORS_CHECK_H
#define TABFT_TESTS_VECTORS_CHECK_H

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/vectors.h"
#include "unit.h"

static const size_t vectors_counts[] = {0, 1, 7, 8, 9, 1023, 1024, 1025, 5000, 32768, 32769, 100003};

/* Numbers of very different sizes, subnormal ones too. */
static inline float *vectors_numbers(size_t count, uint64_t seed, int smallest, int span)
{
    struct tabft_failure f = {0};
    struct random_pcg g;
    float *x = NULL;
    MUST(memory_new_aligned(&x, count, sizeof *x, "numbers", &f));
    random_pcg_seed(&g, seed);
    for (size_t i = 0; i < count; i++) {
        const double half = random_pcg_double(&g) - 0.5;
        x[i] = (float)ldexp(half, smallest + (int)(random_pcg_double(&g) * span));
    }
    return x;
}

/* A vector of the memory with those numbers, which may then be changed. */
static inline float *vectors_brought(const struct vectors *v, const float *from, size_t count)
{
    struct tabft_failure f = {0};
    void *x = NULL;
    MUST(v->memory_new(v->state, &x, count * sizeof(float), "a vector", &f));
    v->copy_in(v->state, x, from, count * sizeof(float));
    MUST(v->finish(v->state, &f));
    return x;
}

static inline void vectors_must_be(const struct vectors *v, const float *x, const float *expected, size_t count,
                                   const char *what)
{
    struct tabft_failure f = {0};
    float *is = NULL;
    MUST(memory_new(&is, count, sizeof *is, "numbers", &f));
    v->copy_out(v->state, is, x, count * sizeof *is);
    MUST(v->finish(v->state, &f));
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(memcmp(&is[i], &expected[i], sizeof *is) == 0, "%s: number %zu of %zu is %a instead of %a", what, i,
                      count, (double)is[i], (double)expected[i]);
    free(is);
}

static inline void vectors_check_moves(const struct vectors *v, size_t count)
{
    struct tabft_failure f = {0};
    const size_t bytes = count * sizeof(float);
    float *a = vectors_numbers(count, 1, -140, 260), *b = vectors_numbers(count, 2, -140, 260);
    float *x = vectors_brought(v, a, count), *y = vectors_brought(v, b, count);
    v->copy(v->state, x, y, bytes);
    vectors_must_be(v, x, b, count, "a copy");
    v->copy_in(v->state, x, a, bytes);
    v->add(v->state, x, y, count);
    MUST(v->finish(v->state, &f));
    for (size_t i = 0; i < count; i++) {
        volatile float sum = a[i] + b[i];
        a[i] = sum;
    }
    vectors_must_be(v, x, a, count, "a sum");
    v->zero(v->state, y, bytes);
    memset(b, 0, bytes);
    vectors_must_be(v, y, b, count, "zeros");
    v->memory_free(v->state, x);
    v->memory_free(v->state, y);
    free(a);
    free(b);
}

static inline void vectors_check_squares(const struct vectors *v, size_t count)
{
    struct tabft_failure f = {0};
    const size_t blocks = (count + VECTORS_BLOCK - 1) / VECTORS_BLOCK;
    float *a = vectors_numbers(count, 3, -60, 60), *x = vectors_brought(v, a, count);
    double *is = NULL;
    void *sums = NULL;
    MUST(v->memory_new(v->state, &sums, blocks * sizeof(double), "sums", &f));
    MUST(memory_new(&is, blocks, sizeof *is, "sums", &f));
    v->square_sums(v->state, x, count, sums);
    v->copy_out(v->state, is, sums, blocks * sizeof *is);
    MUST(v->finish(v->state, &f));
    for (size_t b = 0; b < blocks; b++) {
        volatile double lane[8] = {0};
        for (size_t i = b * VECTORS_BLOCK; i < count && i < (b + 1) * VECTORS_BLOCK; i++) {
            volatile double square = (double)a[i] * (double)a[i];
            lane[i % 8] = lane[i % 8] + square;
        }
        const double expected = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
        ck_assert_msg(is[b] == expected, "block %zu of %zu numbers: %a instead of %a", b, count, is[b], expected);
    }
    v->memory_free(v->state, x);
    v->memory_free(v->state, sums);
    free(a);
    free(is);
}

static inline void vectors_check_adamw(const struct vectors *v, size_t count)
{
    float *w = vectors_numbers(count, 4, -20, 20), *g = vectors_numbers(count, 5, -140, 140);
    float *m = vectors_numbers(count, 6, -60, 60), *s = vectors_numbers(count, 7, -80, 80);
    for (size_t i = 0; i < count; i++) s[i] = fabsf(s[i]);
    struct vectors_adamw step = {.count = count,
                                 .keep = 0.9999F,
                                 .clip = 0.73F,
                                 .blend1 = 0.1F,
                                 .keep2 = 0.999F,
                                 .blend2 = 0.001F,
                                 .root2 = 0.31F,
                                 .epsilon = 1e-8F,
                                 .rate = 1e-3F};
    float *weights = step.weights = vectors_brought(v, w, count), *gradient = vectors_brought(v, g, count);
    float *moment1 = step.moment1 = vectors_brought(v, m, count), *moment2 = step.moment2 = vectors_brought(v, s, count);
    step.gradient = gradient;
    v->adamw(v->state, &step);
    for (size_t i = 0; i < count; i++) {
        /* volatile: each operation is rounded by itself */
        volatile float clipped = g[i] * step.clip, kept = w[i] * step.keep;
        volatile float away = clipped - m[i], part = step.blend1 * away, first = m[i] + part;
        volatile float old = s[i] * step.keep2, blended = step.blend2 * clipped, square = blended * clipped;
        volatile float second = old + square, root = sqrtf(second), scaled = root / step.root2;
        volatile float below = scaled + step.epsilon, above = step.rate * first, quotient = above / below;
        m[i] = first;
        s[i] = second;
        w[i] = kept - quotient;
    }
    vectors_must_be(v, moment1, m, count, "the first moments");
    vectors_must_be(v, moment2, s, count, "the second moments");
    vectors_must_be(v, weights, w, count, "the weights");
    float *const taken[] = {weights, gradient, moment1, moment2};
    for (size_t i = 0; i < 4; i++) v->memory_free(v->state, taken[i]);
    free(w);
    free(g);
    free(m);
    free(s);
}

static inline void vectors_check(const struct vectors *v)
{
    for (size_t i = 0; i < sizeof vectors_counts / sizeof *vectors_counts; i++) {
        vectors_check_moves(v, vectors_counts[i]);
        vectors_check_squares(v, vectors_counts[i]);
        vectors_check_adamw(v, vectors_counts[i]);
    }
    v->memory_free(v->state, NULL);
}

#endif
