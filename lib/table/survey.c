/* Pass 1, looking: what each cell of a segment is, counted by column. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "table/survey.h"

struct survey_context {
    const struct pack *p;
    struct found *found;
    struct survey *survey; /* found's */
    const bool *counted;
};

static void note(struct seen *seen, const struct cell *cell)
{
    if (seen->any) return;
    size_t n = cell->length < SAMPLE_MAX ? cell->length : SAMPLE_MAX;
    seen->any = true;
    seen->offset = cell->offset;
    memcpy(seen->text, cell->text, n);
    seen->text[n] = '\0';
}

static inline void count_integer(struct survey *s, int64_t v)
{
    if (s->n_integer == 0 || v < s->min) s->min = v;
    if (s->n_integer == 0 || v > s->max) s->max = v;
    s->n_integer++;
    if (v >= -(1 << 24) && v <= 1 << 24) return;
    double d = (double)v;
    if ((double)(float)d != d) s->float64 = true;
    if (d >= 0x1p63 || (int64_t)d != v) s->n_rounded++;
}

static void count_real(struct survey *s, double v)
{
    s->n_float++;
    if (isinf(v)) {
        s->n_infinite++;
        s->decimals.none = true;
    }
    if ((double)(float)v != v) s->float64 = true;
}

/* A number cell; false where it is beyond the largest double, so it is no number to us. */
static bool count_number(const struct pack *p, struct survey *s, const struct cell *cell)
{
    const struct number *n = &cell->number;
    int64_t whole;
    double v;
    if (n->integer && number_int64(n, &whole)) {
        count_integer(s, whole);
        return true;
    }
    bool added = !n->integer && decimals_add(&s->decimals, n);
    if (!number_double(n, cell->number_text, cell->number_end, p->format.point, p->locale, &v)) return false;
    if (n->integer) {
        s->n_big++;
        note(&s->big, cell);
        s->decimals.none = true;
        if ((double)(float)v != v) s->float64 = true;
    } else {
        if (!added) decimals_add_value(&s->decimals, v);
        count_real(s, v);
    }
    return true;
}

/* Most numbers are counted by their digits; false for others, and nothing is counted. */
static inline __attribute__((always_inline)) bool count_digits(struct survey *s, const struct number *n)
{
    if (n->integer && n->mantissa <= INT64_MAX && n->n_digits <= NUMBER_DIGITS_MAX) {
        count_integer(s, (int64_t)((n->mantissa ^ (0 - (uint64_t)n->negative)) + n->negative));
        return true;
    }
    /* Once float32 does not hold the column, values do not matter any more. */
    if (n->integer || !s->float64 || n->exponent + (int64_t)n->n_digits >= 300 || !decimals_add(&s->decimals, n))
        return false;
    s->n_float++;
    return true;
}

static int check_text(const struct cell *cell, struct tabft_failure *f)
{
    if (cell->length > TABLE_TEXT_MAX)
        return tabft_fail(f, TABFT_INPUT, "a text of %zu bytes; a cell holds at most %d", cell->length,
                          (int)TABLE_TEXT_MAX);
    if (utf8_valid(cell->text, cell->length)) return 0;
    if (memchr(cell->text, 0, cell->length) != NULL)
        return tabft_fail(f, TABFT_INPUT, "a NUL byte; text in UTF-8 has none");
    return tabft_fail(f, TABFT_INPUT,
                      "bytes that are not UTF-8; iconv -f LATIN1 -t UTF-8, or from what it is, makes them");
}

static int collect_text(struct collected *to, const struct cell *cell, bool limited, struct tabft_failure *f)
{
    if (to->overflow || cell->length == 0) return 0;
    if (limited && to->texts.n > TABLE_LABELS_MAX + PACK_NA_MAX) {
        to->overflow = true;
        return 0;
    }
    return dictionary_add(&to->texts, cell->text, cell->length, f);
}

static int survey_other(const struct pack *p, struct found *found, struct survey *s, size_t column,
                        const struct cell *cell, struct tabft_failure *f)
{
    size_t spelling;
    double v;
    if (cell->length == 0) {
        s->n_empty++;
        return 0;
    }
    if (p->options->n_text_na > 0 && pack_text_missing(p, cell, &spelling))
        found->text_na[column * p->options->n_text_na + spelling]++;
    enum cell_class class = p->column[column].force_text ? CELL_TEXT : pack_classify(p, cell, &spelling, &v);
    switch (class) {
    case CELL_EMPTY: s->n_empty++; break;
    case CELL_NA: found->na[column * p->options->n_na + spelling]++; break;
    case CELL_INFINITE: count_real(s, v); break;
    case CELL_TRUE:
    case CELL_FALSE:
        s->n_boolean++;
        note(&s->boolean, cell);
        break;
    case CELL_TEXT:
        s->n_text++;
        note(&s->text, cell);
        break;
    }
    return check_text(cell, f);
}

static int survey_any(const struct survey_context *x, size_t column, const struct cell *cell, struct tabft_failure *f)
{
    const struct column_plan *plan = &x->p->column[column];
    struct survey *s = &x->survey[column];
    if (!cell->is_number || plan->force_text || !count_number(x->p, s, cell)) {
        int error = survey_other(x->p, x->found, s, column, cell, f);
        if (error < 0) return error;
    }
    size_t spelling;
    if (!plan->collect || (plan->force_text && pack_text_missing(x->p, cell, &spelling))) return 0;
    return collect_text(&x->found->collected[column], cell, !plan->force_text, f);
}

static inline __attribute__((always_inline)) int survey_cell(void *context, uint64_t record, size_t column,
                                                             const struct cell *cell, struct tabft_failure *f)
{
    const struct survey_context *x = context;
    (void)record;
    if (cell->is_number && x->counted[column] && count_digits(&x->survey[column], &cell->number)) return 0;
    return survey_any(x, column, cell, f);
}

/* Only the texts of columns that pack_collect asks for. */
static inline int collect_cell(void *context, uint64_t record, size_t column, const struct cell *cell,
                               struct tabft_failure *f)
{
    const struct survey_context *x = context;
    (void)record;
    size_t spelling;
    if (!x->p->column[column].collect || pack_text_missing(x->p, cell, &spelling)) return 0;
    return collect_text(&x->found->collected[column], cell, false, f);
}

static void survey_matrix(const struct pack *p, struct found *found, const unsigned char *at)
{
    const struct npy *n = &p->npy[found->segment->input];
    uint64_t cells = found->segment->size / n->item;
    for (uint64_t i = 0; i < cells; i++, at += n->item) {
        size_t column = (size_t)(i % n->columns);
        struct survey *s = &found->survey[column];
        int64_t whole = 0;
        double v = 0;
        if (!npy_cell(n, at, &whole, &v)) {
            s->n_big++;
        } else if (n->type == 'b') {
            whole = whole != 0;
            s->n_boolean++;
        } else if (n->type != 'f') {
            count_integer(s, whole);
        } else if (isnan(v)) {
            s->n_empty++;
        } else {
            if (n->item == 8) decimals_add_value(&s->decimals, v);
            count_real(s, v);
        }
        if (!p->column[column].collect || (n->type == 'f' && isnan(v))) continue;
        char text[NUMBER_PRINT_MAX];
        struct cell cell = {.text = text};
        cell.length = n->type == 'f' ? number_print_double(v, p->locale, text) : number_print_int64(whole, text);
        if (collect_text(&found->collected[column], &cell, true, &found->failure) < 0) return;
    }
}

/* ---- segments ---- */

static int add_segment(struct pack *p, const struct segment *s, struct tabft_failure *f)
{
    int error = 0;
    if (p->n_segments == p->room_segments) {
        size_t room = p->room_segments == 0 ? 256 : 2 * p->room_segments;
        TRY(memory_grow(&p->segment, room, sizeof *p->segment, "the list of segments", f));
        p->room_segments = room;
    }
    p->segment[p->n_segments++] = *s;
fail:
    return error;
}

int found_new(struct found *to, const struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&to->survey, p->n_columns, sizeof *to->survey, "counts", f));
    TRY(memory_new(&to->counted, p->n_columns, sizeof *to->counted, "counts", f));
    TRY(memory_new(&to->na, p->n_columns * p->options->n_na, sizeof *to->na, "counts", f));
    TRY(memory_new(&to->text_na, p->n_columns * p->options->n_text_na, sizeof *to->text_na, "counts", f));
    TRY(memory_new(&to->collected, p->n_columns, sizeof *to->collected, "counts", f));
fail:
    return error;
}

void found_reset(struct found *to, const struct pack *p)
{
    memset(to->survey, 0, p->n_columns * sizeof *to->survey);
    for (size_t c = 0; c < p->n_columns; c++) to->counted[c] = !p->column[c].force_text && !p->column[c].collect;
    memset(to->na, 0, p->n_columns * p->options->n_na * sizeof *to->na);
    memset(to->text_na, 0, p->n_columns * p->options->n_text_na * sizeof *to->text_na);
    for (size_t c = 0; c < p->n_columns; c++) {
        if (p->column[c].collect) dictionary_clear(&to->collected[c].texts);
        to->collected[c].overflow = false;
    }
    to->records = (struct records){
        .format = &p->format, .n_columns = p->n_columns, .unquoted = to->records.unquoted, .room = to->records.room};
    to->failure = (struct tabft_failure){0};
}

void found_free(struct found *to, const struct pack *p)
{
    for (size_t c = 0; to->collected != NULL && c < p->n_columns; c++) dictionary_clear(&to->collected[c].texts);
    free(to->survey);
    free(to->counted);
    free(to->na);
    free(to->text_na);
    free(to->collected);
    free(to->records.unquoted);
}

static void merge_seen(struct seen *to, const struct seen *from, const struct segment *s)
{
    if (to->any || !from->any) return;
    *to = *from;
    to->input = s->input;
    to->offset += s->offset;
}

static void merge_survey(struct survey *to, const struct survey *from, const struct segment *s)
{
    if (from->n_integer > 0) {
        if (to->n_integer == 0 || from->min < to->min) to->min = from->min;
        if (to->n_integer == 0 || from->max > to->max) to->max = from->max;
    }
    to->n_empty += from->n_empty;
    to->n_integer += from->n_integer;
    to->n_big += from->n_big;
    to->n_float += from->n_float;
    to->n_boolean += from->n_boolean;
    to->n_text += from->n_text;
    to->n_rounded += from->n_rounded;
    to->n_infinite += from->n_infinite;
    to->float64 = to->float64 || from->float64;
    decimals_merge(&to->decimals, &from->decimals);
    merge_seen(&to->text, &from->text, s);
    merge_seen(&to->big, &from->big, s);
    merge_seen(&to->boolean, &from->boolean, s);
}

static int merge_collected(struct pack *p, const struct found *from, struct tabft_failure *f)
{
    int error = 0;
    for (size_t c = 0; c < p->n_columns; c++) {
        struct column_plan *to = &p->column[c];
        if (!to->collect || to->collected.overflow) continue;
        TRY(dictionary_add_all(&to->collected.texts, &from->collected[c].texts, f));
        to->collected.overflow = from->collected[c].overflow ||
                                 (!to->force_text && to->collected.texts.n > TABLE_LABELS_MAX + PACK_NA_MAX);
    }
fail:
    return error;
}

int found_merge(struct pack *p, const struct found *from, struct tabft_failure *f)
{
    int error = 0;
    struct segment s = *from->segment;
    if (from->failure.code != 0) {
        if (from->failure.code != TABFT_INPUT) return tabft_fail(f, from->failure.code, "%s", from->failure.message);
        return input_fail(&p->input[s.input], s.offset + from->records.failed_at, f, "%s", from->failure.message);
    }
    for (size_t c = 0; c < p->n_columns; c++) {
        struct column_plan *to = &p->column[c];
        merge_survey(&to->survey, &from->survey[c], &s);
        for (size_t i = 0; i < p->options->n_na; i++) to->na[i] += from->na[c * p->options->n_na + i];
        for (size_t i = 0; i < p->options->n_text_na; i++)
            to->text_na[i] += from->text_na[c * p->options->n_text_na + i];
    }
    TRY(merge_collected(p, from, f));
    s.first_row = p->n_rows;
    s.n_rows = p->is_npy ? s.size / (p->npy[s.input].item * p->npy[s.input].columns) : from->records.n_records;
    TRY(add_segment(p, &s, f));
    p->n_rows += s.n_rows;
    p->n_blank += from->records.n_blank;
    p->n_short += from->records.n_short;
fail:
    return error;
}

void found_survey(struct found *found, const struct pack *p, const char *begin)
{
    if (p->is_npy) {
        survey_matrix(p, found, (const unsigned char *)begin);
        return;
    }
    struct survey_context x = {p, found, found->survey, found->counted};
    (void)records_walk(&found->records, begin, begin + found->segment->size, survey_cell, &x, &found->failure);
}

/* ---- texts of columns that looked like numbers ---- */

struct collect_loop {
    struct pack *p;
    size_t first;        /* segment of block 0 */
    struct found *found; /* [blocks] */
};

static void collect_segment(void *context, size_t block, int thread)
{
    struct collect_loop *l = context;
    struct found *found = &l->found[block];
    const struct segment *s = &l->p->segment[l->first + block];
    char *text = NULL;
    (void)thread;
    found_reset(found, l->p);
    found->segment = s;
    if (memory_new(&text, s->size + RECORDS_PADDING, 1, "text", &found->failure) < 0) return;
    if (input_get(&l->p->input[s->input], s->offset, text, s->size, &found->failure) == 0) {
        text[s->size] = text[s->size + 1] = '\n';
        struct survey_context x = {l->p, found, found->survey, found->counted};
        (void)records_walk(&found->records, text, text + s->size, collect_cell, &x, &found->failure);
    }
    free(text);
}

int pack_collect(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    size_t wanted = 0, at_once = (size_t)threads_count(p->pool) * BLOCKS_A_THREAD;
    struct collect_loop l = {.p = p};
    for (size_t c = 0; c < p->n_columns; c++) {
        struct column_plan *column = &p->column[c];
        bool have = column->collect && !column->collected.overflow;
        column->collect = p->schema.column[c].kind == TABLE_TEXT && !have && p->target != (ptrdiff_t)c;
        wanted += column->collect;
        if (column->collect) column->collected.overflow = false;
    }
    if (wanted == 0) return 0;
    TRY(memory_new(&l.found, at_once, sizeof *l.found, "blocks", f));
    for (size_t i = 0; i < at_once; i++) TRY(found_new(&l.found[i], p, f));
    for (; l.first < p->n_segments; l.first += at_once) {
        size_t n = p->n_segments - l.first < at_once ? p->n_segments - l.first : at_once;
        threads_run(p->pool, n, collect_segment, &l);
        for (size_t i = 0; i < n; i++) {
            const struct found *found = &l.found[i];
            if (found->failure.code != 0)
                FAIL(f, found->failure.code, "%s: %s", input_said(&p->input[found->segment->input]),
                     found->failure.message);
            for (size_t c = 0; c < p->n_columns; c++) {
                if (p->column[c].collect)
                    TRY(dictionary_add_all(&p->column[c].collected.texts, &found->collected[c].texts, f));
            }
        }
    }
fail:
    for (size_t i = 0; l.found != NULL && i < at_once; i++) found_free(&l.found[i], p);
    free(l.found);
    return error;
}
