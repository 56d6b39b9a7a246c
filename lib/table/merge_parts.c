#include "table/merge_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/digest.h"
#include "table/pack_internal.h"

static const json_t *part_of(const struct packed_reader *r)
{
    return json_object_get(packed_reader_provenance(r), "part");
}

static json_int_t field(const struct packed_reader *r, const char *name)
{
    return json_integer_value(json_object_get(part_of(r), name));
}

bool merge_is_part(const struct packed_reader *r) { return part_of(r) != NULL; }

void merge_name_part(const struct packed_reader *r, struct tabft_failure *f)
{
    if (!merge_is_part(r)) return;
    (void)tabft_fail_prefix(f, "part %lld must be packed again (--part %lld/%lld)", (long long)field(r, "index"),
                            (long long)field(r, "index"), (long long)field(r, "of"));
}

/* ---- all there, in order ---- */

/* Writes the numbers of parts that are marked: "0 3 4", and "..." where there are many. */
static void list_parts(const bool *mark, size_t n, char text[128])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        if (!mark[i]) continue;
        if (used > 100) {
            (void)snprintf(text + used, 128 - used, " ...");
            return;
        }
        used += (size_t)snprintf(text + used, 128 - used, "%s%zu", used > 0 ? " " : "", i);
    }
}

/* Adds to a failure to open one of the inputs which parts the others lack. */
static int name_lacking(struct packed_reader *const *part, size_t n, struct tabft_failure *f)
{
    int error = f->code;
    bool *lacks = NULL;
    char list[128];
    json_int_t of = 0;
    struct tabft_failure ignored = {0};
    for (size_t i = 0; i < n; i++)
        if (part[i] != NULL && merge_is_part(part[i])) of = field(part[i], "of");
    if (of <= 0 || of > 1 << 24 || memory_new(&lacks, (size_t)of, sizeof *lacks, "parts", &ignored) < 0) return error;
    for (size_t i = 0; i < (size_t)of; i++) lacks[i] = true;
    for (size_t i = 0; i < n; i++) {
        json_int_t index = part[i] != NULL ? field(part[i], "index") : -1;
        if (index >= 0 && index < of) lacks[index] = false;
    }
    list_parts(lacks, (size_t)of, list);
    if (list[0] != '\0')
        (void)tabft_fail_prefix(f, "of %lld parts these must be packed again: %s", (long long)of, list);
    free(lacks);
    return error;
}

int merge_open_inputs(const char *const *path, size_t n, int n_threads, struct packed_reader **part,
                      struct tabft_failure *f)
{
    for (size_t i = 0; i < n; i++) {
        struct tabft_failure own = {0};
        if (packed_reader_open(&part[i], path[i], n_threads, true, &own) == 0) continue;
        part[i] = NULL;
        (void)tabft_fail(f, own.code, "%s", own.message); /* the first is kept */
    }
    return f->code == 0 ? 0 : name_lacking(part, n, f);
}

static int compare_parts(const void *a, const void *b)
{
    json_int_t x = field(*(struct packed_reader *const *)a, "index"),
               y = field(*(struct packed_reader *const *)b, "index");
    return (x > y) - (x < y);
}

/* The provenance of the whole that a part is of, as far as a part knows it. */
static json_t *whole_of(const struct packed_reader *r)
{
    json_t *all = json_copy((json_t *)(uintptr_t)packed_reader_provenance(r));
    if (all != NULL) json_object_del(all, "part");
    return all;
}

static bool same_table(const struct packed_reader *a, const struct packed_reader *b)
{
    json_t *x = whole_of(a), *y = whole_of(b);
    bool same = json_equal(x, y) && field(a, "of") == field(b, "of") &&
                json_equal(json_object_get(part_of(a), "task"), json_object_get(part_of(b), "task"));
    json_decref(x);
    json_decref(y);
    return same;
}

static int fail_missing(size_t i, json_int_t of, struct tabft_failure *f)
{
    return tabft_fail(f, TABFT_INPUT, "part %zu of %lld is missing; pack it (--part %zu/%lld) and give all parts", i,
                      (long long)of, i, (long long)of);
}

int merge_order_parts(struct packed_reader **part, size_t n, struct tabft_failure *f)
{
    size_t n_parts = 0;
    for (size_t i = 0; i < n; i++) n_parts += merge_is_part(part[i]);
    if (n_parts == 0) return 0;
    for (size_t i = 0; n_parts < n && i < n; i++) {
        if (merge_is_part(part[i]))
            return tabft_fail(f, TABFT_INPUT,
                              "%s: is a part of a table (pack --part), and others here are whole tables; merge parts "
                              "of one table, or whole tables",
                              packed_reader_path(part[i]));
    }
    qsort(part, n, sizeof *part, compare_parts);
    json_int_t of = field(part[0], "of");
    for (size_t i = 0; i < n; i++) {
        json_int_t index = field(part[i], "index");
        if (!same_table(part[0], part[i]))
            return tabft_fail(f, TABFT_INPUT,
                              "%s: is no part of the table that %s is a part of; merge parts of one run",
                              packed_reader_path(part[i]), packed_reader_path(part[0]));
        if (index == (json_int_t)i) continue;
        if (i > 0 && index == field(part[i - 1], "index"))
            return tabft_fail(f, TABFT_INPUT, "%s: part %lld is there twice, here and in %s; name each part once",
                              packed_reader_path(part[i]), (long long)index, packed_reader_path(part[i - 1]));
        return fail_missing(i, of, f);
    }
    return (json_int_t)n == of ? 0 : fail_missing(n, of, f);
}

/* ---- kinds ---- */

bool merge_knows_task(const struct packed_reader *r)
{
    const struct schema *s = packed_reader_schema(r);
    const char *task = json_string_value(json_object_get(part_of(r), "task"));
    if (task == NULL || strcmp(task, "auto") != 0 || s->target == TABLE_NO_TARGET) return true;
    return packed_reader_statistics(r)[s->target].n_missing < s->n_rows;
}

static bool has_values(const struct packed_reader *r, size_t c)
{
    return packed_reader_statistics(r)[c].n_missing < packed_reader_schema(r)->n_rows;
}

/* The kind of a column in the whole table, as one pack of it would see it; false where the user has said it. */
static bool whole_kind(struct packed_reader *const *part, size_t n, size_t c, enum table_kind *kind)
{
    struct survey all = {0};
    const struct seen *because;
    bool forced = false;
    for (size_t i = 0; i < n; i++)
        if (!pack_part_survey(packed_reader_provenance(part[i]), c, &all, &forced) || forced) return false;
    *kind = pack_kind_of(&all, &because);
    return true;
}

/* --task auto: few different whole numbers in each part may be many in all. */
static int check_task(struct packed_reader *const *part, size_t n, bool *again, struct tabft_failure *f)
{
    int error = 0;
    const char *asked = json_string_value(json_object_get(part_of(part[0]), "task"));
    struct dictionary labels = {0};
    char list[128];
    size_t differ = 0, target = (size_t)packed_reader_schema(part[0])->target;
    if (packed_reader_schema(part[0])->target == TABLE_NO_TARGET || asked == NULL || strcmp(asked, "auto") != 0)
        return 0;
    bool numbers = true, many = false;
    for (size_t i = 0; i < n; i++) {
        const struct schema *s = packed_reader_schema(part[i]);
        if (!merge_knows_task(part[i])) continue;
        enum table_kind kind = s->column[target].kind;
        numbers = numbers && (kind == TABLE_FLOAT || kind == TABLE_INTEGER);
        many = many || s->task == TABLE_REGRESSION;
        for (size_t k = 0; k < s->n_labels; k++) TRY(dictionary_add(&labels, s->label[k], strlen(s->label[k]), f));
    }
    many = many || labels.n > PACK_AUTO_LABELS_MAX;
    for (size_t i = 0; i < n; i++) {
        again[i] = numbers && many && merge_knows_task(part[i]) &&
                   packed_reader_schema(part[i])->task == TABLE_CLASSIFICATION;
        differ += again[i];
    }
    list_parts(again, n, list);
    if (differ > 0)
        FAIL(f, TABFT_INPUT,
             "the target %s is for regression in the whole table, and of classes in %zu of its parts: pack these again "
             "with --task regression: %s",
             packed_reader_schema(part[0])->column[target].name, differ, list);
fail:
    dictionary_clear(&labels);
    return error;
}

int merge_check_kinds(struct packed_reader *const *part, size_t n, struct tabft_failure *f)
{
    int error = 0;
    bool *again = NULL;
    char list[128];
    size_t first = SIZE_MAX;
    enum table_kind kind, first_kind = TABLE_FLOAT;
    TRY(memory_new(&again, n, sizeof *again, "parts", f));
    for (size_t c = 0; c < packed_reader_schema(part[0])->n_columns; c++) {
        if (!whole_kind(part, n, c, &kind)) continue;
        for (size_t i = 0; i < n; i++) {
            enum table_kind own = packed_reader_schema(part[i])->column[c].kind;
            if (own == kind || !has_values(part[i], c) || (own == TABLE_INTEGER && kind == TABLE_FLOAT)) continue;
            again[i] = true;
            if (first == SIZE_MAX) first_kind = kind;
            if (first == SIZE_MAX) first = c;
        }
    }
    list_parts(again, n, list);
    if (first != SIZE_MAX)
        FAIL(f, TABFT_INPUT,
             "column %s is %s in the whole table, which some parts could not see: pack these again with --survey and "
             "each of the other parts: %s",
             packed_reader_schema(part[0])->column[first].name, kind_name(first_kind), list);
    TRY(check_task(part, n, again, f));
fail:
    free(again);
    return error;
}

/* ---- digests ---- */

static int hex_value(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* Appends a part's blocks of an input. */
static int add_blocks(const struct packed_reader *r, const json_t *own, struct digest *d, struct tabft_failure *f)
{
    const char *hex = json_string_value(json_object_get(own, "blocks"));
    size_t length = hex == NULL ? 1 : strlen(hex), leaves = length / (2 * DIGEST_SIZE);
    bool good = length % (2 * DIGEST_SIZE) == 0 && leaves <= d->room - d->n &&
                json_integer_value(json_object_get(own, "first_block")) == (json_int_t)d->n;
    for (size_t i = 0; good && i < length; i += 2) {
        int high = hex_value(hex[i]), low = hex_value(hex[i + 1]);
        good = high >= 0 && low >= 0;
        d->leaf[d->n * DIGEST_SIZE + i / 2] = (uint8_t)(high << 4 | low);
    }
    if (!good)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: its bytes of the input do not follow those of the part before; pack all parts of one "
                          "state of the input",
                          packed_reader_path(r));
    d->n += leaves;
    return 0;
}

/* The digest of input i from those of its parts' blocks. */
static int whole_digest(struct packed_reader *const *part, size_t n, size_t i, json_t *input, struct tabft_failure *f)
{
    int error = 0;
    struct digest d = {0};
    char hex[2 * DIGEST_SIZE + 1];
    json_int_t bytes = json_integer_value(json_object_get(input, "bytes")), end = -1;
    if (bytes < 0 || bytes > (json_int_t)1 << 50)
        FAIL(f, TABFT_INPUT, "a part has an input of impossible size; pack it again");
    TRY(digest_open(&d, (uint64_t)bytes, f));
    for (size_t k = 0; k < n; k++) {
        const json_t *own = json_array_get(json_object_get(part_of(part[k]), "inputs"), i);
        if (!json_is_object(own)) continue;
        json_int_t begin = json_integer_value(json_object_get(own, "begin"));
        if (end >= 0 && begin != end)
            FAIL(f, TABFT_INPUT,
                 "%s: its records begin at byte %lld of input %zu, and those of the part before end at %lld; the input "
                 "changed between: pack all parts again",
                 packed_reader_path(part[k]), (long long)begin, i + 1, (long long)end);
        end = json_integer_value(json_object_get(own, "end"));
        TRY(add_blocks(part[k], own, &d, f));
    }
    if (d.n != digest_blocks((uint64_t)bytes))
        FAIL(f, TABFT_INPUT, "the parts have %zu of %llu blocks of input %zu; pack them all again", d.n,
             (unsigned long long)digest_blocks((uint64_t)bytes), i + 1);
    digest_root(d.leaf, d.n, hex);
    json_object_set_new(input, DIGEST_NAME, json_string(hex));
fail:
    digest_clear(&d);
    return error;
}

int merge_whole_provenance(struct packed_reader *const *part, size_t n, json_t **whole, struct tabft_failure *f)
{
    int error = 0;
    json_t *all = json_deep_copy(packed_reader_provenance(part[0]));
    if (all == NULL) FAIL(f, TABFT_SYSTEM, "no memory for the provenance of parts");
    json_object_del(all, "part");
    json_t *inputs = json_object_get(all, "inputs");
    for (size_t i = 0; i < json_array_size(inputs); i++) TRY(whole_digest(part, n, i, json_array_get(inputs, i), f));
    *whole = all;
    return 0;
fail:
    json_decref(all);
    return error;
}
