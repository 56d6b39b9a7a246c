/* pack --part: what of the inputs belongs to a part. The blocks of all inputs' digests, one after the other, are shared
 * out; a record belongs to the part in whose bytes it begins. So a part reads its bytes, the header, and a little more:
 * where a record begins depends on whether a byte lies in a quoted cell, which the bytes behind it tell. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/pack_internal.h"

enum { LOOK_FIRST = 64 << 10, QUOTES_CHUNK = 1 << 20 };
/* How much is looked at: a little, then more than a cell can be, then more than a record can be. */
static const size_t looks[] = {LOOK_FIRST, TABLE_TEXT_MAX + LOOK_FIRST, RECORD_MAX + LOOK_FIRST};

/* ---- which bytes ---- */

static void share_blocks(struct pack *p)
{
    const struct pack_options *o = p->options;
    uint64_t all = 0, first = 0;
    for (size_t i = 0; i < o->n_inputs; i++) all += digest_blocks(p->input[i].stored_size);
    uint64_t begin = (uint64_t)((unsigned __int128)all * o->part / o->n_parts),
             end = (uint64_t)((unsigned __int128)all * (o->part + 1) / o->n_parts);
    for (size_t i = 0; i < o->n_inputs; i++) {
        uint64_t n = digest_blocks(p->input[i].stored_size), size = p->input[i].stored_size;
        uint64_t from = begin > first ? begin - first : 0, to = end > first ? end - first : 0;
        if (to > n) to = n;
        first += n;
        if (from >= to) continue;
        p->range[i] = (struct range){.used = true,
                                     .first_block = from,
                                     .bytes_begin = from * DIGEST_BLOCK,
                                     .bytes_end = to * DIGEST_BLOCK < size ? to * DIGEST_BLOCK : size};
    }
}

/* Gzipped inputs are unpacked from their begin, so a part takes whole files. */
static int share_files(struct pack *p, struct tabft_failure *f)
{
    const struct pack_options *o = p->options;
    if (o->n_parts > o->n_inputs)
        return tabft_fail(f, TABFT_USE,
                          "--part %zu/%zu: gzipped inputs are packed a file a part at least, and there are %zu; use so "
                          "many parts, or unpack them",
                          o->part, o->n_parts, o->n_inputs);
    for (size_t i = o->n_inputs * o->part / o->n_parts; i < o->n_inputs * (o->part + 1) / o->n_parts; i++)
        p->range[i] = (struct range){.used = true, .bytes_end = p->input[i].stored_size};
    return 0;
}

int pack_share(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    const struct pack_options *o = p->options;
    bool plain = true, is_plain;
    TRY(memory_new(&p->range, o->n_inputs, sizeof *p->range, "inputs", f));
    if (o->n_parts == 0) {
        for (size_t i = 0; i < o->n_inputs; i++) p->range[i].used = true;
        return 0;
    }
    for (size_t i = 0; i < o->n_inputs; i++) {
        TRY(input_look(&p->input[i], o->input[i], &is_plain, f));
        plain = plain && is_plain;
    }
    if (plain) share_blocks(p);
    else TRY(share_files(p, f));
fail:
    return error;
}

/* ---- where records begin ---- */

/* What a guess about quotes comes to, byte for byte in the grammar of records.h. */
enum place { CELL_BEGIN, PLAIN, QUOTED, CLOSED, BAD };

static enum place step(const struct format *format, enum place at, char c)
{
    switch (at) {
    case QUOTED: return c == '"' ? CLOSED : QUOTED;
    case CLOSED:
        if (c == '"') return QUOTED;
        return c == format->delimiter || c == '\n' ? CELL_BEGIN : c == '\r' ? CLOSED : BAD;
    case CELL_BEGIN:
    case PLAIN:
        if (c == '"') return at == CELL_BEGIN ? QUOTED : BAD;
        return c == format->delimiter || c == '\n' ? CELL_BEGIN : PLAIN;
    default: return BAD;
    }
}

enum verdict { POSSIBLE, IMPOSSIBLE };

/* Can text [n], of which `all` of the file's rest is there, begin inside a quoted cell? */
static enum verdict try_inside(const struct pack *p, const char *text, size_t n, bool all)
{
    enum place at = QUOTED;
    size_t columns = 0;
    bool whole = false; /* records are complete from here on */
    for (size_t i = 0; i < n; i++) {
        enum place before = at;
        /* A cell so long is refused wherever it is. */
        if (i == TABLE_TEXT_MAX + 2 && memchr(text, '"', i) == NULL) return IMPOSSIBLE;
        at = step(&p->format, at, text[i]);
        if (at == BAD) return IMPOSSIBLE;
        if (before == QUOTED || at != CELL_BEGIN) continue;
        columns++;
        if (text[i] != '\n') continue;
        bool blank = columns == 1 && (i == 0 || text[i - 1] == '\n' || text[i - 1] == '\r');
        if (whole && !blank && (p->format.fill_short ? columns > p->n_columns : columns != p->n_columns))
            return IMPOSSIBLE;
        whole = true;
        columns = 0;
    }
    return all && at == QUOTED ? IMPOSSIBLE : POSSIBLE; /* a quote that is never closed */
}

/* Can it begin outside of one? Then from its first line feed on there are records. */
static enum verdict try_outside(const struct pack *p, const char *text, size_t n, bool all)
{
    size_t i = 0, columns = 0;
    bool outside = true;
    for (; i < n && !(text[i] == '\n' && outside); i++) outside = outside != (text[i] == '"');
    enum place at = CELL_BEGIN;
    for (i++; i < n; i++) {
        enum place before = at;
        at = step(&p->format, at, text[i]);
        if (at == BAD) return IMPOSSIBLE;
        if (before == QUOTED || at != CELL_BEGIN) continue;
        columns++;
        if (text[i] != '\n') continue;
        bool blank = columns == 1 && (text[i - 1] == '\n' || text[i - 1] == '\r');
        if (!blank && (p->format.fill_short ? columns > p->n_columns : columns != p->n_columns)) return IMPOSSIBLE;
        columns = 0;
    }
    return all && at == QUOTED ? IMPOSSIBLE : POSSIBLE;
}

/* Quotes up to there, from the begin: what is certain. */
static int count_quotes(const struct input *in, uint64_t end, bool *inside, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    size_t quotes = 0;
    TRY(memory_new(&text, QUOTES_CHUNK, 1, "text", f));
    for (uint64_t at = in->start; at < end;) {
        size_t n = end - at < QUOTES_CHUNK ? (size_t)(end - at) : QUOTES_CHUNK;
        TRY(input_get(in, at, text, n, f));
        for (const char *q = text; (q = memchr(q, '"', n - (size_t)(q - text))) != NULL; q++) quotes++;
        at += n;
    }
    *inside = quotes % 2 != 0;
fail:
    free(text);
    return error;
}

/* Does byte `at` lie in a quoted cell? One of both guesses is refuted by what follows, mostly soon; where neither is,
 * everything before it is looked at. */
static int lies_inside(const struct pack *p, const struct input *in, uint64_t at, bool *inside, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        size_t n = in->size - at < looks[i] ? (size_t)(in->size - at) : looks[i];
        bool all = at + n == in->size;
        TRY(memory_grow(&text, n, 1, "text", f));
        TRY(input_get(in, at, text, n, f));
        bool can_be_inside = try_inside(p, text, n, all) == POSSIBLE,
             can_be_outside = try_outside(p, text, n, all) == POSSIBLE;
        if (can_be_inside != can_be_outside) {
            *inside = can_be_inside;
            goto fail;
        }
        if (!can_be_inside || all) break;
    }
    TRY(count_quotes(in, at, inside, f));
fail:
    free(text);
    return error;
}

/* *begin: where the first record begins at or behind `at`. */
static int find_record(const struct pack *p, const struct input *in, uint64_t at, uint64_t *begin,
                       struct tabft_failure *f)
{
    int error = 0;
    bool inside;
    char *text = NULL;
    *begin = at < in->start ? in->start : at;
    if (at <= in->start || at >= in->size) return 0;
    at--; /* a line feed there ends a record */
    TRY(lies_inside(p, in, at, &inside, f));
    TRY(memory_new(&text, LOOK_FIRST, 1, "text", f));
    for (*begin = in->size; at < in->size;) {
        size_t n = in->size - at < LOOK_FIRST ? (size_t)(in->size - at) : LOOK_FIRST, i = 0;
        TRY(input_get(in, at, text, n, f));
        for (; i < n && (inside || text[i] != '\n'); i++) inside = inside != (text[i] == '"');
        at += n;
        if (i == n) continue;
        *begin = at - n + i + 1;
        break;
    }
fail:
    free(text);
    return error;
}

static uint64_t find_row(const struct npy *n, const struct input *in, uint64_t at)
{
    uint64_t row = n->columns * n->item;
    if (at <= n->offset || row == 0) return n->offset;
    if (at >= in->size) return in->size;
    return n->offset + (at - n->offset + row - 1) / row * row;
}

int pack_ranges(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    for (size_t i = 0; i < p->options->n_inputs; i++) {
        struct range *r = &p->range[i];
        const struct input *in = &p->input[i];
        if (!r->used) continue;
        uint64_t start = p->is_npy ? p->npy[i].offset : in->start;
        bool in_parts = p->options->n_parts > 0 && in->scratch == NULL;
        if (!in_parts) {
            r->bytes_end = in->stored_size;
            r->begin = start;
            r->end = in->size;
        } else if (p->is_npy) {
            r->begin = find_row(&p->npy[i], in, r->bytes_begin);
            r->end = find_row(&p->npy[i], in, r->bytes_end);
        } else {
            TRY(find_record(p, in, r->bytes_begin, &r->begin, f));
            TRY(find_record(p, in, r->bytes_end, &r->end, f));
        }
    }
fail:
    return error;
}

/* ---- what parts tell merge, and each other ---- */

json_t *pack_part_json(const struct pack *p)
{
    json_t *inputs = json_array(), *survey = json_array();
    for (size_t i = 0; i < p->options->n_inputs; i++) {
        const struct range *r = &p->range[i];
        const struct digest *d = &p->input[i].digest;
        if (!r->used) {
            json_array_append_new(inputs, json_null());
            continue;
        }
        char *hex = calloc(2 * DIGEST_SIZE * d->n + 1, 1);
        static const char digit[] = "0123456789abcdef";
        for (size_t k = 0; hex != NULL && k < DIGEST_SIZE * d->n; k++) {
            hex[2 * k] = digit[d->leaf[k] >> 4];
            hex[2 * k + 1] = digit[d->leaf[k] & 15];
        }
        json_array_append_new(inputs,
                              json_pack("{s:I, s:I, s:I, s:s}", "first_block", (json_int_t)r->first_block, "begin",
                                        (json_int_t)r->begin, "end", (json_int_t)r->end, "blocks", hex));
        free(hex);
    }
    for (size_t c = 0; c < p->n_columns; c++) {
        const struct column_plan *plan = &p->column[c];
        const struct survey *s = &plan->survey;
        json_array_append_new(survey, json_pack("[I, I, I, I, I, b]", (json_int_t)s->n_integer, (json_int_t)s->n_big,
                                                (json_int_t)s->n_float, (json_int_t)s->n_boolean, (json_int_t)s->n_text,
                                                plan->force_text || plan->force_number));
    }
    return json_pack("{s:I, s:I, s:s, s:o, s:o}", "index", (json_int_t)p->options->part, "of",
                     (json_int_t)p->options->n_parts, "task", p->asked == TABLE_NO_TASK ? "auto" : task_name(p->asked),
                     "inputs", inputs, "survey", survey);
}

bool pack_part_survey(const json_t *provenance, size_t c, struct survey *s, bool *forced)
{
    const json_t *n = json_array_get(json_object_get(json_object_get(provenance, "part"), "survey"), c);
    if (json_array_size(n) != 6) return false;
    s->n_integer += (uint64_t)json_integer_value(json_array_get(n, 0));
    s->n_big += (uint64_t)json_integer_value(json_array_get(n, 1));
    s->n_float += (uint64_t)json_integer_value(json_array_get(n, 2));
    s->n_boolean += (uint64_t)json_integer_value(json_array_get(n, 3));
    s->n_text += (uint64_t)json_integer_value(json_array_get(n, 4));
    *forced = json_is_true(json_array_get(n, 5));
    return true;
}

/* --survey: what other parts of the same table saw counts for the kinds of this one. */
int pack_add_surveys(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    struct packed_reader *r = NULL;
    bool forced;
    for (size_t i = 0; i < p->options->n_survey; i++) {
        const char *path = p->options->survey[i];
        TRY(packed_reader_open(&r, path, 1, false, f));
        const json_t *made = packed_reader_provenance(r), *part = json_object_get(made, "part");
        const json_t *index = json_object_get(part, "index"), *of = json_object_get(part, "of");
        if (part == NULL || packed_reader_schema(r)->n_columns != p->n_columns ||
            json_integer_value(of) != (json_int_t)p->options->n_parts)
            FAIL(f, TABFT_INPUT, "%s: is no part of %zu of this table; --survey takes the other parts", path,
                 p->options->n_parts);
        for (size_t c = 0; json_integer_value(index) != (json_int_t)p->options->part && c < p->n_columns; c++) {
            if (strcmp(packed_reader_schema(r)->column[c].name, p->column[c].name) != 0 ||
                !pack_part_survey(made, c, &p->column[c].others, &forced))
                FAIL(f, TABFT_INPUT, "%s: is a part of another table; name the other parts of this one", path);
        }
        packed_reader_close(r);
        r = NULL;
    }
fail:
    packed_reader_close(r);
    return error;
}
