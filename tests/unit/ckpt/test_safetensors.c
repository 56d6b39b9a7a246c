/* lib/ckpt: what a safetensors file holds comes in, goes out byte for byte, and damage is refused with the numbers. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "file/file.h"
#include "unit.h"

#define CASE12 "cases/12-truncated-and-multipart-files/"

static struct tabft_failure f;

/* Both ways to open refuse the file with the same words. */
static void refused(const char *name, const char *text, const char *more)
{
    struct ckpt *c = NULL;
    MUST_FAIL(ckpt_open_header(&c, unit_data(name), &f), TABFT_INPUT, text);
    ck_assert(ckpt_open(&c, unit_data(name), &f) == TABFT_INPUT);
    ck_assert_msg(strstr(f.message, more) != NULL && strstr(f.message, name) != NULL, "%s", f.message);
    ck_assert_ptr_null(c);
    f = (struct tabft_failure){0};
}

START_TEST(good_file)
{
    struct ckpt *c;
    MUST(ckpt_open(&c, unit_data(CASE12 "good.safetensors"), &f));
    ck_assert_uint_eq(ckpt_count(c), 2);
    ck_assert_uint_eq(ckpt_file_size(c), 192);
    ck_assert_str_eq(ckpt_at(c, 0)->name, "enc.b");
    const struct ckpt_tensor *w = ckpt_find(c, "enc.w");
    ck_assert(w == ckpt_at(c, 1) && w->rank == 2 && w->shape[0] == 4 && w->shape[1] == 3 && w->count == 12);
    for (unsigned i = 0; i < 12; i++) ck_assert_double_eq(ckpt_value(w, i), 0.5 * i);
    for (unsigned i = 0; i < 4; i++) ck_assert_double_eq(ckpt_value(ckpt_at(c, 0), i), 6 + 0.5 * i);
    ck_assert_uint_eq((uintptr_t)w->data % 64, 0);
    ck_assert_ptr_null(ckpt_find(c, "enc"));
    ckpt_close(c);

    MUST(ckpt_open_header(&c, unit_data(CASE12 "good.safetensors"), &f));
    ck_assert_ptr_null(ckpt_find(c, "enc.w")->data);
    ckpt_close(c);
    ckpt_close(NULL);
}
END_TEST

START_TEST(damaged_files)
{
    struct ckpt *c, *good;
    char digest[65], good_digest[65];
    refused(CASE12 "cut_in_data.safetensors", "172 bytes found, 192 needed", "cut short in its data");
    refused(CASE12 "cut_in_header.safetensors", "40 bytes found, at least 128 needed", "cut short in its header");
    refused(CASE12 "cut_at_5_bytes.safetensors", "5 bytes found, at least 10 needed", "cut short");
    refused(CASE12 "zero_bytes.safetensors", "0 bytes found, at least 10 needed", "cut short");
    refused(CASE12 "trailing_garbage.safetensors", "204 bytes found, 192 needed", "appended");
    MUST_FAIL(ckpt_open(&c, "none.safetensors", &f), TABFT_INPUT, "none.safetensors");
    /* Nothing in the file tells; its digest does. */
    MUST(ckpt_open(&c, unit_data(CASE12 "zero_filled_tail.safetensors"), &f));
    MUST(ckpt_open(&good, unit_data(CASE12 "good.safetensors"), &f));
    ckpt_digest(c, digest);
    ckpt_digest(good, good_digest);
    ck_assert_str_ne(digest, good_digest);
    ck_assert_str_eq(good_digest, "59d11e994e245e7e2fd75ea3829905d047255d1587ee2131b825c779986a0799");
    ckpt_close(c);
    ckpt_close(good);
}
END_TEST

START_TEST(all_dtypes)
{
    static const struct {
        const char *name;
        double last;
    } cases[] = {{"f64", -100}, {"f32", -100}, {"f16", -100}, {"bf16", -100}, {"i64", -100}, {"i32", -100},
                 {"i16", -100}, {"i8", -100},  {"u64", 100},  {"u32", 100},   {"u16", 100},  {"u8", 100}};
    static const double special[] = {0.5, 65504, 0x1p-24, INFINITY, -INFINITY, 1.0009765625};
    struct ckpt *c;
    MUST(ckpt_open(&c, unit_data("ckpt/all-dtypes.safetensors"), &f));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ckpt_tensor *t = ckpt_find(c, cases[i].name);
        ck_assert_msg(t != NULL && t->count == 5, "%s", cases[i].name);
        ck_assert_double_eq(ckpt_value(t, 1), 1);
        ck_assert_double_eq(ckpt_value(t, 4), cases[i].last);
    }
    const struct ckpt_tensor *half = ckpt_find(c, "f16.special"), *flag = ckpt_find(c, "flag");
    for (unsigned i = 0; i < 6; i++) ck_assert_double_eq(ckpt_value(half, i), special[i]);
    ck_assert(ckpt_value(flag, 0) == 1 && ckpt_value(flag, 1) == 0);
    ck_assert(ckpt_find(c, "scalar")->rank == 0 && ckpt_value(ckpt_find(c, "scalar"), 0) == 2.5);
    ck_assert(ckpt_find(c, "empty")->count == 0 && ckpt_find(c, "empty")->shape[1] == 4);
    ck_assert_ptr_nonnull(ckpt_find(c, "sp\u00e4t \"x\"\\/\t\x01\x7f\U0001F600"));
    ck_assert_str_eq(ckpt_metadata(c, "k\n\"\u00e9\\"), "v\u2028\b\f/");
    ck_assert_ptr_null(ckpt_metadata(c, "k"));
    ckpt_close(c);
}
END_TEST

/* What the safetensors library wrote comes out of ckpt_write byte for byte. */
static void rewrite(const char *path)
{
    struct ckpt *c;
    struct ckpt_tensor tensors[256];
    const char *metadata[16][2];
    char copy[] = "rewrite-XXXXXX";
    void *before, *after;
    size_t size_before, size_after;
    MUST(ckpt_open(&c, path, &f));
    ck_assert(ckpt_count(c) <= 256 && ckpt_metadata_count(c) <= 16);
    for (size_t i = 0; i < ckpt_count(c); i++) tensors[i] = *ckpt_at(c, i);
    for (size_t i = 0; i < ckpt_metadata_count(c); i++) ckpt_metadata_at(c, i, &metadata[i][0], &metadata[i][1]);
    ck_assert_int_ge(close(mkstemp(copy)), 0);
    MUST_FAIL(ckpt_write(copy, false, tensors, ckpt_count(c), metadata, ckpt_metadata_count(c), &f), TABFT_USE,
              "exist");
    MUST(ckpt_write(copy, true, tensors, ckpt_count(c), metadata, ckpt_metadata_count(c), &f));
    MUST(file_read_all(path, 1 << 24, &before, &size_before, &f));
    MUST(file_read_all(copy, 1 << 24, &after, &size_after, &f));
    ck_assert_uint_eq(size_before, size_after);
    ck_assert(memcmp(before, after, size_before) == 0);
    free(before);
    free(after);
    ckpt_close(c);
    ck_assert_int_eq(unlink(copy), 0);
}

/* A tensor's numbers go, those beside it stay. The file is larger than a few pages, so that pages go, too. */
START_TEST(forgotten_tensors)
{
    enum { COUNT = 20000 };
    static float numbers[COUNT];
    char path[] = "forget-XXXXXX";
    const struct ckpt_tensor tensors[] = {
        {.name = "a", .rank = 1, .shape = {COUNT}, .count = COUNT, .data = numbers},
        {.name = "b", .rank = 1, .shape = {3}, .count = 3, .data = numbers},
        {.name = "c", .rank = 1, .shape = {COUNT}, .count = COUNT, .data = numbers}};
    struct ckpt *c;
    char before[65], after[65];
    for (int i = 0; i < COUNT; i++) numbers[i] = (float)i + 1;
    ck_assert_int_ge(close(mkstemp(path)), 0);
    MUST(ckpt_write(path, true, tensors, 3, NULL, 0, &f));
    MUST(ckpt_open(&c, path, &f));
    ckpt_digest(c, before);
    const struct ckpt_tensor *b = ckpt_find(c, "b");
    ckpt_forget(c, b);
    ck_assert_ptr_null(b->data);
    ckpt_forget(c, b);
    for (int i = 0; i < 2; i++) {
        const struct ckpt_tensor *t = ckpt_find(c, i == 0 ? "a" : "c");
        ck_assert_mem_eq(t->data, numbers, sizeof numbers);
        ckpt_forget(c, t);
        ck_assert_ptr_null(t->data);
        ck_assert_uint_eq(t->count, COUNT);
    }
    ckpt_digest(c, after);
    ck_assert_str_eq(before, after);
    ckpt_close(c);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(round_trip)
{
    char tiny[4096];
    (void)snprintf(tiny, sizeof tiny, "%s/share/models/tiny-v2_6-classifier.safetensors", getenv("top_srcdir"));
    rewrite(tiny);
    rewrite(unit_data("ckpt/all-dtypes.safetensors"));
}
END_TEST

/* Nothing is written for what could not be read back. */
START_TEST(write_refuses)
{
    static const float one = 1;
    struct ckpt_tensor t[2] = {{.name = "a", .dtype = CKPT_F32, .rank = 1, .shape = {1}, .count = 1, .data = &one}};
    const char *const doubled[2][2] = {{"k", "1"}, {"k", "2"}}, *const latin[1][2] = {{"k", "\xe9"}};
    t[1] = t[0];
    MUST_FAIL(ckpt_write("never", false, t, 2, NULL, 0, &f), TABFT_INPUT, "a is there twice");
    MUST_FAIL(ckpt_write("never", false, t, 1, doubled, 2, &f), TABFT_INPUT, "\"k\" is there twice");
    MUST_FAIL(ckpt_write("never", false, t, 1, latin, 1, &f), TABFT_INPUT, "UTF-8");
    t[1].name = "__metadata__";
    MUST_FAIL(ckpt_write("never", false, t, 2, NULL, 0, &f), TABFT_INPUT, "__metadata__ has no sound name");
    t[0].shape[0] = 2;
    MUST_FAIL(ckpt_write("never", false, t, 1, NULL, 0, &f), TABFT_INPUT, "no sound");
    t[0].rank = 2;
    t[0].shape[0] = t[0].shape[1] = (uint64_t)1 << 63;
    MUST_FAIL(ckpt_write("never", false, t, 1, NULL, 0, &f), TABFT_INPUT, "no sound");
    ck_assert_int_ne(access("never", F_OK), 0);
}
END_TEST

UNIT_MAIN("safetensors", good_file, damaged_files, all_dtypes, forgotten_tensors, round_trip, write_refuses)
