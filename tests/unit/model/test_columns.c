/* Column embeddings: TabPFN's table at width 48, torch's seeded draws elsewhere. The expected numbers are what
 * torch.randn(n, generator=torch.Generator().manual_seed(42)) gives on a CPU. */
#define TABFT_MODEL_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "model/model_internal.h"
#include "unit.h"

static struct tabft_failure f;

enum { SHOWN = 5 };
static const struct {
    size_t count, at[SHOWN];
    float value[SHOWN];
} torch_randn[] = {
    {1, {0}, {0.336690366f}},
    {2, {0, 1}, {0.336690366f, 0.128809407f}},
    {3, {0, 1, 2}, {0.336690366f, 0.128809407f, 0.234462366f}},
    {8, {0, 2, 4, 7}, {0.336690366f, 0.234462366f, -1.12285638f, -0.637997031f}},
    {15, {0, 5, 7, 14}, {0.336690366f, -0.186328292f, -0.637997031f, -0.988959908f}},
    {16, {0, 5, 8, 15}, {1.92691529f, -1.23454487f, -0.752135277f, 0.76244539f}},
    {17, {0, 1, 5, 8, 16}, {1.92691529f, -0.159597471f, 1.07831764f, 0.355859905f, -0.309726775f}},
    {24, {0, 8, 12, 23}, {1.92691529f, 0.355859905f, -1.11090386f, 0.330898434f}},
    {31, {0, 10, 15, 30}, {1.92691529f, -0.392478645f, -0.216804728f, -1.23465312f}},
    {32, {0, 10, 16, 31}, {1.92691529f, -0.392478645f, 1.64231694f, 0.859858513f}},
    {33, {0, 11, 16, 17, 32}, {1.92691529f, -1.40360713f, 1.64231694f, -0.871236145f, -1.41805995f}},
    {40, {0, 13, 20, 24, 39}, {1.92691529f, -0.559430182f, -0.758131146f, 0.0349123441f, -1.28621554f}},
    {47, {0, 15, 23, 31, 46}, {1.92691529f, 0.76244539f, 1.68062055f, -0.355286628f, -1.18453741f}},
    {72, {0, 24, 36, 56, 71}, {1.92691529f, 1.27912438f, 0.31888032f, 0.145337671f, 1.4331553f}},
    {1000, {0, 333, 500, 984, 999}, {1.92691529f, 0.265887201f, -0.752587438f, -0.413708299f, -0.853454411f}},
    {32048, {0, 10682, 16024, 32032, 32047}, {1.92691529f, -0.534846365f, -0.0516664088f, -0.73193723f, -0.548930228f}},
    {96048, {0, 32016, 48024, 96032, 96047}, {1.92691529f, 0.378387511f, 0.780101538f, -0.253696263f, 0.111342311f}},
};

static float *room(size_t count)
{
    float *x;
    MUST(memory_new(&x, count, sizeof *x, "a test", &f));
    return x;
}

START_TEST(draws_are_torch_s)
    {
        for (size_t i = 0; i < sizeof torch_randn / sizeof *torch_randn; i++) {
            float *x = room(torch_randn[i].count);
            column_randn(42, torch_randn[i].count, x);
            for (int j = 0; j < SHOWN && (j == 0 || torch_randn[i].at[j] != 0); j++)
                ck_assert_msg(fabsf(x[torch_randn[i].at[j]] - torch_randn[i].value[j]) <= 1e-6f,
                              "randn(%zu)[%zu] is %.9g instead of %.9g", torch_randn[i].count, torch_randn[i].at[j],
                              (double)x[torch_randn[i].at[j]], (double)torch_randn[i].value[j]);
            free(x);
        }
    }
END_TEST

/* At width 48 the installed file's numbers, beyond its 2,000 rows the draws; at others the draws alone. */
START_TEST(table_comes_first)
    {
        enum { ROWS = 2001, WIDTH = 48 };
        char path[4096];
        struct ckpt *c;
        float *x = room(ROWS * WIDTH), *drawn = room(ROWS * WIDTH);
        const char *source = getenv("top_srcdir");
        (void)snprintf(path, sizeof path, "%s/share/models/column-embeddings.safetensors", source ? source : ".");
        MUST(ckpt_open(&c, path, &f));
        const struct ckpt_tensor *t = ckpt_find(c, "column_embeddings");
        ck_assert(t != NULL && t->count == 2000 * WIDTH);
        column_embeddings(ROWS, WIDTH, x);
        column_randn(42, ROWS * WIDTH, drawn);
        ck_assert_mem_eq(x, t->data, 2000 * WIDTH * sizeof *x);
        ck_assert_mem_eq(x + 2000 * WIDTH, drawn + 2000 * WIDTH, WIDTH * sizeof *x);
        memset(x, 0, ROWS * WIDTH * sizeof *x);
        column_embeddings(9, WIDTH, x);
        ck_assert_mem_eq(x, t->data, 9 * WIDTH * sizeof *x);
        column_embeddings(9, 8, x);
        column_randn(42, 72, drawn);
        ck_assert_mem_eq(x, drawn, 72 * sizeof *x);
        ckpt_close(c);
        free(x);
        free(drawn);
    }
END_TEST

UNIT_MAIN("model/columns", draws_are_torch_s, table_comes_first)
