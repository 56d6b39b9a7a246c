#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "table/loop.h"
#include "table/packed.h"
#include "tbf/tbf.h"

struct packed_reader {
    struct tbf_reader *tbf;
    struct schema schema;
    json_t *provenance;
    struct column_statistics *statistics; /* [n_columns] */
    struct texts *texts;                  /* [n_columns] */
    size_t first_page;                    /* member number */
    int n_codecs;
    struct tbf_codec **codec;
    char *path;
    char digest[65];
};

static int get(const struct packed_reader *r, int thread, size_t number, uint32_t type, struct tbf_record *record,
               void **data, struct tabft_failure *f)
{
    const struct tbf_entry *e = tbf_reader_entry(r->tbf, number);
    uint32_t version = type == TABLE_RECORD_SCHEMA ? TABLE_RECORD_DECIMALS : TABLE_RECORD_VERSION;
    if (e->type != type || e->version < TABLE_RECORD_VERSION || e->version > version) {
        return tabft_fail(
            f, TABFT_INPUT,
            "%s: record %zu has type %u version %u where type %u version %u belongs; it is no table of this version",
            r->path, number, e->type, e->version, type, version);
    }
    return tbf_reader_get(r->tbf, r->codec[thread], number, record, data, f);
}

/* Dictionary records lie between provenance and pages, by column and part. Counts them, and checks that pages fill the
 * rest. */
static int find_pages(struct packed_reader *r, struct tabft_failure *f)
{
    const struct schema *s = &r->schema;
    size_t count = tbf_reader_count(r->tbf), number = 2, pages;
    while (number < count && tbf_reader_entry(r->tbf, number)->type == TABLE_RECORD_DICTIONARY) number++;
    r->first_page = number;
    if (!size_mul(schema_groups(s), s->n_columns, &pages) || pages > count || number + pages + 1 != count) {
        return tabft_fail(f, TABFT_INPUT, "%s: %zu records do not make a table of %zu rows and %zu columns", r->path,
                          count, s->n_rows, s->n_columns);
    }
    for (size_t i = 0; i < pages; i++) {
        const struct tbf_entry *e = tbf_reader_entry(r->tbf, number + i);
        size_t column = i % s->n_columns, group = i / s->n_columns, n = packed_reader_group_rows(r, group);
        uint64_t least = TBF_RECORD_HEADER + page_size(s->column[column].storage, n, false);
        if (e->type != TABLE_RECORD_PAGE || e->tag[0] != column || e->tag[1] != group || e->raw_size < least) {
            return tabft_fail(f, TABFT_INPUT, "%s: record %zu is not the page of column %zu in row group %zu", r->path,
                              number + i, column, group);
        }
    }
    return 0;
}

/* Takes the texts of one record apart; *n grows. */
static int take_texts(struct packed_reader *r, struct texts *t, size_t n_texts, const unsigned char *data, size_t size,
                      struct tabft_failure *f)
{
    int error = 0;
    size_t at = 0;
    TRY(memory_grow(&t->block, t->bytes + size + 1, 1, "a dictionary", f));
    while (at < size) {
        uint32_t length;
        if (size - at < 4) break;
        memcpy(&length, data + at, 4);
        if (length > size - at - 4 || length > TABLE_TEXT_MAX || t->n == n_texts ||
            memchr(data + at + 4, 0, length) != NULL)
            break;
        memcpy(t->block + t->bytes, data + at + 4, length);
        t->block[t->bytes + length] = '\0';
        t->bytes += (size_t)length + 1;
        at += 4 + (size_t)length;
        t->n++;
    }
    if (at != size) FAIL(f, TABFT_INPUT, "%s: a dictionary record is not as tbf(5) says at byte %zu", r->path, at);
fail:
    return error;
}

static int read_dictionary(struct packed_reader *r, size_t column, size_t *number, struct tabft_failure *f)
{
    int error = 0;
    void *data = NULL;
    struct texts *t = &r->texts[column];
    size_t n_texts = r->schema.column[column].n_texts;
    for (uint32_t part = 0; t->n < n_texts; part++, (*number)++) {
        struct tbf_record record;
        const struct tbf_entry *e = *number < r->first_page ? tbf_reader_entry(r->tbf, *number) : NULL;
        if (e == NULL || e->tag[0] != column || e->tag[1] != part)
            FAIL(f, TABFT_INPUT, "%s: column %zu lacks texts of its dictionary", r->path, column);
        TRY(get(r, 0, *number, TABLE_RECORD_DICTIONARY, &record, &data, f));
        size_t before = t->n;
        TRY(take_texts(r, t, n_texts, record.data, record.size, f));
        if (t->n == before) FAIL(f, TABFT_INPUT, "%s: a dictionary record of column %zu is empty", r->path, column);
        free(data);
        data = NULL;
    }
    TRY(memory_new(&t->text, t->n, sizeof *t->text, "a dictionary", f));
    char *at = t->block;
    for (size_t i = 0; i < t->n; i++, at += strlen(at) + 1) t->text[i] = at;
fail:
    free(data);
    return error;
}

static int read_dictionaries(struct packed_reader *r, struct tabft_failure *f)
{
    int error = 0;
    size_t number = 2;
    for (size_t c = 0; c < r->schema.n_columns; c++) {
        if (r->schema.column[c].n_texts > 0) TRY(read_dictionary(r, c, &number, f));
    }
    if (number != r->first_page) FAIL(f, TABFT_INPUT, "%s: a dictionary record belongs to no column", r->path);
fail:
    return error;
}

static int read_descriptions(struct packed_reader *r, struct tabft_failure *f)
{
    int error = 0;
    void *data = NULL;
    struct tbf_record record;
    json_error_t where;
    if (tbf_reader_count(r->tbf) < 3)
        FAIL(f, TABFT_INPUT, "%s: not a packed table; tabft-prep pack makes one", r->path);
    TRY(get(r, 0, 0, TABLE_RECORD_SCHEMA, &record, &data, f));
    error = schema_from_json(&r->schema, record.data, record.size, f);
    if (error == 0 && record.version != schema_version(&r->schema))
        error = tabft_fail(f, TABFT_INPUT, "the schema record is of version %u, and what it says is of version %u",
                           record.version, schema_version(&r->schema));
    if (error < 0) {
        tabft_fail_prefix(f, "%s", r->path);
        goto fail;
    }
    free(data);
    data = NULL;
    TRY(get(r, 0, 1, TABLE_RECORD_PROVENANCE, &record, &data, f));
    r->provenance = json_loadb(record.data, record.size, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(r->provenance)) FAIL(f, TABFT_INPUT, "%s: the provenance record is not a JSON object", r->path);
    free(data);
    data = NULL;
    TRY(find_pages(r, f));
    TRY(memory_new(&r->statistics, r->schema.n_columns, sizeof *r->statistics, "statistics", f));
    TRY(memory_new(&r->texts, r->schema.n_columns, sizeof *r->texts, "dictionaries", f));
    TRY(get(r, 0, tbf_reader_count(r->tbf) - 1, TABLE_RECORD_STATISTICS, &record, &data, f));
    error = statistics_from_json(&r->schema, r->statistics, record.data, record.size, f);
    if (error < 0) tabft_fail_prefix(f, "%s", r->path);
fail:
    free(data);
    return error;
}

int packed_reader_open(struct packed_reader **out, const char *path, int n_threads, bool dictionaries,
                       struct tabft_failure *f)
{
    int error = 0;
    struct packed_reader *r = NULL;
    TRY(memory_new(&r, 1, sizeof *r, "a packed table", f));
    r->schema.target = TABLE_NO_TARGET;
    TRY(memory_copy_string(&r->path, path, f));
    TRY(tbf_reader_open(&r->tbf, path, f));
    r->n_codecs = n_threads;
    TRY(memory_new(&r->codec, (size_t)n_threads, sizeof *r->codec, "a packed table", f));
    for (int i = 0; i < n_threads; i++) TRY(tbf_codec_open(&r->codec[i], TBF_LEVEL_DEFAULT, f));
    for (size_t i = 0; i < 32; i++) {
        static const char hex[] = "0123456789abcdef";
        uint8_t byte = tbf_reader_digest(r->tbf)[i];
        r->digest[2 * i] = hex[byte >> 4];
        r->digest[2 * i + 1] = hex[byte & 15];
    }
    TRY(read_descriptions(r, f));
    if (dictionaries) TRY(read_dictionaries(r, f));
    *out = r;
    r = NULL;
fail:
    packed_reader_close(r);
    return error;
}

const struct schema *packed_reader_schema(const struct packed_reader *r) { return &r->schema; }
const struct column_statistics *packed_reader_statistics(const struct packed_reader *r) { return r->statistics; }
const struct texts *packed_reader_texts(const struct packed_reader *r) { return r->texts; }
const json_t *packed_reader_provenance(const struct packed_reader *r) { return r->provenance; }
const char *packed_reader_digest(const struct packed_reader *r) { return r->digest; }
const char *packed_reader_path(const struct packed_reader *r) { return r->path; }
uint64_t packed_reader_file_size(const struct packed_reader *r) { return tbf_reader_file_size(r->tbf); }

size_t packed_reader_group_rows(const struct packed_reader *r, size_t group)
{
    size_t left = r->schema.n_rows - group * TABLE_GROUP_ROWS;
    return left < TABLE_GROUP_ROWS ? left : TABLE_GROUP_ROWS;
}

int packed_reader_page(const struct packed_reader *r, int thread, size_t column, size_t group, struct cells *cells,
                       struct column_statistics *statistics, struct tabft_failure *f)
{
    int error = 0;
    void *data = NULL;
    struct tbf_record record;
    const struct schema *s = &r->schema;
    TRY(get(r, thread, r->first_page + group * s->n_columns + column, TABLE_RECORD_PAGE, &record, &data, f));
    const struct page_form form = page_form_of(s, column);
    error = page_decode(&form, record.data, record.size, cells, packed_reader_group_rows(r, group), statistics, f);
    if (error < 0) tabft_fail_prefix(f, "%s: column %s, row group %zu", r->path, s->column[column].name, group);
fail:
    free(data);
    return error;
}

struct group_loop {
    const struct packed_reader *r;
    size_t group;
    struct cells *cells;
    struct loop_failure failure;
};

static void read_page(void *context, size_t column, int thread)
{
    struct group_loop *l = context;
    struct column_statistics unused;
    struct tabft_failure f = {0};
    if (packed_reader_page(l->r, thread, column, l->group, &l->cells[column], &unused, &f) < 0)
        loop_failure_keep(&l->failure, column, &f);
}

int packed_reader_group(const struct packed_reader *r, struct threads *pool, size_t group, struct cells *cells,
                        struct tabft_failure *f)
{
    struct group_loop l = {.r = r, .group = group, .cells = cells};
    loop_failure_open(&l.failure);
    threads_run(pool, r->schema.n_columns, read_page, &l);
    return loop_failure_close(&l.failure, f);
}

struct walk {
    const struct packed_reader *r;
    packed_page_body *body;
    void *context;
    struct cells *scratch;                /* one a thread */
    struct column_statistics *statistics; /* [pages] */
    struct loop_failure failure;
};

static void walk_page(void *context, size_t block, int thread)
{
    struct walk *w = context;
    size_t column = block % w->r->schema.n_columns, group = block / w->r->schema.n_columns;
    struct tabft_failure f = {0};
    if (packed_reader_page(w->r, thread, column, group, &w->scratch[thread], &w->statistics[block], &f) < 0) {
        loop_failure_keep(&w->failure, block, &f);
    } else if (w->body != NULL) {
        w->body(w->context, column, group, &w->scratch[thread], packed_reader_group_rows(w->r, group));
    }
}

int packed_reader_check(const struct packed_reader *r, size_t column, const struct column_statistics *page,
                        size_t stride, struct tabft_failure *f)
{
    const struct schema *s = &r->schema;
    struct column_statistics sum = {0};
    for (size_t g = 0; g < schema_groups(s); g++) statistics_merge(&sum, &page[g * stride]);
    if (statistics_equal(&sum, &r->statistics[column], s->column[column].storage)) return 0;
    return tabft_fail(f, TABFT_INPUT, "%s: the statistics of column %s are not those of its cells", r->path,
                      s->column[column].name);
}

int packed_reader_walk(const struct packed_reader *r, struct threads *pool, packed_page_body *body, void *context,
                       struct tabft_failure *f)
{
    int error = 0;
    size_t n_pages = schema_groups(&r->schema) * r->schema.n_columns;
    struct walk w = {.r = r, .body = body, .context = context};
    TRY(cells_new(&w.scratch, (size_t)threads_count(pool), TABLE_GROUP_ROWS, f));
    TRY(memory_new(&w.statistics, n_pages, sizeof *w.statistics, "statistics", f));
    loop_failure_open(&w.failure);
    threads_run(pool, n_pages, walk_page, &w);
    TRY(loop_failure_close(&w.failure, f));
    for (size_t c = 0; c < r->schema.n_columns; c++)
        TRY(packed_reader_check(r, c, &w.statistics[c], r->schema.n_columns, f));
    TRY(packed_reader_unchanged(r, f));
fail:
    cells_free(w.scratch);
    free(w.statistics);
    return error;
}

int packed_reader_unchanged(const struct packed_reader *r, struct tabft_failure *f)
{
    return tbf_reader_unchanged(r->tbf, f);
}

void packed_reader_close(struct packed_reader *r)
{
    if (r == NULL) return;
    tbf_reader_close(r->tbf);
    for (size_t i = 0; r->texts != NULL && i < r->schema.n_columns; i++) texts_clear(&r->texts[i]);
    free(r->texts);
    free(r->statistics);
    schema_clear(&r->schema);
    json_decref(r->provenance);
    for (int i = 0; r->codec != NULL && i < r->n_codecs; i++) tbf_codec_close(r->codec[i]);
    free(r->codec);
    free(r->path);
    free(r);
}
