/* lib/ckpt: what torch.save wrote comes out as TabPFN's own conversion of it. The expected files are TabPFN's. */
#include <string.h>
#include <unistd.h>

#include "ckpt/compare.h"
#include "ckpt/torch.h"
#include "unit.h"

static struct tabft_failure f;

static void converts(const char *from, const char *expected)
{
    struct ckpt *a, *b;
    struct ckpt_comparison d;
    char copy[] = "convert-XXXXXX";
    ck_assert_int_ge(close(mkstemp(copy)), 0);
    MUST_FAIL(ckpt_convert(unit_data(from), copy, false, &f), TABFT_USE, "exist");
    MUST(ckpt_convert(unit_data(from), copy, true, &f));
    MUST(ckpt_open(&a, copy, &f));
    MUST(ckpt_open(&b, unit_data(expected), &f));
    MUST(ckpt_compare(a, b, &d, &f));
    for (size_t i = 0; i < d.n; i++)
        ck_assert_msg(d.tensor[i].kind == CKPT_SAME, "%s",
                      d.tensor[i].a != NULL ? d.tensor[i].a->name : d.tensor[i].b->name);
    for (size_t i = 0; i < ckpt_metadata_count(b); i++) {
        const char *key, *value;
        ckpt_metadata_at(b, i, &key, &value);
        ck_assert_str_eq(ckpt_metadata(a, key), value);
    }
    ck_assert(d.identical);
    ckpt_comparison_clear(&d);
    ckpt_close(a);
    ckpt_close(b);
    ck_assert_int_eq(unlink(copy), 0);
}

START_TEST(networks) { converts("ckpt/v2_6_cls.ckpt", "reference/v2_6_cls.model.safetensors"); }
END_TEST

/* All element types, transposed, sliced and empty tensors, odd names and numbers. */
START_TEST(odd_ones) { converts("ckpt/odd.ckpt", "ckpt/odd.safetensors"); }
END_TEST

START_TEST(from_safetensors)
{
    converts("ckpt/odd.safetensors", "ckpt/odd.safetensors");
    converts("ckpt/all-dtypes.safetensors", "ckpt/all-dtypes.safetensors");
}
END_TEST

START_TEST(strides)
{
    struct torch_file t;
    MUST(torch_open(&t, unit_data("ckpt/odd.ckpt"), &f));
    size_t i = 0;
    while (i < t.n_tensors && strcmp(t.tensor[i].name, "transposed") != 0) i++;
    ck_assert(i < t.n_tensors && t.tensor[i].rank == 2 && t.tensor[i].shape[0] == 6 && t.tensor[i].shape[1] == 4);
    ck_assert_uint_eq((uintptr_t)t.tensor[i].data % 64, 0);
    /* The element in row r and column c of arange(24).reshape(4, 6) / 7 + 1, transposed. */
    for (unsigned r = 0; r < 6; r++)
        for (unsigned c = 0; c < 4; c++)
            ck_assert_double_eq_tol(ckpt_value(&t.tensor[i], 4 * r + c), (6 * c + r) / 7.0 + 1, 1e-6);
    torch_close(&t);
    torch_close(&t); /* closed is fine */
}
END_TEST

/* Every reader of weights says what to do with a .ckpt. */
START_TEST(named)
{
    struct ckpt *c;
    MUST_FAIL(ckpt_open(&c, unit_data("ckpt/odd.ckpt"), &f), TABFT_INPUT, "tabft-model convert");
    MUST_FAIL(ckpt_open_header(&c, unit_data("ckpt/odd.ckpt"), &f), TABFT_INPUT, "tabft-model convert");
    MUST_FAIL(ckpt_convert("none.ckpt", "never", false, &f), TABFT_INPUT, "none.ckpt");
    ck_assert_int_ne(access("never", F_OK), 0);
}
END_TEST

UNIT_MAIN("torch", networks, odd_ones, from_safetensors, strides, named)
