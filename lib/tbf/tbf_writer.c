/* Members in order, then the index. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/memory.h"
#include "file/file.h"
#include "tbf/tbf_internal.h"

struct tbf_writer {
    struct file_writer *file;
    uint8_t file_id[TBF_ID_SIZE];
    struct tbf_list list;
    struct sha256_ctx leaves; /* SHA-256 over the members' SHA-256 */
};

int tbf_writer_open(struct tbf_writer **out, const char *path, bool force, const uint8_t file_id[TBF_ID_SIZE],
                    struct tabft_failure *f)
{
    int error = 0;
    struct tbf_writer *w = NULL;
    TRY(memory_new(&w, 1, sizeof *w, "a .tbf writer", f));
    if (file_id != NULL) memcpy(w->file_id, file_id, TBF_ID_SIZE);
    else if (getrandom(w->file_id, TBF_ID_SIZE, 0) != TBF_ID_SIZE)
        FAIL(f, TABFT_SYSTEM, "%s: no random numbers for the file id: %s", path, strerror(errno));
    sha256_init(&w->leaves);
    TRY(file_writer_open(&w->file, path, force, true, 0, f));
    *out = w;
    return 0;
fail:
    tbf_writer_abandon(w);
    return error;
}

const uint8_t *tbf_writer_file_id(const struct tbf_writer *w) { return w->file_id; }
uint64_t tbf_writer_count(const struct tbf_writer *w) { return w->list.count; }

int tbf_writer_append(struct tbf_writer *w, const struct tbf_member *m, struct tabft_failure *f)
{
    int error = 0;
    if (m->number != w->list.count)
        FAIL(f, TABFT_USE, "member %llu is appended where %llu is due", (unsigned long long)m->number,
             (unsigned long long)w->list.count);
    struct tbf_entry entry = {.offset = file_writer_position(w->file),
                              .packed_size = m->size,
                              .raw_size = m->raw_size,
                              .type = m->type,
                              .version = m->version,
                              .tag = {m->tag[0], m->tag[1]},
                              .strategy = m->strategy,
                              .crc = m->crc};
    TRY(tbf_list_add(&w->list, &entry, f));
    TRY(file_writer_put(w->file, m->bytes, m->size, f));
    sha256_update(&w->leaves, TBF_DIGEST_SIZE, m->sha256);
fail:
    return error;
}

int tbf_writer_put(struct tbf_writer *w, struct tbf_codec *c, const struct tbf_record *record, struct tabft_failure *f)
{
    struct tbf_member m = {0};
    int error = tbf_member_pack(&m, c, w->file_id, w->list.count, record, f);
    if (error == 0) error = tbf_writer_append(w, &m, f);
    tbf_member_free(&m);
    return error;
}

static int write_page(struct tbf_writer *w, struct tbf_codec *c, struct tbf_index *index, struct tabft_failure *f)
{
    int error = 0;
    uint8_t *payload = NULL;
    struct tbf_member m = {0};
    size_t size = TBF_INDEX_HEADER + (size_t)tbf_page_entries(index->members, index->page) * TBF_ENTRY_SIZE;
    if (index->page + 1 == index->pages) {
        struct sha256_ctx all = w->leaves;
        sha256_digest(&all, TBF_DIGEST_SIZE, index->digest);
    }
    TRY(memory_new(&payload, size, 1, "an index", f));
    const struct tbf_entry *first = w->list.entry == NULL ? NULL
                                                          : w->list.entry + (size_t)index->page * TBF_PAGE_ENTRIES;
    tbf_index_write(payload, index, first);
    struct tbf_record record = {.type = TBF_TYPE_INDEX, .version = TBF_INDEX_VERSION, .data = payload, .size = size};
    TRY(tbf_member_build(&m, c, w->file_id, index->members + index->page, true, &record, f));
    TRY(file_writer_put(w->file, m.bytes, m.size, f));
    sha256_update(&w->leaves, TBF_DIGEST_SIZE, m.sha256);
fail:
    tbf_member_free(&m);
    free(payload);
    return error;
}

int tbf_writer_close(struct tbf_writer *w, struct tabft_failure *f)
{
    int error = 0;
    struct tbf_codec *c = NULL;
    struct tbf_index index = {.members = w->list.count,
                              .index_offset = file_writer_position(w->file),
                              .pages = (uint32_t)tbf_index_pages(w->list.count)};
    index.file_size = index.index_offset;
    for (uint64_t i = 0; i < index.pages; i++) index.file_size += tbf_page_size(index.members, i);
    TRY(tbf_codec_open(&c, 0, f));
    for (; index.page < index.pages; index.page++) TRY(write_page(w, c, &index, f));
    struct file_writer *file = w->file;
    w->file = NULL;
    TRY(file_writer_close(file, f));
fail:
    tbf_codec_close(c);
    tbf_writer_abandon(w);
    return error;
}

void tbf_writer_abandon(struct tbf_writer *w)
{
    if (w == NULL) return;
    file_writer_abandon(w->file);
    free(w->list.entry);
    free(w);
}
