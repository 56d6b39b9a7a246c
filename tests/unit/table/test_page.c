#include <check.h>
#include <math.h>
#include <string.h>

#include "table/page.h"
#include "table/schema.h"
#include "unit.h"

enum { N = 1000 };

static unsigned char page[PAGE_SIZE_MAX];

START_TEST(cells_come_back_from_every_storage)
{
    static const enum page_storage storages[] = {STORAGE_I8,  STORAGE_I16, STORAGE_I32,
                                                 STORAGE_I64, STORAGE_F32, STORAGE_F64};
    for (size_t k = 0; k < 6; k++) {
        for (int gaps = 0; gaps < 2; gaps++) {
            uint64_t slot[N], back_slot[N];
            uint8_t absent[N], back_absent[N];
            struct cells cells = {slot, absent}, back = {back_slot, back_absent};
            struct column_statistics written, read;
            struct tabft_failure f = {0};
            size_t size;
            bool real = storage_is_real(storages[k]);
            for (size_t i = 0; i < N; i++) {
                bool gap = gaps && i % 3 == 0;
                absent[i] = gap && !real;
                slot[i] = real  ? slot_of_double(gap ? (double)NAN : (double)i / 8 - 50)
                          : gap ? 0
                                : (uint64_t)((int64_t)(i % 250) - 125);
            }
            if (storages[k] == STORAGE_I64) slot[1] = (uint64_t)INT64_MIN;
            page_encode(storages[k], false, &cells, N, page, &size, &written);
            ck_assert_uint_eq(size, page_size(storages[k], N, gaps && !real));
            MUST(page_decode(storages[k], 0, false, page, size, &back, N, &read, &f));
            ck_assert(statistics_equal(&written, &read, storages[k]));
            ck_assert_uint_eq(read.n_missing, gaps ? (N + 2) / 3 : 0);
            for (size_t i = 0; i < N; i++) {
                ck_assert(cell_missing(&back, i, real) == cell_missing(&cells, i, real));
                if (!cell_missing(&cells, i, real)) ck_assert_uint_eq(back_slot[i], slot[i]);
            }
            MUST_FAIL(page_decode(storages[k], 0, false, page, size - 1, &back, N, &read, &f), TABFT_INPUT,
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
    page_encode(STORAGE_I8, true, &cells, 4, page, &size, &s);
    ck_assert(!s.any && s.n_missing == 1);
    MUST(page_decode(STORAGE_I8, 3, true, page, size, &cells, 4, &s, &f));
    MUST_FAIL(page_decode(STORAGE_I8, 2, true, page, size, &cells, 4, &s, &f), TABFT_INPUT, "code 2");
    ((signed char *)page)[0] = -1;
    MUST_FAIL(page_decode(STORAGE_I8, 3, true, page, size, &cells, 4, &s, &f), TABFT_INPUT, "code -1");
}
END_TEST

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
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tabft_failure f = {0};
        struct schema s;
        MUST_FAIL(schema_from_json(&s, cases[i].json, strlen(cases[i].json), &f), TABFT_INPUT, cases[i].text);
    }
}
END_TEST

UNIT_MAIN("table/page", cells_come_back_from_every_storage, codes_without_text_are_refused,
          schemas_that_lie_are_refused)
