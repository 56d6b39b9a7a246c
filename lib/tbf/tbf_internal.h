/* What the sources of lib/tbf share: the layout of tbf(5) in constants, members in memory, the index. */
#ifndef TABFT_TBF_INTERNAL_H
#define TABFT_TBF_INTERNAL_H

#include <nettle/sha2.h>
#include <string.h>

#include "tbf/tbf.h"

enum {
    TBF_HEAD_SIZE = 28, /* gzip header with its one subfield */
    TBF_TAIL_SIZE = 8,  /* gzip trailer */
    TBF_MEMBER_MIN = TBF_HEAD_SIZE + 2 + TBF_TAIL_SIZE,
    TBF_ID_SIZE = 16,
    TBF_DIGEST_SIZE = 32,
    TBF_INDEX_VERSION = 1,
    TBF_INDEX_HEADER = 64, /* bytes in front of an index member's entries */
    TBF_ENTRY_SIZE = 32,
    TBF_PAGE_ENTRIES = 65536 /* entries of an index member but the last */
};

/* The machine is little-endian (configure sees to it), so bytes are copied as they are. */
static inline uint32_t get_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t get_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void put_u32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void put_u64(uint8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }

/* Size of `raw` bytes as stored deflate blocks, which is also the most that any member may take. */
static inline uint32_t tbf_stored_size(uint32_t raw) { return raw + 5 * (raw == 0 ? 1 : (raw + 65534) / 65535); }

/* ---- items of 4 or 8 bytes, byte planes ---- */
void tbf_shuffle(void *out, const void *in, size_t size, enum tbf_strategy strategy);
void tbf_unshuffle(void *out, const void *in, size_t size, enum tbf_strategy strategy);

static inline size_t tbf_item_size(enum tbf_strategy s) { return s == TBF_SHUFFLE8 ? 8 : s == TBF_SHUFFLE4 ? 4 : 1; }

/* ---- deflate bytes ---- */
struct libdeflate_compressor;
/* Stored blocks: tbf_stored_size(size) bytes. */
size_t tbf_store(const uint8_t *raw, size_t size, uint8_t *out);
/* A record header and items of `width` bytes in planes, each plane the way that suits it; at most `room` bytes, behind
 * which a member's tail has room. 0 where they are not enough. */
size_t tbf_deflate_planes(struct libdeflate_compressor *compressor, const uint8_t *raw, size_t size, size_t width,
                          uint8_t *out, size_t room);

/* ---- members ---- */
struct tbf_place { /* where a member lies, for messages */
    const char *path;
    uint64_t number, offset;
};
struct tbf_head { /* what a member's gzip header says */
    uint32_t packed, raw, crc;
};
static inline uint64_t tbf_member_size(const struct tbf_head *h)
{
    return TBF_HEAD_SIZE + (uint64_t)h->packed + TBF_TAIL_SIZE;
}

/* The whole header checked; why not, in *reason, else. Nothing is allocated by what it says before it was bounded here.
 */
bool tbf_head_read(const uint8_t bytes[TBF_HEAD_SIZE], struct tbf_head *head, const char **reason);

/* Inflates and checks a member whose head was read. `body`: deflate bytes and trailer. `file_id`: what it must carry;
 * NULL takes any. id_found (may be NULL) gets what it carries. *data as in tbf_reader_get. */
int tbf_member_unpack(const struct tbf_place *place, const struct tbf_head *head, const uint8_t *body,
                      struct tbf_codec *c, const uint8_t *file_id, uint8_t *id_found, struct tbf_record *record,
                      void **data, struct tabft_failure *f) TABFT_MUST_CHECK;

/* tbf_member_pack without its limits on type; `stored`: as stored blocks, so that the size follows from the raw size.
 */
int tbf_member_build(struct tbf_member *out, struct tbf_codec *c, const uint8_t file_id[TBF_ID_SIZE], uint64_t number,
                     bool stored, const struct tbf_record *record, struct tabft_failure *f) TABFT_MUST_CHECK;

/* The codec's buffer for packed bytes, at least `size` large. */
int tbf_codec_packed(struct tbf_codec *c, size_t size, uint8_t **buffer, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- the index ---- */
struct tbf_list { /* entries in file order; also what a stream has seen */
    struct tbf_entry *entry;
    uint64_t count, room;
};
int tbf_list_add(struct tbf_list *list, const struct tbf_entry *entry, struct tabft_failure *f) TABFT_MUST_CHECK;

struct tbf_index { /* the fields of an index member's payload */
    uint64_t members, index_offset, file_size;
    uint32_t page, pages;
    uint8_t digest[TBF_DIGEST_SIZE];
};
static inline uint64_t tbf_index_pages(uint64_t members)
{
    return members == 0 ? 1 : (members - 1) / TBF_PAGE_ENTRIES + 1;
}
uint64_t tbf_page_entries(uint64_t members, uint64_t page); /* how many entries that page lists */
uint64_t tbf_page_size(uint64_t members, uint64_t page);    /* bytes of that index member in the file */
/* Payload of one page, TBF_INDEX_HEADER + entries * TBF_ENTRY_SIZE bytes; `entry` points at the page's first one. */
void tbf_index_write(uint8_t *payload, const struct tbf_index *index, const struct tbf_entry *entry);
/* The header of a page, checked in itself and against what holds it; entries are read by tbf_entry_read. */
int tbf_index_read(struct tbf_index *index, const struct tbf_place *place, const struct tbf_record *record,
                   struct tabft_failure *f) TABFT_MUST_CHECK;
/* One entry; *entry->offset is not in it and is left alone. False if it cannot be. */
bool tbf_entry_read(struct tbf_entry *entry, const uint8_t *bytes);

/* "path: member N at byte M: " in front of a failure of the input. */
int tbf_fail(struct tabft_failure *f, const struct tbf_place *place, const char *format, ...) TABFT_PRINTF(3, 4);

#endif
