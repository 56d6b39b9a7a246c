/* Rows, chunks, their order and splits against what TabPFN does (tests/data/train/make_chunks.py). */
#include <inttypes.h>
#include <string.h>

#include "train/chunks.h"
#include "train/split.h"
#include "unit.h"

enum { ROWS_MAX = 10000 };

static int32_t label_of(const char *rule, uint64_t i, uint64_t n, uint64_t labels)
{
    if (strcmp(rule, "mixed") == 0) return (int32_t)((i * 7919 + i / 3) % labels);
    if (strcmp(rule, "rare") == 0) return i == n / 2 ? 1 : i == 3 || i == 5 ? 2 : 0;
    uint64_t skewed = (i * 2654435761U % 4294967296U) * 3 / 4294967296U + (i % 11 == 0);
    return (int32_t)(skewed < labels - 1 ? skewed : labels - 1);
}

static uint64_t hash_rows(const size_t *row, size_t n)
{
    uint64_t h = 14695981039346656037U;
    for (size_t i = 0; i < n; i++) {
        char text[32];
        int length = snprintf(text, sizeof text, "%s%zu", i > 0 ? " " : "", row[i]);
        for (int j = 0; j < length; j++) h = (h ^ (unsigned char)text[j]) * 1099511628211U;
    }
    return h;
}

/* A case of chunks.txt as the rules of its chunks. */
struct recorded {
    char task[8], rule[8];
    struct chunks_rules rules;
    uint32_t epoch;
    size_t n_chunks;
    int32_t label[ROWS_MAX];
};

static void read_case(struct recorded *c, const char *line)
{
    char task[8], rule[8];
    size_t n, labels, rows, n_chunks;
    double ratio;
    uint32_t seed, epoch;
    ck_assert_int_eq(sscanf(line, "case %7s %zu %zu %7s %zu %lf %" SCNu32 " %" SCNu32 " %zu", task, &n, &labels, rule,
                            &rows, &ratio, &seed, &epoch, &n_chunks),
                     9);
    ck_assert_uint_le(n, ROWS_MAX);
    bool is_cls = strcmp(task, "cls") == 0, seen[16] = {false};
    size_t present = 0;
    for (size_t i = 0; is_cls && i < n; i++) {
        c->label[i] = label_of(rule, i, n, labels);
        present += !seen[c->label[i]];
        seen[c->label[i]] = true;
    }
    c->rules = (struct chunks_rules){.n_rows = n,
                                     .chunk_rows = rows,
                                     .query_fraction = ratio,
                                     .query_min = is_cls ? present : 1,
                                     .seed = seed,
                                     .label = is_cls ? c->label : NULL,
                                     .n_labels = labels};
    c->epoch = epoch;
    c->n_chunks = n_chunks;
}

static void check_chunk(const struct chunks *chunks, size_t position, const char *line)
{
    size_t id, n_context, n_query;
    uint64_t context, query;
    ck_assert_int_eq(
        sscanf(line, "chunk %zu %zu %zu %" SCNx64 " %" SCNx64, &id, &n_context, &n_query, &context, &query), 5);
    const struct chunk *c = chunks_at(chunks, position);
    ck_assert_uint_eq(c->id, id);
    ck_assert_uint_eq(c->n_context, n_context);
    ck_assert_uint_eq(c->n_query, n_query);
    ck_assert_uint_eq(hash_rows(c->context, n_context), context);
    ck_assert_uint_eq(hash_rows(c->query, n_query), query);
}

static void check_validation(const struct recorded *c, const char *line)
{
    struct tabft_failure f = {0};
    const struct chunks_rules *r = &c->rules;
    const char *reason = NULL;
    size_t n_test = (size_t)((double)r->n_rows * 0.1);
    if (n_test < r->query_min) n_test = r->query_min;
    bool possible = r->label == NULL || split_can_stratify(r->label, r->n_rows, r->n_labels, n_test, &reason);
    if (strncmp(line, "validation refused", 18) == 0) {
        ck_assert(!possible);
        ck_assert_ptr_nonnull(strstr(reason, "single row"));
        return;
    }
    size_t n_train, n_held;
    uint64_t train, held;
    ck_assert(possible);
    ck_assert_int_eq(sscanf(line, "validation %zu %zu %" SCNx64 " %" SCNx64, &n_train, &n_held, &train, &held), 4);
    struct split s;
    MUST(split_rows(&s, r->label, r->n_rows, r->n_labels, n_test, r->seed, &f));
    ck_assert_uint_eq(s.n_train, n_train);
    ck_assert_uint_eq(s.n_test, n_held);
    ck_assert_uint_eq(hash_rows(s.train, n_train), train);
    ck_assert_uint_eq(hash_rows(s.test, n_held), held);
    split_clear(&s);
}

START_TEST(rows_are_those_of_tabpfn)
{
    static struct recorded c;
    struct tabft_failure f = {0};
    FILE *file = fopen(unit_data("train/chunks.txt"), "r");
    ck_assert_ptr_nonnull(file);
    char line[512];
    struct chunks *chunks = NULL;
    size_t position = 0, cases = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "case", 4) == 0) {
            read_case(&c, line);
            chunks_close(chunks);
            MUST(chunks_open(&chunks, &c.rules, c.epoch, &f));
            ck_assert_uint_eq(chunks_count(chunks), c.n_chunks);
            position = 0;
            cases++;
        } else if (strncmp(line, "chunk", 5) == 0) {
            check_chunk(chunks, position++, line);
        } else {
            ck_assert_uint_eq(position, c.n_chunks);
            check_validation(&c, line);
        }
    }
    ck_assert_uint_eq(cases, 14);
    chunks_close(chunks);
    (void)fclose(file);
}
END_TEST

START_TEST(sizes_are_known_before_the_rows)
{
    static struct recorded c;
    struct tabft_failure f = {0};
    FILE *file = fopen(unit_data("train/chunks.txt"), "r");
    ck_assert_ptr_nonnull(file);
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "case", 4) != 0) continue;
        read_case(&c, line);
        struct chunks *chunks;
        struct chunks_sizes sizes;
        MUST(chunks_open(&chunks, &c.rules, c.epoch, &f));
        MUST(chunks_sizes(&c.rules, &sizes, &f));
        size_t largest = 0;
        for (size_t i = 0; i < chunks_count(chunks); i++) {
            const struct chunk *k = chunks_at(chunks, i);
            if (k->n_context + k->n_query > largest) largest = k->n_context + k->n_query;
        }
        ck_assert_uint_eq(sizes.n_chunks, chunks_count(chunks));
        ck_assert_uint_eq(sizes.n_context + sizes.n_query, largest);
        chunks_close(chunks);
    }
    (void)fclose(file);
}
END_TEST

START_TEST(too_few_rows_are_refused)
{
    struct tabft_failure f = {0};
    struct chunks *chunks;
    int32_t label[4] = {0, 1, 0, 1};
    struct chunks_rules rules = {
        .n_rows = 0, .chunk_rows = 10, .query_fraction = 0.2, .query_min = 2, .label = label, .n_labels = 2};
    MUST_FAIL(chunks_open(&chunks, &rules, 0, &f), TABFT_INPUT, "no rows");
    rules.n_rows = 2;
    MUST_FAIL(chunks_open(&chunks, &rules, 0, &f), TABFT_INPUT, "no context");
    rules.n_rows = 4;
    rules.chunk_rows = 1;
    MUST_FAIL(chunks_open(&chunks, &rules, 0, &f), TABFT_INPUT, "--chunk-rows");
    rules.chunk_rows = 4;
    MUST(chunks_open(&chunks, &rules, 0, &f));
    ck_assert_uint_eq(chunks_at(chunks, 0)->n_context, 2);
    chunks_close(chunks);
    struct split s;
    MUST_FAIL(split_rows(&s, label, 4, 2, 4, 0, &f), TABFT_INPUT, "both parts need rows");
}
END_TEST

UNIT_MAIN("chunks", rows_are_those_of_tabpfn, sizes_are_known_before_the_rows, too_few_rows_are_refused)
