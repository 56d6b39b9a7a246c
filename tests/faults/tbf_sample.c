/* A small program around the container for the tests of faults: `write [-f] OUT MEMBERS` makes a .tbf file by the calls that
 * the tools make, `list FILE` prints a line a member by the index (front to back for "-"), `verify FILE` reads it all,
 * `flip FILE BIT` turns one bit of any file over.
 * Exit status and messages as the tools have them. */
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
#include "tbf/tbf.h"

/* Member i has i * 977 bytes, beyond the hundredth only up to 63: counters with noise, all strategies. */
static int write_members(const char *path, bool force, unsigned long members, struct tabft_failure *f)
{
    int error = 0;
    struct tbf_writer *w = NULL;
    struct tbf_codec *c = NULL;
    static unsigned char data[100 * 977];
    unsigned state = 1;
    TRY(tbf_codec_open(&c, TBF_LEVEL_DEFAULT, f));
    TRY(tbf_writer_open(&w, path, force, (const uint8_t *)"tabft test file.", f));
    for (unsigned long i = 0; i < members; i++) {
        size_t size = i < 100 ? i * 977 : i % 64;
        for (size_t k = 0; k < size; k++) {
            state = state * 1664525u + 1013904223u;
            data[k] = (unsigned char)(k % 4 == 0 ? state >> 24 : (unsigned)k >> (8 * (k % 4)));
        }
        struct tbf_record record = {.type = (uint32_t)(1 + i % 299), .version = (uint32_t)(i % 7), .tag = {(uint32_t)i, (uint32_t)(i * i)},
                                    .data = data, .size = size, .strategy = (enum tbf_strategy)(i % 3)};
        TRY(tbf_writer_put(w, c, &record, f));
    }
    tbf_codec_close(c);
    return tbf_writer_close(w, f);
fail:
    tbf_codec_close(c);
    tbf_writer_abandon(w);
    return error;
}

static void print_hex(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) printf("%02x", bytes[i]);
    putchar('\n');
}

static void print_record(size_t number, const struct tbf_record *r)
{
    struct sha256_ctx sha;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&sha);
    sha256_update(&sha, r->size, r->data);
    sha256_digest(&sha, sizeof digest, digest);
    printf("%zu %u %u %u %u %zu ", number, r->type, r->version, r->tag[0], r->tag[1], r->size);
    print_hex(digest, sizeof digest);
}

static int list_members(const char *path, struct tabft_failure *f)
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
        print_record(i, &record);
        free(data);
    }
    print_hex(tbf_reader_file_id(r), 16);
    print_hex(tbf_reader_digest(r), 32);
    TRY(tbf_reader_unchanged(r, f));
fail:
    tbf_reader_close(r);
    tbf_codec_close(c);
    return error;
}

static int list_stream(const char *path, struct tabft_failure *f)
{
    struct tbf_stream *s = NULL;
    bool end = false;
    int error = tbf_stream_open(&s, path, f);
    for (size_t i = 0; error == 0 && !end; i++) {
        struct tbf_record record;
        void *data = NULL;
        error = tbf_stream_get(s, &record, &data, &end, f);
        if (error == 0 && !end) print_record(i, &record);
        free(data);
    }
    if (end) {
        print_hex(tbf_stream_file_id(s), 16);
        print_hex(tbf_stream_digest(s), 32);
    }
    tbf_stream_close(s);
    return error;
}

static int flip_bit(const char *path, unsigned long bit, struct tabft_failure *f)
{
    FILE *file = fopen(path, "r+b");
    int byte = EOF;
    if (file != NULL && fseek(file, (long)(bit / 8), SEEK_SET) == 0) byte = getc(file);
    if (byte == EOF || fseek(file, (long)(bit / 8), SEEK_SET) != 0 || putc(byte ^ (1 << bit % 8), file) == EOF) {
        if (file != NULL) (void)fclose(file);
        return tabft_fail(f, TABFT_INPUT, "%s: has no bit %lu", path, bit);
    }
    return fclose(file) == 0 ? 0 : tabft_fail(f, TABFT_SYSTEM, "%s: cannot write", path);
}

int main(int argc, char **argv)
{
    struct tabft_failure f = {0};
    file_signals_install();
    int at = argc > 2 && strcmp(argv[2], "-f") == 0 ? 3 : 2, error;
    if (argc == at + 2 && strcmp(argv[1], "write") == 0) error = write_members(argv[at], at == 3, strtoul(argv[at + 1], NULL, 10), &f);
    else if (argc == 3 && strcmp(argv[1], "list") == 0) error = strcmp(argv[2], "-") == 0 ? list_stream("-", &f) : list_members(argv[2], &f);
    else if (argc == 3 && strcmp(argv[1], "verify") == 0) error = tbf_verify(argv[2], NULL, &f);
    else if (argc == 4 && strcmp(argv[1], "flip") == 0) error = flip_bit(argv[2], strtoul(argv[3], NULL, 10), &f);
    else error = tabft_fail(&f, TABFT_USE, "use: write [-f] OUT MEMBERS | list FILE | verify FILE | flip FILE BIT");
    int closed = file_stdout_close(&f);
    if (error == 0) error = closed;
    if (f.code != 0) (void)fprintf(stderr, "tbf_sample: %s\n", f.message);
    return tabft_exit_status(error);
}
