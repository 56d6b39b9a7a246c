/* Headers that lie (R29): each is refused with its own reason, within a second and 64 MiB beyond the file; and no
 * single flipped bit of a file passes unseen. */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "unit.h"

static struct tabft_failure f;

static void write_file(const char *path, uint64_t announced, const void *header, size_t size, size_t data)
{
    static const char zeros[256];
    (void)unlink(path); /* a file cut to nothing and written again is flushed by some file systems: slow */
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(&announced, 1, 8, file), 8);
    ck_assert_uint_eq(fwrite(header, 1, size, file), size);
    ck_assert_uint_eq(fwrite(zeros, 1, data, file), data);
    ck_assert_int_eq(fclose(file), 0);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long peak_kib(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* The file is refused for `reason`, in time and memory. */
static void refuse(const char *path, size_t file_size, const char *reason)
{
    struct ckpt *c = NULL;
    double start = now();
    long before = peak_kib();
    int code = ckpt_open(&c, path, &f);
    ck_assert_msg(code == TABFT_INPUT, "%s: accepted or another code: %d %s", reason, code, f.message);
    ck_assert_msg(strstr(f.message, reason) != NULL && strstr(f.message, path) != NULL, "\"%s\" has no \"%s\"",
                  f.message, reason);
#if !defined(__SANITIZE_ADDRESS__)
    ck_assert_msg(now() - start < 1, "%s: %.2f s", reason, now() - start);
    ck_assert_msg(peak_kib() - before < 65536 + (long)(file_size >> 10), "%s: %ld KiB", reason, peak_kib() - before);
#else
    (void)start, (void)before, (void)file_size;
#endif
    f = (struct tabft_failure){0};
}

/* One header of `size` bytes with `data` bytes after it. */
static void lie_bytes(const char *header, size_t size, size_t data, const char *reason)
{
    write_file("lie.safetensors", size, header, size, data);
    refuse("lie.safetensors", size, reason);
    ck_assert_int_eq(unlink("lie.safetensors"), 0);
}

static void lie(const char *header, size_t data, const char *reason)
{
    lie_bytes(header, strlen(header), data, reason);
}

#define T(rest) "{\"t\":{" rest "}}"
#define F32(shape, offsets) "{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

START_TEST(sizes_and_offsets)
{
    lie("{\"t\":" F32("4", "0,12") "}", 12, "take 16 bytes, data_offsets give 12");
    lie("{\"t\":" F32("2,9223372036854775808", "0,0") "}", 0, "more than 2^64 bytes");
    lie("{\"t\":" F32("9223372036854775808", "0,0") "}", 0, "more than 2^64 bytes");
    lie("{\"t\":" F32("4611686018427387904,4", "0,0") "}", 0, "more than 2^64 bytes");
    lie("{\"t\":" F32("18446744073709551616", "0,4") "}", 4, "beyond 2^64");
    lie("{\"t\":" F32("1", "4,8") "}", 8, "hole");
    lie("{\"a\":" F32("1", "0,4") ",\"b\":" F32("1", "8,12") "}", 12, "hole");
    lie("{\"a\":" F32("2", "0,8") ",\"b\":" F32("2", "4,12") "}", 12, "overlaps");
    lie("{\"a\":" F32("2", "0,8") ",\"b\":" F32("2", "0,8") "}", 8, "overlaps");
    lie("{\"t\":" F32("1", "4,0") "}", 4, "backwards");
    lie("{\"t\":" F32("1", "-4,0") "}", 4, "negative");
    lie("{\"t\":" F32("-1", "0,4") "}", 4, "negative");
    lie("{\"t\":" F32("1", "0,4.0") "}", 4, "not whole");
    lie("{\"t\":" F32("1e0", "0,4") "}", 4, "not whole");
    lie("{\"t\":" F32("01", "0,4") "}", 4, "leading zero");
    lie("{\"t\":" F32("1", "18446744073709551612,18446744073709551616") "}", 4, "beyond 2^64");
    lie("{\"t\":" F32("1", "18446744073709551608,18446744073709551612") "}", 4, "hole");
    lie("{\"t\":" F32("4611686018427387903", "0,18446744073709551612") "}", 4, "2^64");
    lie("{\"t\":" F32("1099511627776", "0,4398046511104") "}", 4, "cut short in its data");
    lie("{\"t\":" F32("1", "0,4") "}", 5, "appended");
    lie("{\"t\":" F32("1,1,1,1,1,1,1,1,1", "0,4") "}", 4, "more than 8 dimensions");
    lie("{\"t\":" F32("1", "0,4,8") "}", 4, "']' is expected");
    lie("{\"t\":" F32("1", "0") "}", 4, "',' is expected");
    lie("{}", 3, "appended");
}
END_TEST

START_TEST(names_and_keys)
{
    lie("{\"t\":" F32("1", "0,4") ",\"t\":" F32("1", "4,8") "}", 8, "t is there twice");
    lie("{\"t\":" F32("1", "0,4") ",\"\\u0074\":" F32("1", "4,8") "}", 8, "t is there twice");
    lie("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "\"k\" is there twice");
    lie("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ twice");
    lie("{\"__metadata__\":{\"k\":1}}", 0, "not a string");
    lie("{\"__metadata__\":{\"k\":{\"a\":\"b\"}}}", 0, "not a string");
    lie(T("\"dtype\":\"F32\",\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,4]"), 4, "dtype twice");
    lie(T("\"dtype\":\"F32\",\"shape\":[]"), 4, "no data_offsets");
    lie(T("\"dtype\":\"F33\",\"shape\":[],\"data_offsets\":[0,4]"), 4, "unknown dtype \"F33\"");
    lie(T("\"dtype\":7,\"shape\":[],\"data_offsets\":[0,4]"), 4, "'\"' is expected");
    lie(T("\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"code\":\"x\""), 4, "key \"code\"");
}
END_TEST

START_TEST(text_that_is_not_json)
{
    lie("", 0, "no '{'");
    lie(" {}", 0, "no '{'");
    lie("[]", 0, "no '{'");
    lie("{\"t\"", 0, "':' is expected");
    lie("{\"t", 0, "ends within a string");
    lie("{\"t\\", 0, "escape");
    lie("{\"t\\u12", 0, "hex digits");
    lie("{\"t\":null}", 0, "'{' is expected");
    lie("{\"t\":" F32("1", "0,4") ",}", 4, "'\"' is expected");
    lie("{\"t\":" F32("1,", "0,4") "}", 4, "no number");
    lie("{}{}", 0, "after the closing brace");
    lie("{\"a\\x\":" F32("1", "0,4") "}", 4, "escape");
    lie("{\"a\tb\":" F32("1", "0,4") "}", 4, "control character");
    lie("{\"a\\u0000\":" F32("1", "0,4") "}", 4, "u0000");
    lie("{\"\\ud800\":" F32("1", "0,4") "}", 4, "surrogate");
    lie("{\"\\udc00\\ud800\":" F32("1", "0,4") "}", 4, "surrogate");
    lie("{\"\xff\":" F32("1", "0,4") "}", 4, "UTF-8");
    lie("{\"\xc0\xaf\":" F32("1", "0,4") "}", 4, "UTF-8");
    lie("{\"\xed\xa0\x80\":" F32("1", "0,4") "}", 4, "UTF-8");
    lie("{\"\xf4\x90\x80\x80\":" F32("1", "0,4") "}", 4, "UTF-8");
    lie("{\"\xe2\x82\"", 0, "UTF-8");
    lie_bytes("{\0}", 3, 0, "is expected");
}
END_TEST

START_TEST(prefixes)
{
    write_file("lie.safetensors", 100000001, "{}", 2, 0);
    refuse("lie.safetensors", 10, "more than 100000000");
    write_file("lie.safetensors", UINT64_MAX, "{}", 2, 0);
    refuse("lie.safetensors", 10, "18446744073709551615");
    write_file("lie.safetensors", 3, "{}", 2, 0);
    refuse("lie.safetensors", 10, "10 bytes found, at least 11 needed");
    write_file("lie.safetensors", 0, "", 0, 0);
    refuse("lie.safetensors", 8, "no '{'");
    ck_assert_int_eq(unlink("lie.safetensors"), 0);
}
END_TEST

/* Headers of the largest size allowed, made to cost time or memory. */
static void bomb(const char *start, const char *repeated, const char *reason)
{
    char *text;
    const size_t size = CKPT_HEADER_MAX, length = strlen(repeated);
    MUST(memory_new(&text, size, 1, "a bomb", &f));
    memcpy(text, start, strlen(start));
    for (size_t at = strlen(start); at < size; at++) text[at] = repeated[(at - strlen(start)) % length];
    lie_bytes(text, size, 0, reason);
    free(text);
}

START_TEST(bombs)
{
    bomb("{\"t\":", "[", "'{' is expected");
    bomb("{\"__metadata__\":", "{\"a\":", "not a string");
    bomb("{\"", "a", "ends within a string");
    bomb("{\"", "\\n", "ends within a string");
    bomb("{\"__metadata__\":{\"\":\"\"", ",\"\":\"\"", "more than 10000 metadata entries");
    bomb("{\"t\":" F32("1", "0,4"), ",\"t\":" F32("1", "0,4"), "more than 100000 tensors");
    bomb("{", " ", "ends where");
    bomb("{\"t\":{\"shape\":[1", ",1", "more than 8 dimensions");
    bomb("{\"t\":{\"shape\":[1", "1", "beyond 2^64");
}
END_TEST

/* Cut at every length: refused. One bit flipped anywhere: refused, or at least another digest. */
START_TEST(cuts_and_flips)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":" F32("2", "0,8") ",\"b\":" F32("1", "8,12") "}";
    const size_t size = 8 + sizeof header - 1 + 12;
    unsigned char bytes[512];
    char original[65], digest[65];
    struct ckpt *c = NULL;
    write_file("cut.safetensors", sizeof header - 1, header, sizeof header - 1, 12);
    MUST(ckpt_open(&c, "cut.safetensors", &f));
    ckpt_digest(c, original);
    ckpt_close(c);
    int fd = open("cut.safetensors", O_RDWR);
    ck_assert(fd >= 0 && pread(fd, bytes, sizeof bytes, 0) == (ssize_t)size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        unsigned char flipped = (unsigned char)(bytes[bit / 8] ^ 1u << bit % 8);
        ck_assert_int_eq(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
        if (ckpt_open(&c, "cut.safetensors", &f) == 0) {
            ckpt_digest(c, digest);
            ck_assert_str_ne(digest, original);
            ckpt_close(c);
        }
        f = (struct tabft_failure){0};
        ck_assert_int_eq(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    for (size_t length = size; length-- > 0;) {
        ck_assert_int_eq(ftruncate(fd, (off_t)length), 0);
        MUST_FAIL(ckpt_open(&c, "cut.safetensors", &f), TABFT_INPUT, "cut short");
    }
    (void)close(fd);
    ck_assert_int_eq(unlink("cut.safetensors"), 0);
}
END_TEST

/* Damage of all kinds, 20,000 times from a fixed seed: bytes changed, cut out, doubled, put in. What still opens must
 * hold together: every tensor can be read to its last element. */
START_TEST(random_damage)
{
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"},\"a\":" F32(
        "2,1", "0,8") ",\"b\":{\"dtype\":\"F64\",\"shape\":[],"
                      "\"data_offsets\":[8,16]},\"c\":{\"dtype\":\"U8\",\"shape\":[0,7],\"data_offsets\":[16,16]}}";
    static const char alphabet[] = "{}[]\":,\\0123456789eE-+.abFu\n \x80\xff";
    enum { HEADER = sizeof header - 1, DATA = 16 };
    uint64_t state = 12345, opened = 0;
#define DRAW(n) ((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % (n)
    for (int round = 0; round < 20000; round++) {
        char text[2 * HEADER];
        size_t size = HEADER;
        struct ckpt *c;
        memcpy(text, header, HEADER);
        for (uint64_t changes = 1 + DRAW(3); changes > 0; changes--) {
            size_t at = DRAW(size), length = DRAW(8);
            if (at + length > size) length = size - at;
            switch (DRAW(4)) {
            case 0: text[at] = alphabet[DRAW(sizeof alphabet)]; break;
            case 1: memmove(text + at, text + at + length, size - at - length), size -= length; break;
            case 2: memmove(text + at + length, text + at, size - at), size += length; break;
            default: text[at] = (char)(text[at] ^ 1 << DRAW(8)); break;
            }
            if (size == 0) size = 1;
        }
        write_file("damage.safetensors", size + (DRAW(8) == 0 ? DRAW(9) : 0), text, size, DATA);
        if (ckpt_open(&c, "damage.safetensors", &f) == 0) {
            for (size_t i = 0; i < ckpt_count(c); i++)
                for (uint64_t k = 0; k < ckpt_at(c, i)->count; k++) (void)ckpt_value(ckpt_at(c, i), k);
            ckpt_close(c);
            opened++;
        }
        f = (struct tabft_failure){0};
    }
    ck_assert(opened > 100 && opened < 10000); /* names may change; most damage is refused */
    ck_assert_int_eq(unlink("damage.safetensors"), 0);
}
END_TEST

UNIT_MAIN("safetensors attacks", sizes_and_offsets, names_and_keys, text_that_is_not_json, prefixes, bombs,
          cuts_and_flips, random_damage)
