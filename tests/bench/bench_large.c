/* Pieces of tests/bench/large, each alone: making a table, parsing it, deflating it.
 *   bench_large generate ROWS COLUMNS     CSV to stdout, with a target "y" of 3 classes; the same bytes each time
 *   bench_large parse FILE COLUMNS THREADS      every cell to a number, nothing kept: "SECONDS CPU_SECONDS BYTES"
 *   bench_large deflate FILE.tbf THREADS        every member of a packed table deflated again, the same three
 *   bench_large libdeflate FILE.tbf THREADS     the same bytes by plain libdeflate at the same level: no plane is told from
 *                                               another, and nothing is digested */
#include <libdeflate.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/threads.h"
#include "file/file.h"
#include "table/number.h"
#include "table/records.h"
#include "tbf/tbf_internal.h"

enum { BLOCK = 1 << 20, TAIL = 1 << 16 }; /* bytes of text at a time, and what a record can be longer */

static double clock_seconds(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const struct tabft_failure *f)
{
    (void)fprintf(stderr, "bench_large: %s\n", f->message);
    exit(1);
}

/* ---- generate ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state; /* xorshift64* */
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

static char *put_digits(char *to, uint64_t v, int least)
{
    char digits[24];
    int n = 0;
    do digits[n++] = (char)('0' + v % 10);
    while ((v /= 10) > 0 || n < least);
    while (n > 0) *to++ = digits[--n];
    return to;
}

/* By turns: sixths of a million as instruments print them, sums of money, counts, and numbers that float32 has exactly. */
static char *put_cell(char *to, size_t column, uint64_t r)
{
    switch (column % 4) {
    case 0:
        if (r & 1) *to++ = '-';
        to = put_digits(to, (r >> 1) % 4, 1);
        *to++ = '.';
        return put_digits(to, (r >> 8) % 1000000, 6);
    case 1:
        to = put_digits(to, (r >> 1) % 100000, 1);
        *to++ = '.';
        return put_digits(to, (r >> 24) % 100, 2);
    case 2: return put_digits(to, (r >> 8) % 1000000000, 1);
    default:
        to = put_digits(to, (r >> 1) % 1000, 1);
        *to++ = '.';
        return put_digits(to, (r >> 16) % 256 * 390625, 8);
    }
}

static int generate(uint64_t rows, size_t columns)
{
    uint64_t state = 88172645463325252u;
    char *line = malloc(columns * 24 + 16);
    if (line == NULL) return 1;
    for (size_t c = 0; c < columns; c++) (void)printf("x%zu,", c);
    (void)puts("y");
    for (uint64_t i = 0; i < rows; i++) {
        char *at = line;
        uint64_t sum = 0;
        for (size_t c = 0; c < columns; c++) {
            uint64_t r = next_random(&state);
            if (c < 4) sum += r >> 8 & 0xff;
            at = put_cell(at, c, r);
            *at++ = ',';
        }
        *at++ = (char)('0' + (sum > 400) + (sum > 620));
        *at++ = '\n';
        if (fwrite(line, 1, (size_t)(at - line), stdout) != (size_t)(at - line)) return 1;
    }
    free(line);
    return fflush(stdout) == 0 ? 0 : 1;
}

/* ---- parse ---- */

struct parse {
    struct file_reader *file;
    struct format format;
    size_t columns;
    uint64_t size;
    locale_t locale;
    char **text; /* one a thread */
    double *cpu, *sum;
    atomic_int failed;
};

struct taker {
    struct parse *p;
    double sum;
};

static inline int take_cell(void *context, uint64_t record, size_t column, const struct cell *cell,
                            struct tabft_failure *f)
{
    struct taker *t = context;
    double v = 0;
    (void)record;
    (void)column;
    (void)f;
    if (cell->is_number && number_double(&cell->number, cell->number_text, cell->number_end, '.', t->p->locale, &v))
        t->sum += v;
    return 0;
}

/* The records that begin in a block. Nothing is quoted here. */
static void parse_block(void *context, size_t block, int thread)
{
    struct parse *p = context;
    struct tabft_failure f = {0};
    uint64_t begin = (uint64_t)block * BLOCK, from = begin > 0 ? begin - 1 : 0;
    size_t n = p->size - from < BLOCK + TAIL ? (size_t)(p->size - from) : BLOCK + TAIL;
    char *text = p->text[thread];
    if (file_reader_get(p->file, from, text, n, &f) < 0) {
        atomic_store(&p->failed, 1);
        return;
    }
    text[n] = text[n + 1] = '\n';
    size_t own = begin > 0 ? BLOCK + 1 : BLOCK;
    const char *first = memchr(text, '\n', n + 1), *end = n > own ? memchr(text + own - 1, '\n', n - own + 2) : text + n;
    double start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
    struct records r = {.format = &p->format, .n_columns = p->columns};
    struct taker t = {.p = p};
    if (first < end && records_walk(&r, first + 1, n > own ? end + 1 : end, take_cell, &t, &f) < 0)
        atomic_store(&p->failed, 1);
    p->cpu[thread] += clock_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    p->sum[thread] += t.sum;
    free(r.unquoted);
}

static void report(double start, const double *cpu, int threads, uint64_t bytes)
{
    double sum = 0;
    for (int i = 0; i < threads; i++) sum += cpu[i];
    (void)printf("%.3f %.3f %llu\n", clock_seconds(CLOCK_MONOTONIC) - start, sum, (unsigned long long)bytes);
}

static int parse(const char *path, size_t columns, int threads)
{
    struct tabft_failure f = {0};
    struct parse p = {.format = {.delimiter = ',', .point = '.'}, .columns = columns + 1};
    struct threads *pool;
    if (file_reader_open(&p.file, path, &f) < 0 || threads_open(&pool, threads, &f) < 0 ||
        number_locale(&p.locale, &f) < 0 || memory_new(&p.text, (size_t)threads, sizeof *p.text, "text", &f) < 0 ||
        memory_new(&p.cpu, (size_t)threads, sizeof *p.cpu, "text", &f) < 0 ||
        memory_new(&p.sum, (size_t)threads, sizeof *p.sum, "text", &f) < 0)
        die(&f);
    for (int i = 0; i < threads; i++)
        if (memory_new(&p.text[i], BLOCK + TAIL + RECORDS_PADDING, 1, "text", &f) < 0) die(&f);
    p.size = file_reader_size(p.file);
    double start = clock_seconds(CLOCK_MONOTONIC);
    threads_run(pool, (size_t)((p.size + BLOCK - 1) / BLOCK), parse_block, &p);
    report(start, p.cpu, threads, p.size);
    return atomic_load(&p.failed);
}

/* ---- deflate ---- */

struct deflate {
    struct tbf_reader *file;
    struct tbf_codec **codec;
    struct libdeflate_compressor **plain; /* NULL: as pack does it */
    uint8_t **raw, **packed;              /* for plain ones, TBF_RAW_MAX each */
    double *cpu;
    atomic_int failed;
};

static bool deflate_record(const struct deflate *d, size_t number, int thread, const struct tbf_record *record)
{
    struct tabft_failure f = {0};
    struct tbf_member member;
    if (d->plain == NULL) {
        if (tbf_member_pack(&member, d->codec[thread], tbf_reader_file_id(d->file), number, record, &f) < 0) return false;
        tbf_member_free(&member);
        return true;
    }
    tbf_shuffle(d->raw[thread], record->data, record->size, record->strategy);
    (void)libdeflate_deflate_compress(d->plain[thread], d->raw[thread], record->size, d->packed[thread], TBF_RAW_MAX);
    return true;
}

static void deflate_member(void *context, size_t block, int thread)
{
    struct deflate *d = context;
    struct tabft_failure f = {0};
    struct tbf_record record;
    void *data = NULL;
    if (tbf_reader_get(d->file, d->codec[thread], block, &record, &data, &f) < 0) {
        atomic_store(&d->failed, 1);
        return;
    }
    double start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (!deflate_record(d, block, thread, &record)) atomic_store(&d->failed, 1);
    d->cpu[thread] += clock_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    free(data);
}

static int deflate(const char *path, int threads, bool plain)
{
    struct tabft_failure f = {0};
    struct deflate d = {0};
    struct threads *pool;
    if (tbf_reader_open(&d.file, path, &f) < 0 || threads_open(&pool, threads, &f) < 0 ||
        memory_new(&d.codec, (size_t)threads, sizeof *d.codec, "codecs", &f) < 0 ||
        memory_new(&d.cpu, (size_t)threads, sizeof *d.cpu, "codecs", &f) < 0)
        die(&f);
    for (int i = 0; i < threads; i++)
        if (tbf_codec_open(&d.codec[i], TBF_LEVEL_DEFAULT, &f) < 0) die(&f);
    if (plain && (memory_new(&d.plain, (size_t)threads, sizeof *d.plain, "codecs", &f) < 0 ||
                  memory_new(&d.raw, (size_t)threads, sizeof *d.raw, "codecs", &f) < 0 ||
                  memory_new(&d.packed, (size_t)threads, sizeof *d.packed, "codecs", &f) < 0))
        die(&f);
    for (int i = 0; plain && i < threads; i++) {
        d.plain[i] = libdeflate_alloc_compressor(TBF_LEVEL_DEFAULT);
        if (memory_new(&d.raw[i], TBF_RAW_MAX, 1, "codecs", &f) < 0 ||
            memory_new(&d.packed[i], TBF_RAW_MAX, 1, "codecs", &f) < 0)
            die(&f);
        if (d.plain[i] == NULL) return 1;
    }
    double start = clock_seconds(CLOCK_MONOTONIC);
    threads_run(pool, tbf_reader_count(d.file), deflate_member, &d);
    report(start, d.cpu, threads, tbf_reader_file_size(d.file));
    return atomic_load(&d.failed);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "generate") == 0)
        return generate(strtoull(argv[2], NULL, 10), (size_t)strtoull(argv[3], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "parse") == 0)
        return parse(argv[2], (size_t)strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 4 && strcmp(argv[1], "deflate") == 0) return deflate(argv[2], atoi(argv[3]), false);
    if (argc == 4 && strcmp(argv[1], "libdeflate") == 0) return deflate(argv[2], atoi(argv[3]), true);
    (void)fputs("usage: bench_large generate ROWS COLUMNS | parse FILE COLUMNS THREADS | deflate FILE.tbf THREADS | "
                "libdeflate FILE.tbf THREADS\n",
                stderr);
    return 2;
}
