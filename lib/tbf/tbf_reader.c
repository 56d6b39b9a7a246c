/* A .tbf file by its index, and the check of every byte. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/threads.h"
#include "file/file.h"
#include "tbf/tbf_internal.h"

struct tbf_reader {
    struct file_reader *file;
    const char *path;
    struct tbf_index index; /* of the last page */
    uint8_t file_id[TBF_ID_SIZE];
    struct tbf_list list;
    uint8_t (*page_sha)[TBF_DIGEST_SIZE]; /* of the pages before the last: leaves of the digest */
};

static void hash(const void *data, size_t size, uint8_t digest[TBF_DIGEST_SIZE])
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, size, data);
    sha256_digest(&sha, TBF_DIGEST_SIZE, digest);
}

/* Reads and unpacks the member at place. `size`: what it must take. `sha` may be NULL. */
static int load(const struct tbf_reader *r, struct tbf_codec *c, const struct tbf_place *place, uint64_t size,
                const uint8_t *file_id, uint8_t *id_found, uint32_t *crc, uint8_t *sha, struct tbf_record *record,
                void **data, struct tabft_failure *f)
{
    int error = 0;
    uint8_t *bytes = NULL;
    const char *reason;
    struct tbf_head head;
    TRY(tbf_codec_packed(c, (size_t)size, &bytes, f));
    TRY(file_reader_get(r->file, place->offset, bytes, (size_t)size, f));
    if (!tbf_head_read(bytes, &head, &reason)) return tbf_fail(f, place, "%s", reason);
    if (tbf_member_size(&head) != size)
        return tbf_fail(f, place, "is %llu bytes long, the index says %llu", (unsigned long long)tbf_member_size(&head),
                        (unsigned long long)size);
    TRY(tbf_member_unpack(place, &head, bytes + TBF_HEAD_SIZE, c, file_id, id_found, record, data, f));
    *crc = head.crc;
    if (sha != NULL) hash(bytes, (size_t)size, sha);
fail:
    return error;
}

/* No end mark where one must be: walks from member to member to say what is missing. Only headers are read. */
static int explain(const struct tbf_reader *r, struct tabft_failure *f)
{
    uint64_t size = file_reader_size(r->file), at = 0, number = 0;
    unsigned long long n = size;
    uint8_t bytes[TBF_HEAD_SIZE];
    struct tbf_head head;
    const char *reason;
    if (size == 0)
        return tabft_fail(f, TABFT_INPUT, "%s: is empty (0 bytes); a .tbf file has at least its end mark", r->path);
    while (at < size) {
        if (size - at < TBF_HEAD_SIZE) {
            if (number == 0) break;
            return tabft_fail(f, TABFT_INPUT,
                              "%s: cut in member %llu: %llu bytes found, at least %llu more and the end mark are "
                              "missing; copy or make it again",
                              r->path, (unsigned long long)number, n,
                              (unsigned long long)(TBF_MEMBER_MIN - (size - at)));
        }
        int error = file_reader_get(r->file, at, bytes, sizeof bytes, f);
        if (error < 0) return error;
        if (!tbf_head_read(bytes, &head, &reason)) {
            if (number == 0)
                return tabft_fail(f, TABFT_INPUT,
                                  "%s: is not a .tbf file: %s (%llu bytes); make one with tabft-prep pack", r->path,
                                  reason, n);
            return tabft_fail(f, TABFT_INPUT,
                              "%s: no end mark at the end of its %llu bytes; after %llu members, at byte %llu: %s; "
                              "copy or make it again",
                              r->path, n, (unsigned long long)number, (unsigned long long)at, reason);
        }
        uint64_t member = tbf_member_size(&head);
        if (member > size - at)
            return tabft_fail(f, TABFT_INPUT,
                              "%s: cut in member %llu: %llu bytes found, %llu bytes of it and what follows up to the "
                              "end mark are missing; copy or make it again",
                              r->path, (unsigned long long)number, n, (unsigned long long)(member - (size - at)));
        at += member;
        number++;
    }
    if (number == 0)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: is not a .tbf file, or was cut in its first member: %llu bytes found, at least %d are "
                          "missing; make it again",
                          r->path, n, TBF_MEMBER_MIN - (int)size);
    return tabft_fail(f, TABFT_INPUT,
                      "%s: no end mark: %llu bytes and %llu whole members found, the members after them are missing; "
                      "copy or make it again",
                      r->path, n, (unsigned long long)number);
}

/* The end mark: its raw size is the last four bytes of the file, and as it is stored its size follows. */
static int read_end_mark(struct tbf_reader *r, struct tbf_codec *c, void **data, struct tbf_record *record,
                         struct tbf_place *place, struct tabft_failure *f)
{
    int error = 0;
    uint64_t size = file_reader_size(r->file);
    uint8_t tail[4], head_bytes[TBF_HEAD_SIZE];
    struct tbf_head head;
    const char *reason;
    uint32_t crc;
    if (size < TBF_MEMBER_MIN) return explain(r, f);
    TRY(file_reader_get(r->file, size - sizeof tail, tail, sizeof tail, f));
    uint32_t raw = get_u32(tail);
    if (raw < TBF_RECORD_HEADER + TBF_INDEX_HEADER || raw > TBF_RAW_MAX) return explain(r, f);
    uint64_t member = TBF_HEAD_SIZE + (uint64_t)tbf_stored_size(raw) + TBF_TAIL_SIZE;
    if (member > size) return explain(r, f);
    place->offset = size - member;
    TRY(file_reader_get(r->file, place->offset, head_bytes, sizeof head_bytes, f));
    if (!tbf_head_read(head_bytes, &head, &reason) || tbf_member_size(&head) != member || head.raw != raw)
        return explain(r, f);
    /* Its number is known only from its content: read it without that check's help first. */
    uint8_t number[8];
    uint64_t at = place->offset + TBF_HEAD_SIZE + 5 + 24;
    TRY(file_reader_get(r->file, at, number, sizeof number, f));
    place->number = get_u64(number);
    TRY(load(r, c, place, member, NULL, r->file_id, &crc, NULL, record, data, f));
    if (record->type != TBF_TYPE_INDEX) return explain(r, f);
    TRY(tbf_index_read(&r->index, place, record, f));
    if (r->index.page + 1 != r->index.pages) return explain(r, f);
    if (r->index.file_size != size)
        FAIL(f, TABFT_INPUT,
             "%s: %llu bytes found, its end mark says %llu; it was cut, extended or joined with another: copy or make "
             "it again",
             r->path, (unsigned long long)size, (unsigned long long)r->index.file_size);
fail:
    return error;
}

static int add_entries(struct tbf_reader *r, const struct tbf_place *place, const struct tbf_index *index,
                       const struct tbf_record *record, uint64_t *offset, struct tabft_failure *f)
{
    int error = 0;
    const uint8_t *p = (const uint8_t *)record->data + TBF_INDEX_HEADER;
    for (uint64_t i = 0; i < tbf_page_entries(index->members, index->page); i++, p += TBF_ENTRY_SIZE) {
        struct tbf_entry entry = {.offset = *offset};
        if (!tbf_entry_read(&entry, p) || entry.packed_size > index->index_offset - *offset) {
            error = tbf_fail(f, place, "its entry %llu cannot be", (unsigned long long)i);
            goto fail;
        }
        *offset += entry.packed_size;
        TRY(tbf_list_add(&r->list, &entry, f));
    }
fail:
    return error;
}

static int read_earlier_pages(struct tbf_reader *r, struct tbf_codec *c, uint64_t *offset, struct tabft_failure *f)
{
    int error = 0;
    void *data = NULL;
    struct tbf_place place = {r->path, r->index.members, r->index.index_offset};
    TRY(memory_new(&r->page_sha, r->index.pages, TBF_DIGEST_SIZE, "the index of a .tbf file", f));
    for (uint32_t page = 0; page + 1 < r->index.pages; page++) {
        static const uint8_t no_digest[TBF_DIGEST_SIZE];
        struct tbf_record record;
        struct tbf_index index;
        uint32_t crc;
        uint64_t size = tbf_page_size(r->index.members, page);
        TRY(load(r, c, &place, size, r->file_id, NULL, &crc, r->page_sha[page], &record, &data, f));
        if (record.type != TBF_TYPE_INDEX) {
            error = tbf_fail(f, &place, "no index where the end mark says one");
            goto fail;
        }
        TRY(tbf_index_read(&index, &place, &record, f));
        if (index.page != page || index.members != r->index.members || index.index_offset != r->index.index_offset ||
            memcmp(index.digest, no_digest, TBF_DIGEST_SIZE) != 0) {
            error = tbf_fail(f, &place, "an index page that does not fit the end mark");
            goto fail;
        }
        TRY(add_entries(r, &place, &index, &record, offset, f));
        free(data);
        data = NULL;
        place.number++;
        place.offset += size;
    }
fail:
    free(data);
    return error;
}

int tbf_reader_open(struct tbf_reader **out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct tbf_reader *r = NULL;
    struct tbf_codec *c = NULL;
    void *data = NULL;
    struct tbf_record record;
    uint64_t offset = 0;
    TRY(memory_new(&r, 1, sizeof *r, "a .tbf reader", f));
    TRY(file_reader_open(&r->file, path, f));
    r->path = file_reader_path(r->file);
    TRY(tbf_codec_open(&c, 0, f));
    struct tbf_place place = {.path = r->path};
    TRY(read_end_mark(r, c, &data, &record, &place, f));
    TRY(read_earlier_pages(r, c, &offset, f));
    TRY(add_entries(r, &place, &r->index, &record, &offset, f));
    if (offset != r->index.index_offset) {
        error = tbf_fail(f, &place, "its entries' sizes do not add up");
        goto fail;
    }
    free(data);
    tbf_codec_close(c);
    *out = r;
    return 0;
fail:
    free(data);
    tbf_codec_close(c);
    tbf_reader_close(r);
    return error;
}

size_t tbf_reader_count(const struct tbf_reader *r) { return r->list.count; }
const struct tbf_entry *tbf_reader_entry(const struct tbf_reader *r, size_t number) { return &r->list.entry[number]; }
const uint8_t *tbf_reader_file_id(const struct tbf_reader *r) { return r->file_id; }
const uint8_t *tbf_reader_digest(const struct tbf_reader *r) { return r->index.digest; }
uint64_t tbf_reader_file_size(const struct tbf_reader *r) { return r->index.file_size; }
int tbf_reader_unchanged(const struct tbf_reader *r, struct tabft_failure *f)
{
    return file_reader_unchanged(r->file, f);
}

static int get(const struct tbf_reader *r, struct tbf_codec *c, size_t number, uint8_t *sha, struct tbf_record *record,
               void **data, struct tabft_failure *f)
{
    int error = 0;
    void *mine = NULL;
    uint32_t crc;
    if (number >= r->list.count)
        FAIL(f, TABFT_USE, "%s: member %zu of %llu", r->path, number, (unsigned long long)r->list.count);
    const struct tbf_entry *e = &r->list.entry[number];
    struct tbf_place place = {r->path, number, e->offset};
    TRY(load(r, c, &place, e->packed_size, r->file_id, NULL, &crc, sha, record, &mine, f));
    if (record->type != e->type || record->version != e->version || record->tag[0] != e->tag[0] ||
        record->tag[1] != e->tag[1] || record->strategy != e->strategy ||
        record->size + TBF_RECORD_HEADER != e->raw_size || crc != e->crc) {
        error = tbf_fail(f, &place, "is not what the index says");
        goto fail;
    }
    *data = mine;
    return 0;
fail:
    free(mine);
    return error;
}

int tbf_reader_get(const struct tbf_reader *r, struct tbf_codec *c, size_t number, struct tbf_record *record,
                   void **data, struct tabft_failure *f)
{
    return get(r, c, number, NULL, record, data, f);
}

void tbf_reader_close(struct tbf_reader *r)
{
    if (r == NULL) return;
    file_reader_close(r->file);
    free(r->list.entry);
    free(r->page_sha);
    free(r);
}

/* ---- verify ---- */

struct verify {
    const struct tbf_reader *r;
    struct tbf_codec **codec;      /* [threads] */
    struct tabft_failure *failure; /* [threads] */
    size_t *failed_at;             /* [threads] */
    atomic_size_t
        first_bad; /* members after it need no look, those before do: the message is the same for any threads */
    uint8_t (*leaf)[TBF_DIGEST_SIZE]; /* [members] */
};

static void verify_member(void *context, size_t number, int thread)
{
    struct verify *v = context;
    struct tbf_record record;
    void *data = NULL;
    if (number > atomic_load(&v->first_bad) || v->failure[thread].code != 0) return;
    if (get(v->r, v->codec[thread], number, v->leaf[number], &record, &data, &v->failure[thread]) < 0) {
        v->failed_at[thread] = number;
        size_t seen = atomic_load(&v->first_bad);
        while (number < seen && !atomic_compare_exchange_weak(&v->first_bad, &seen, number)) {
        }
    }
    free(data);
}

static int check_digest(const struct tbf_reader *r, const uint8_t (*leaf)[TBF_DIGEST_SIZE], struct tabft_failure *f)
{
    uint8_t digest[TBF_DIGEST_SIZE];
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, r->list.count * TBF_DIGEST_SIZE, (const uint8_t *)leaf);
    sha256_update(&sha, (size_t)(r->index.pages - 1) * TBF_DIGEST_SIZE, (const uint8_t *)r->page_sha);
    sha256_digest(&sha, TBF_DIGEST_SIZE, digest);
    if (memcmp(digest, r->index.digest, TBF_DIGEST_SIZE) == 0) return 0;
    return tabft_fail(f, TABFT_INPUT,
                      "%s: the digest of its members is not the one in its end mark; copy or make it again", r->path);
}

static int verify_file(const char *path, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    struct tbf_reader *r = NULL;
    struct verify v = {.r = NULL};
    size_t threads = (size_t)threads_count(pool);
    TRY(memory_new(&v.codec, threads, sizeof *v.codec, "the check", f));
    TRY(memory_new(&v.failure, threads, sizeof *v.failure, "the check", f));
    TRY(memory_new(&v.failed_at, threads, sizeof *v.failed_at, "the check", f));
    for (size_t i = 0; i < threads; i++) TRY(tbf_codec_open(&v.codec[i], 0, f));
    TRY(tbf_reader_open(&r, path, f));
    v.r = r;
    atomic_init(&v.first_bad, SIZE_MAX);
    TRY(memory_new(&v.leaf, r->list.count, TBF_DIGEST_SIZE, "the check", f));
    threads_run(pool, r->list.count, verify_member, &v);
    for (size_t i = 0; i < threads; i++)
        if (v.failure[i].code != 0 && v.failed_at[i] == atomic_load(&v.first_bad))
            FAIL(f, v.failure[i].code, "%s", v.failure[i].message);
    TRY(check_digest(r, (const uint8_t(*)[TBF_DIGEST_SIZE])v.leaf, f));
    TRY(file_reader_unchanged(r->file, f));
fail:
    for (size_t i = 0; v.codec != NULL && i < threads; i++) tbf_codec_close(v.codec[i]);
    free(v.codec);
    free(v.failure);
    free(v.failed_at);
    free(v.leaf);
    tbf_reader_close(r);
    return error;
}

static int verify_stream(const char *path, struct tabft_failure *f)
{
    struct tbf_stream *s = NULL;
    bool end = false;
    int error = tbf_stream_open(&s, path, f);
    while (error == 0 && !end) {
        struct tbf_record record;
        void *data = NULL;
        error = tbf_stream_get(s, &record, &data, &end, f);
        free(data);
    }
    tbf_stream_close(s);
    return error;
}

int tbf_verify(const char *path, struct threads *pool, struct tabft_failure *f)
{
    return strcmp(path, "-") == 0 ? verify_stream(path, f) : verify_file(path, pool, f);
}
