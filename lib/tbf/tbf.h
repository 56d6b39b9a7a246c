/* The .tbf container: gzip members with numbers, sizes and CRCs, and a last member that is index and end mark.
 * tbf(5) defines the bytes. This room knows members and record types, and nothing about tables. */
#ifndef TABFT_TBF_TBF_H
#define TABFT_TBF_TBF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

enum { TBF_RAW_MAX = 16 << 20 }; /* largest raw size of a member's record, header included, in bytes */
enum tbf_strategy { TBF_PLAIN = 0, TBF_SHUFFLE4 = 1, TBF_SHUFFLE8 = 2 }; /* bytes of 4- or 8-byte items transposed before deflate */

/* A record as callers see it: a type (table.h and eval.h number them), a version, a payload. */
struct tbf_record {
    uint32_t type;
    uint32_t version;
    uint32_t tag[2];     /* caller's own: e.g. column number, row group; shown in the index so that readers seek by it */
    const void *data;    /* payload, little-endian */
    size_t size;
    enum tbf_strategy strategy;
};

/* ---- a member in memory: pure functions, any thread ---- */
struct tbf_codec; /* a deflate compressor and an inflater with their scratch; one a thread */
int tbf_codec_open(struct tbf_codec **out, int level, struct tabft_failure *f) TABFT_MUST_CHECK;
void tbf_codec_close(struct tbf_codec *c);

/* ---- writing ---- */
struct tbf_writer;
/* path may be "-". file id: random in the file unless `file_id` is given (16 bytes, for outputs that must be reproducible:
 * a digest of what was put in). */
int tbf_writer_open(struct tbf_writer **out, const char *path, bool force, const uint8_t file_id[16], struct tabft_failure *f) TABFT_MUST_CHECK;
/* Compresses in the calling thread and appends in call order. */
int tbf_writer_put(struct tbf_writer *w, struct tbf_codec *c, const struct tbf_record *record, struct tabft_failure *f) TABFT_MUST_CHECK;
/* In two steps for pools: pack in any thread (member number is given by the caller, from 0, dense), then append in order. */
int tbf_member_pack(struct tbf_codec *c, const uint8_t file_id[16], uint64_t number, const struct tbf_record *record,
                    void **member, size_t *size, struct tabft_failure *f) TABFT_MUST_CHECK; /* caller frees *member */
int tbf_writer_append(struct tbf_writer *w, const struct tbf_record *record, const void *member, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Writes the index (the end mark) and publishes the file. Frees w. */
int tbf_writer_close(struct tbf_writer *w, struct tabft_failure *f) TABFT_MUST_CHECK;
void tbf_writer_abandon(struct tbf_writer *w);

/* ---- reading a file by its index ---- */
struct tbf_reader;
struct tbf_entry { /* one member as the index has it */
    uint64_t offset, packed_size, raw_size;
    uint32_t type, version, tag[2];
};
/* Reads end mark and index, checks them against the file's size. */
int tbf_reader_open(struct tbf_reader **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
size_t tbf_reader_count(const struct tbf_reader *r);
const struct tbf_entry *tbf_reader_entry(const struct tbf_reader *r, size_t number);
/* Inflates member `number`, checks CRCs, number and file id; *data belongs to the caller (free). Thread safe with own codec. */
int tbf_reader_get(const struct tbf_reader *r, struct tbf_codec *c, size_t number, struct tbf_record *record, void **data, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Everything, front to back, in `threads`-many at a time: each byte of the file is checked, digest included. */
struct threads;
int tbf_verify(const char *path, struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;
const uint8_t *tbf_reader_file_id(const struct tbf_reader *r); /* 16 bytes */
const uint8_t *tbf_reader_digest(const struct tbf_reader *r);  /* 32 bytes: the digest in the end mark, for provenance */
void tbf_reader_close(struct tbf_reader *r);

/* ---- reading a stream ("-" or a pipe), in order; *data as above; *end true after the end mark was seen and verified ---- */
struct tbf_stream;
int tbf_stream_open(struct tbf_stream **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
int tbf_stream_get(struct tbf_stream *s, struct tbf_record *record, void **data, bool *end, struct tabft_failure *f) TABFT_MUST_CHECK;
void tbf_stream_close(struct tbf_stream *s);

#endif
