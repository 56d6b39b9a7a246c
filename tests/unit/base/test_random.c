/* Every stream against what numpy and torch drew (tests/data/random/make_streams.py). */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/random.h"
#include "unit.h"

enum { MOST = 70000, SHOWN = 6 };

struct line {
    char call[32];
    uint64_t seed;
    int64_t n, k;
    size_t count;
    uint64_t hash, first[SHOWN];
};

struct generators {
    struct random_pcg pcg;
    struct random_mt mt;
};

static uint64_t values[MOST];
static size_t drawn[MOST];

static void take_drawn(size_t n)
{
    for (size_t i = 0; i < n; i++) values[i] = drawn[i];
}

static void draw_pcg(struct random_pcg *g, const struct line *l)
{
    struct tabft_failure f = {0};
    size_t n = (size_t)l->n, k = (size_t)l->k;
    if (strcmp(l->call, "pcg_integer") == 0) {
        for (size_t i = 0; i < l->count; i++) values[i] = (uint64_t)random_pcg_integer(g, l->n, l->k);
    } else if (strcmp(l->call, "pcg_double") == 0) {
        for (size_t i = 0; i < l->count; i++) {
            double value = random_pcg_double(g);
            memcpy(&values[i], &value, sizeof value);
        }
    } else if (strcmp(l->call, "pcg_permutation") == 0) {
        random_pcg_permutation(g, n, drawn);
        take_drawn(n);
    } else if (strcmp(l->call, "pcg_choice") == 0) {
        MUST(random_pcg_choice(g, n, k, drawn, &f));
        take_drawn(k);
    } else if (strcmp(l->call, "pcg_choice_repeated") == 0) {
        random_pcg_choice_repeated(g, n, k, drawn);
        take_drawn(k);
    } else {
        ck_abort_msg("unknown call %s", l->call);
    }
}

static void draw_mt(struct random_mt *g, const struct line *l)
{
    size_t n = (size_t)l->n;
    if (strcmp(l->call, "mt_double") == 0) {
        for (size_t i = 0; i < l->count; i++) {
            double value = random_mt_double(g);
            memcpy(&values[i], &value, sizeof value);
        }
    } else if (strcmp(l->call, "mt_bounded") == 0) {
        for (size_t i = 0; i < l->count; i++) values[i] = random_mt_bounded(g, (uint64_t)l->n);
    } else if (strcmp(l->call, "mt_permutation") == 0 || strcmp(l->call, "mt_choice") == 0) {
        random_mt_permutation(g, n, drawn);
        take_drawn(l->count);
    } else if (strcmp(l->call, "torch_permutation") == 0 || strcmp(l->call, "torch_loader") == 0) {
        random_mt_seed(g, (uint32_t)l->seed);
        if (strcmp(l->call, "torch_loader") == 0) (void)random_mt_u64(g);
        random_mt_torch_permutation(g, n, drawn);
        take_drawn(n);
    } else if (strcmp(l->call, "torch_normals") == 0) {
        static float normal[MOST];
        random_mt_seed(g, (uint32_t)l->seed);
        random_mt_torch_normals(g, n, normal);
        for (size_t i = 0; i < n; i++) values[i] = (uint64_t)floor((double)(normal[i] * 10)) + (1 << 20);
    } else {
        ck_abort_msg("unknown call %s", l->call);
    }
}

static void compare(const struct line *l, int number)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < l->count; i++) hash = (hash ^ values[i]) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < l->count && i < SHOWN; i++)
        ck_assert_msg(values[i] == l->first[i], "line %d: %s of seed %" PRIu64 ": value %zu is %" PRIu64, number, l->call,
                      l->seed, i, values[i]);
    ck_assert_msg(hash == l->hash, "line %d: %s of seed %" PRIu64, number, l->call, l->seed);
}

START_TEST(every_recorded_draw)
{
    FILE *in = fopen(unit_data("random/streams.txt"), "r");
    ck_assert_ptr_nonnull(in);
    struct generators g;
    uint64_t seed = 1;
    char family = 0, text[512];
    int number = 0;
    while (fgets(text, sizeof text, in)) {
        struct line l = {0};
        int got = sscanf(text, "%31s %" SCNu64 " %" SCNd64 " %" SCNd64 " %zu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                         " %" SCNu64 " %" SCNu64 " %" SCNu64, l.call, &l.seed, &l.n, &l.k, &l.count, &l.hash, &l.first[0],
                         &l.first[1], &l.first[2], &l.first[3], &l.first[4], &l.first[5]);
        ck_assert_int_ge(got, 7);
        ck_assert_uint_le(l.count, MOST);
        if (family != l.call[0] || seed != l.seed) { /* a new seed starts a new generator */
            random_pcg_seed(&g.pcg, l.seed);
            random_mt_seed(&g.mt, (uint32_t)l.seed);
            family = l.call[0];
            seed = l.seed;
        }
        if (l.call[0] == 'p')
            draw_pcg(&g.pcg, &l);
        else
            draw_mt(&g.mt, &l);
        compare(&l, ++number);
    }
    ck_assert_int_eq(number, 285);
    (void)fclose(in);
}
END_TEST

START_TEST(a_copy_branches_the_stream)
{
    struct random_pcg a, b;
    random_pcg_seed(&a, 5);
    (void)random_pcg_u32(&a); /* leaves a half kept */
    b = a;
    for (int i = 0; i < 9; i++) ck_assert_uint_eq(random_pcg_u32(&a), random_pcg_u32(&b));
}
END_TEST

UNIT_MAIN("base/random", every_recorded_draw, a_copy_branches_the_stream)
