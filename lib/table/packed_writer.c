#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/loop.h"
#include "table/packed.h"
#include "tbf/tbf.h"

struct packed_writer {
    struct tbf_writer *tbf;
    struct threads *pool;
    struct schema schema;
    struct column_statistics *statistics; /* [n_columns] */
    int n_codecs;
    struct tbf_codec **codec; /* one a thread */
    unsigned char **scratch;  /* a page a thread */
    size_t group;             /* the next one */
    size_t n_rows;            /* written */
};

void texts_clear(struct texts *t)
{
    free(t->text);
    free(t->block);
    *t = (struct texts){0};
}

int cells_new(struct cells **out, size_t n_columns, size_t n_rows, struct tabft_failure *f)
{
    int error = 0;
    size_t head, n, bytes;
    struct cells *cells = NULL;
    if (!size_mul(n_columns, sizeof *cells, &head) || !size_mul(n_columns, n_rows, &n) ||
        !size_mul(n, CELL_BYTES, &bytes) || !size_add(bytes, head, &bytes)) {
        FAIL(f, TABFT_SYSTEM, "no memory for %zu x %zu cells; give the job more memory", n_rows, n_columns);
    }
    TRY(memory_new(&cells, bytes, 1, "cells", f));
    uint64_t *slot = (uint64_t *)(void *)(cells + n_columns);
    uint8_t *absent = (uint8_t *)(slot + n);
    for (size_t c = 0; c < n_columns; c++) cells[c] = (struct cells){slot + c * n_rows, absent + c * n_rows};
    *out = cells;
fail:
    return error;
}

void cells_free(struct cells *cells) { free(cells); }

static int put(struct packed_writer *w, uint32_t type, uint32_t tag0, uint32_t tag1, const void *data, size_t size,
               struct tabft_failure *f)
{
    uint32_t version = type == TABLE_RECORD_SCHEMA ? schema_version(&w->schema) : TABLE_RECORD_VERSION;
    struct tbf_record record = {type, version, {tag0, tag1}, data, size, TBF_PLAIN};
    return tbf_writer_put(w->tbf, w->codec[0], &record, f);
}

/* A dictionary as records of about TABLE_DICTIONARY_BYTES: for each text its length (u32) and its bytes. */
static int put_dictionary(struct packed_writer *w, size_t column, const struct texts *texts, struct tabft_failure *f)
{
    int error = 0;
    unsigned char *buffer = NULL;
    size_t used = 0;
    uint32_t part = 0;
    TRY(memory_new(&buffer, TABLE_DICTIONARY_BYTES + 4 + TABLE_TEXT_MAX, 1, "a dictionary", f));
    for (size_t i = 0; i < texts->n; i++) {
        uint32_t length = (uint32_t)strlen(texts->text[i]);
        memcpy(buffer + used, &length, 4);
        memcpy(buffer + used + 4, texts->text[i], length);
        used += 4 + (size_t)length;
        if (used < TABLE_DICTIONARY_BYTES && i + 1 < texts->n) continue;
        TRY(put(w, TABLE_RECORD_DICTIONARY, (uint32_t)column, part, buffer, used, f));
        part++;
        used = 0;
    }
fail:
    free(buffer);
    return error;
}

static void make_file_id(const struct packed_start *start, const char *schema, size_t schema_size, uint8_t id[16])
{
    struct sha256_ctx sha;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&sha);
    sha256_update(&sha, schema_size, (const uint8_t *)schema);
    sha256_update(&sha, strlen(start->provenance), (const uint8_t *)start->provenance);
    if (start->content != NULL) sha256_update(&sha, 32, start->content);
    sha256_digest(&sha, sizeof digest, digest);
    memcpy(id, digest, 16);
}

static int open_codecs(struct packed_writer *w, int level, struct tabft_failure *f)
{
    int error = 0;
    w->n_codecs = threads_count(w->pool);
    TRY(memory_new(&w->codec, (size_t)w->n_codecs, sizeof *w->codec, "a packed table", f));
    TRY(memory_new(&w->scratch, (size_t)w->n_codecs, sizeof *w->scratch, "a packed table", f));
    for (int i = 0; i < w->n_codecs; i++) {
        TRY(tbf_codec_open(&w->codec[i], level, f));
        TRY(memory_new(&w->scratch[i], PAGE_SIZE_MAX, 1, "a page", f));
    }
fail:
    return error;
}

int packed_writer_open(struct packed_writer **out, const struct packed_start *start, struct threads *pool,
                       struct tabft_failure *f)
{
    int error = 0;
    char *json = NULL;
    size_t size;
    uint8_t id[16];
    struct packed_writer *w = NULL;
    TRY(memory_new(&w, 1, sizeof *w, "a packed table", f));
    w->pool = pool;
    TRY(schema_copy(&w->schema, start->schema, f));
    TRY(memory_new(&w->statistics, w->schema.n_columns, sizeof *w->statistics, "statistics", f));
    TRY(open_codecs(w, start->level, f));
    TRY(schema_to_json(start->schema, &json, &size, f));
    make_file_id(start, json, size, id);
    TRY(tbf_writer_open(&w->tbf, start->path, start->force, id, f));
    TRY(put(w, TABLE_RECORD_SCHEMA, 0, 0, json, size, f));
    TRY(put(w, TABLE_RECORD_PROVENANCE, 0, 0, start->provenance, strlen(start->provenance), f));
    for (size_t c = 0; c < w->schema.n_columns; c++) {
        if (w->schema.column[c].n_texts > 0) TRY(put_dictionary(w, c, &start->texts[c], f));
    }
    *out = w;
    w = NULL;
fail:
    free(json);
    packed_writer_abandon(w);
    return error;
}

struct put_loop {
    struct packed_writer *w;
    const struct cells *cells;
    size_t n_rows;
    uint64_t first_number;
    struct tbf_member *member;            /* [groups][columns] */
    struct column_statistics *statistics; /* the same */
    struct loop_failure failure;
};

/* Values that come again soon, as short decimals do, are matches for deflate, which transposing their bytes would tear
 * apart; where most differ it is the bytes of the same place that are alike. Told by a piece of the page. */
static enum tbf_strategy choose_strategy(enum page_storage storage, const struct cells *cells, size_t n)
{
    enum { PIECE = 4096, SLOTS = 1 << 14 }; /* what deflate looks back on: 32 KiB of doubles */
    uint64_t seen[SLOTS];
    bool used[SLOTS] = {0};
    size_t item = storage_size(storage), from = n > PIECE ? (n - PIECE) / 2 : 0, end = n > PIECE ? from + PIECE : n,
           different = 0;
    if (item < 4) return TBF_PLAIN;
    for (size_t i = from; i < end; i++) {
        size_t at = (size_t)((cells->slot[i] * UINT64_C(0x9e3779b97f4a7c15)) >> 50); /* below SLOTS */
        while (used[at] && seen[at] != cells->slot[i]) at = (at + 1) % SLOTS;
        different += !used[at];
        used[at] = true;
        seen[at] = cells->slot[i];
    }
    if (10 * different < 7 * (end - from)) return TBF_PLAIN; /* about where both come to the same size */
    return item == 8 ? TBF_SHUFFLE8 : TBF_SHUFFLE4;
}

static void pack_page(void *context, size_t block, int thread)
{
    struct put_loop *l = context;
    struct packed_writer *w = l->w;
    size_t group = block / w->schema.n_columns, c = block % w->schema.n_columns;
    size_t row = group * TABLE_GROUP_ROWS, n = l->n_rows - row < TABLE_GROUP_ROWS ? l->n_rows - row : TABLE_GROUP_ROWS;
    struct cells cells = {l->cells[c].slot + row, l->cells[c].absent + row};
    const struct page_form form = page_form_of(&w->schema, c);
    size_t size;
    struct tabft_failure f = {0};
    page_encode(&form, &cells, n, w->scratch[thread], &size, &l->statistics[block]);
    struct tbf_record record = {TABLE_RECORD_PAGE,
                                TABLE_RECORD_VERSION,
                                {(uint32_t)c, (uint32_t)(w->group + group)},
                                w->scratch[thread],
                                size,
                                choose_strategy(form.storage, &cells, n)};
    if (tbf_member_pack(&l->member[block], w->codec[thread], tbf_writer_file_id(w->tbf), l->first_number + block,
                        &record, &f) < 0) {
        loop_failure_keep(&l->failure, block, &f);
    }
}

int packed_writer_put(struct packed_writer *w, const struct cells *cells, size_t n_rows, struct tabft_failure *f)
{
    int error = 0;
    size_t groups = (n_rows + TABLE_GROUP_ROWS - 1) / TABLE_GROUP_ROWS, n = groups * w->schema.n_columns;
    struct put_loop l = {.w = w, .cells = cells, .n_rows = n_rows, .first_number = tbf_writer_count(w->tbf)};
    if (n_rows == 0) return 0;
    TRY(memory_new(&l.member, n, sizeof *l.member, "packed pages", f));
    TRY(memory_new(&l.statistics, n, sizeof *l.statistics, "statistics", f));
    loop_failure_open(&l.failure);
    threads_run(w->pool, n, pack_page, &l);
    TRY(loop_failure_close(&l.failure, f));
    for (size_t i = 0; i < n; i++) {
        TRY(tbf_writer_append(w->tbf, &l.member[i], f));
        tbf_member_free(&l.member[i]);
        l.member[i] = (struct tbf_member){0};
        statistics_merge(&w->statistics[i % w->schema.n_columns], &l.statistics[i]);
    }
    w->group += groups;
    w->n_rows += n_rows;
fail:
    for (size_t i = 0; l.member != NULL && i < n; i++) tbf_member_free(&l.member[i]);
    free(l.member);
    free(l.statistics);
    return error;
}

const struct column_statistics *packed_writer_statistics(const struct packed_writer *w) { return w->statistics; }

int packed_writer_close(struct packed_writer *w, struct tabft_failure *f)
{
    int error = 0;
    char *json = NULL;
    size_t size;
    if (w->n_rows != w->schema.n_rows)
        FAIL(f, TABFT_INPUT,
             "%zu rows came where %zu were expected: the input changed; run again when nothing writes to it", w->n_rows,
             w->schema.n_rows);
    TRY(statistics_to_json(&w->schema, w->statistics, &json, &size, f));
    TRY(put(w, TABLE_RECORD_STATISTICS, 0, 0, json, size, f));
    struct tbf_writer *tbf = w->tbf;
    w->tbf = NULL;
    TRY(tbf_writer_close(tbf, f));
fail:
    free(json);
    packed_writer_abandon(w);
    return error;
}

void packed_writer_abandon(struct packed_writer *w)
{
    if (w == NULL) return;
    tbf_writer_abandon(w->tbf);
    schema_clear(&w->schema);
    free(w->statistics);
    for (int i = 0; w->codec != NULL && i < w->n_codecs; i++) tbf_codec_close(w->codec[i]);
    for (int i = 0; w->scratch != NULL && i < w->n_codecs; i++) free(w->scratch[i]);
    free(w->codec);
    free(w->scratch);
    free(w);
}
