/* Pass 1, reading: an input comes in batches of blocks; these are cut into segments of whole records by counting
 * quotes, the segments are surveyed in parallel, and what they found is added up in their order. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/loop.h"
#include "table/survey.h"

struct batch {
    struct pack *p;
    size_t input;
    char *text;            /* [room + RECORDS_PADDING] */
    size_t room, carry, n; /* bytes of an unfinished record from before, and of all */
    uint64_t offset;       /* of text in the input */
    size_t block_bytes, n_blocks;
    bool *odd;           /* [blocks] an odd number of quotes in it */
    struct found *found; /* [blocks_max + 1] */
    struct segment *segment;
    size_t n_segments, blocks_max;
    bool digest;
    struct digest_pieces fresh;
    struct loop_failure failure;
};

static void read_block(void *context, size_t block, int thread)
{
    struct batch *b = context;
    size_t from = b->carry + block * b->block_bytes, n = b->n - from < b->block_bytes ? b->n - from : b->block_bytes;
    struct tabft_failure f = {0};
    size_t quotes = 0;
    (void)thread;
    if (input_get(&b->p->input[b->input], b->offset + from, b->text + from, n, &f) < 0) {
        loop_failure_keep(&b->failure, block, &f);
        return;
    }
    const char *p = b->text + from, *end = p + n;
    for (; (p = memchr(p, '"', (size_t)(end - p))) != NULL; p++) quotes++;
    b->odd[block] = quotes % 2 != 0;
}

/* The byte after the first record end at or behind `at`, or n. `inside`: at lies in a quoted cell. */
static size_t next_record(const struct batch *b, size_t at, bool inside)
{
    for (; at < b->n; at++) {
        if (b->text[at] == '"') inside = !inside;
        else if (b->text[at] == '\n' && !inside) return at + 1;
    }
    return b->n;
}

/* The byte after the last record end, or 0. `inside` as at the end of the text. */
static size_t last_record(const struct batch *b, bool inside)
{
    for (size_t at = b->n; at > 0; at--) {
        if (b->text[at - 1] == '"') inside = !inside;
        else if (b->text[at - 1] == '\n' && !inside) return at;
    }
    return 0;
}

/* A matrix is read in blocks of whole rows. */
static size_t cut_rows(struct batch *b)
{
    for (size_t i = 0; i < b->n_blocks; i++) {
        size_t from = i * b->block_bytes, n = b->n - from < b->block_bytes ? b->n - from : b->block_bytes;
        b->segment[i] = (struct segment){.input = b->input, .offset = b->offset + from, .size = n};
    }
    b->n_segments = b->n_blocks;
    return b->n;
}

/* Cuts the text into runs of whole records, one for each block where it can be. At the end of the input all is taken.
 */
static size_t cut_segments(struct batch *b, bool last)
{
    if (b->p->is_npy) return cut_rows(b);
    bool inside = false;
    size_t from = 0, end, quotes = 0;
    for (size_t i = 0; i < b->carry; i++) quotes += b->text[i] == '"';
    bool at_block = quotes % 2 != 0;
    for (size_t i = 0; i < b->n_blocks; i++) inside = inside != b->odd[i];
    end = last ? b->n : last_record(b, inside != at_block);
    b->n_segments = 0;
    for (size_t i = 0; i < b->n_blocks && from < end; i++) {
        at_block = at_block != b->odd[i];
        size_t at = b->carry + (i + 1) * b->block_bytes, to = i + 1 == b->n_blocks ? end : next_record(b, at, at_block);
        if (to > end) to = end;
        if (to <= from) continue;
        b->segment[b->n_segments++] = (struct segment){
            .input = b->input, .offset = b->offset + from, .size = to - from};
        from = to;
    }
    return end;
}

/* The batch's new bytes, as far as they are this part's. */
static int cut_fresh(struct batch *b, struct tabft_failure *f)
{
    uint64_t begin = b->offset + b->carry, end = b->p->range[b->input].bytes_end;
    size_t n = b->n - b->carry;
    if (begin >= end || !b->digest) n = 0;
    else if (n > end - begin) n = (size_t)(end - begin);
    return digest_cut(&b->p->input[b->input].digest, b->text + b->carry, n, &b->fresh, f);
}

/* Segments, then the edges of what is digested, then its whole blocks. */
static void survey_segment(void *context, size_t block, int thread)
{
    struct batch *b = context;
    (void)thread;
    if (block == b->n_segments) {
        digest_edges(&b->p->input[b->input].digest, &b->fresh);
        return;
    }
    if (block > b->n_segments) {
        digest_whole(&b->p->input[b->input].digest, &b->fresh, block - b->n_segments - 1);
        return;
    }
    struct found *found = &b->found[block];
    const struct segment *s = found->segment;
    const char *begin = b->text + (s->offset - b->offset);
    found_survey(found, b->p, begin);
}

static int survey_segments(struct batch *b, struct tabft_failure *f)
{
    int error = 0;
    for (size_t i = 0; i < b->n_segments; i++) {
        found_reset(&b->found[i], b->p);
        b->found[i].segment = &b->segment[i];
    }
    TRY(cut_fresh(b, f));
    threads_run(b->p->pool, b->n_segments + 1 + b->fresh.n, survey_segment, b);
    digest_join(&b->p->input[b->input].digest, &b->fresh);
    for (size_t i = 0; i < b->n_segments; i++) TRY(found_merge(b->p, &b->found[i], f));
fail:
    return error;
}

static int fail_long(struct batch *b, struct tabft_failure *f)
{
    return input_fail(&b->p->input[b->input], b->offset, f,
                      "a record longer than %d bytes begins here; a quote in it may never be closed", (int)RECORD_MAX);
}

/* One batch: reads, cuts, surveys, keeps the unfinished record. */
static int next_batch(struct batch *b, uint64_t left, struct tabft_failure *f)
{
    int error = 0;
    size_t most = b->blocks_max * b->block_bytes, fresh = left < most ? (size_t)left : most;
    bool last = fresh == left;
    if (b->carry > RECORD_MAX) TRY(fail_long(b, f));
    if (b->room < b->carry + fresh) {
        TRY(memory_grow(&b->text, b->carry + fresh + RECORDS_PADDING, 1, "text", f));
        b->room = b->carry + fresh;
    }
    b->n = b->carry + fresh;
    b->n_blocks = (fresh + b->block_bytes - 1) / b->block_bytes;
    loop_failure_open(&b->failure);
    threads_run(b->p->pool, b->n_blocks, read_block, b);
    TRY(loop_failure_close(&b->failure, f));
    b->text[b->n] = b->text[b->n + 1] = '\n';
    size_t done = cut_segments(b, last);
    TRY(survey_segments(b, f));
    b->carry = b->n - done;
    memmove(b->text, b->text + done, b->carry);
    b->offset += done;
fail:
    return error;
}

/* Bytes of this part that lie before its first record: the header, or the end of a record of the part before. */
static int digest_before(struct batch *b, const struct range *r, struct tabft_failure *f)
{
    int error = 0;
    uint8_t *text = NULL;
    struct input *in = &b->p->input[b->input];
    uint64_t end = r->begin < r->bytes_end ? r->begin : r->bytes_end;
    TRY(digest_open(&in->digest, r->bytes_end - r->bytes_begin, f));
    TRY(memory_new(&text, DIGEST_BLOCK, 1, "text", f));
    for (uint64_t at = r->bytes_begin; at < end;) {
        size_t n = end - at < DIGEST_BLOCK ? (size_t)(end - at) : DIGEST_BLOCK;
        TRY(input_get(in, at, text, n, f));
        TRY(digest_add(&in->digest, text, n, f));
        at += n;
    }
fail:
    free(text);
    return error;
}

static int survey_input(struct batch *b, size_t i, struct tabft_failure *f)
{
    int error = 0;
    struct input *in = &b->p->input[i];
    const struct range *r = &b->p->range[i];
    b->input = i;
    b->carry = 0;
    b->offset = r->begin;
    b->block_bytes = b->p->options->block_bytes;
    if (b->p->is_npy) { /* whole rows */
        size_t row = (size_t)b->p->npy[i].columns * b->p->npy[i].item;
        b->block_bytes = b->block_bytes < row ? row : b->block_bytes / row * row;
    }
    b->digest = !in->digested;
    if (b->digest) TRY(digest_before(b, r, f));
    uint64_t at = b->offset;
    while (at < r->end) {
        size_t carried = b->carry;
        TRY(next_batch(b, r->end - at, f));
        at += b->n - carried;
    }
    if (b->digest) TRY(digest_end(&in->digest, f));
    in->digested = true;
fail:
    return error;
}

int pack_survey(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    struct batch b = {.p = p, .blocks_max = (size_t)threads_count(p->pool) * BLOCKS_A_THREAD};
    TRY(memory_new(&b.odd, b.blocks_max, sizeof *b.odd, "blocks", f));
    TRY(memory_new(&b.segment, b.blocks_max, sizeof *b.segment, "blocks", f));
    TRY(memory_new(&b.found, b.blocks_max, sizeof *b.found, "blocks", f));
    for (size_t i = 0; i < b.blocks_max; i++) TRY(found_new(&b.found[i], p, f));
    for (size_t i = 0; i < p->options->n_inputs; i++)
        if (p->range[i].used) TRY(survey_input(&b, i, f));
fail:
    for (size_t i = 0; b.found != NULL && i < b.blocks_max; i++) found_free(&b.found[i], p);
    free(b.found);
    free(b.segment);
    free(b.odd);
    free(b.text);
    return error;
}
