/* What the tests of lib/tbf share: a folder to work in, small sample files, every way of reading one. */
#ifndef TABFT_TESTS_TBF_SAMPLE_H
#define TABFT_TESTS_TBF_SAMPLE_H

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "file/file.h"
#include "tbf/tbf.h"
#include "unit.h"

static char sample_folder[64];

static inline void enter_folder(void)
{
    (void)snprintf(sample_folder, sizeof sample_folder, "/tmp/tabft-test-tbf-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(sample_folder));
    ck_assert_int_eq(chdir(sample_folder), 0);
}

static inline void leave_folder(void)
{
    char command[128];
    ck_assert_int_eq(chdir("/"), 0);
    (void)snprintf(command, sizeof command, "rm -rf %s", sample_folder);
    ck_assert_int_eq(system(command), 0);
}

/* Bytes with some structure, the same on every machine. */
static inline void sample_fill(uint8_t *data, size_t size, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data[i] = i % 8 < 5 ? (uint8_t)(i >> 6) : (uint8_t)(state >> 56);
    }
}

/* A file of `n` members whose sizes are size[i], strategies i % 3, type 1 + i % 5. */
static inline void sample_write(const char *path, const size_t *size, size_t n, uint8_t id, int level)
{
    struct tabft_failure f = {0};
    struct tbf_writer *w;
    struct tbf_codec *c;
    uint8_t file_id[16];
    memset(file_id, id, sizeof file_id);
    MUST(tbf_codec_open(&c, level, &f));
    MUST(tbf_writer_open(&w, path, true, file_id, &f));
    for (size_t i = 0; i < n; i++) {
        uint8_t *data = malloc(size[i] + 1);
        ck_assert_ptr_nonnull(data);
        sample_fill(data, size[i], i);
        struct tbf_record record = {.type = (uint32_t)(1 + i % 5), .version = 1, .tag = {(uint32_t)i, (uint32_t)(i * i)},
                                    .data = data, .size = size[i], .strategy = (enum tbf_strategy)(i % 3)};
        MUST(tbf_writer_put(w, c, &record, &f));
        free(data);
    }
    MUST(tbf_writer_close(w, &f));
    tbf_codec_close(c);
}

/* Checks that `record` is what sample_write put as member i. */
static inline void sample_check(const struct tbf_record *record, size_t i, size_t size)
{
    uint8_t *data = malloc(size + 1);
    ck_assert_ptr_nonnull(data);
    sample_fill(data, size, i);
    ck_assert_uint_eq(record->size, size);
    ck_assert(memcmp(record->data, data, size) == 0);
    ck_assert_uint_eq(record->type, 1 + i % 5);
    ck_assert_uint_eq(record->version, 1);
    ck_assert_uint_eq(record->tag[0], i);
    ck_assert_uint_eq(record->tag[1], (uint32_t)(i * i));
    ck_assert_uint_eq((unsigned)record->strategy, i % 3);
    free(data);
}

/* The file at path replaced by these bytes, in place. */
static inline void put_bytes(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
    close(fd);
}

/* Everything by the index, without the digest: what a loading program does. */
static inline int read_by_index(const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct tbf_reader *r = NULL;
    struct tbf_codec *c = NULL;
    TRY(tbf_codec_open(&c, 0, f));
    TRY(tbf_reader_open(&r, path, f));
    for (size_t i = 0; i < tbf_reader_count(r); i++) {
        struct tbf_record record;
        void *data;
        TRY(tbf_reader_get(r, c, i, &record, &data, f));
        free(data);
    }
fail:
    tbf_reader_close(r);
    tbf_codec_close(c);
    return error;
}

static inline int read_as_stream(const char *path, struct tabft_failure *f)
{
    struct tbf_stream *s = NULL;
    bool end = false;
    int error = tbf_stream_open(&s, path, f);
    while (error == 0 && !end) {
        struct tbf_record record;
        void *data;
        error = tbf_stream_get(s, &record, &data, &end, f);
        free(data);
    }
    tbf_stream_close(s);
    return error;
}

/* All three ways refuse what is in the file with TABFT_INPUT and one line that starts with its path. */
static inline void all_refuse(const char *path, const char *what)
{
    for (int way = 0; way < 3; way++) {
        struct tabft_failure f = {0};
        int error = way == 0 ? read_by_index(path, &f) : way == 1 ? read_as_stream(path, &f) : tbf_verify(path, NULL, &f);
        ck_assert_msg(error == TABFT_INPUT, "%s: way %d gave %d: %s", what, way, error, f.message);
        ck_assert_msg(strncmp(f.message, path, strlen(path)) == 0, "%s: %s", what, f.message);
    }
}

#endif
