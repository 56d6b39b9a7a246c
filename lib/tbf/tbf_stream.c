/* A .tbf file front to back: what was seen is compared with the index when that comes, and the end is told only then.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "file/file.h"
#include "tbf/tbf_internal.h"

struct tbf_stream {
    struct file_stream *file;
    char *path;
    struct tbf_codec *codec;
    uint64_t position;
    struct tbf_list list; /* data members seen */
    uint32_t pages;       /* index pages seen */
    bool ended;
    struct sha256_ctx leaves;
    uint8_t file_id[TBF_ID_SIZE], digest[TBF_DIGEST_SIZE];
};

int tbf_stream_open(struct tbf_stream **out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct tbf_stream *s = NULL;
    TRY(memory_new(&s, 1, sizeof *s, "a .tbf stream", f));
    TRY(memory_copy_string(&s->path, strcmp(path, "-") == 0 ? "stdin" : path, f));
    TRY(file_stream_open(&s->file, path, f));
    TRY(tbf_codec_open(&s->codec, 0, f));
    sha256_init(&s->leaves);
    *out = s;
    return 0;
fail:
    tbf_stream_close(s);
    return error;
}

const uint8_t *tbf_stream_file_id(const struct tbf_stream *s) { return s->file_id; }
const uint8_t *tbf_stream_digest(const struct tbf_stream *s) { return s->digest; }

void tbf_stream_close(struct tbf_stream *s)
{
    if (s == NULL) return;
    file_stream_close(s->file);
    tbf_codec_close(s->codec);
    free(s->list.entry);
    free(s->path);
    free(s);
}

static int fail_cut(const struct tbf_stream *s, uint64_t found, uint64_t needed, struct tabft_failure *f)
{
    if (found == 0 && s->position == 0)
        return tabft_fail(f, TABFT_INPUT, "%s: is empty (0 bytes); a .tbf file has at least its end mark", s->path);
    if (found == 0)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: no end mark: %llu bytes and %llu whole members found, the members after them are "
                          "missing; copy or make it again",
                          s->path, (unsigned long long)s->position, (unsigned long long)(s->list.count + s->pages));
    return tabft_fail(f, TABFT_INPUT,
                      "%s: cut in member %llu: %llu bytes found, at least %llu more and what follows up to the end "
                      "mark are missing; copy or make it again",
                      s->path, (unsigned long long)(s->list.count + s->pages),
                      (unsigned long long)(s->position + found), (unsigned long long)(needed - found));
}

/* The next member's bytes, header included, in the codec's buffer. */
static int read_member(struct tbf_stream *s, const struct tbf_place *place, struct tbf_head *head, uint8_t **bytes,
                       struct tabft_failure *f)
{
    int error = 0;
    size_t got;
    uint8_t head_bytes[TBF_HEAD_SIZE];
    const char *reason;
    TRY(file_stream_read(s->file, head_bytes, sizeof head_bytes, &got, f));
    if (got < sizeof head_bytes) return fail_cut(s, got, TBF_MEMBER_MIN, f);
    if (!tbf_head_read(head_bytes, head, &reason)) {
        if (s->position == 0)
            FAIL(f, TABFT_INPUT, "%s: is not a .tbf file: %s; make one with tabft-prep pack", s->path, reason);
        return tbf_fail(f, place, "%s", reason);
    }
    size_t size = (size_t)tbf_member_size(head);
    TRY(tbf_codec_packed(s->codec, size, bytes, f));
    memcpy(*bytes, head_bytes, sizeof head_bytes);
    TRY(file_stream_read(s->file, *bytes + sizeof head_bytes, size - sizeof head_bytes, &got, f));
    if (got < size - sizeof head_bytes) return fail_cut(s, got + sizeof head_bytes, size, f);
fail:
    return error;
}

static bool same_entry(const struct tbf_entry *a, const struct tbf_entry *b)
{
    return a->packed_size == b->packed_size && a->raw_size == b->raw_size && a->type == b->type &&
           a->version == b->version && a->tag[0] == b->tag[0] && a->tag[1] == b->tag[1] && a->strategy == b->strategy &&
           a->crc == b->crc;
}

/* An index page against what was seen; the last one ends the stream. `digest`: of the members before this one. */
static int check_page(struct tbf_stream *s, const struct tbf_place *place, const struct tbf_record *record,
                      const uint8_t *digest, struct tabft_failure *f)
{
    static const uint8_t no_digest[TBF_DIGEST_SIZE];
    int error = 0;
    struct tbf_index index;
    size_t got;
    uint8_t more;
    TRY(tbf_index_read(&index, place, record, f));
    if (index.members != s->list.count || index.page != s->pages)
        return tbf_fail(f, place, "an index that does not fit the members before it");
    const uint8_t *p = (const uint8_t *)record->data + TBF_INDEX_HEADER;
    for (uint64_t i = 0; i < tbf_page_entries(index.members, index.page); i++, p += TBF_ENTRY_SIZE) {
        struct tbf_entry entry = {0};
        uint64_t number = index.page * (uint64_t)TBF_PAGE_ENTRIES + i;
        if (!tbf_entry_read(&entry, p) || !same_entry(&entry, &s->list.entry[number]))
            return tbf_fail(f, place, "says something else of member %llu than was found", (unsigned long long)number);
    }
    bool last = index.page + 1 == index.pages;
    if (memcmp(index.digest, last ? digest : no_digest, TBF_DIGEST_SIZE) != 0)
        return tbf_fail(f, place, "the digest in the end mark is not that of the members");
    s->pages++;
    if (!last) return 0;
    memcpy(s->digest, index.digest, TBF_DIGEST_SIZE);
    TRY(file_stream_read(s->file, &more, 1, &got, f));
    if (got != 0)
        FAIL(f, TABFT_INPUT,
             "%s: bytes follow its end mark at byte %llu; it was joined with something: copy or make it again", s->path,
             (unsigned long long)index.file_size);
    s->ended = true;
fail:
    return error;
}

static int note_member(struct tbf_stream *s, const struct tbf_place *place, const struct tbf_head *head,
                       const struct tbf_record *record, struct tabft_failure *f)
{
    if (s->pages > 0) return tbf_fail(f, place, "a record after the index");
    struct tbf_entry entry = {.offset = place->offset,
                              .packed_size = tbf_member_size(head),
                              .raw_size = head->raw,
                              .type = record->type,
                              .version = record->version,
                              .tag = {record->tag[0], record->tag[1]},
                              .strategy = record->strategy,
                              .crc = head->crc};
    return tbf_list_add(&s->list, &entry, f);
}

static int get_one(struct tbf_stream *s, struct tbf_record *record, void **data, struct tabft_failure *f)
{
    int error = 0;
    struct tbf_head head;
    uint8_t *bytes = NULL, sha[TBF_DIGEST_SIZE], digest[TBF_DIGEST_SIZE];
    struct tbf_place place = {s->path, s->list.count + s->pages, s->position};
    TRY(read_member(s, &place, &head, &bytes, f));
    TRY(tbf_member_unpack(&place, &head, bytes + TBF_HEAD_SIZE, s->codec, place.number == 0 ? NULL : s->file_id,
                          s->file_id, record, data, f));
    struct sha256_ctx before = s->leaves, member;
    sha256_init(&member);
    sha256_update(&member, (size_t)tbf_member_size(&head), bytes);
    sha256_digest(&member, sizeof sha, sha);
    sha256_update(&s->leaves, sizeof sha, sha);
    if (record->type == TBF_TYPE_INDEX) {
        sha256_digest(&before, sizeof digest, digest);
        TRY(check_page(s, &place, record, digest, f));
    } else {
        TRY(note_member(s, &place, &head, record, f));
    }
    s->position += tbf_member_size(&head);
fail:
    return error;
}

int tbf_stream_get(struct tbf_stream *s, struct tbf_record *record, void **data, bool *end, struct tabft_failure *f)
{
    *data = NULL;
    *end = s->ended;
    while (!s->ended) {
        void *mine = NULL;
        int error = get_one(s, record, &mine, f);
        if (error == 0 && record->type != TBF_TYPE_INDEX) {
            *data = mine;
            return 0;
        }
        free(mine);
        if (error < 0) return error;
        *end = s->ended;
    }
    *record = (struct tbf_record){0};
    return 0;
}
