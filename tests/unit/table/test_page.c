#include <check.h>
#include <math.h>
#include <string.h>

#include "table/decimals.h"
#include "table/page.h"
#include "table/schema.h"
#include "unit.h"

enum { N = 1000 };

static unsigned char page[PAGE_SIZE_MAX];

START_TEST(cells_come_back_from_every_storage)
{
    static const enum page_storage storages[] = {STORAGE_I8,  STORAGE_I16, STORAGE_I32, STORAGE_I64, STORAGE_F32,
                                                 STORAGE_F64, STORAGE_D8,  STORAGE_D16, STORAGE_D32};
    for (size_t k = 0; k < 9; k++) {
        for (int gaps = 0; gaps < 2; gaps++) {
            uint64_t slot[N], back_slot[N];
            uint8_t absent[N], back_absent[N];
            struct cells cells = {slot, absent}, back = {back_slot, back_absent};
            struct column_statistics written, read;
            struct tabft_failure f = {0};
            size_t size;
            bool real = storage_is_real(storages[k]), decimal = storage_is_decimal(storages[k]);
            const struct page_form form = {.storage = storages[k], .decimals = decimal ? 2 : 0};
            for (size_t i = 0; i < N; i++) {
                bool gap = gaps && i % 3 == 0;
                absent[i] = gap && !real;
                slot[i] = decimal ? slot_of_double(gap ? (double)NAN : i == 5 ? -0.0 : ((double)(i % 250) - 125) / 100)
                          : real  ? slot_of_double(gap ? (double)NAN : (double)i / 8 - 50)
                          : gap ? 0
                                : (uint64_t)((int64_t)(i % 250) - 125);
            }
            if (storages[k] == STORAGE_I64) slot[1] = (uint64_t)INT64_MIN;
            page_encode(&form, &cells, N, page, &size, &written);
            ck_assert_uint_eq(size, page_size(storages[k], N, gaps && (!real || decimal)));
            MUST(page_decode(&form, page, size, &back, N, &read, &f));
            ck_assert(statistics_equal(&written, &read, storages[k]));
            ck_assert_uint_eq(read.n_missing, gaps ? (N + 2) / 3 : 0);
            for (size_t i = 0; i < N; i++) {
                ck_assert(cell_missing(&back, i, real) == cell_missing(&cells, i, real));
                if (!cell_missing(&cells, i, real)) ck_assert_uint_eq(back_slot[i], slot[i]);
            }
            MUST_FAIL(page_decode(&form, page, size - 1, &back, N, &read, &f), TABFT_INPUT,
                      "a page of");
        }
    }
}
END_TEST

START_TEST(codes_without_text_are_refused)
{
    uint64_t slot[4] = {0, 1, 2, 3};
    uint8_t absent[4] = {0, 0, 0, 1};
    struct cells cells = {slot, absent};
    struct column_statistics s;
    struct tabft_failure f = {0};
    size_t size;
    struct page_form form = {.storage = STORAGE_I8, .codes = true, .n_codes = 3};
    page_encode(&form, &cells, 4, page, &size, &s);
    ck_assert(!s.any && s.n_missing == 1);
    MUST(page_decode(&form, page, size, &cells, 4, &s, &f));
    form.n_codes = 2;
    MUST_FAIL(page_decode(&form, page, size, &cells, 4, &s, &f), TABFT_INPUT, "code 2");
    form.n_codes = 3;
    ((signed char *)page)[0] = -1;
    MUST_FAIL(page_decode(&form, page, size, &cells, 4, &s, &f), TABFT_INPUT, "code -1");
}
END_TEST

START_TEST(decimals_keep_every_bit)
{
    uint64_t state = 1;
    for (unsigned k = 0; k <= TABLE_DECIMALS_MAX; k++) {
        const double power = decimal_power(k);
        for (int n = 0; n < 200000; n++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            int32_t i = (int32_t)(uint32_t)(state >> 32) >> (n % 31);
            if (n == 0) i = INT32_MIN;
            ck_assert_int_eq(decimal_of((double)i / power, power, 7), i);
        }
        for (size_t bytes = 1; bytes <= 4; bytes *= 2) {
            int32_t item = decimal_of(-0.0, power, decimal_minus_zero(bytes));
            ck_assert_int_eq(item, bytes == 1 ? INT8_MIN : bytes == 2 ? INT16_MIN : INT32_MIN);
            double back = decimal_value(item, power, decimal_minus_zero(bytes));
            ck_assert(back == 0 && signbit(back));
        }
    }
}
END_TEST

/* What some values are, in any order: the storage's name and decimals. */
static void check_decimals(const double *value, size_t n, const char *name, unsigned k)
{
    for (size_t first = 0; first < n; first++) {
        struct decimals whole = {0}, parts = {0};
        enum page_storage storage = STORAGE_F64, storage_of_parts = STORAGE_F64;
        unsigned got = 0, got_of_parts = 0;
        for (size_t i = 0; i < n; i++) {
            struct decimals one = {0};
            decimals_add_value(&whole, value[(first + i) % n]);
            decimals_add_value(&one, value[(first + i) % n]);
            decimals_merge(&parts, &one);
        }
        decimals_storage(&whole, &storage, &got);
        decimals_storage(&parts, &storage_of_parts, &got_of_parts);
        ck_assert_msg(strcmp(storage_name(storage), name) == 0 && got == k, "%s %u, not %s %u", storage_name(storage),
                      got, name, k);
        ck_assert(storage_of_parts == storage && got_of_parts == got);
    }
}
#define CHECK(name, k, ...)                                                                                            \
    check_decimals((const double[]){__VA_ARGS__}, sizeof(const double[]){__VA_ARGS__} / sizeof(double), name, k)

START_TEST(decimals_are_told_by_values)
{
    CHECK("d8", 1, 0.5, 12.7, -12.7, 3);
    CHECK("d16", 1, 0.5, 12.8, 3);
    CHECK("d16", 2, 327.67, 0, -1);
    CHECK("d32", 2, 327.68);
    CHECK("d32", 9, 1e-9, 2.1);
    CHECK("d32", 0, 2147483647.0, -1);
    CHECK("f64", 0, 2147483648.0);
    CHECK("f64", 0, 1e-10);
    CHECK("f64", 0, 1e-9, 2.2);
    CHECK("d8", 1, 0.1, -0.0);
    CHECK("f64", 0, 0.1, (double)INFINITY);
    CHECK("f64", 0, 0.1, 0.30000000000000004);
    CHECK("f64", 0, 1.0 / 3);
}
END_TEST

/* As they are written they come to the same: zeros at the end and exponents do not count. */
START_TEST(decimals_are_told_by_digits)
{
    static const char *const texts[] = {"0.10", "12.700", "3", "-0.5", "1.5e1", "127e-1", "0.100000000000000000000000"};
    struct decimals digits = {0}, values = {0};
    locale_t c;
    struct tabft_failure f = {0};
    MUST(number_locale(&c, &f));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct number n;
        double v;
        const char *end = number_scan(texts[i], '.', &n);
        ck_assert(end != NULL && *end == '\0' && number_double(&n, texts[i], end, '.', c, &v));
        if (!decimals_add(&digits, &n)) decimals_add_value(&digits, v);
        decimals_add_value(&values, v);
    }
    freelocale(c);
    enum page_storage of_digits = STORAGE_F64, of_values = STORAGE_F64;
    unsigned k = 9, k_of_values = 8;
    decimals_storage(&digits, &of_digits, &k);
    decimals_storage(&values, &of_values, &k_of_values);
    ck_assert(of_digits == STORAGE_D16 && of_values == STORAGE_D16 && k == 1 && k_of_values == 1);
}
END_TEST

#define DECIMALS(column)                                                                                               \
    "{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":-1,\"task\":\"none\",\"labels\":[],"            \
    "\"columns\":[{\"name\":\"a\",\"texts\":0,\"kind\":" column "}]}"

START_TEST(schemas_that_lie_are_refused)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "its first record is no schema"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":-1,\"task\":\"none\",\"labels\":[],"
         "\"columns\":[]}",
         "number of columns"},
        {"{\"format\":\"tabft-table\",\"rows\":-1,\"group_rows\":65536}", "number of rows"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65535}", "rows of a group"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":1,\"task\":\"regression\",\"labels\":["
         "],"
         "\"columns\":[{\"name\":\"a\",\"kind\":\"float\",\"storage\":\"f32\",\"texts\":0}]}",
         "target"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":0,\"task\":\"none\",\"labels\":[],"
         "\"columns\":[{\"name\":\"a\",\"kind\":\"float\",\"storage\":\"f32\",\"texts\":0}]}",
         "a target without a task"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":-1,\"task\":\"none\",\"labels\":["
         "\"x\"],"
         "\"columns\":[{\"name\":\"a\",\"kind\":\"float\",\"storage\":\"f32\",\"texts\":0}]}",
         "labels without"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":-1,\"task\":\"none\",\"labels\":[],"
         "\"columns\":[{\"name\":\"a\",\"kind\":\"float\",\"storage\":\"i8\",\"texts\":0}]}",
         "does not fit its kind"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":-1,\"task\":\"none\",\"labels\":[],"
         "\"columns\":[{\"name\":\"a\",\"kind\":\"text\",\"storage\":\"i8\",\"texts\":300}]}",
         "does not fit its codes"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":-1,\"task\":\"none\",\"labels\":[],"
         "\"columns\":[{\"name\":\"a\",\"kind\":\"integer\",\"storage\":\"i8\",\"texts\":3}]}",
         "no dictionary"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"group_rows\":65536,\"target\":-1,\"task\":\"none\",\"labels\":[],"
         "\"columns\":[{\"name\":\"\",\"kind\":\"integer\",\"storage\":\"i8\",\"texts\":0}]}",
         "name"},
        {"{\"format\":\"tabft-table\",\"rows\":1,\"rows\":2}", "not JSON"},
        {DECIMALS("\"float\",\"storage\":\"d16\""), "decimals"},
        {DECIMALS("\"float\",\"storage\":\"d16\",\"decimals\":10"), "decimals"},
        {DECIMALS("\"float\",\"storage\":\"d16\",\"decimals\":-1"), "decimals"},
        {DECIMALS("\"float\",\"storage\":\"f32\",\"decimals\":2"), "decimals"},
        {DECIMALS("\"integer\",\"storage\":\"d16\",\"decimals\":2"), "does not fit its kind"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tabft_failure f = {0};
        struct schema s;
        MUST_FAIL(schema_from_json(&s, cases[i].json, strlen(cases[i].json), &f), TABFT_INPUT, cases[i].text);
    }
}
END_TEST

UNIT_MAIN("table/page", cells_come_back_from_every_storage, codes_without_text_are_refused, decimals_keep_every_bit,
          decimals_are_told_by_values, decimals_are_told_by_digits, schemas_that_lie_are_refused)
