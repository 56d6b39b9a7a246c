/* Ranks against a plain count, where every number of the context is an edge; and what they promise where not. */
#define TABFT_MODEL_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/model_internal.h"
#include "unit.h"

static struct tabft_failure f;

enum { CONTEXT = 500, ROWS = 600 };

/* Numbers with ties; rows behind the context go beyond it on both sides, and between its numbers. */
static void draw(float *x, size_t different)
{
    uint32_t state = 5;
    for (size_t i = 0; i < ROWS; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)((state >> 8) % different) - (float)different / 3;
        if (i >= CONTEXT) x[i] = 1.1f * x[i] + 0.5f;
    }
}

static void rank(const float *x, size_t n_context, size_t edges_max, float *out)
{
    float *context, *room;
    MUST(memory_new(&context, n_context, sizeof *context, "a test", &f));
    MUST(memory_new(&room, ranks_room(n_context, edges_max), sizeof *room, "a test", &f));
    memcpy(context, x, n_context * sizeof *x);
    memcpy(out, x, ROWS * sizeof *x);
    ranks_of(n_context, context, edges_max, ROWS, out, room);
    free(context);
    free(room);
}

static double counted(const float *x, float at)
{
    double below = 0, equal = 0, least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < CONTEXT; i++) {
        least = fmin(least, x[i]);
        most = fmax(most, x[i]);
    }
    const float within = fminf(fmaxf(at, (float)least), (float)most);
    for (size_t i = 0; i < CONTEXT; i++) {
        below += x[i] < within;
        equal += x[i] == within;
    }
    return (below + equal / 2) / CONTEXT;
}

START_TEST(few_numbers_are_counted)
{
    static const size_t different[] = {1, 2, 7, 83, 100000};
    float x[ROWS], ranks[ROWS];
    for (size_t d = 0; d < sizeof different / sizeof *different; d++) {
        draw(x, different[d]);
        rank(x, CONTEXT, CONTEXT + 1, ranks);
        for (size_t i = 0; i < CONTEXT; i++) ck_assert_double_eq_tol(ranks[i], counted(x, x[i]), 1e-6);
        for (size_t i = CONTEXT; i < ROWS; i++) /* between numbers: as many before, whatever the place */
            ck_assert_double_eq_tol(ranks[i], counted(x, x[i]), 1e-6);
    }
}
END_TEST

/* By 40 edges of 500 different numbers: in the same order, and off by no more than an edge's share. */
START_TEST(many_numbers_are_estimated)
{
    enum { EDGES = 40 };
    float x[ROWS], ranks[ROWS];
    draw(x, 1 << 20);
    rank(x, CONTEXT, EDGES, ranks);
    for (size_t i = 0; i < ROWS; i++) {
        ck_assert_double_eq_tol(ranks[i], counted(x, x[i]), 1.0 / (EDGES - 1));
        for (size_t j = 0; j < ROWS; j++) ck_assert(!(x[j] > x[i]) || ranks[j] >= ranks[i]);
    }
}
END_TEST

START_TEST(one_row_is_a_context)
{
    float x[ROWS], ranks[ROWS];
    draw(x, 50);
    rank(x, 1, 8192, ranks);
    for (size_t i = 0; i < ROWS; i++) ck_assert_float_eq(ranks[i], 0.5f);
}
END_TEST

UNIT_MAIN("model/ranks", few_numbers_are_counted, many_numbers_are_estimated, one_row_is_a_context)
