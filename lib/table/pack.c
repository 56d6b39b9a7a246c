#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/pack_internal.h"

void pack_say(const struct pack *p, bool warning, const char *format, ...)
{
    char line[TABFT_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    p->say->line(p->say->context, warning, line);
}

static int check_options(const struct pack_options *o, struct tabft_failure *f)
{
    static const char never[] = "\"\r\n.+-0123456789eE";
    size_t stdin_inputs = 0;
    for (size_t i = 0; i < o->n_inputs; i++) stdin_inputs += strcmp(o->input[i], "-") == 0;
    if (o->n_inputs < 1) return tabft_fail(f, TABFT_USE, "no input; name files, or - for stdin");
    if (stdin_inputs > 1)
        return tabft_fail(f, TABFT_USE, "stdin is named %zu times; it can be read once", stdin_inputs);
    if (o->delimiter != 0 && strchr(never, o->delimiter) != NULL)
        return tabft_fail(f, TABFT_USE, "--delimiter \"%c\": it occurs in numbers or quotes", o->delimiter);
    if (o->point != '.' && o->point != ',')
        return tabft_fail(f, TABFT_USE, "--decimal \"%c\": . and , are known", o->point);
    if (o->target == NULL && o->schema == NULL && (o->task != TABLE_NO_TASK || o->classes))
        return tabft_fail(f, TABFT_USE, "--task and --classes are about a --target; name that, too");
    if (o->classes && o->task == TABLE_REGRESSION)
        return tabft_fail(f, TABFT_USE, "--classes and --task regression contradict each other; give one of them");
    if (o->n_na > PACK_NA_MAX || o->n_text_na > PACK_NA_MAX)
        return tabft_fail(f, TABFT_USE, "more than %d spellings of missing cells; make them fewer before",
                          (int)PACK_NA_MAX);
    if (o->n_survey > 0 && o->n_parts == 0)
        return tabft_fail(f, TABFT_USE, "--survey is about the other parts of a --part; give that, too");
    if (o->n_parts > 0 && o->part >= o->n_parts)
        return tabft_fail(f, TABFT_USE, "--part %zu/%zu: parts are numbered from 0", o->part, o->n_parts);
    if (o->block_bytes < 1 || o->block_bytes > 64 << 20)
        return tabft_fail(f, TABFT_USE, "--block-bytes: 1 to %d", 64 << 20);
    return 0;
}

static int open_inputs(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    const struct pack_options *o = p->options;
    TRY(memory_new(&p->input, o->n_inputs, sizeof *p->input, "inputs", f));
    TRY(memory_new(&p->npy, o->n_inputs, sizeof *p->npy, "inputs", f));
    TRY(pack_share(p, f));
    while (p->first + 1 < o->n_inputs && !p->range[p->first].used) p->first++;
    /* A part that has no bytes has a header all the same. */
    if (!p->range[p->first].used) p->first = 0;
    for (size_t i = 0; i < o->n_inputs; i++)
        if (p->range[i].used || i == p->first)
            TRY(input_open(&p->input[i], o->input[i], o->output, o->unpacked_limit, f));
    const struct input *named = &p->input[0];
    bool tabs = input_named(named, "tsv") || input_named(named, "tab");
    p->format = (struct format){.delimiter = o->delimiter != 0 ? o->delimiter
                                             : tabs            ? '\t'
                                                               : ',',
                                .point = o->point,
                                .fill_short = o->fill_short};
    if (p->format.delimiter == p->format.point) FAIL(f, TABFT_USE, "--decimal , needs another --delimiter, as \";\"");
fail:
    return error;
}

static json_t *json_list(const char *const *text, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_string(text[i]));
    return list;
}

static json_t *json_inputs(const struct pack *p)
{
    json_t *inputs = json_array();
    for (size_t i = 0; i < p->options->n_inputs; i++) {
        const struct input *in = &p->input[i];
        char hex[2 * DIGEST_SIZE + 1];
        json_t *name = json_string(in->name); /* NULL where the name is not UTF-8 */
        json_t *entry = json_pack("{s:o, s:I}", "name", name != NULL ? name : json_string("(not UTF-8)"), "bytes",
                                  (json_int_t)in->stored_size);
        digest_root(in->digest.leaf, in->digest.n, hex);
        /* Of a part nobody knows that of whole files yet: merge adds it. */
        if (p->options->n_parts == 0) json_object_set_new(entry, DIGEST_NAME, json_string(hex));
        json_array_append_new(inputs, entry);
    }
    return inputs;
}

/* What made the file: no times, no places, no threads, so that it can be made again bit for bit. */
static int provenance(const struct pack *p, char **text, struct tabft_failure *f)
{
    const struct pack_options *o = p->options;
    char delimiter[2] = {p->format.delimiter, '\0'}, point[2] = {p->format.point, '\0'};
    json_t *options = json_pack("{s:s, s:s, s:b, s:b, s:b, s:o, s:o, s:o, s:o}", "delimiter", delimiter, "decimal",
                                point, "header", !o->no_header, "fill_short", o->fill_short, "classes", o->classes,
                                "text", json_list(o->text, o->n_text), "numeric", json_list(o->numeric, o->n_numeric),
                                "na", json_list(o->na, o->n_na), "na_text", json_list(o->text_na, o->n_text_na));
    json_t *all = json_pack("{s:s, s:s, s:o, s:o}", "tool", "tabft-prep pack", "version", PACKAGE_VERSION, "inputs",
                            json_inputs(p), "options", options);
    if (all != NULL && o->n_parts > 0) json_object_set_new(all, "part", pack_part_json(p));
    size_t size;
    return json_text(all, text, &size, f);
}

static int write_table(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    const struct pack_options *o = p->options;
    struct packed_writer *w = NULL, *closing;
    char *made_by = NULL;
    p->schema.n_rows = (size_t)p->n_rows;
    TRY(provenance(p, &made_by, f));
    TRY(packed_writer_open(
        &w, &(struct packed_start){o->output, o->force, PACK_LEVEL, &p->schema, p->texts, made_by, NULL}, p->pool, f));
    TRY(pack_fill(p, w, f));
    for (size_t i = 0; i < o->n_inputs; i++) TRY(input_unchanged(&p->input[i], f));
    closing = w;
    w = NULL;
    TRY(packed_writer_close(closing, f));
fail:
    packed_writer_abandon(w);
    free(made_by);
    return error;
}

static void clear(struct pack *p)
{
    for (size_t i = 0; p->input != NULL && i < p->options->n_inputs; i++) input_close(&p->input[i]);
    for (size_t c = 0; p->column != NULL && c < p->n_columns; c++) {
        struct column_plan *column = &p->column[c];
        free(column->name);
        free(column->na);
        free(column->text_na);
        free(column->label_integer);
        free(column->label_double);
        free(column->label_of_text);
        dictionary_clear(&column->collected.texts);
    }
    for (size_t c = 0; p->texts != NULL && c < p->n_columns; c++) texts_clear(&p->texts[c]);
    free(p->texts);
    free(p->column);
    free(p->input);
    free(p->npy);
    free(p->segment);
    free(p->range);
    schema_clear(&p->schema);
    if (p->locale != (locale_t)0) freelocale(p->locale);
}

int prep_pack(const struct pack_options *options, struct threads *pool, const struct prep_say *say,
              struct tabft_failure *f)
{
    int error = 0;
    struct pack p = {.options = options,
                     .pool = pool,
                     .say = say,
                     .target = TABLE_NO_TARGET,
                     .task = options->classes ? TABLE_CLASSIFICATION : options->task};
    p.asked = p.task;
    p.schema.target = TABLE_NO_TARGET;
    TRY(check_options(options, f));
    TRY(number_locale(&p.locale, f));
    TRY(open_inputs(&p, f));
    TRY(pack_header(&p, f));
    TRY(pack_ranges(&p, f));
    TRY(pack_survey(&p, f));
    TRY(pack_add_surveys(&p, f));
    TRY(pack_decide(&p, f));
    TRY(pack_collect(&p, f));
    TRY(pack_labels(&p, f));
    TRY(write_table(&p, f));
    pack_report(&p);
fail:
    clear(&p);
    return error;
}
