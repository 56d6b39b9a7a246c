/* One member: record header and payload to gzip bytes and back. */
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "tbf/tbf_internal.h"

/* ID1 ID2 CM FLG=FEXTRA MTIME XFL OS, XLEN 16, subfield "TF" of 12 bytes */
static const uint8_t fixed_head[16] = {0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 16, 0, 'T', 'F', 12, 0};
static const uint8_t record_magic[4] = {'T', 'B', 'F', 1}; /* the last byte is the version of the container */

struct tbf_codec {
    int level;
    struct libdeflate_compressor *compressor; /* made when first needed: readers do not */
    struct libdeflate_decompressor *decompressor;
    struct {
        uint8_t *bytes;
        size_t room;
    } raw, packed;
};

int tbf_codec_open(struct tbf_codec **out, int level, struct tabft_failure *f)
{
    int error = 0;
    struct tbf_codec *c = NULL;
    if (level < 0 || level > 12) return tabft_fail(f, TABFT_USE, "compression level %d: 0 to 12 are possible", level);
    TRY(memory_new(&c, 1, sizeof *c, "a codec", f));
    c->level = level;
    c->decompressor = libdeflate_alloc_decompressor();
    if (c->decompressor == NULL) FAIL(f, TABFT_SYSTEM, "no memory for an inflater; give the job more memory");
    *out = c;
    return 0;
fail:
    tbf_codec_close(c);
    return error;
}

void tbf_codec_close(struct tbf_codec *c)
{
    if (c == NULL) return;
    libdeflate_free_compressor(c->compressor);
    libdeflate_free_decompressor(c->decompressor);
    free(c->raw.bytes);
    free(c->packed.bytes);
    free(c);
}

static int make_room(uint8_t **bytes, size_t *room, size_t size, struct tabft_failure *f)
{
    if (*room >= size) return 0;
    free(*bytes); /* what was in it is not needed any more */
    *bytes = NULL;
    *room = 0;
    int error = memory_grow(bytes, size, 1, "a member of a .tbf file", f);
    if (error == 0) *room = size;
    return error;
}

int tbf_codec_packed(struct tbf_codec *c, size_t size, uint8_t **buffer, struct tabft_failure *f)
{
    int error = make_room(&c->packed.bytes, &c->packed.room, size, f);
    *buffer = c->packed.bytes;
    return error;
}

int tbf_fail(struct tabft_failure *f, const struct tbf_place *place, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tabft_fail(f, TABFT_INPUT, "%s: member %llu at byte %llu: %s; copy or make the file again", place->path,
                      (unsigned long long)place->number, (unsigned long long)place->offset, text);
}

/* ---- packing ---- */

static void write_record_header(uint8_t *p, const uint8_t file_id[TBF_ID_SIZE], uint64_t number,
                                const struct tbf_record *r)
{
    memcpy(p, record_magic, 4);
    put_u32(p + 4, r->type);
    put_u32(p + 8, r->version);
    put_u32(p + 12, r->strategy);
    put_u32(p + 16, r->tag[0]);
    put_u32(p + 20, r->tag[1]);
    put_u64(p + 24, number);
    memcpy(p + 32, file_id, TBF_ID_SIZE);
    put_u64(p + 48, r->size);
    put_u64(p + 56, 0);
}

/* Deflate bytes of `raw` bytes at `out`, which has room for stored blocks: what would grow is stored. */
static int deflate_raw(struct tbf_codec *c, const struct tbf_record *record, uint8_t *out, uint32_t raw_size,
                       bool stored, uint32_t *packed, struct tabft_failure *f)
{
    const size_t room = tbf_stored_size(raw_size);
    size_t n = 0;
    if (!stored && c->level > 0) {
        if (c->compressor == NULL) c->compressor = libdeflate_alloc_compressor(c->level);
        if (c->compressor == NULL)
            return tabft_fail(f, TABFT_SYSTEM, "no memory for a compressor; give the job more memory");
        size_t width = tbf_item_size(record->strategy);
        n = width == 1 ? libdeflate_deflate_compress(c->compressor, c->raw.bytes, raw_size, out, room)
                       : tbf_deflate_planes(c->compressor, c->raw.bytes, raw_size, width, out, room);
    }
    if (n == 0) n = tbf_store(c->raw.bytes, raw_size, out);
    *packed = (uint32_t)n;
    return 0;
}

int tbf_member_build(struct tbf_member *out, struct tbf_codec *c, const uint8_t file_id[TBF_ID_SIZE], uint64_t number,
                     bool stored, const struct tbf_record *record, struct tabft_failure *f)
{
    int error = 0;
    uint8_t *bytes = NULL;
    uint32_t raw_size = TBF_RECORD_HEADER + (uint32_t)record->size, packed = 0;
    TRY(make_room(&c->raw.bytes, &c->raw.room, raw_size, f));
    TRY(tbf_codec_packed(c, TBF_HEAD_SIZE + (size_t)tbf_stored_size(raw_size) + TBF_TAIL_SIZE, &bytes, f));
    write_record_header(c->raw.bytes, file_id, number, record);
    tbf_shuffle(c->raw.bytes + TBF_RECORD_HEADER, record->data, record->size, record->strategy);
    TRY(deflate_raw(c, record, bytes + TBF_HEAD_SIZE, raw_size, stored, &packed, f));

    uint32_t crc = libdeflate_crc32(0, bytes + TBF_HEAD_SIZE, packed);
    memcpy(bytes, fixed_head, sizeof fixed_head);
    put_u32(bytes + 16, packed);
    put_u32(bytes + 20, raw_size);
    put_u32(bytes + 24, crc);
    put_u32(bytes + TBF_HEAD_SIZE + packed, libdeflate_crc32(0, c->raw.bytes, raw_size));
    put_u32(bytes + TBF_HEAD_SIZE + packed + 4, raw_size);

    /* A copy of the size it came to: many members may wait for their turn. */
    *out = (struct tbf_member){.size = TBF_HEAD_SIZE + (size_t)packed + TBF_TAIL_SIZE,
                               .number = number,
                               .type = record->type,
                               .version = record->version,
                               .tag = {record->tag[0], record->tag[1]},
                               .strategy = record->strategy,
                               .raw_size = raw_size,
                               .crc = crc};
    TRY(memory_grow(&out->bytes, out->size, 1, "a packed member", f));
    memcpy(out->bytes, bytes, out->size);
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, out->size, out->bytes);
    sha256_digest(&sha, TBF_DIGEST_SIZE, out->sha256);
fail:
    return error;
}

int tbf_member_pack(struct tbf_member *out, struct tbf_codec *c, const uint8_t file_id[TBF_ID_SIZE], uint64_t number,
                    const struct tbf_record *record, struct tabft_failure *f)
{
    if (record->type == TBF_TYPE_INDEX || record->type >= TBF_TYPES_END)
        return tabft_fail(f, TABFT_USE, "record type %u: 1 to %d are possible", record->type, TBF_TYPES_END - 1);
    if (record->size > TBF_PAYLOAD_MAX)
        return tabft_fail(f, TABFT_USE, "a record of %zu bytes: at most %d are possible", record->size,
                          TBF_PAYLOAD_MAX);
    if (record->strategy > TBF_SHUFFLE8)
        return tabft_fail(f, TABFT_USE, "record strategy %d is unknown", (int)record->strategy);
    return tbf_member_build(out, c, file_id, number, false, record, f);
}

void tbf_member_free(struct tbf_member *m)
{
    free(m->bytes);
    m->bytes = NULL;
}

/* ---- unpacking ---- */

bool tbf_head_read(const uint8_t bytes[TBF_HEAD_SIZE], struct tbf_head *head, const char **reason)
{
    if (memcmp(bytes, fixed_head, sizeof fixed_head) != 0) {
        *reason = bytes[0] != 0x1f || bytes[1] != 0x8b ? "not a gzip member"
                                                       : "a gzip member, but not one of a .tbf file";
        return false;
    }
    *head = (struct tbf_head){get_u32(bytes + 16), get_u32(bytes + 20), get_u32(bytes + 24)};
    if (head->raw < TBF_RECORD_HEADER || head->raw > TBF_RAW_MAX)
        *reason = "a raw size out of bounds (64 bytes to 16 MiB)";
    else if (head->packed < 2 || head->packed > tbf_stored_size(head->raw)) *reason = "a packed size out of bounds";
    else return true;
    return false;
}

static int check_record(const struct tbf_place *place, const struct tbf_head *head, const uint8_t *raw,
                        const uint8_t *file_id, struct tabft_failure *f)
{
    if (memcmp(raw, record_magic, 3) != 0) return tbf_fail(f, place, "no record of a .tbf file");
    if (raw[3] != record_magic[3])
        return tabft_fail(f, TABFT_INPUT,
                          "%s: is of container version %u, this program reads version %u; use a newer TabFT",
                          place->path, raw[3], record_magic[3]);
    if (get_u64(raw + 24) != place->number)
        return tbf_fail(f, place, "carries number %llu: members were dropped, doubled or moved",
                        (unsigned long long)get_u64(raw + 24));
    if (file_id != NULL && memcmp(raw + 32, file_id, TBF_ID_SIZE) != 0)
        return tbf_fail(f, place, "comes from another file (its file id differs)");
    if (get_u64(raw + 48) != head->raw - TBF_RECORD_HEADER)
        return tbf_fail(f, place, "its record's size is not its own");
    if (get_u64(raw + 56) != 0) return tbf_fail(f, place, "its record's reserved field is not zero");
    if (get_u32(raw + 12) > TBF_SHUFFLE8) return tbf_fail(f, place, "strategy %u is unknown", get_u32(raw + 12));
    return 0;
}

int tbf_member_unpack(const struct tbf_place *place, const struct tbf_head *head, const uint8_t *body,
                      struct tbf_codec *c, const uint8_t *file_id, uint8_t *id_found, struct tbf_record *record,
                      void **data, struct tabft_failure *f)
{
    int error = 0;
    uint8_t *raw = NULL;
    size_t used = 0, made = 0;
    if (libdeflate_crc32(0, body, head->packed) != head->crc)
        return tbf_fail(f, place, "damaged (CRC-32 of its packed bytes)");
    if (get_u32(body + head->packed + 4) != head->raw) return tbf_fail(f, place, "damaged (its two raw sizes differ)");
    TRY(memory_grow(&raw, head->raw, 1, "a member of a .tbf file", f));
    if (libdeflate_deflate_decompress_ex(c->decompressor, body, head->packed, raw, head->raw, &used, &made) !=
            LIBDEFLATE_SUCCESS ||
        used != head->packed || made != head->raw) {
        error = tbf_fail(f, place, "does not inflate to the %u bytes it says", head->raw);
        goto fail;
    }
    if (libdeflate_crc32(0, raw, head->raw) != get_u32(body + head->packed)) {
        error = tbf_fail(f, place, "damaged (CRC-32 of its content)");
        goto fail;
    }
    TRY(check_record(place, head, raw, file_id, f));
    if (id_found != NULL) memcpy(id_found, raw + 32, TBF_ID_SIZE);
    *record = (struct tbf_record){.type = get_u32(raw + 4),
                                  .version = get_u32(raw + 8),
                                  .tag = {get_u32(raw + 16), get_u32(raw + 20)},
                                  .data = raw + TBF_RECORD_HEADER,
                                  .size = head->raw - TBF_RECORD_HEADER,
                                  .strategy = (enum tbf_strategy)get_u32(raw + 12)};
    if (record->strategy != TBF_PLAIN) {
        /* Back into items in the codec's buffer, which then changes places with this one: no copy. */
        TRY(make_room(&c->raw.bytes, &c->raw.room, head->raw, f));
        tbf_unshuffle(c->raw.bytes, record->data, record->size, record->strategy);
        uint8_t *items = c->raw.bytes;
        c->raw.bytes = raw;
        c->raw.room = head->raw;
        raw = items;
        record->data = items;
    }
    *data = raw;
    return 0;
fail:
    free(raw);
    return error;
}
