#include "train/chunks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "train/split.h"

struct chunks {
    size_t n;
    size_t *order;       /* [n] chunk taken at a position */
    struct chunk *chunk; /* [n] by id */
    size_t *row;         /* the rows of all chunks, context before query, chunk after chunk */
};

/* ---- how many chunks, how large ---- */

static size_t largest_chunk(const struct chunks_rules *r)
{
    return r->chunk_rows < r->n_rows ? r->chunk_rows : r->n_rows;
}

static size_t count_chunks(const struct chunks_rules *r)
{
    size_t largest = largest_chunk(r);
    return r->n_rows / largest + (r->n_rows % largest >= CHUNKS_REMAINDER_MIN);
}

static size_t query_rows(const struct chunks_rules *r, size_t rows)
{
    size_t n = (size_t)((double)rows * r->query_fraction);
    return n > r->query_min ? n : r->query_min;
}

static int check(const struct chunks_rules *r, struct tabft_failure *f)
{
    if (r->n_rows == 0 || r->chunk_rows == 0)
        return tabft_fail(f, TABFT_INPUT, "chunks: no rows to train on; give a table that has some");
    size_t rows = largest_chunk(r);
    if (query_rows(r, rows) >= rows)
        return tabft_fail(
            f, TABFT_INPUT,
            "chunks: a chunk of %zu rows leaves no context beside %zu query rows; raise --chunk-rows or lower "
            "--query-fraction",
            rows, query_rows(r, rows));
    return 0;
}

int chunks_sizes(const struct chunks_rules *r, struct chunks_sizes *sizes, struct tabft_failure *f)
{
    int error = 0;
    TRY(check(r, f));
    size_t n = count_chunks(r);
    /* Folds share all rows evenly, so they can be larger or smaller than asked for; blocks leave rows behind. */
    size_t rows = r->n_labels > 0 ? r->n_rows / n + (r->n_rows % n > 0) : largest_chunk(r);
    *sizes = (struct chunks_sizes){.n_chunks = n, .n_query = query_rows(r, rows)};
    sizes->n_context = rows - sizes->n_query;
fail:
    return error;
}

/* ---- cutting ---- */

/* Stratified k-fold: fold[i] of shuffled row i. Labels are numbered by first appearance; row i, i + k, ... of the
 * sorted numbers say how many rows of each label a fold gets, and each label's list of fold numbers is shuffled. */
static int fold_rows(const struct chunks_rules *r, const size_t *shuffled, size_t n_folds, uint32_t seed, size_t *fold,
                     struct tabft_failure *f)
{
    int error = 0;
    size_t n = r->n_rows, *number = NULL, *count = NULL, *member = NULL, *list = NULL, seen = 0;
    TRY(memory_new(&number, r->n_labels, sizeof *number, "chunking", f)); /* 0 = not seen, else 1 + number */
    TRY(memory_new(&count, r->n_labels, sizeof *count, "chunking", f));
    TRY(memory_new(&member, n, sizeof *member, "chunking", f));
    TRY(memory_new(&list, n, sizeof *list, "chunking", f));
    for (size_t i = 0; i < n; i++) {
        int32_t k = r->label[shuffled[i]];
        if (number[k] == 0) number[k] = ++seen;
        count[number[k] - 1]++;
    }
    struct random_mt g;
    random_mt_seed(&g, seed);
    for (size_t k = 0, first = 0; k < seen; first += count[k++]) {
        size_t n_list = 0, members = 0;
        for (size_t i = 0; i < n_folds; i++) /* sorted positions of this label: first .. first + count - 1 */
            for (size_t at = first + (i + n_folds - first % n_folds) % n_folds; at < first + count[k]; at += n_folds)
                list[n_list++] = i;
        random_mt_shuffle(&g, n_list, list);
        for (size_t i = 0; i < n; i++)
            if (number[r->label[shuffled[i]]] == k + 1) member[members++] = i;
        for (size_t i = 0; i < members; i++) fold[member[i]] = list[i];
    }
fail:
    free(number);
    free(count);
    free(member);
    free(list);
    return error;
}

static bool folds_possible(const struct chunks_rules *r, size_t n_folds)
{
    if (r->label == NULL || n_folds < 2) return false;
    for (size_t k = 0; k < r->n_labels; k++) {
        size_t count = 0;
        for (size_t i = 0; i < r->n_rows && count < n_folds; i++) count += (size_t)r->label[i] == k;
        if (count > 0 && count < n_folds) return false;
    }
    return true;
}

/* Lists the rows of every chunk into c->row and sets the chunks' sizes in n_context (context and query together). */
static int cut(struct chunks *c, const struct chunks_rules *r, uint32_t seed, struct tabft_failure *f)
{
    int error = 0;
    size_t n = r->n_rows, *shuffled = NULL, *fold = NULL, *next = NULL;
    struct random_pcg g;
    TRY(memory_new(&shuffled, n, sizeof *shuffled, "chunking", f));
    TRY(memory_new(&fold, n, sizeof *fold, "chunking", f));
    TRY(memory_new(&next, c->n, sizeof *next, "chunking", f));
    random_pcg_seed(&g, seed);
    random_pcg_permutation(&g, n, shuffled);
    if (folds_possible(r, c->n)) {
        TRY(fold_rows(r, shuffled, c->n, seed, fold, f));
    } else {
        bool all = r->label != NULL && c->n == 1; /* a single chunk of a classifier takes all rows */
        for (size_t i = 0; i < n; i++) fold[i] = all ? 0 : i / largest_chunk(r); /* c->n and above: left behind */
    }
    for (size_t i = 0; i < n; i++)
        if (fold[i] < c->n) c->chunk[fold[i]].n_context++;
    for (size_t id = 0, begin = 0; id < c->n; begin += c->chunk[id++].n_context) {
        c->chunk[id].id = id;
        c->chunk[id].context = c->row + begin;
        next[id] = begin;
    }
    for (size_t i = 0; i < n; i++)
        if (fold[i] < c->n) c->row[next[fold[i]]++] = shuffled[i];
fail:
    free(shuffled);
    free(fold);
    free(next);
    return error;
}

/* Cuts a chunk's rows (in c->row, n_context of them) into context and query. The generator starts anew for each chunk.
 */
static int cut_query(struct chunk *chunk, const struct chunks_rules *r, uint32_t seed, struct tabft_failure *f)
{
    int error = 0;
    size_t rows = chunk->n_context, n_query = query_rows(r, rows), *copy = NULL;
    size_t *own = (size_t *)chunk->context; /* c->row is ours */
    int32_t *label = NULL;
    struct split split = {0};
    const char *reason;
    if (n_query >= rows)
        FAIL(f, TABFT_INPUT,
             "chunks: chunk %zu has %zu rows, too few for %zu query rows and a context; raise --chunk-rows", chunk->id,
             rows, n_query);
    TRY(memory_new(&copy, rows, sizeof *copy, "chunking", f));
    memcpy(copy, own, rows * sizeof *copy);
    if (r->label != NULL) {
        TRY(memory_new(&label, rows, sizeof *label, "chunking", f));
        for (size_t i = 0; i < rows; i++) label[i] = r->label[copy[i]];
    }
    bool stratify = label != NULL && split_can_stratify(label, rows, r->n_labels, n_query, &reason);
    TRY(split_rows(&split, stratify ? label : NULL, rows, r->n_labels, n_query, seed, f));
    for (size_t i = 0; i < split.n_train; i++) own[i] = copy[split.train[i]];
    for (size_t i = 0; i < split.n_test; i++) own[split.n_train + i] = copy[split.test[i]];
    chunk->n_context = split.n_train;
    chunk->n_query = split.n_test;
    chunk->query = chunk->context + split.n_train;
fail:
    split_clear(&split);
    free(copy);
    free(label);
    return error;
}

int chunks_open(struct chunks **out, const struct chunks_rules *r, uint32_t epoch, struct tabft_failure *f)
{
    int error = 0;
    struct chunks *c = NULL;
    uint32_t seed = r->seed + epoch;
    *out = NULL;
    TRY(check(r, f));
    TRY(memory_new(&c, 1, sizeof *c, "the chunks of an epoch", f));
    c->n = count_chunks(r);
    TRY(memory_new(&c->order, c->n, sizeof *c->order, "the chunks of an epoch", f));
    TRY(memory_new(&c->chunk, c->n, sizeof *c->chunk, "the chunks of an epoch", f));
    TRY(memory_new(&c->row, r->n_rows, sizeof *c->row, "the chunks of an epoch", f));
    TRY(cut(c, r, seed, f));
    for (size_t i = 0; i < c->n; i++) TRY(cut_query(&c->chunk[i], r, seed, f));
    struct random_mt g;
    random_mt_seed(&g, seed);
    /* Each iterator over torch's loader draws 64 bits for its workers' seed. TabPFN's progress bar (tqdm.auto) makes
     * one that it never uses before the one that is. */
    for (int i = 0; i < 2; i++) (void)random_mt_u64(&g);
    random_mt_torch_permutation(&g, c->n, c->order);
    *out = c;
    return 0;
fail:
    chunks_close(c);
    return error;
}

size_t chunks_count(const struct chunks *c) { return c->n; }
const struct chunk *chunks_at(const struct chunks *c, size_t position) { return &c->chunk[c->order[position]]; }

void chunks_close(struct chunks *c)
{
    if (c == NULL) return;
    free(c->order);
    free(c->chunk);
    free(c->row);
    free(c);
}
