/* info and verify. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "table/digest.h"
#include "table/packed.h"
#include "table/prep.h"
#include "tbf/tbf.h"

static json_t *column_json(const struct packed_reader *r, size_t c)
{
    const struct schema *s = packed_reader_schema(r);
    const struct schema_column *column = &s->column[c];
    json_t *all = json_pack("{s:s, s:s, s:s}", "name", column->name, "kind", kind_name(column->kind), "storage",
                            storage_name(column->storage));
    json_t *statistics = statistics_json(s, c, &packed_reader_statistics(r)[c]);
    if (storage_is_decimal(column->storage)) json_object_set_new(all, "decimals", json_integer(column->decimals));
    if (column->n_texts > 0) json_object_set_new(all, "texts", json_integer((json_int_t)column->n_texts));
    if (json_object_update(all, statistics) != 0) {
        json_decref(all);
        all = NULL;
    }
    json_decref(statistics);
    return all;
}

static json_t *table_json(const struct packed_reader *r)
{
    const struct schema *s = packed_reader_schema(r);
    json_t *columns = json_array(), *labels = json_array();
    for (size_t c = 0; c < s->n_columns; c++) json_array_append_new(columns, column_json(r, c));
    for (size_t i = 0; i < s->n_labels; i++) json_array_append_new(labels, json_string(s->label[i]));
    json_t *target = s->target == TABLE_NO_TARGET ? json_null() : json_string(s->column[s->target].name);
    bool whole = json_array_size(columns) == s->n_columns && json_array_size(labels) == s->n_labels;
    json_t *all = json_pack("{s:i, s:I, s:s, s:I, s:o, s:s, s:o, s:o, s:O}", "schema", 1, "bytes",
                            (json_int_t)packed_reader_file_size(r), "digest", packed_reader_digest(r), "rows",
                            (json_int_t)s->n_rows, "target", target, "task", task_name(s->task), "labels", labels,
                            "columns", columns, "provenance", packed_reader_provenance(r));
    if (whole) return all;
    json_decref(all);
    return NULL;
}

/* The same for people: a line a fact, a line a column. Control bytes of names become '?'. */
static void put_plain(FILE *to, const char *text)
{
    for (; *text != '\0'; text++) (void)fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, to);
}

static void put_column(FILE *to, const struct packed_reader *r, size_t c)
{
    const struct schema *s = packed_reader_schema(r);
    const struct schema_column *column = &s->column[c];
    const struct column_statistics *n = &packed_reader_statistics(r)[c];
    (void)fprintf(to, "%-8s %-4s %10llu missing  ", kind_name(column->kind), storage_name(column->storage),
                  (unsigned long long)n->n_missing);
    put_plain(to, column->name);
    if (s->target == (ptrdiff_t)c) (void)fprintf(to, "  (target, %s)", task_name(s->task));
    if (column->n_texts > 0) (void)fprintf(to, "  %zu texts", column->n_texts);
    if (n->any && storage_is_real(column->storage)) (void)fprintf(to, "  %.6g to %.6g", n->min, n->max);
    else if (n->any) (void)fprintf(to, "  %lld to %lld", (long long)n->integer_min, (long long)n->integer_max);
    if (n->n_infinite > 0) (void)fprintf(to, "  %llu infinite", (unsigned long long)n->n_infinite);
    (void)fputc('\n', to);
}

static void put_table(FILE *to, const struct packed_reader *r)
{
    const struct schema *s = packed_reader_schema(r);
    const json_t *inputs = json_object_get(packed_reader_provenance(r), "inputs");
    put_plain(to, packed_reader_path(r));
    (void)fprintf(to, ": %zu rows, %zu columns, %llu bytes\ndigest %s\n", s->n_rows, s->n_columns,
                  (unsigned long long)packed_reader_file_size(r), packed_reader_digest(r));
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        const char *name = json_string_value(json_object_get(in, "name")),
                   *digest = json_string_value(json_object_get(in, DIGEST_NAME));
        if (name == NULL || digest == NULL) continue;
        (void)fputs("made from ", to);
        put_plain(to, name);
        (void)fputs(", SHA-256 of the SHA-256s of 256 KiB blocks ", to);
        put_plain(to, digest);
        (void)fputc('\n', to);
    }
    if (s->n_labels > 0) (void)fprintf(to, "%zu labels:", s->n_labels);
    for (size_t i = 0; i < s->n_labels; i++) {
        (void)fputc(' ', to);
        put_plain(to, s->label[i]);
    }
    if (s->n_labels > 0) (void)fputc('\n', to);
    for (size_t c = 0; c < s->n_columns; c++) put_column(to, r, c);
}

int prep_info(const char *input, bool json, char **text, struct tabft_failure *f)
{
    int error = 0;
    struct packed_reader *r = NULL;
    size_t size;
    TRY(packed_reader_open(&r, input, 1, false, f));
    if (json) {
        TRY(json_text(table_json(r), text, &size, f));
        goto fail;
    }
    FILE *to = open_memstream(text, &size);
    if (to == NULL) FAIL(f, TABFT_SYSTEM, "no memory for a description; give the job more memory");
    put_table(to, r);
    if (fclose(to) != 0) FAIL(f, TABFT_SYSTEM, "no memory for a description; give the job more memory");
fail:
    packed_reader_close(r);
    return error;
}

int prep_verify(const char *input, struct threads *pool, struct tabft_failure *f)
{
    int error = 0;
    struct packed_reader *r = NULL;
    TRY(tbf_verify(input, pool, f));
    TRY(packed_reader_open(&r, input, threads_count(pool), true, f));
    TRY(packed_reader_walk(r, pool, NULL, NULL, f));
fail:
    packed_reader_close(r);
    return error;
}
