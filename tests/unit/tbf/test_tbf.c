#include <check.h>
#include <string.h>
#include <sys/stat.h>

#include "base/threads.h"
#include "sample.h"
#include "tbf/tbf_internal.h"

static const size_t small_sizes[] = {0,   1,   3,   4,    7,    8,          9,          63,    64,
                                     127, 128, 129, 1000, 4096, 65535 - 64, 65536 - 64, 65537, 300001};
enum { SMALL = sizeof small_sizes / sizeof *small_sizes };

START_TEST(shuffles_like_the_definition)
{
    static uint8_t in[1003], out[1003], back[1003];
    for (size_t size = 0; size <= sizeof in; size = size < 300 ? size + 1 : size + 37)
        for (int strategy = TBF_SHUFFLE4; strategy <= TBF_SHUFFLE8; strategy++) {
            size_t width = strategy == TBF_SHUFFLE4 ? 4 : 8, n = size / width;
            sample_fill(in, size, size);
            tbf_shuffle(out, in, size, (enum tbf_strategy)strategy);
            for (size_t i = 0; i < n; i++)
                for (size_t b = 0; b < width; b++) ck_assert_uint_eq(out[b * n + i], in[i * width + b]);
            for (size_t i = n * width; i < size; i++) ck_assert_uint_eq(out[i], in[i]);
            tbf_unshuffle(back, out, size, (enum tbf_strategy)strategy);
            ck_assert(memcmp(in, back, size) == 0);
        }
}
END_TEST

static void check_by_index(const char *path, const size_t *size, size_t n)
{
    struct tabft_failure f = {0};
    struct tbf_reader *r;
    struct tbf_codec *c;
    MUST(tbf_codec_open(&c, 0, &f));
    MUST(tbf_reader_open(&r, path, &f));
    ck_assert_uint_eq(tbf_reader_count(r), n);
    for (size_t k = 0; k < n; k++) {
        size_t i = n - 1 - k; /* any order */
        struct tbf_record record;
        void *data;
        MUST(tbf_reader_get(r, c, i, &record, &data, &f));
        sample_check(&record, i, size[i]);
        const struct tbf_entry *e = tbf_reader_entry(r, i);
        ck_assert(e->type == record.type && e->tag[0] == i && e->raw_size == size[i] + TBF_RECORD_HEADER &&
                  e->version == 1);
        free(data);
    }
    struct tbf_record record;
    void *data;
    MUST_FAIL(tbf_reader_get(r, c, n, &record, &data, &f), TABFT_USE, "member");
    MUST(tbf_reader_unchanged(r, &f));
    tbf_reader_close(r);
    tbf_codec_close(c);
}

static void check_as_stream(const char *path, const size_t *size, size_t n)
{
    struct tabft_failure f = {0};
    struct tbf_stream *s;
    struct tbf_record record;
    void *data;
    bool end;
    MUST(tbf_stream_open(&s, path, &f));
    for (size_t i = 0; i < n; i++) {
        MUST(tbf_stream_get(s, &record, &data, &end, &f));
        ck_assert(!end);
        sample_check(&record, i, size[i]);
        free(data);
    }
    for (int again = 0; again < 2; again++) {
        MUST(tbf_stream_get(s, &record, &data, &end, &f));
        ck_assert(end && data == NULL);
    }
    struct tbf_reader *r;
    MUST(tbf_reader_open(&r, path, &f));
    ck_assert(memcmp(tbf_reader_digest(r), tbf_stream_digest(s), 32) == 0);
    ck_assert(memcmp(tbf_reader_file_id(r), tbf_stream_file_id(s), 16) == 0);
    tbf_reader_close(r);
    tbf_stream_close(s);
}

static void check_everything(const char *path, const size_t *size, size_t n)
{
    struct tabft_failure f = {0};
    struct threads *pool;
    check_by_index(path, size, n);
    check_as_stream(path, size, n);
    MUST(tbf_verify(path, NULL, &f));
    MUST(threads_open(&pool, 3, &f));
    MUST(tbf_verify(path, pool, &f));
    threads_close(pool);
    char command[9000];
    (void)snprintf(command, sizeof command, "gzip -t < '%s' && test \"`zcat < '%s' | head -c 3`\" = TBF", path, path);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(round_trips)
{
    enter_folder();
    for (int level = 0; level <= 12; level += 3) {
        sample_write("a.tbf", small_sizes, SMALL, 7, level);
        check_everything("a.tbf", small_sizes, SMALL);
    }
    sample_write("none.tbf", NULL, 0, 7, 6); /* no member but the index */
    check_everything("none.tbf", NULL, 0);
    leave_folder();
}
END_TEST

START_TEST(round_trips_at_the_limit)
{
    static const size_t sizes[] = {TBF_PAYLOAD_MAX, TBF_PAYLOAD_MAX - 1, TBF_PAYLOAD_MAX - 3};
    enter_folder();
    for (int level = 0; level <= 1; level++) {
        sample_write("big.tbf", sizes, 3, 7, level);
        check_everything("big.tbf", sizes, 3);
    }
    leave_folder();
}
END_TEST

/* ---- planes ---- */

enum { ITEMS = 40000, PLANES = 6 };
/* Bytes of a plane by kind: even ones, few different, one, a rising count, rarer and rarer ones (whose code would be longer
 * than deflate's may be), a piece that comes again. */
static uint8_t plane_byte(size_t kind, size_t i, uint64_t random)
{
    switch (kind) {
    case 0: return (uint8_t)random;
    case 1: return (uint8_t)(random % 60);
    case 2: return 7;
    case 3: return (uint8_t)(i >> 8);
    case 4: return (uint8_t)__builtin_ctzll(random | UINT64_C(1) << 40);
    default: return (uint8_t)(i % 3000 * 40503 >> 4);
    }
}

static size_t check_planes(struct tbf_codec *c, const size_t *kind, size_t width)
{
    static uint8_t items[ITEMS * 8 + 3];
    struct tabft_failure f = {0};
    struct tbf_member m;
    struct tbf_record back, record = {.type = 1, .version = 1, .data = items, .size = ITEMS * width + 3,
                                      .strategy = width == 4 ? TBF_SHUFFLE4 : TBF_SHUFFLE8};
    struct tbf_head head;
    const char *reason;
    void *data;
    uint64_t state = 5;
    for (size_t i = 0; i < ITEMS; i++)
        for (size_t b = 0; b < width; b++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            items[i * width + b] = plane_byte(kind[b], i, state >> 20);
        }
    MUST(tbf_member_pack(&m, c, (const uint8_t *)"0123456789abcdef", 0, &record, &f));
    ck_assert(tbf_head_read(m.bytes, &head, &reason));
    MUST(tbf_member_unpack(&(struct tbf_place){"x", 0, 0}, &head, (uint8_t *)m.bytes + TBF_HEAD_SIZE, c, NULL, NULL, &back,
                           &data, &f));
    ck_assert(back.size == record.size && memcmp(back.data, items, record.size) == 0);
    free(data);
    put_bytes("planes.gz", m.bytes, m.size); /* another inflater */
    ck_assert_int_eq(system("gzip -t < planes.gz"), 0);
    size_t size = m.size;
    tbf_member_free(&m);
    return size;
}

START_TEST(planes_of_every_kind_come_back)
{
    struct tabft_failure f = {0};
    struct tbf_codec *c;
    enter_folder();
    MUST(tbf_codec_open(&c, 1, &f));
    for (size_t a = 0; a < PLANES; a++)
        for (size_t b = 0; b < PLANES; b++) (void)check_planes(c, (const size_t[]){a, b, b, a}, 4);
    (void)check_planes(c, (const size_t[]){0, 1, 2, 3, 4, 5, 0, 1}, 8);
    (void)check_planes(c, (const size_t[]){4, 0, 1, 0, 0, 1, 4, 2}, 8);
    /* Each kind takes what it must: 8 bits, log2(60), about none, about none, 2 bits, about none. */
    static const double bits[PLANES] = {8, 5.95, 0.1, 0.1, 2.05, 0.7};
    for (size_t k = 0; k < PLANES; k++) {
        double size = (double)check_planes(c, (const size_t[]){k, k, k, k}, 4);
        ck_assert_msg(size < 4 * ITEMS * bits[k] / 8 + 1000, "planes of kind %zu take %g bytes", k, size);
    }
    tbf_codec_close(c);
    leave_folder();
}
END_TEST

START_TEST(incompressible_is_stored)
{
    struct tabft_failure f = {0};
    struct tbf_codec *c;
    struct tbf_member m;
    static uint8_t data[200000];
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
    struct tbf_record record = {.type = 1, .data = data, .size = sizeof data};
    MUST(tbf_codec_open(&c, 1, &f));
    MUST(tbf_member_pack(&m, c, (const uint8_t *)"0123456789abcdef", 0, &record, &f));
    ck_assert_uint_le(m.size, TBF_HEAD_SIZE + (size_t)tbf_stored_size(m.raw_size) + TBF_TAIL_SIZE);
    tbf_member_free(&m);
    tbf_codec_close(c);
}
END_TEST

START_TEST(wrong_use_is_refused)
{
    struct tabft_failure f = {0};
    struct tbf_codec *c;
    struct tbf_writer *w;
    struct tbf_member m = {0};
    uint8_t id[16] = {0};
    enter_folder();
    MUST_FAIL(tbf_codec_open(&c, 13, &f), TABFT_USE, "compression level 13");
    MUST_FAIL(tbf_codec_open(&c, -1, &f), TABFT_USE, "compression level -1");
    MUST(tbf_codec_open(&c, 6, &f));
    MUST_FAIL(tbf_member_pack(&m, c, id, 0, &(struct tbf_record){.type = 0}, &f), TABFT_USE, "record type 0");
    MUST_FAIL(tbf_member_pack(&m, c, id, 0, &(struct tbf_record){.type = 300}, &f), TABFT_USE, "record type 300");
    MUST_FAIL(
        tbf_member_pack(&m, c, id, 0, &(struct tbf_record){.type = 1, .data = id, .size = TBF_PAYLOAD_MAX + 1}, &f),
        TABFT_USE, "at most");
    MUST_FAIL(tbf_member_pack(&m, c, id, 0, &(struct tbf_record){.type = 1, .strategy = (enum tbf_strategy)3}, &f),
              TABFT_USE, "strategy 3");
    MUST(tbf_writer_open(&w, "a.tbf", false, id, &f));
    MUST(tbf_member_pack(&m, c, id, 1, &(struct tbf_record){.type = 1}, &f));
    MUST_FAIL(tbf_writer_append(w, &m, &f), TABFT_USE, "member 1 is appended where 0 is due");
    tbf_member_free(&m);
    tbf_writer_abandon(w);
    ck_assert_int_eq(access("a.tbf", F_OK), -1);
    MUST(tbf_writer_open(&w, "a.tbf", false, NULL, &f));
    MUST(tbf_writer_close(w, &f));
    MUST_FAIL(tbf_writer_open(&w, "a.tbf", false, NULL, &f), TABFT_USE, "a.tbf: exists already");
    tbf_codec_close(c);
    tbf_codec_close(NULL);
    leave_folder();
}
END_TEST

struct pack_job {
    struct tbf_codec *codec[4];
    struct tbf_member member[40];
    uint8_t id[16];
    struct tabft_failure failure[4];
};

static void pack_one(void *context, size_t i, int thread)
{
    struct pack_job *job = context;
    uint8_t data[5000];
    sample_fill(data, sizeof data, i);
    struct tbf_record record = {.type = (uint32_t)(1 + i % 5),
                                .version = 1,
                                .tag = {(uint32_t)i, (uint32_t)(i * i)},
                                .data = data,
                                .size = sizeof data,
                                .strategy = (enum tbf_strategy)(i % 3)};
    if (tbf_member_pack(&job->member[i], job->codec[thread], job->id, i, &record, &job->failure[thread]) < 0) abort();
}

START_TEST(threads_do_not_show)
{
    struct tabft_failure f = {0};
    size_t sizes[40], n[3];
    void *bytes[3];
    enter_folder();
    for (size_t i = 0; i < 40; i++) sizes[i] = 5000;
    for (int threads = 1; threads <= 4; threads += 3) {
        struct pack_job job = {.id = {9, 9, 9}};
        struct threads *pool;
        struct tbf_writer *w;
        const char *path = threads == 1 ? "one.tbf" : "four.tbf";
        MUST(threads_open(&pool, threads, &f));
        for (int i = 0; i < threads; i++) MUST(tbf_codec_open(&job.codec[i], 6, &f));
        threads_run(pool, 40, pack_one, &job);
        MUST(tbf_writer_open(&w, path, false, job.id, &f));
        for (size_t i = 0; i < 40; i++) {
            ck_assert_uint_eq(tbf_writer_count(w), i);
            MUST(tbf_writer_append(w, &job.member[i], &f));
            tbf_member_free(&job.member[i]);
        }
        ck_assert(memcmp(tbf_writer_file_id(w), job.id, 16) == 0);
        MUST(tbf_writer_close(w, &f));
        for (int i = 0; i < threads; i++) tbf_codec_close(job.codec[i]);
        threads_close(pool);
        check_everything(path, sizes, 40);
    }
    MUST(file_read_all("one.tbf", 1 << 24, &bytes[0], &n[0], &f));
    MUST(file_read_all("four.tbf", 1 << 24, &bytes[1], &n[1], &f));
    ck_assert(n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0);
    free(bytes[0]);
    free(bytes[1]);
    leave_folder();
}
END_TEST

/* More members than an index page lists: three pages, the last of them short. */
START_TEST(index_of_many_pages)
{
    enum { MEMBERS = 2 * TBF_PAGE_ENTRIES + 5 };
    struct tabft_failure f = {0};
    struct tbf_writer *w;
    struct tbf_codec *c;
    struct tbf_reader *r;
    enter_folder();
    MUST(tbf_codec_open(&c, 1, &f));
    MUST(tbf_writer_open(&w, "many.tbf", false, NULL, &f));
    for (uint32_t i = 0; i < MEMBERS; i++)
        MUST(tbf_writer_put(w, c, &(struct tbf_record){.type = 1, .tag = {i, 0}, .data = &i, .size = sizeof i}, &f));
    MUST(tbf_writer_close(w, &f));
    MUST(tbf_reader_open(&r, "many.tbf", &f));
    ck_assert_uint_eq(tbf_reader_count(r), MEMBERS);
    for (size_t i = 0; i < MEMBERS; i += 4097) {
        struct tbf_record record;
        void *data;
        uint32_t value;
        MUST(tbf_reader_get(r, c, i, &record, &data, &f));
        memcpy(&value, record.data, sizeof value);
        ck_assert(value == i && record.tag[0] == i && record.size == sizeof value);
        free(data);
    }
    tbf_reader_close(r);
    tbf_codec_close(c);
    MUST(tbf_verify("many.tbf", NULL, &f));
    MUST(read_as_stream("many.tbf", &f));
    void *bytes;
    size_t n;
    MUST(file_read_all("many.tbf", 1 << 26, &bytes, &n, &f));
    size_t index = n - (size_t)(tbf_page_size(MEMBERS, 0) + tbf_page_size(MEMBERS, 1) + tbf_page_size(MEMBERS, 2));
    static const size_t places[] = {40, 100, 164, 1000, 2000000};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) { /* damage in the first page */
        ((uint8_t *)bytes)[index + places[i]] ^= 1;
        put_bytes("bad.tbf", bytes, n);
        ((uint8_t *)bytes)[index + places[i]] ^= 1;
        all_refuse("bad.tbf", "damaged first page");
    }
    free(bytes);
    leave_folder();
}
END_TEST

START_TEST(changed_file_is_seen)
{
    struct tabft_failure f = {0};
    struct tbf_reader *r;
    enter_folder();
    sample_write("a.tbf", small_sizes, 5, 7, 6);
    MUST(tbf_reader_open(&r, "a.tbf", &f));
    sample_write("a.tbf", small_sizes, 6, 7, 6);
    MUST_FAIL(tbf_reader_unchanged(r, &f), TABFT_INPUT, "a.tbf: changed while it was read");
    tbf_reader_close(r);
    leave_folder();
}
END_TEST

/* The bytes of a fixed file: the container's version 1 for ever. */
START_TEST(golden_file)
{
    struct tabft_failure f = {0};
    static const size_t sizes[] = {100, 0, 33};
    void *made, *kept;
    size_t n_made, n_kept;
    check_everything(unit_data("tbf/golden-1.tbf"), sizes, 3);
    enter_folder();
    sample_write("a.tbf", sizes, 3, 0x42, 0);
    MUST(file_read_all("a.tbf", 1 << 20, &made, &n_made, &f));
    MUST(file_read_all(unit_data("tbf/golden-1.tbf"), 1 << 20, &kept, &n_kept, &f));
    ck_assert(n_made == n_kept && memcmp(made, kept, n_made) == 0);
    free(made);
    free(kept);
    leave_folder();
}
END_TEST

UNIT_MAIN("tbf", shuffles_like_the_definition, round_trips, round_trips_at_the_limit, planes_of_every_kind_come_back,
          incompressible_is_stored, wrong_use_is_refused, threads_do_not_show, index_of_many_pages, changed_file_is_seen, golden_file)
