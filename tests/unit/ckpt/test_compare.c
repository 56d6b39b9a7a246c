/* lib/ckpt: comparing files, and the checksums recorded beside them. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/compare.h"
#include "file/file.h"
#include "unit.h"

static struct tabft_failure f;

/* A file of up to two tensors: "w" [2][2] and, where `extra` is not NULL, one more scalar of that name. */
static struct ckpt *make(const char *path, const float w[4], const char *extra, const char *meta)
{
    static const float one = 1;
    const struct ckpt_tensor t[2] = {
        {.name = "w", .dtype = CKPT_F32, .rank = 2, .shape = {2, 2}, .count = 4, .data = w},
        {.name = extra, .dtype = CKPT_F32, .count = 1, .data = &one}};
    const char *const metadata[2][2] = {{"a", "1"}, {"b", meta}};
    struct ckpt *c;
    MUST(ckpt_write(path, true, t, extra != NULL ? 2 : 1, metadata, 2, &f));
    MUST(ckpt_open(&c, path, &f));
    ck_assert_int_eq(unlink(path), 0);
    return c;
}

static void compare(struct ckpt *a, struct ckpt *b, struct ckpt_comparison *out) { MUST(ckpt_compare(a, b, out, &f)); }

START_TEST(values)
{
    const float base[4] = {1, -2, 3, 0}, moved[4] = {1, -2.5f, 3.25f, 0}, zero[4] = {1, -2, 3, -0.0f},
                bad[4] = {1, NAN, 9, 0};
    struct ckpt *a = make("c.safetensors", base, NULL, "x"), *b = make("c.safetensors", moved, NULL, "x");
    struct ckpt *z = make("c.safetensors", zero, NULL, "x"), *n = make("c.safetensors", bad, NULL, "x");
    struct ckpt *m = make("c.safetensors", base, NULL, "y");
    struct ckpt_comparison d;
    compare(a, a, &d);
    ck_assert(d.identical && d.comparable && d.same_metadata && d.n == 1 && d.n_different == 0 && d.max_abs == 0);
    ckpt_comparison_clear(&d);
    compare(a, b, &d);
    ck_assert(!d.identical && d.comparable && d.n_different == 1 && d.tensor[0].kind == CKPT_VALUES);
    ck_assert(d.max_abs == 0.5 && d.tensor[0].worst == 1 && d.tensor[0].n_different == 2);
    ckpt_comparison_clear(&d);
    compare(a, z, &d); /* another bit, the same number */
    ck_assert(!d.identical && d.max_abs == 0 && d.tensor[0].n_different == 1);
    ckpt_comparison_clear(&d);
    compare(n, n, &d);
    ck_assert(d.identical && d.max_abs == 0);
    ckpt_comparison_clear(&d);
    compare(a, n, &d); /* NaN wins over the 6 after it */
    ck_assert(!d.identical && isnan(d.max_abs) && d.tensor[0].worst == 1 && d.tensor[0].n_different == 2);
    ckpt_comparison_clear(&d);
    compare(a, m, &d);
    ck_assert(!d.identical && !d.same_metadata && d.n_different == 0);
    ckpt_comparison_clear(&d);
    ckpt_close(a);
    ckpt_close(b);
    ckpt_close(z);
    ckpt_close(n);
    ckpt_close(m);
}
END_TEST

START_TEST(names_and_forms)
{
    static const float base[4] = {1, -2, 3, 0};
    const struct ckpt_tensor flat = {.name = "w", .dtype = CKPT_F32, .rank = 1, .shape = {4}, .count = 4, .data = base};
    struct ckpt *a = make("c.safetensors", base, "v", "x"), *b = make("c.safetensors", base, "z", "x"), *c;
    struct ckpt_comparison d;
    compare(a, b, &d);
    ck_assert(!d.comparable && !d.identical && d.n == 3 && d.n_different == 2);
    ck_assert(d.tensor[0].kind == CKPT_ONLY_IN_A && d.tensor[1].kind == CKPT_SAME &&
              d.tensor[2].kind == CKPT_ONLY_IN_B);
    ck_assert_str_eq(d.tensor[0].a->name, "v");
    ck_assert_ptr_null(d.tensor[0].b);
    ckpt_comparison_clear(&d);
    MUST(ckpt_write("c.safetensors", true, &flat, 1, NULL, 0, &f));
    MUST(ckpt_open(&c, "c.safetensors", &f));
    ck_assert_int_eq(unlink("c.safetensors"), 0);
    compare(a, c, &d);
    ck_assert(!d.comparable && d.n == 2 && d.tensor[1].kind == CKPT_FORM && !d.same_metadata);
    ckpt_comparison_clear(&d);
    ckpt_close(a);
    ckpt_close(b);
    ckpt_close(c);
}
END_TEST

static void put(const char *path, const char *text) { MUST(file_write_all(path, true, text, strlen(text), &f)); }

START_TEST(recorded_digests)
{
    static const float base[4] = {1, -2, 3, 0};
    const struct ckpt_tensor t = {.name = "w", .dtype = CKPT_F32, .rank = 1, .shape = {4}, .count = 4, .data = base};
    const char *where;
    char digest[65], line[256];
    struct ckpt *c;
    ck_assert_int_eq(mkdir("run", 0777), 0);
    MUST(ckpt_write("run/model.safetensors", false, &t, 1, NULL, 0, &f));
    MUST(ckpt_open(&c, "run/model.safetensors", &f));
    MUST(ckpt_check_digest(c, &where, &f));
    ck_assert_ptr_null(where);
    ckpt_digest(c, digest);

    (void)snprintf(line, sizeof line, "{\"schema\": 1, \"model_sha256\": \"%s\"}", digest);
    put("run/run.json", line);
    MUST(ckpt_check_digest(c, &where, &f));
    ck_assert_str_eq(where, "run.json");
    put("run/run.json", "{\"schema\": 1}");
    MUST_FAIL(ckpt_check_digest(c, &where, &f), TABFT_INPUT, "no \"model_sha256\"");
    put("run/run.json", "{\"model_sha256\": \"00\"}");
    MUST_FAIL(ckpt_check_digest(c, &where, &f), TABFT_INPUT, "damaged or replaced");

    (void)snprintf(line, sizeof line, "%064d  other\n%s *model.safetensors\n", 0, digest);
    put("run/model.safetensors.sha256", line); /* goes before run.json */
    MUST(ckpt_check_digest(c, &where, &f));
    ck_assert_str_eq(where, "PATH.sha256");
    (void)snprintf(line, sizeof line, "%064d  model.safetensors\n", 0);
    put("run/model.safetensors.sha256", line);
    MUST_FAIL(ckpt_check_digest(c, &where, &f), TABFT_INPUT, "damaged or replaced");
    put("run/model.safetensors.sha256", "");
    MUST_FAIL(ckpt_check_digest(c, &where, &f), TABFT_INPUT, "no line for model.safetensors");
    ckpt_close(c);
    ck_assert_int_eq(unlink("run/model.safetensors.sha256"), 0);
    ck_assert_int_eq(unlink("run/run.json"), 0);
    ck_assert_int_eq(unlink("run/model.safetensors"), 0);
    ck_assert_int_eq(rmdir("run"), 0);
}
END_TEST

UNIT_MAIN("comparing checkpoints", values, names_and_forms, recorded_digests)
