/* From what was seen of each column to its kind, its storage, the task and the labels; and what the user is told of it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/labels.h"
#include "table/pack_internal.h"

static void place_text(const struct pack *p, const struct seen *seen, char text[MESSAGE_MAX])
{
    uint64_t line = 0, column = 0;
    struct tabft_failure ignored = {0};
    if (p->is_npy || input_place(&p->input[seen->input], seen->offset, &line, &column, &ignored) < 0) {
        (void)snprintf(text, MESSAGE_MAX, "%s", input_said(&p->input[seen->input]));
        return;
    }
    (void)snprintf(text, MESSAGE_MAX, "%.*s:%llu:%llu", MESSAGE_MAX - 64, input_said(&p->input[seen->input]),
                   (unsigned long long)line, (unsigned long long)column);
}

static uint64_t numbers_of(const struct survey *s) { return s->n_integer + s->n_big + s->n_float; }

enum table_kind pack_kind_of(const struct survey *s, const struct seen **because)
{
    *because = NULL;
    if (s->n_text > 0) *because = &s->text;
    else if (s->n_boolean > 0 && numbers_of(s) > 0) *because = &s->boolean;
    else if (s->n_boolean > 0) return TABLE_BOOLEAN;
    else if (s->n_float > 0) return TABLE_FLOAT;
    else if (s->n_big > 0) *because = &s->big;
    else return s->n_integer > 0 ? TABLE_INTEGER : TABLE_FLOAT;
    return TABLE_TEXT;
}

static int decide_kind(const struct pack *p, const struct column_plan *plan, enum table_kind *kind,
                       struct tabft_failure *f)
{
    struct survey all = plan->survey;
    const struct survey *s = &all, *others = &plan->others;
    const struct seen *because;
    char place[MESSAGE_MAX];
    all.n_integer += others->n_integer;
    all.n_big += others->n_big;
    all.n_float += others->n_float;
    all.n_boolean += others->n_boolean;
    all.n_text += others->n_text;
    *kind = plan->force_text ? TABLE_TEXT : pack_kind_of(s, &because);
    if (plan->force_text || *kind != TABLE_TEXT) {
        if (*kind == TABLE_INTEGER && plan->force_float) *kind = TABLE_FLOAT;
        if (*kind != TABLE_BOOLEAN || !plan->force_number) return 0;
        because = &s->boolean;
    }
    if (because == &s->big && p->is_npy)
        return tabft_fail(f, TABFT_INPUT, "column %s: an integer beyond 2^63-1; save it as floats (array.astype)",
                          plan->name);
    if (because == &s->big && plan->force_number) {
        *kind = TABLE_FLOAT;
        return 0;
    }
    if (!because->any) return 0; /* another part has it, and says so */
    place_text(p, because, place);
    if (plan->force_number)
        return tabft_fail(f, TABFT_INPUT, "%s: \"%s\" in column %s is no number; correct it, or list it with --na",
                          place, because->text, plan->name);
    if (because == &s->big) {
        pack_say(p, true,
                 "%s: column %s is text, which keeps it exact: \"%s\" is beyond 64-bit integers (--numeric %s rounds "
                 "it to float64)",
                 place, plan->name, because->text, plan->name);
    } else if (numbers_of(s) > 0 || (s->n_boolean > 0 && s->n_text > 0)) {
        pack_say(p, true,
                 "%s: column %s is text because of \"%s\"; %llu of its cells are numbers (--na takes such cells as "
                 "missing, --numeric %s refuses them)",
                 place, plan->name, because->text, (unsigned long long)numbers_of(s), plan->name);
    }
    return 0;
}

/* The numbers among a target's collected texts, in order, each once. */
struct values {
    size_t n;
    int64_t *integer;
    double *real;
    bool whole;
};

static int compare_integers(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int compare_reals(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void take_value(const struct pack *p, struct values *v, enum table_kind kind, const char *text, size_t length)
{
    struct records r = {.format = &p->format};
    struct cell cell = {.text = text, .length = length};
    size_t spelling;
    double infinite;
    records_trimmed_number(&r, &cell);
    if (kind == TABLE_INTEGER) {
        if (cell.is_number && number_int64(&cell.number, &v->integer[v->n])) v->n++;
        return;
    }
    enum cell_class class = cell.is_number ? CELL_TEXT : pack_classify(p, &cell, &spelling, &infinite);
    if (kind == TABLE_BOOLEAN) {
        if (cell.is_number) v->integer[v->n++] = cell.number.mantissa != 0; /* of an NPY file */
        else if (class == CELL_TRUE || class == CELL_FALSE) v->integer[v->n++] = class == CELL_TRUE;
        return;
    }
    double real = infinite = class == CELL_INFINITE ? infinite : 0;
    if (cell.is_number &&
        !number_double(&cell.number, cell.number_text, cell.number_end, p->format.point, p->locale, &real))
        return;
    if (!cell.is_number && class != CELL_INFINITE) return;
    v->whole = v->whole && real == floor(real) && !isinf(real);
    v->real[v->n++] = real + 0.0; /* -0 is 0 */
}

static int take_values(const struct pack *p, enum table_kind kind, struct values *v, struct tabft_failure *f)
{
    int error = 0;
    const struct dictionary *d = &p->column[p->target].collected.texts;
    *v = (struct values){.whole = true};
    TRY(memory_new(&v->integer, d->n, sizeof *v->integer, "labels", f));
    TRY(memory_new(&v->real, d->n, sizeof *v->real, "labels", f));
    for (size_t i = 0; i < d->n; i++) take_value(p, v, kind, d->bytes + d->offset[i], d->length[i]);
    size_t n = 0;
    if (v->n > 0 && kind == TABLE_FLOAT) qsort(v->real, v->n, sizeof *v->real, compare_reals);
    else if (v->n > 0) qsort(v->integer, v->n, sizeof *v->integer, compare_integers);
    for (size_t i = 0; i < v->n; i++) {
        bool same = n > 0 &&
                    (kind == TABLE_FLOAT ? !(v->real[n - 1] < v->real[i]) : v->integer[n - 1] == v->integer[i]);
        if (same) continue;
        v->real[n] = v->real[i];
        v->integer[n++] = v->integer[i];
    }
    v->n = n;
fail:
    return error;
}

static int decide_task(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    struct column_plan *target = &p->column[p->target];
    enum table_kind kind = p->schema.column[p->target].kind;
    struct values v = {0};
    bool number = kind == TABLE_FLOAT || kind == TABLE_INTEGER;
    if (p->task == TABLE_REGRESSION && !number) {
        FAIL(f, TABFT_INPUT,
             "the target %s is %s, and regression needs numbers; use --task classification, or list what is no number "
             "with --na",
             target->name, kind_name(kind));
    }
    if (p->task != TABLE_REGRESSION) {
        TRY(take_values(p, kind, &v, f));
        bool many = target->collected.overflow || v.n > TABLE_LABELS_MAX ||
                    (kind == TABLE_TEXT && target->collected.texts.n > TABLE_LABELS_MAX);
        bool few = number && v.whole && !many && v.n > 0 && v.n <= PACK_AUTO_LABELS_MAX;
        if (p->task == TABLE_NO_TASK) p->task = !number || few ? TABLE_CLASSIFICATION : TABLE_REGRESSION;
        if (p->task == TABLE_CLASSIFICATION && many) {
            FAIL(f, TABFT_INPUT,
                 "the target %s has more than %d different values; use --task regression for numbers, or another "
                 "--target",
                 target->name, (int)TABLE_LABELS_MAX);
        }
    }
    p->schema.task = p->task;
    p->schema.target = p->target;
    if (p->task != TABLE_CLASSIFICATION || kind == TABLE_TEXT) goto fail; /* texts: pack_labels */
    TRY(memory_new(&p->schema.label, v.n, sizeof *p->schema.label, "labels", f));
    p->schema.n_labels = v.n;
    for (size_t i = 0; i < v.n; i++) {
        char text[NUMBER_PRINT_MAX];
        if (kind == TABLE_BOOLEAN) strcpy(text, v.integer[i] ? "true" : "false");
        else if (kind == TABLE_FLOAT) number_print_label(v.real[i], p->locale, text);
        else number_print_int64(v.integer[i], text);
        TRY(memory_copy_string(&p->schema.label[i], text, f));
    }
    target->label_double = kind == TABLE_FLOAT ? v.real : NULL;
    target->label_integer = kind == TABLE_FLOAT ? NULL : v.integer;
    if (kind == TABLE_FLOAT) v.real = NULL;
    else v.integer = NULL;
fail:
    free(v.integer);
    free(v.real);
    return error;
}

static void float_storage(const struct survey *seen, struct schema_column *to)
{
    struct decimals d = seen->decimals;
    if (seen->n_integer > 0) decimals_add_range(&d, seen->min, seen->max);
    to->storage = seen->float64 ? STORAGE_F64 : STORAGE_F32;
    if (seen->float64) decimals_storage(&d, &to->storage, &to->decimals);
}

int pack_decide(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    struct schema *s = &p->schema;
    TRY(memory_new(&s->column, p->n_columns, sizeof *s->column, "a schema", f));
    s->n_columns = p->n_columns;
    for (size_t c = 0; c < p->n_columns; c++) {
        const struct survey *seen = &p->column[c].survey;
        struct schema_column *to = &s->column[c];
        TRY(memory_copy_string(&to->name, p->column[c].name, f));
        TRY(decide_kind(p, &p->column[c], &to->kind, f));
        if (to->kind == TABLE_FLOAT) float_storage(seen, to);
        else if (to->kind == TABLE_INTEGER) to->storage = storage_of_range(seen->min, seen->max);
        else to->storage = STORAGE_I8;
    }
    if (p->target != TABLE_NO_TARGET) TRY(decide_task(p, f));
fail:
    return error;
}

/* ---- labels that are texts ---- */

static int label_texts(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    struct column_plan *target = &p->column[p->target];
    const struct dictionary *d = &target->collected.texts;
    const char **label = NULL;
    size_t n = 0, spelling;
    TRY(memory_new(&label, d->n, sizeof *label, "labels", f));
    for (size_t i = 0; i < d->n; i++) {
        struct cell cell = {.text = d->bytes + d->offset[i], .length = d->length[i]};
        if (!pack_text_missing(p, &cell, &spelling)) label[n++] = cell.text;
    }
    TRY(labels_sort(label, n, p->locale, f));
    TRY(memory_new(&p->schema.label, n, sizeof *p->schema.label, "labels", f));
    p->schema.n_labels = n;
    TRY(memory_new(&target->label_of_text, d->n, sizeof *target->label_of_text, "labels", f));
    for (size_t i = 0; i < n; i++) {
        TRY(memory_copy_string(&p->schema.label[i], label[i], f));
        target->label_of_text[dictionary_find(d, label[i], strlen(label[i]))] = (uint32_t)i;
    }
fail:
    free(label);
    return error;
}

int pack_labels(struct pack *p, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&p->texts, p->n_columns, sizeof *p->texts, "dictionaries", f));
    if (p->task == TABLE_CLASSIFICATION && p->schema.column[p->target].kind == TABLE_TEXT) TRY(label_texts(p, f));
    for (size_t c = 0; c < p->n_columns; c++) {
        struct schema_column *column = &p->schema.column[c];
        if (!schema_is_code(&p->schema, c)) continue;
        if (column->kind == TABLE_TEXT && !(p->task == TABLE_CLASSIFICATION && p->target == (ptrdiff_t)c)) {
            TRY(dictionary_sort(&p->column[c].collected.texts, &p->texts[c], f));
            column->n_texts = p->texts[c].n;
        }
        column->storage = storage_of_codes(schema_code_count(&p->schema, c));
    }
fail:
    return error;
}

/* ---- reports ---- */

static void report_missing(const struct pack *p, size_t c)
{
    const struct column_plan *plan = &p->column[c];
    bool text = p->schema.column[c].kind == TABLE_TEXT;
    const uint64_t *count = text ? plan->text_na : plan->na;
    const char *const *spelling = text ? p->options->text_na : p->options->na;
    size_t n = text ? p->options->n_text_na : p->options->n_na;
    uint64_t all = plan->survey.n_empty;
    for (size_t i = 0; i < n; i++) all += count[i];
    if (all == 0) return;
    char list[MESSAGE_MAX] = "";
    size_t used = 0;
    if (plan->survey.n_empty > 0)
        used = (size_t)snprintf(list, sizeof list, "%s %llu", p->is_npy ? "NaN" : "empty",
                                (unsigned long long)plan->survey.n_empty);
    for (size_t i = 0; i < n && used < sizeof list; i++) {
        if (count[i] > 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%s\" %llu", used > 0 ? ", " : "",
                                     spelling[i], (unsigned long long)count[i]);
    }
    pack_say(p, false, "column %s: %llu of %llu cells are missing (%s)", plan->name, (unsigned long long)all,
             (unsigned long long)p->n_rows, list);
}

static void report_numbers(const struct pack *p, size_t c)
{
    const struct column_plan *plan = &p->column[c];
    const struct survey *s = &plan->survey;
    enum table_kind kind = p->schema.column[c].kind;
    bool label = p->task == TABLE_CLASSIFICATION && p->target == (ptrdiff_t)c;
    if (kind == TABLE_INTEGER && s->n_rounded > 0 && !label) {
        pack_say(p, true,
                 "column %s: %llu of %llu integers are beyond what a float64 holds; the file keeps them exact, "
                 "training would round them",
                 plan->name, (unsigned long long)s->n_rounded, (unsigned long long)s->n_integer);
    }
    if (kind == TABLE_FLOAT && s->n_rounded + s->n_big > 0) {
        pack_say(p, true, "column %s: %llu integers among its decimal numbers are rounded to float64", plan->name,
                 (unsigned long long)(s->n_rounded + s->n_big));
    }
    if (kind == TABLE_FLOAT && s->n_infinite > 0)
        pack_say(p, true, "column %s: %llu cells are infinite", plan->name, (unsigned long long)s->n_infinite);
}

void pack_report(const struct pack *p)
{
    const char *name = p->column[0].name;
    for (size_t c = 0; c < p->n_columns; c++) {
        report_missing(p, c);
        report_numbers(p, c);
    }
    if (p->n_blank > 0) pack_say(p, true, "%llu blank lines skipped", (unsigned long long)p->n_blank);
    if (p->n_short > 0)
        pack_say(p, true, "%llu short records filled with missing cells", (unsigned long long)p->n_short);
    if (p->n_rows == 0) pack_say(p, true, "the table has no rows");
    if (p->n_columns == 1 && !p->is_npy && strpbrk(name, ",;\t|") != NULL) {
        pack_say(p, true, "the table has one column, called \"%s\"; --delimiter says what lies between cells", name);
    }
    if (p->task == TABLE_CLASSIFICATION) {
        pack_say(p, false, "%llu rows, %zu columns, target %s: classification, %zu labels",
                 (unsigned long long)p->n_rows, p->n_columns, p->column[p->target].name, p->schema.n_labels);
    } else if (p->task == TABLE_REGRESSION) {
        pack_say(p, false, "%llu rows, %zu columns, target %s: regression", (unsigned long long)p->n_rows, p->n_columns,
                 p->column[p->target].name);
    } else {
        pack_say(p, false, "%llu rows, %zu columns, no target", (unsigned long long)p->n_rows, p->n_columns);
    }
}
