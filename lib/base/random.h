/* The random streams that TabPFN's results hang on, bit for bit: numpy's default_rng (PCG64 behind a SeedSequence), numpy's
 * legacy RandomState and torch's CPU generator (both MT19937). Only draws; what they are used for stands where they
 * are used. A generator is a plain value: copy it to branch, one per thread, no locks. */
#ifndef TABFT_BASE_RANDOM_H
#define TABFT_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

/* ---- numpy.random.default_rng(seed), seed 0 .. 2^64-1 ---- */
struct random_pcg {
    unsigned __int128 state, increment;
    uint32_t kept; /* the high half of a 64-bit output, for the next 32-bit call */
    bool has_kept;
};

void random_pcg_seed(struct random_pcg *g, uint64_t seed);
uint32_t random_pcg_u32(struct random_pcg *g);
uint64_t random_pcg_u64(struct random_pcg *g);
double random_pcg_double(struct random_pcg *g); /* random(): [0, 1) */

/* integers(low, high): low <= result < high; high > low. */
int64_t random_pcg_integer(struct random_pcg *g, int64_t low, int64_t high);

/* permutation(n) into out[n]; shuffle in place (numpy's arrays and lists alike). */
void random_pcg_permutation(struct random_pcg *g, size_t n, size_t *out);
void random_pcg_shuffle(struct random_pcg *g, size_t n, size_t *items);

/* choice(n, k, replace=False) into out[k], k <= n. Errors: TABFT_SYSTEM when memory for the n marks is short. */
int random_pcg_choice(struct random_pcg *g, size_t n, size_t k, size_t *out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* choice(n, k) with replacement, n >= 1, into out[k]. choice(list) is out[0] with k = 1. */
void random_pcg_choice_repeated(struct random_pcg *g, size_t n, size_t k, size_t *out);

/* ---- numpy.random.RandomState(seed) and torch.Generator().manual_seed(seed): the same MT19937 ---- */
enum { RANDOM_MT_WORDS = 624 };
struct random_mt {
    uint32_t key[RANDOM_MT_WORDS];
    int position;
};

void random_mt_seed(struct random_mt *g, uint32_t seed); /* torch takes the low 32 bits of its seed */
uint32_t random_mt_u32(struct random_mt *g);
uint64_t random_mt_u64(struct random_mt *g); /* high word first, in numpy and in torch */
double random_mt_double(struct random_mt *g); /* RandomState.random_sample(): [0, 1) with 53 bits */

/* RandomState.randint(0, limit + 1): a value in [0, limit]; limit 0 draws nothing. */
uint64_t random_mt_bounded(struct random_mt *g, uint64_t limit);

/* RandomState.permutation(n) and .shuffle. RandomState.choice(n, k, replace=False) is the first k of the permutation. */
void random_mt_permutation(struct random_mt *g, size_t n, size_t *out);
void random_mt_shuffle(struct random_mt *g, size_t n, size_t *items);

/* torch.randn(n) of float32, n >= 16, to within its own approximations of logarithm, sine and cosine (about 1e-7). */
void random_mt_torch_normals(struct random_mt *g, size_t n, float *out);

/* torch.randperm(n), n < 2^32. A DataLoader that shuffles with a generator takes two random_mt_u32 before it. */
void random_mt_torch_permutation(struct random_mt *g, size_t n, size_t *out);

#endif
