#include "base/random.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* ---- SeedSequence with its pool of four words (O'Neill's seed_seq_fe) ---- */
enum { POOL = 4 };

static uint32_t hash_word(uint32_t value, uint32_t *constant)
{
    value ^= *constant;
    *constant *= UINT32_C(0x931e8875);
    value *= *constant;
    return value ^ (value >> 16);
}

static uint32_t mix_words(uint32_t x, uint32_t y)
{
    uint32_t mixed = x * UINT32_C(0xca01f9dd) - y * UINT32_C(0x4973f715);
    return mixed ^ (mixed >> 16);
}

/* generate_state(4, uint64) of SeedSequence(seed). */
static void seed_sequence(uint64_t seed, uint64_t out[4])
{
    uint32_t pool[POOL], constant = UINT32_C(0x43b0d7e5);
    for (int i = 0; i < POOL; i++) pool[i] = hash_word(i < 2 ? (uint32_t)(seed >> (32 * i)) : 0, &constant);
    for (int source = 0; source < POOL; source++)
        for (int target = 0; target < POOL; target++)
            if (source != target) pool[target] = mix_words(pool[target], hash_word(pool[source], &constant));
    uint32_t words[8];
    constant = UINT32_C(0x8b51f9dd);
    for (int i = 0; i < 8; i++) {
        uint32_t value = pool[i % POOL] ^ constant;
        constant *= UINT32_C(0x58f38ded);
        value *= constant;
        words[i] = value ^ (value >> 16);
    }
    for (int i = 0; i < 4; i++) out[i] = words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
}

/* ---- PCG64: XSL-RR 128/64 ---- */
static void pcg_step(struct random_pcg *g)
{
    const unsigned __int128 multiplier =
        (unsigned __int128)UINT64_C(0x2360ED051FC65DA4) << 64 | UINT64_C(0x4385DF649FCCF645);
    g->state = g->state * multiplier + g->increment;
}

void random_pcg_seed(struct random_pcg *g, uint64_t seed)
{
    uint64_t words[4];
    seed_sequence(seed, words);
    unsigned __int128 sequence = (unsigned __int128)words[2] << 64 | words[3];
    *g = (struct random_pcg){.increment = sequence << 1 | 1};
    pcg_step(g);
    g->state += (unsigned __int128)words[0] << 64 | words[1];
    pcg_step(g);
}

uint64_t random_pcg_u64(struct random_pcg *g)
{
    pcg_step(g);
    uint64_t folded = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    unsigned rotation = (unsigned)(g->state >> 122);
    return folded >> rotation | folded << (-rotation & 63);
}

uint32_t random_pcg_u32(struct random_pcg *g)
{
    if (g->has_kept) {
        g->has_kept = false;
        return g->kept;
    }
    uint64_t both = random_pcg_u64(g);
    g->kept = (uint32_t)(both >> 32);
    g->has_kept = true;
    return (uint32_t)both;
}

double random_pcg_double(struct random_pcg *g) { return (double)(random_pcg_u64(g) >> 11) * 0x1p-53; }

static uint64_t ones_above(uint64_t limit) { return limit == 0 ? 0 : UINT64_MAX >> __builtin_clzll(limit); }

/* A value in [0, limit] by masking and rejection: what numpy's shuffles draw. */
static uint64_t pcg_masked(struct random_pcg *g, uint64_t limit)
{
    if (limit == 0) return 0;
    uint64_t mask = ones_above(limit), value;
    do
        value = (limit <= UINT32_MAX ? random_pcg_u32(g) : random_pcg_u64(g)) & mask;
    while (value > limit);
    return value;
}

/* A value in [0, limit] by Lemire's multiplication: what integers and choice draw. */
static uint64_t pcg_lemire(struct random_pcg *g, uint64_t limit)
{
    if (limit == 0) return 0;
    if (limit == UINT32_MAX) return random_pcg_u32(g);
    if (limit == UINT64_MAX) return random_pcg_u64(g);
    if (limit < UINT32_MAX) {
        uint32_t width = (uint32_t)limit + 1;
        uint32_t threshold = (UINT32_MAX - (uint32_t)limit) % width;
        uint64_t product;
        do
            product = (uint64_t)random_pcg_u32(g) * width;
        while ((uint32_t)product < threshold);
        return product >> 32;
    }
    uint64_t width = limit + 1, threshold = (UINT64_MAX - limit) % width;
    unsigned __int128 product;
    do
        product = (unsigned __int128)random_pcg_u64(g) * width;
    while ((uint64_t)product < threshold);
    return (uint64_t)(product >> 64);
}

int64_t random_pcg_integer(struct random_pcg *g, int64_t low, int64_t high)
{
    uint64_t limit = (uint64_t)high - (uint64_t)low - 1;
    return (int64_t)((uint64_t)low + pcg_lemire(g, limit));
}

static void swap_items(size_t *a, size_t *b)
{
    size_t held = *a;
    *a = *b;
    *b = held;
}

static void count_up(size_t n, size_t *out)
{
    for (size_t i = 0; i < n; i++) out[i] = i;
}

void random_pcg_shuffle(struct random_pcg *g, size_t n, size_t *items)
{
    for (size_t i = n; i-- > 1;) swap_items(&items[i], &items[pcg_masked(g, i)]);
}

void random_pcg_permutation(struct random_pcg *g, size_t n, size_t *out)
{
    count_up(n, out);
    random_pcg_shuffle(g, n, out);
}

/* Shuffles only the places from `first` up, as numpy's choice does. */
static void shuffle_tail(struct random_pcg *g, size_t n, size_t first, size_t *items)
{
    for (size_t i = n; i-- > first;) swap_items(&items[i], &items[pcg_lemire(g, i)]);
}

static int choice_by_tail(struct random_pcg *g, size_t n, size_t k, size_t *out, struct tabft_failure *f)
{
    size_t *all = NULL;
    int error = memory_new(&all, n, sizeof *all, "a draw without replacement", f);
    if (error < 0) return error;
    count_up(n, all);
    shuffle_tail(g, n, n - k > 1 ? n - k : 1, all);
    for (size_t i = 0; i < k; i++) out[i] = all[n - k + i];
    free(all);
    return 0;
}

static int choice_by_floyd(struct random_pcg *g, size_t n, size_t k, size_t *out, struct tabft_failure *f)
{
    uint8_t *taken = NULL;
    int error = memory_new(&taken, n / 8 + 1, 1, "a draw without replacement", f);
    if (error < 0) return error;
    for (size_t i = 0, j = n - k; i < k; i++, j++) {
        size_t value = pcg_lemire(g, j);
        if (taken[value / 8] >> (value % 8) & 1) value = j;
        taken[value / 8] = (uint8_t)(taken[value / 8] | 1u << (value % 8));
        out[i] = value;
    }
    free(taken);
    shuffle_tail(g, k, 1, out);
    return 0;
}

int random_pcg_choice(struct random_pcg *g, size_t n, size_t k, size_t *out, struct tabft_failure *f)
{
    return n > 10000 && k > n / 50 ? choice_by_tail(g, n, k, out, f) : choice_by_floyd(g, n, k, out, f);
}

void random_pcg_choice_repeated(struct random_pcg *g, size_t n, size_t k, size_t *out)
{
    for (size_t i = 0; i < k; i++) out[i] = pcg_lemire(g, n - 1);
}

/* ---- MT19937 ---- */
enum { MT_MIDDLE = 397 };

void random_mt_seed(struct random_mt *g, uint32_t seed)
{
    uint32_t word = seed;
    for (uint32_t i = 0; i < RANDOM_MT_WORDS; i++) {
        g->key[i] = word;
        word = UINT32_C(1812433253) * (word ^ word >> 30) + i + 1;
    }
    g->position = RANDOM_MT_WORDS;
}

static void mt_refill(struct random_mt *g)
{
    for (int i = 0; i < RANDOM_MT_WORDS; i++) {
        uint32_t y = (g->key[i] & UINT32_C(0x80000000)) | (g->key[(i + 1) % RANDOM_MT_WORDS] & UINT32_C(0x7fffffff));
        uint32_t twist = y & 1 ? UINT32_C(0x9908b0df) : 0;
        g->key[i] = g->key[(i + MT_MIDDLE) % RANDOM_MT_WORDS] ^ y >> 1 ^ twist;
    }
    g->position = 0;
}

uint32_t random_mt_u32(struct random_mt *g)
{
    if (g->position == RANDOM_MT_WORDS) mt_refill(g);
    uint32_t y = g->key[g->position++];
    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    return y ^ y >> 18;
}

uint64_t random_mt_u64(struct random_mt *g)
{
    uint64_t high = random_mt_u32(g);
    return high << 32 | random_mt_u32(g);
}

double random_mt_double(struct random_mt *g)
{
    uint32_t a = random_mt_u32(g) >> 5, b = random_mt_u32(g) >> 6;
    return ((double)a * 67108864.0 + (double)b) / 9007199254740992.0;
}

uint64_t random_mt_bounded(struct random_mt *g, uint64_t limit)
{
    if (limit == 0) return 0;
    uint64_t mask = ones_above(limit), value;
    do
        value = (limit <= UINT32_MAX ? random_mt_u32(g) : random_mt_u64(g)) & mask;
    while (value > limit);
    return value;
}

void random_mt_shuffle(struct random_mt *g, size_t n, size_t *items)
{
    for (size_t i = n; i-- > 1;) swap_items(&items[i], &items[random_mt_bounded(g, i)]);
}

void random_mt_permutation(struct random_mt *g, size_t n, size_t *out)
{
    count_up(n, out);
    random_mt_shuffle(g, n, out);
}

void random_mt_torch_permutation(struct random_mt *g, size_t n, size_t *out)
{
    count_up(n, out);
    for (size_t i = 0; i + 1 < n; i++) swap_items(&out[i], &out[i + random_mt_u32(g) % (n - i)]);
}

static const double PI = 3.14159265358979323846;

/* Sixteen uniform numbers become eight pairs of normal ones (Box and Muller), in halves. */
static void normals_of(float *x)
{
    for (size_t j = 0; j < 8; j++) {
        const double radius = sqrt(-2 * log(1 - (double)x[j])), angle = 2 * PI * (double)x[j + 8];
        x[j] = (float)(radius * cos(angle));
        x[j + 8] = (float)(radius * sin(angle));
    }
}

static void uniforms(struct random_mt *g, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = (float)(random_mt_u32(g) & 0xffffff) * 0x1p-24f;
}

void random_mt_torch_normals(struct random_mt *g, size_t n, float *out)
{
    uniforms(g, n, out);
    for (size_t i = 0; i + 16 <= n; i += 16) normals_of(out + i);
    if (n % 16 == 0) return;
    uniforms(g, 16, out + n - 16); /* what is left over is drawn anew, with what stands before it */
    normals_of(out + n - 16);
}
