/* What a reader of the container must refuse: flipped bits, cuts, members moved about, and lies whose CRCs are right.
 */
#include <check.h>
#include <libdeflate.h>
#include <string.h>
#include <time.h>

#include "sample.h"
#include "tbf/tbf_internal.h"

/* About 3 KB: some members compressed, some stored, one empty. */
static const size_t sizes[] = {500, 0, 900, 31, 1500, 256, 8};
enum { MEMBERS = sizeof sizes / sizeof *sizes, ALL = MEMBERS + 1 };

struct image { /* a file in memory, cut into its members, the index last */
    uint8_t *bytes;
    size_t size, start[ALL + 1];
};

static struct image load_image(const char *path)
{
    struct tabft_failure f = {0};
    struct image image = {0};
    struct tbf_reader *r;
    void *bytes;
    MUST(file_read_all(path, 1 << 20, &bytes, &image.size, &f));
    image.bytes = bytes;
    MUST(tbf_reader_open(&r, path, &f));
    ck_assert_uint_eq(tbf_reader_count(r), MEMBERS);
    for (size_t i = 0; i < MEMBERS; i++) image.start[i] = tbf_reader_entry(r, i)->offset;
    image.start[MEMBERS] = image.start[MEMBERS - 1] + tbf_reader_entry(r, MEMBERS - 1)->packed_size;
    image.start[ALL] = image.size;
    tbf_reader_close(r);
    return image;
}

START_TEST(every_flipped_bit_is_refused) /* R1 */
{
    enter_folder();
    sample_write("a.tbf", sizes, MEMBERS, 7, 6);
    struct image image = load_image("a.tbf");
    ck_assert_uint_ge(image.size, 2500);
    for (size_t bit = 0; bit < image.size * 8; bit++) {
        char what[32];
        image.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int fd = open("b.tbf", O_WRONLY | O_CREAT, 0666);
        ck_assert_int_eq(write(fd, image.bytes, image.size), (ssize_t)image.size);
        close(fd);
        image.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        (void)snprintf(what, sizeof what, "bit %zu", bit);
        all_refuse("b.tbf", what);
    }
    free(image.bytes);
    leave_folder();
}
END_TEST

START_TEST(every_cut_is_refused) /* R3 */
{
    enter_folder();
    sample_write("a.tbf", sizes, MEMBERS, 7, 6);
    struct image image = load_image("a.tbf");
    for (size_t n = 0; n < image.size; n++) {
        struct tabft_failure f = {0};
        char what[32], found[32];
        put_bytes("b.tbf", image.bytes, n);
        (void)snprintf(what, sizeof what, "cut at %zu", n);
        (void)snprintf(found, sizeof found, "%zu bytes", n);
        all_refuse("b.tbf", what);
        for (int way = 0; way < 2; way++) {
            int error = way == 0 ? read_by_index("b.tbf", &f) : read_as_stream("b.tbf", &f);
            ck_assert_int_eq(error, TABFT_INPUT);
            ck_assert_msg(strstr(f.message, found) != NULL, "%s: no \"%s\" in: %s", what, found, f.message);
            ck_assert_msg(strstr(f.message, "missing") != NULL || n == 0, "%s: %s", what, f.message);
            f = (struct tabft_failure){0};
        }
    }
    free(image.bytes);
    leave_folder();
}
END_TEST

/* Writes the members named by their numbers, 100 + i taken from `other`. */
static void assemble(const char *path, const struct image *image, const struct image *other, const int *order, size_t n)
{
    uint8_t bytes[20000];
    size_t size = 0;
    for (size_t k = 0; k < n; k++) {
        const struct image *from = order[k] >= 100 ? other : image;
        size_t i = (size_t)order[k] % 100, part = from->start[i + 1] - from->start[i];
        ck_assert_uint_le(size + part, sizeof bytes);
        memcpy(bytes + size, from->bytes + from->start[i], part);
        size += part;
    }
    put_bytes(path, bytes, size);
}

START_TEST(moved_members_are_refused) /* R4 */
{
    int order[ALL + 1];
    enter_folder();
    sample_write("a.tbf", sizes, MEMBERS, 7, 6);
    sample_write("o.tbf", sizes, MEMBERS, 8, 6); /* another file id: same members */
    struct image a = load_image("a.tbf"), o = load_image("o.tbf");
    for (int i = 0; i < ALL; i++) {
        int n = 0;
        for (int k = 0; k < ALL; k++)
            if (k != i) order[n++] = k; /* dropped */
        assemble("b.tbf", &a, &o, order, (size_t)n);
        all_refuse("b.tbf", "dropped");
        n = 0;
        for (int k = 0; k < ALL; k++) { /* doubled */
            order[n++] = k;
            if (k == i) order[n++] = k;
        }
        assemble("b.tbf", &a, &o, order, (size_t)n);
        all_refuse("b.tbf", "doubled");
        for (int j = i + 1; j < ALL; j++) { /* swapped */
            for (int k = 0; k < ALL; k++) order[k] = k == i ? j : k == j ? i : k;
            assemble("b.tbf", &a, &o, order, ALL);
            all_refuse("b.tbf", "swapped");
        }
        for (int j = i; j < ALL; j++) { /* a run taken from another file */
            if (i == 0 && j == ALL - 1) continue;
            for (int k = 0; k < ALL; k++) order[k] = k >= i && k <= j ? 100 + k : k;
            assemble("b.tbf", &a, &o, order, ALL);
            all_refuse("b.tbf", "spliced");
        }
    }
    free(a.bytes);
    free(o.bytes);
    leave_folder();
}
END_TEST

START_TEST(anything_appended_is_refused) /* R4 */
{
    enter_folder();
    sample_write("a.tbf", sizes, MEMBERS, 7, 6);
    struct image a = load_image("a.tbf");
    uint8_t *bytes = calloc(a.size * 2 + 70000, 1);
    memcpy(bytes, a.bytes, a.size);
    for (size_t n = 1; n < 70000; n = n < 40 ? n + 1 : n * 3) { /* zeros, then other bytes */
        put_bytes("b.tbf", bytes, a.size + n);
        all_refuse("b.tbf", "zeros appended");
    }
    for (size_t n = 1; n < 100; n++) {
        sample_fill(bytes + a.size, n, n);
        put_bytes("b.tbf", bytes, a.size + n);
        all_refuse("b.tbf", "junk appended");
    }
    for (size_t n = 1; n <= a.size; n++) { /* cat a a, and pieces of it: the end mark of a whole file is the last */
        memcpy(bytes + a.size, a.bytes + a.size - n, n);
        put_bytes("b.tbf", bytes, a.size + n);
        all_refuse("b.tbf", "its own end appended");
    }
    static const char *const commands[] = {"gzip -c < a.tbf > b.tbf",       "printf x | gzip -c > b.tbf",
                                           "printf 'a,b\\n1,2\\n' > b.tbf", "(printf x | gzip -c; cat a.tbf) > b.tbf",
                                           "(printf x; cat a.tbf) > b.tbf", "(cat a.tbf; printf x | gzip -c) > b.tbf",
                                           "head -c 3000 /dev/zero > b.tbf"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        ck_assert_int_eq(system(commands[i]), 0);
        all_refuse("b.tbf", commands[i]);
    }
    free(bytes);
    free(a.bytes);
    leave_folder();
}
END_TEST

/* ---- R5: lies with right CRCs ---- */

/* Makes the CRCs of a stored member right again after its content was changed. */
static void repair_member(uint8_t *member)
{
    uint32_t packed = get_u32(member + 16), raw = get_u32(member + 20);
    if (packed > 30000 || raw > 30000) return;
    uint8_t content[30000];
    size_t n = 0;
    for (uint32_t at = 0; at + 5 <= packed && n + 5 < raw;) { /* stored blocks */
        size_t part = (size_t)member[TBF_HEAD_SIZE + at + 1] | (size_t)member[TBF_HEAD_SIZE + at + 2] << 8;
        if (at + 5 + part > packed || n + part > sizeof content) return;
        memcpy(content + n, member + TBF_HEAD_SIZE + at + 5, part);
        n += part;
        at += 5 + (uint32_t)part;
    }
    put_u32(member + 24, libdeflate_crc32(0, member + TBF_HEAD_SIZE, packed));
    put_u32(member + TBF_HEAD_SIZE + packed, libdeflate_crc32(0, content, n));
}

static void hash(const void *data, size_t size, uint8_t *digest)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, size, data);
    sha256_digest(&sha, TBF_DIGEST_SIZE, digest);
}

/* Digest and entry CRCs of the index made right again, so that only the lie itself can be the reason of a refusal. */
static void repair_index(struct image *image)
{
    uint8_t leaves[ALL][TBF_DIGEST_SIZE];
    uint8_t *payload = image->bytes + image->start[MEMBERS] + TBF_HEAD_SIZE + 5 + TBF_RECORD_HEADER;
    for (size_t i = 0; i < MEMBERS; i++) {
        const uint8_t *member = image->bytes + image->start[i];
        hash(member, image->start[i + 1] - image->start[i], leaves[i]);
        put_u32(payload + TBF_INDEX_HEADER + i * TBF_ENTRY_SIZE + 8, get_u32(member + 24));
    }
    hash(leaves, MEMBERS * TBF_DIGEST_SIZE, payload + 32);
}

static const uint64_t lies[] = {0,          1,          2,          3,          7,          8,
                                63,         64,         65,         127,        128,        255,
                                300,        65535,      65536,      65537,      0xffffff,   0x1000000,
                                0x1000001,  0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0x100000000,
                                1ull << 40, 1ull << 52, INT64_MAX,  1ull << 63, UINT64_MAX, UINT64_MAX - 35};
enum { LIES = sizeof lies / sizeof *lies };

/* One lie in a field of `width` bytes at `at`; `number`: the member it lies in. Those that the container has no say in
 * (a record's own version, tag or type when the index tells the same) are not tried. */
static size_t tell_lies(struct image *image, size_t number, size_t at, size_t width, bool with_index)
{
    size_t tried = 0;
    uint8_t *copy = malloc(image->size);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, image->bytes, image->size);
    for (size_t k = 0; k < LIES + 6; k++) {
        uint64_t old = width == 4 ? get_u32(image->bytes + at) : get_u64(image->bytes + at);
        uint64_t value = k < LIES ? lies[k] : k < LIES + 3 ? old + (k - LIES) + 1 : old - (k - LIES - 3) - 1;
        char what[96];
        if (width == 4) value &= 0xffffffff;
        if (value == old) continue;
        memcpy(image->bytes + at, &value, width);
        repair_member(image->bytes + image->start[number]);
        if (with_index) {
            repair_index(image);
            repair_member(image->bytes + image->start[MEMBERS]);
        }
        put_bytes("b.tbf", image->bytes, image->size);
        (void)snprintf(what, sizeof what, "member %zu, byte %zu = %llu", number, at - image->start[number],
                       (unsigned long long)value);
        all_refuse("b.tbf", what);
        memcpy(image->bytes, copy, image->size);
        tried++;
    }
    free(copy);
    return tried;
}

START_TEST(lies_with_right_crcs_are_refused) /* R5 */
{
    size_t tried = 0;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    enter_folder();
    sample_write("a.tbf", sizes, MEMBERS, 7, 0); /* stored: fields can be changed in place */
    struct image image = load_image("a.tbf");
    /* The repairs themselves change nothing. */
    uint8_t *copy = malloc(image.size);
    memcpy(copy, image.bytes, image.size);
    repair_index(&image);
    for (size_t i = 0; i < ALL; i++) repair_member(image.bytes + image.start[i]);
    ck_assert(memcmp(copy, image.bytes, image.size) == 0);
    free(copy);
    for (size_t i = 0; i < ALL; i++) {
        static const struct {
            size_t at, width;
        } record_fields[] = {{0, 4}, {24, 8}, {32, 8}, {40, 8}, {48, 8}, {56, 8}};
        for (size_t k = 0; k < sizeof record_fields / sizeof *record_fields; k++)
            tried += tell_lies(&image, i, image.start[i] + TBF_HEAD_SIZE + 5 + record_fields[k].at,
                               record_fields[k].width, i < MEMBERS);
        for (size_t at = 4; at < 24; at += 4) /* type, version, strategy, tags: the index says otherwise */
            tried += tell_lies(&image, i, image.start[i] + TBF_HEAD_SIZE + 5 + at, 4, i < MEMBERS);
        tried += tell_lies(&image, i, image.start[i] + 16, 4, i < MEMBERS); /* packed and raw size, subfield, trailer */
        tried += tell_lies(&image, i, image.start[i] + 20, 4, i < MEMBERS);
        tried += tell_lies(&image, i, image.start[i] + 12, 4, false);
        tried += tell_lies(&image, i, image.start[i + 1] - 4, 4, i < MEMBERS);
    }
    size_t index = image.start[MEMBERS] + TBF_HEAD_SIZE + 5 + TBF_RECORD_HEADER;
    for (size_t at = 0; at < 24; at += 8)
        tried += tell_lies(&image, MEMBERS, index + at, 8, false); /* members, offset, size */
    for (size_t at = 24; at < 32; at += 4) tried += tell_lies(&image, MEMBERS, index + at, 4, false); /* page, pages */
    for (size_t at = TBF_INDEX_HEADER; at < TBF_INDEX_HEADER + MEMBERS * TBF_ENTRY_SIZE; at += 4)
        tried += tell_lies(&image, MEMBERS, index + at, 4, false);
    ck_assert_uint_ge(tried, 5000);
    free(image.bytes);
    leave_folder();
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%zu lies, %ld s\n", tried, (long)(now.tv_sec - start.tv_sec));
}
END_TEST

/* The digest alone is wrong: what only reading everything can show. */
START_TEST(wrong_digest_is_refused)
{
    struct tabft_failure f = {0};
    enter_folder();
    sample_write("a.tbf", sizes, MEMBERS, 7, 0);
    struct image image = load_image("a.tbf");
    image.bytes[image.start[MEMBERS] + TBF_HEAD_SIZE + 5 + TBF_RECORD_HEADER + 32] ^= 1;
    repair_member(image.bytes + image.start[MEMBERS]);
    put_bytes("b.tbf", image.bytes, image.size);
    MUST_FAIL(tbf_verify("b.tbf", NULL, &f), TABFT_INPUT, "b.tbf: the digest of its members");
    MUST_FAIL(read_as_stream("b.tbf", &f), TABFT_INPUT, "digest in the end mark");
    free(image.bytes);
    leave_folder();
}
END_TEST

/* A member that says it has 100 bytes and inflates to more, with right CRCs: 16 MiB at most are ever made, here 100. */
START_TEST(bombs_are_refused)
{
    struct tabft_failure f = {0};
    enum { BOMB = 8 << 20 };
    enter_folder();
    uint8_t *zeros = calloc(BOMB, 1), *out = malloc(BOMB);
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(12);
    ck_assert(zeros != NULL && out != NULL && compressor != NULL);
    sample_write("a.tbf", sizes, MEMBERS, 7, 0);
    struct image image = load_image("a.tbf");
    memcpy(zeros, image.bytes + TBF_HEAD_SIZE + 5, TBF_RECORD_HEADER); /* a good record header in front */
    size_t packed = libdeflate_deflate_compress(compressor, zeros, BOMB, out + TBF_HEAD_SIZE, BOMB - TBF_HEAD_SIZE);
    ck_assert(packed > 0 && packed < 20000);
    static const uint32_t claims[] = {64, 65, 20000, BOMB - 1, BOMB + 1, TBF_RAW_MAX, TBF_RAW_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        memcpy(out, image.bytes, TBF_HEAD_SIZE);
        put_u32(out + 16, (uint32_t)packed);
        put_u32(out + 20, claims[i]);
        put_u32(out + 24, libdeflate_crc32(0, out + TBF_HEAD_SIZE, packed));
        put_u32(out + TBF_HEAD_SIZE + packed, libdeflate_crc32(0, zeros, BOMB));
        put_u32(out + TBF_HEAD_SIZE + packed + 4, claims[i]);
        put_bytes("b.tbf", out, TBF_HEAD_SIZE + packed + 8);
        all_refuse("b.tbf", "bomb");
        MUST_FAIL(read_as_stream("b.tbf", &f), TABFT_INPUT,
                  claims[i] > TBF_RAW_MAX ? "raw size out of bounds"
                  : claims[i] < 10000     ? "packed size out of bounds"
                                          : "does not inflate to");
    }
    libdeflate_free_compressor(compressor);
    free(image.bytes);
    free(zeros);
    free(out);
    leave_folder();
}
END_TEST

/* A later container says so instead of being called damaged. */
START_TEST(newer_container_is_named)
{
    struct tabft_failure f = {0};
    enter_folder();
    sample_write("a.tbf", sizes, MEMBERS, 7, 0);
    struct image image = load_image("a.tbf");
    for (size_t i = 0; i < ALL; i++) {
        image.bytes[image.start[i] + TBF_HEAD_SIZE + 5 + 3] = 2;
        repair_member(image.bytes + image.start[i]);
    }
    put_bytes("b.tbf", image.bytes, image.size);
    MUST_FAIL(read_by_index("b.tbf", &f), TABFT_INPUT,
              "container version 2, this program reads version 1; use a newer TabFT");
    MUST_FAIL(read_as_stream("b.tbf", &f), TABFT_INPUT, "container version 2");
    free(image.bytes);
    leave_folder();
}
END_TEST

UNIT_MAIN("tbf/damage", every_flipped_bit_is_refused, every_cut_is_refused, moved_members_are_refused,
          anything_appended_is_refused, lies_with_right_crcs_are_refused, wrong_digest_is_refused, bombs_are_refused,
          newer_container_is_named)
