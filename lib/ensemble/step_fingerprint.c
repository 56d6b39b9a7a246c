/* Appends a hash of each row, so that the network can tell equal rows from different ones. Context rows that are equal
 * get different hashes by counting up; query rows share theirs (spec 3.9). */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

enum { ROWS_PER_BLOCK = 128, RETRIES_MAX = 100 };

/* value / (2^64 - 1) as a correctly rounded double. The quotient is a little above value / 2^64, so a tie goes up. */
static double unit_of(uint64_t value)
{
    if (value >> 53 == 0) return (double)value * 0x1p-64;
    int shift = 64 - __builtin_clzll(value) - 53;
    uint64_t dropped = value & ((UINT64_C(1) << shift) - 1);
    uint64_t kept = (value >> shift) + (dropped >= UINT64_C(1) << (shift - 1) ? 1 : 0);
    return ldexp((double)kept, shift - 64);
}

static void put_u64(uint8_t out[8], uint64_t value)
{
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static double hash_bytes(const void *row, size_t n, uint64_t salt)
{
    struct sha256_ctx sha;
    uint8_t digest[SHA256_DIGEST_SIZE], salt_bytes[8];
    put_u64(salt_bytes, salt);
    sha256_init(&sha);
    sha256_update(&sha, n, row);
    sha256_update(&sha, sizeof salt_bytes, salt_bytes);
    sha256_digest(&sha, sizeof digest, digest);
    uint64_t last = 0;
    for (int i = SHA256_DIGEST_SIZE - 8; i < SHA256_DIGEST_SIZE; i++) last = last << 8 | digest[i];
    return unit_of(last);
}

struct job {
    const struct frame *x;
    bool single;      /* hashed as float32 */
    size_t n_columns; /* the hashed ones; the fingerprint stands behind them */
    uint64_t salt;
    double *rows; /* [threads][n_columns] */
};

/* A row rounded to 12 decimals, as its bytes are hashed. Returns whether all of it is missing. */
static bool gather_row(const struct job *job, size_t row, double *out)
{
    float *singles = (float *)(void *)out;
    bool missing = true;
    for (size_t j = 0; j < job->n_columns; j++) {
        double value = job->x->column[j].value[row];
        missing = missing && isnan(value);
        if (job->single) singles[j] = rintf((float)value * 1e12f) / 1e12f;
        else out[j] = rint(value * 1e12) / 1e12;
    }
    return missing;
}

static double hash_row(const struct job *job, const double *row, uint64_t salt)
{
    return hash_bytes(row, job->n_columns * (job->single ? sizeof(float) : sizeof(double)), salt);
}

static void hash_block(void *context, size_t block, int thread)
{
    const struct job *job = context;
    double *row = job->rows + job->n_columns * (size_t)thread, *out = job->x->column[job->n_columns].value;
    size_t end = (block + 1) * ROWS_PER_BLOCK;
    if (end > job->x->n_rows) end = job->x->n_rows;
    for (size_t i = block * ROWS_PER_BLOCK; i < end; i++) {
        (void)gather_row(job, i, row);
        out[i] = hash_row(job, row, job->salt);
    }
}

/* Open addressing over doubles in [0, 1]; `count` 0 marks a free place. */
struct places {
    size_t mask;
    double *key;
    uint32_t *count;
};

static int places_open(struct places *p, size_t n, struct tabft_failure *f)
{
    size_t room = 16;
    while (room / 2 <= n) room *= 2;
    *p = (struct places){.mask = room - 1};
    int error;
    TRY(memory_new(&p->key, room, sizeof *p->key, "fingerprints", f));
    TRY(memory_new(&p->count, room, sizeof *p->count, "fingerprints", f));
fail:
    return error;
}

static void places_close(struct places *p)
{
    free(p->key);
    free(p->count);
}

/* The place of a key: where it is, or a free one. The keys are hashes already. */
static size_t place_of(const struct places *p, double key)
{
    uint64_t bits;
    memcpy(&bits, &key, sizeof bits);
    size_t i = (size_t)((bits ^ bits >> 29) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & p->mask;
    while (p->count[i] != 0 && p->key[i] != key) i = (i + 1) & p->mask;
    return i;
}

/* Makes the context's fingerprints unique, in row order. */
static int count_up_equal_rows(const struct job *job, struct tabft_failure *f)
{
    const struct frame *x = job->x;
    double *out = x->column[job->n_columns].value, *row = job->rows;
    struct places seen = {0}, next = {0}; /* hashes given out; the next offset of each first hash */
    int error;
    TRY(places_open(&seen, x->n_context, f));
    TRY(places_open(&next, x->n_context, f));
    for (size_t i = 0; i < x->n_context; i++) {
        double first = out[i], hash = first;
        size_t counter = place_of(&next, first);
        uint32_t offset = next.count[counter];
        bool is_taken = seen.count[place_of(&seen, first)] != 0;
        if (offset > 0 || is_taken) {
            bool missing = gather_row(job, i, row);
            if (offset > 0) hash = hash_row(job, row, job->salt + offset);
            for (int retries = 0; !missing && seen.count[place_of(&seen, hash)] != 0; retries++) {
                if (retries == RETRIES_MAX)
                    FAIL(f, TABFT_INPUT, "estimators: no free fingerprint for context row %zu; remove duplicates of it",
                         i + 1);
                hash = hash_row(job, row, job->salt + ++offset);
            }
        }
        next.key[counter] = first;
        next.count[counter] = offset + 1;
        size_t place = place_of(&seen, hash);
        seen.key[place] = hash;
        seen.count[place] = 1;
        out[i] = hash;
    }
    error = 0;
fail:
    places_close(&seen);
    places_close(&next);
    return error;
}

int step_fingerprint(struct frame *x, bool single, struct threads *pool, struct tabft_failure *f)
{
    struct job job = {
        .x = x, .single = single, .n_columns = x->n_columns, .salt = (uint64_t)x->n_context * x->n_columns};
    size_t n_rows_room = job.n_columns * (size_t)threads_count(pool);
    int error;
    TRY(memory_new(&job.rows, n_rows_room, sizeof *job.rows, "rows to hash", f));
    TRY(frame_append(x, false, f));
    threads_run(pool, (x->n_rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK, hash_block, &job);
    TRY(count_up_equal_rows(&job, f));
fail:
    free(job.rows);
    return error;
}
