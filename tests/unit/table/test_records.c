#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "table/records.h"
#include "unit.h"

enum { CELLS_MAX = 64, TEXT_MAX = 256 };

/* Cells one after the other, each ended by 0x1f, each record by 0x1e. */
struct taken {
    char text[4 * TEXT_MAX];
    size_t n;
};

static int take(void *context, uint64_t record, size_t column, const struct cell *cell, struct tabft_failure *f)
{
    struct taken *t = context;
    (void)f;
    if (column == 0 && record > 0) t->text[t->n++] = 0x1e;
    memcpy(t->text + t->n, cell->text, cell->length);
    t->n += cell->length;
    t->text[t->n++] = 0x1f;
    return 0;
}

/* The slow and plain way: one byte after the other, by the grammar of RFC 4180. -1 where the text is not in it. */
static int reference(const char *text, size_t n, size_t n_columns, struct taken *out)
{
    enum { START, PLAIN, QUOTED, CLOSED } state = START;
    size_t column = 0, records = 0;
    bool line_empty = true;
    out->n = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i == n && line_empty && state == START && column == 0) break;
        char c = i < n ? text[i] : '\n';
        if (state == QUOTED) {
            if (i == n) return -1;
            if (c != '"') out->text[out->n++] = c;
            else if (i + 1 < n && text[i + 1] == '"') out->text[out->n++] = text[i++];
            else state = CLOSED;
            continue;
        }
        bool crlf = c == '\r' && (i + 1 == n || text[i + 1] == '\n');
        if (line_empty && (c == '\n' || crlf)) {
            i += crlf && i + 1 < n ? 1 : 0;
            continue;
        }
        if (line_empty && records > 0) out->text[out->n++] = 0x1e;
        line_empty = false;
        if (c == ',' || c == '\n' || crlf) {
            out->text[out->n++] = 0x1f;
            column++;
            state = START;
            if (c == ',') continue;
            if (column != n_columns) return -1;
            i += crlf && i + 1 < n ? 1 : 0;
            records++;
            column = 0;
            line_empty = true;
            if (i >= n) break;
            continue;
        }
        if (c == '\r' || state == CLOSED || (c == '"' && state == PLAIN)) return -1;
        if (c == '"') state = QUOTED;
        else {
            out->text[out->n++] = c;
            state = PLAIN;
        }
    }
    return 0;
}

static int walk(char *text, size_t n, size_t n_columns, struct taken *out, struct tabft_failure *f)
{
    const struct format format = {.delimiter = ',', .point = '.'};
    struct records r = {.format = &format, .n_columns = n_columns};
    out->n = 0;
    text[n] = text[n + 1] = '\n';
    int error = records_walk(&r, text, text + n, take, out, f);
    free(r.unquoted);
    return error;
}

START_TEST(random_texts_split_as_the_grammar_says)
{
    static const char alphabet[] = "\"\",\n\r\n1a .";
    uint64_t state = 1;
    size_t legal = 0;
    for (int i = 0; i < 300000; i++) {
        char text[TEXT_MAX + RECORDS_PADDING];
        struct taken got, want;
        struct tabft_failure f = {0};
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t n = (size_t)(state >> 33) % 24, n_columns = 1 + (size_t)(state >> 50) % 3;
        for (size_t k = 0; k < n; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            text[k] = alphabet[(state >> 33) % (sizeof alphabet - 1)];
        }
        int expected = reference(text, n, n_columns, &want);
        int code = walk(text, n, n_columns, &got, &f);
        ck_assert_msg((code == 0) == (expected == 0), "%zu columns, \"%.*s\": %d instead of %d: %s", n_columns, (int)n,
                      text, code, expected, f.message);
        if (code < 0) continue;
        legal++;
        ck_assert_msg(got.n == want.n && memcmp(got.text, want.text, got.n) == 0,
                      "%zu columns, \"%.*s\": \"%.*s\" instead of \"%.*s\"", n_columns, (int)n, text, (int)got.n,
                      got.text, (int)want.n, want.text);
    }
    ck_assert_uint_gt(legal, 5000);
}
END_TEST

static int take_number(void *context, uint64_t record, size_t column, const struct cell *cell, struct tabft_failure *f)
{
    (void)record, (void)column, (void)f;
    *(bool *)context = cell->is_number;
    return 0;
}

START_TEST(numbers_are_told_from_texts)
{
    static const struct {
        const char *cell;
        bool is_number;
    } cases[] = {{"1", true},    {" 1.5 ", true}, {"\"-2e3\"", true}, {"\" 7\t\"", true},   {"1 2", false},
                 {"1a", false},  {" ", false},    {"1.5.2", false},   {"\"1\"\"\"", false}, {"007", false},
                 {"- 1", false}, {"0x1", false},  {"1,5", true}};
    const struct format format = {.delimiter = ';', .point = ','};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tabft_failure f = {0};
        struct records r = {.format = &format, .n_columns = 1};
        char text[64] = "";
        bool is_number = false;
        (void)snprintf(text, sizeof text, "%s\n", cases[i].cell);
        if (format.point == ',') {
            for (char *p = text; *p; p++) {
                if (*p == '.') *p = ',';
            }
        }
        MUST(records_walk(&r, text, text + strlen(text), take_number, &is_number, &f));
        ck_assert_msg(is_number == cases[i].is_number, "%s", cases[i].cell);
        free(r.unquoted);
    }
}
END_TEST

START_TEST(utf8_is_checked)
{
    static const struct {
        const char *text;
        size_t length;
        bool valid;
    } cases[] = {{"", 0, true},
                 {"abc", 3, true},
                 {"\xc3\xa9", 2, true},
                 {"\xf0\x9f\x98\x80", 4, true},
                 {"\xc3", 1, false},
                 {"\x80", 1, false},
                 {"\xc0\xaf", 2, false},
                 {"\xe0\x80\xaf", 3, false},
                 {"\xed\xa0\x80", 3, false},
                 {"\xf4\x90\x80\x80", 4, false},
                 {"a\0b", 3, false},
                 {"\xef\xbf\xbf", 3, true},
                 {"\xf4\x8f\xbf\xbf", 4, true},
                 {"\xf5\x80\x80\x80", 4, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(utf8_valid(cases[i].text, cases[i].length) == cases[i].valid, "case %zu", i);
}
END_TEST

UNIT_MAIN("table/records", random_texts_split_as_the_grammar_says, numbers_are_told_from_texts, utf8_is_checked)
