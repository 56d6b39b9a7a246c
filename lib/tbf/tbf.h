/* The .tbf container: gzip members with numbers, sizes and CRCs, and a last member that is index and end mark.
 * tbf(5) defines the bytes. This room knows members and record types, and nothing about tables. */
#ifndef TABFT_TBF_TBF_H
#define TABFT_TBF_TBF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct threads;

enum {
    TBF_RAW_MAX = 16 << 20, /* largest raw size of a member, record header included, in bytes */
    TBF_RECORD_HEADER = 64, /* bytes of the record header in front of each payload */
    TBF_PAYLOAD_MAX = TBF_RAW_MAX - TBF_RECORD_HEADER, /* largest payload */
    TBF_LEVEL_DEFAULT = 1                              /* deflate level where nothing else is asked for: on columns of
                                                          numbers 6 gains 1 % in size at 1.8 times the time */
};
enum tbf_strategy {
    TBF_PLAIN = 0,
    TBF_SHUFFLE4 = 1,
    TBF_SHUFFLE8 = 2
}; /* bytes of 4- or 8-byte items transposed before deflate */

/* Record types. 0 is the container's own (the index); each room numbers its records inside its range. */
enum tbf_range {
    TBF_TYPE_INDEX = 0,
    TBF_TYPES_TABLE = 1,   /* 1..99: lib/table */
    TBF_TYPES_EVAL = 100,  /* 100..199: predictions */
    TBF_TYPES_TRAIN = 200, /* 200..299: training state */
    TBF_TYPES_END = 300
};

/* A record as callers see it: a type (table.h and eval.h number them), a version, a payload. */
struct tbf_record {
    uint32_t type;    /* 1 .. TBF_TYPES_END - 1 */
    uint32_t version; /* of this type's payload; a reader refuses what it does not know */
    uint32_t tag[2];  /* caller's own: e.g. column number, row group; shown in the index so that readers seek by it */
    const void *data; /* payload, little-endian */
    size_t size;      /* 0 .. TBF_PAYLOAD_MAX */
    enum tbf_strategy strategy;
};

/* ---- a member in memory: pure functions, any thread ---- */

/* A deflate compressor, an inflater and their scratch memory; one a thread. `level` 0 (stored) to 12; readers may give
 * any. */
struct tbf_codec;
int tbf_codec_open(struct tbf_codec **out, int level, struct tabft_failure *f) TABFT_MUST_CHECK;
void tbf_codec_close(struct tbf_codec *c); /* NULL is fine */

/* One packed member: what tbf_member_pack leaves and tbf_writer_append takes. */
struct tbf_member {
    void *bytes; /* the gzip member, [size]; the caller frees it with tbf_member_free */
    size_t size;
    uint64_t number;
    uint32_t type, version, tag[2], strategy;
    uint32_t raw_size;  /* record header and payload, before deflate */
    uint32_t crc;       /* CRC-32 of the deflate bytes */
    uint8_t sha256[32]; /* of `bytes`: a leaf of the file's digest */
};
/* Packs one record as member `number` (from 0, dense) of the file with this id. Errors: TABFT_USE for a type out of
 * range or a payload above TBF_PAYLOAD_MAX, TABFT_SYSTEM for memory. */
int tbf_member_pack(struct tbf_member *out, struct tbf_codec *c, const uint8_t file_id[16], uint64_t number,
                    const struct tbf_record *record, struct tabft_failure *f) TABFT_MUST_CHECK;
void tbf_member_free(struct tbf_member *m); /* frees m->bytes; an all-zero member is fine */

/* ---- writing ---- */
struct tbf_writer;
/* path may be "-". file id: random unless `file_id` is given (16 bytes, for outputs that must be reproducible: a digest
 * of what is put in). Errors of file_writer_open. */
int tbf_writer_open(struct tbf_writer **out, const char *path, bool force, const uint8_t file_id[16],
                    struct tabft_failure *f) TABFT_MUST_CHECK;
const uint8_t *tbf_writer_file_id(const struct tbf_writer *w); /* 16 bytes, for tbf_member_pack */
uint64_t tbf_writer_count(const struct tbf_writer *w);         /* members so far = the number of the next one */
/* Compresses in the calling thread and appends in call order. */
int tbf_writer_put(struct tbf_writer *w, struct tbf_codec *c, const struct tbf_record *record,
                   struct tabft_failure *f) TABFT_MUST_CHECK;
/* For pools: members packed in any thread are appended in the order of their numbers. The caller keeps and frees *m. */
int tbf_writer_append(struct tbf_writer *w, const struct tbf_member *m, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Writes the index (the end mark) and publishes the file. Frees w in every case. */
int tbf_writer_close(struct tbf_writer *w, struct tabft_failure *f) TABFT_MUST_CHECK;
void tbf_writer_abandon(struct tbf_writer *w); /* the error path: nothing is left; NULL is fine */

/* ---- reading a file by its index ---- */
struct tbf_reader;
struct tbf_entry {                          /* one member as the index has it */
    uint64_t offset, packed_size, raw_size; /* place and size of the gzip member; record header and payload inflated */
    uint32_t type, version, tag[2];
    uint32_t strategy, crc;
};
/* Reads end mark and index, checks them against the file's size. Errors: TABFT_INPUT for anything that tbf(5) does not
 * allow; a file without its end mark is named as cut, with the bytes found and where known missing. */
int tbf_reader_open(struct tbf_reader **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
size_t tbf_reader_count(const struct tbf_reader *r);                                 /* members, without the index */
const struct tbf_entry *tbf_reader_entry(const struct tbf_reader *r, size_t number); /* number < count */
/* Inflates member `number`, checks CRCs, number and file id. record->data points into *data, which belongs to the
 * caller (free). 16-byte aligned. Thread safe with own codec. */
int tbf_reader_get(const struct tbf_reader *r, struct tbf_codec *c, size_t number, struct tbf_record *record,
                   void **data, struct tabft_failure *f) TABFT_MUST_CHECK;
const uint8_t *tbf_reader_file_id(const struct tbf_reader *r); /* 16 bytes */
const uint8_t *tbf_reader_digest(const struct tbf_reader *r); /* 32 bytes: the digest in the end mark, for provenance */
uint64_t tbf_reader_file_size(const struct tbf_reader *r);
/* Fails (TABFT_INPUT) if the file changed since open; call it before results are published. */
int tbf_reader_unchanged(const struct tbf_reader *r, struct tabft_failure *f) TABFT_MUST_CHECK;
void tbf_reader_close(struct tbf_reader *r); /* NULL is fine */

/* Everything, `threads`-many members at a time: each byte of the file is checked, the digest included. "-" reads stdin
 * in order. */
int tbf_verify(const char *path, struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- reading a stream ("-", a pipe or a file) in order ---- */
struct tbf_stream;
int tbf_stream_open(struct tbf_stream **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The next record; *data as in tbf_reader_get. *end becomes true, with no record (*data NULL), after the end mark was
 * seen and everything before it verified against it: publish nothing earlier. */
int tbf_stream_get(struct tbf_stream *s, struct tbf_record *record, void **data, bool *end,
                   struct tabft_failure *f) TABFT_MUST_CHECK;
const uint8_t *tbf_stream_file_id(const struct tbf_stream *s); /* 16 bytes, valid after the first get */
const uint8_t *tbf_stream_digest(const struct tbf_stream *s);  /* 32 bytes, valid after *end */
void tbf_stream_close(struct tbf_stream *s);                   /* NULL is fine */

#endif
