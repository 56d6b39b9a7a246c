#include "table/input.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/memory.h"
#include "file/file.h"
#include "table/records.h"

enum { CHUNK = 1 << 20 };

const char *input_said(const struct input *in) { return strcmp(in->path, "-") == 0 ? "stdin" : in->path; }

bool input_named(const struct input *in, const char *extension)
{
    size_t n = strlen(in->name), e = strlen(extension);
    if (n > 3 && strcasecmp(in->name + n - 3, ".gz") == 0) n -= 3;
    return n > e + 1 && in->name[n - e - 1] == '.' && strncasecmp(in->name + n - e, extension, e) == 0;
}

/* A gzip file may become so many times as large, and in any case so large: what grows beyond is as likely a bomb, and
 * is not worth the space on disk unless its owner says so. */
enum { UNPACKED_TIMES = 100 };
static const uint64_t unpacked_any = (uint64_t)1 << 30;

/* What a stream goes through on its way into the scratch file. */
struct unpack {
    struct input *in;
    uint64_t limit;             /* of the unpacked bytes; 0: as above */
    uint64_t record;            /* where the record at hand begins */
    bool quoted, blank, matrix; /* in quotes; nothing but line ends so far; NPY, which has no records */
    struct file_stream *stream;
    z_stream z;
    bool gzip, inside; /* inside a member */
    size_t members;
    unsigned char *chunk, *plain;
};

/* Follows the records: one that is longer than any that is taken is refused before it fills the disk. */
static int follow(struct unpack *u, const unsigned char *text, size_t size, struct tabft_failure *f)
{
    const uint64_t at = file_scratch_size(u->in->scratch);
    if (at == 0) u->matrix = size >= 6 && memcmp(text, "\x93NUMPY", 6) == 0;
    if (u->matrix) return 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"') u->quoted = !u->quoted;
        else if (text[i] == '\n' && !u->quoted) u->record = at + i + 1;
        u->blank = u->blank && (text[i] == '\n' || text[i] == '\r');
    }
    if (u->blank && at + size > RECORD_MAX)
        return tabft_fail(f, TABFT_INPUT, "%s: no header in the first %d bytes, which are line ends; remove them",
                          input_said(u->in), (int)RECORD_MAX);
    if (at + size - u->record <= RECORD_MAX) return 0;
    return tabft_fail(
        f, TABFT_INPUT,
        "%s: the record at byte %llu of the text has more than %d bytes; a quote in it may never be closed",
        input_said(u->in), (unsigned long long)u->record, (int)RECORD_MAX);
}

static int put(struct unpack *u, const unsigned char *text, size_t size, struct tabft_failure *f)
{
    int error = 0;
    const uint64_t most = u->in->stored_size * UNPACKED_TIMES, any = most > unpacked_any ? most : unpacked_any,
                   limit = u->limit > 0 ? u->limit : any;
    TRY(follow(u, text, size, f));
    if (u->gzip && file_scratch_size(u->in->scratch) + size > limit)
        FAIL(f, TABFT_INPUT,
             "%s: its first %llu bytes unpack to more than %llu; if that is right, allow it with --unpacked SIZE",
             input_said(u->in), (unsigned long long)u->in->stored_size, (unsigned long long)limit);
    TRY(file_scratch_put(u->in->scratch, text, size, f));
fail:
    return error;
}

static int inflate_chunk(struct unpack *u, size_t size, struct tabft_failure *f)
{
    int error = 0;
    u->z.next_in = u->chunk;
    u->z.avail_in = (uInt)size;
    while (u->z.avail_in > 0) {
        if (!u->inside) {
            if (inflateReset(&u->z) != Z_OK) FAIL(f, TABFT_SYSTEM, "%s: zlib cannot start", input_said(u->in));
            u->inside = true;
            u->members++;
        }
        int z;
        do {
            u->z.next_out = u->plain;
            u->z.avail_out = CHUNK;
            z = inflate(&u->z, Z_NO_FLUSH);
            if (z == Z_MEM_ERROR) FAIL(f, TABFT_SYSTEM, "%s: no memory to unpack it", input_said(u->in));
            if (z != Z_OK && z != Z_STREAM_END && z != Z_BUF_ERROR) {
                FAIL(f, TABFT_INPUT, "%s: gzip member %zu is damaged (%s); copy or make the file again",
                     input_said(u->in), u->members, u->z.msg == NULL ? "no gzip data" : u->z.msg);
            }
            TRY(put(u, u->plain, CHUNK - u->z.avail_out, f));
        } while (z == Z_OK && u->z.avail_out == 0);
        if (z == Z_STREAM_END) u->inside = false;
    }
fail:
    return error;
}

static int unpack_stream(struct unpack *u, struct tabft_failure *f)
{
    int error = 0;
    size_t got;
    for (bool first = true;; first = false) {
        TRY(file_stream_read(u->stream, u->chunk, CHUNK, &got, f));
        if (got == 0) break;
        if (first) u->gzip = got >= 2 && u->chunk[0] == 0x1f && u->chunk[1] == 0x8b;
        TRY(digest_add(&u->in->digest, u->chunk, got, f));
        u->in->stored_size += got;
        if (u->gzip) TRY(inflate_chunk(u, got, f));
        else TRY(put(u, u->chunk, got, f));
    }
    if (u->inside) {
        FAIL(f, TABFT_INPUT,
             "%s: gzip member %zu ends after %llu bytes of the file without its end; the file was cut short: copy or "
             "make it again",
             input_said(u->in), u->members, (unsigned long long)u->in->stored_size);
    }
    TRY(digest_end(&u->in->digest, f));
    u->in->digested = true;
    u->in->size = file_scratch_size(u->in->scratch);
fail:
    return error;
}

static int open_scratch(struct input *in, const char *near, uint64_t limit, struct tabft_failure *f)
{
    int error = 0;
    struct unpack u = {.in = in, .limit = limit, .blank = true};
    digest_clear(&in->digest);
    if (inflateInit2(&u.z, 15 + 16) != Z_OK)
        return tabft_fail(f, TABFT_SYSTEM, "%s: no memory to unpack it", input_said(in));
    TRY(digest_open(&in->digest, 0, f));
    TRY(memory_new(&u.chunk, CHUNK, 1, "a read buffer", f));
    TRY(memory_new(&u.plain, CHUNK, 1, "a read buffer", f));
    TRY(file_scratch_open(&in->scratch, near, f));
    TRY(file_stream_open(&u.stream, in->path, f));
    TRY(unpack_stream(&u, f));
fail:
    file_stream_close(u.stream);
    (void)inflateEnd(&u.z);
    free(u.chunk);
    free(u.plain);
    return error;
}

/* Marks of other encodings: a mark, or an ASCII character beside a NUL. */
static const char *foreign_encoding(const unsigned char *b, size_t n)
{
    if (n >= 4 && memcmp(b, "\xff\xfe\0\0", 4) == 0) return "UTF-32LE";
    if (n >= 4 && memcmp(b, "\0\0\xfe\xff", 4) == 0) return "UTF-32BE";
    if (n >= 2 && memcmp(b, "\xff\xfe", 2) == 0) return "UTF-16LE";
    if (n >= 2 && memcmp(b, "\xfe\xff", 2) == 0) return "UTF-16BE";
    if (n >= 4 && b[0] != 0 && b[1] == 0 && b[2] != 0 && b[3] == 0) return "UTF-16LE";
    if (n >= 4 && b[0] == 0 && b[1] != 0 && b[2] == 0 && b[3] != 0) return "UTF-16BE";
    return NULL;
}

int input_look(struct input *in, const char *path, bool *plain, struct tabft_failure *f)
{
    int error = 0;
    struct stat st;
    unsigned char head[2] = {0};
    const char *slash = strrchr(path, '/');
    *in = (struct input){.path = path, .name = slash == NULL ? path : slash + 1};
    if (strcmp(path, "-") == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)))
        FAIL(f, TABFT_USE, "%s: parts are read from regular files, each task its own bytes; write it to one",
             input_said(in));
    TRY(file_reader_open(&in->reader, path, f));
    in->stored_size = file_reader_size(in->reader);
    if (in->stored_size >= 2) TRY(input_get(in, 0, head, 2, f));
    *plain = !(head[0] == 0x1f && head[1] == 0x8b);
fail:
    file_reader_close(in->reader);
    in->reader = NULL;
    return error;
}

int input_open(struct input *in, const char *path, const char *near, uint64_t unpacked_limit, struct tabft_failure *f)
{
    int error = 0;
    struct stat st;
    unsigned char head[8] = {0};
    const char *slash = strrchr(path, '/');
    *in = (struct input){.path = path, .name = slash == NULL ? path : slash + 1};
    bool regular = strcmp(path, "-") != 0 && (stat(path, &st) != 0 || S_ISREG(st.st_mode));
    if (regular) {
        TRY(file_reader_open(&in->reader, path, f));
        in->size = in->stored_size = file_reader_size(in->reader);
        if (in->size >= 2) TRY(input_get(in, 0, head, 2, f));
        if (head[0] == 0x1f && head[1] == 0x8b) {
            file_reader_close(in->reader);
            in->reader = NULL;
            in->stored_size = 0;
        }
    }
    size_t length = strlen(in->name);
    if (in->reader != NULL && length > 3 && strcasecmp(in->name + length - 3, ".gz") == 0) {
        FAIL(f, TABFT_INPUT, "%s: is no gzip file, whatever its name says; copy or make it again, or name it otherwise",
             path);
    }
    if (in->reader == NULL) TRY(open_scratch(in, near, unpacked_limit, f));
    size_t n = in->size < sizeof head ? (size_t)in->size : sizeof head;
    TRY(input_get(in, 0, head, n, f));
    if (n >= 4 && memcmp(head, "TBF\x01", 4) == 0 && in->scratch != NULL) {
        FAIL(f, TABFT_INPUT, "%s: is a packed table already; tabft-prep merge joins such files, cat makes text of them",
             input_said(in));
    }
    const char *encoding = foreign_encoding(head, n);
    in->is_npy = n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
    if (encoding != NULL) {
        FAIL(f, TABFT_INPUT, "%s: the text is %s and UTF-8 is needed; iconv -f %s -t UTF-8 makes it", input_said(in),
             encoding, encoding);
    }
    if (n >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0) in->start = 3;
fail:
    return error;
}

int input_get(const struct input *in, uint64_t offset, void *data, size_t size, struct tabft_failure *f)
{
    if (in->scratch != NULL) return file_scratch_get(in->scratch, offset, data, size, f);
    return file_reader_get(in->reader, offset, data, size, f);
}

int input_unchanged(const struct input *in, struct tabft_failure *f)
{
    return in->reader == NULL ? 0 : file_reader_unchanged(in->reader, f);
}

int input_place(const struct input *in, uint64_t offset, uint64_t *line, uint64_t *column, struct tabft_failure *f)
{
    int error = 0;
    char *chunk = NULL;
    uint64_t lines = 1, line_start = in->start;
    TRY(memory_new(&chunk, CHUNK, 1, "a read buffer", f));
    for (uint64_t at = 0; at < offset;) {
        size_t n = offset - at < CHUNK ? (size_t)(offset - at) : CHUNK;
        TRY(input_get(in, at, chunk, n, f));
        for (const char *p = chunk; (p = memchr(p, '\n', n - (size_t)(p - chunk))) != NULL;) {
            p++;
            lines++;
            line_start = at + (uint64_t)(p - chunk);
        }
        at += n;
    }
    *line = lines;
    *column = offset < line_start ? 1 : offset - line_start + 1;
fail:
    free(chunk);
    return error;
}

int input_fail(const struct input *in, uint64_t offset, struct tabft_failure *f, const char *format, ...)
{
    char message[TABFT_MESSAGE_SIZE / 2];
    uint64_t line = 0, column = 0;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    int error = input_place(in, offset, &line, &column, f);
    if (error < 0) return error;
    return tabft_fail(f, TABFT_INPUT, "%s:%llu:%llu: %s", input_said(in), (unsigned long long)line,
                      (unsigned long long)column, message);
}

void input_close(struct input *in)
{
    file_reader_close(in->reader);
    file_scratch_close(in->scratch);
    digest_clear(&in->digest);
    in->reader = NULL;
    in->scratch = NULL;
}
