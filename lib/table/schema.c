#include "table/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tbf/tbf.h"

size_t storage_size(enum page_storage s)
{
    switch (s) {
    case STORAGE_I8:
    case STORAGE_D8: return 1;
    case STORAGE_I16:
    case STORAGE_D16: return 2;
    case STORAGE_I32:
    case STORAGE_D32:
    case STORAGE_F32: return 4;
    case STORAGE_I64:
    case STORAGE_F64: break;
    }
    return 8;
}

static const char *const storage_names[] = {NULL, "i8", "i16", "i32", "i64", "f32", "f64", "d8", "d16", "d32"};
static const char *const kind_names[] = {NULL, "float", "integer", "text", "boolean"};
static const char *const task_names[] = {"none", "classification", "regression"};

const char *storage_name(enum page_storage s) { return storage_names[s]; }
const char *kind_name(enum table_kind k) { return kind_names[k]; }
const char *task_name(enum table_task t) { return task_names[t]; }

enum page_storage storage_of_range(int64_t min, int64_t max)
{
    if (min >= INT8_MIN && max <= INT8_MAX) return STORAGE_I8;
    if (min >= INT16_MIN && max <= INT16_MAX) return STORAGE_I16;
    if (min >= INT32_MIN && max <= INT32_MAX) return STORAGE_I32;
    return STORAGE_I64;
}

enum page_storage storage_of_codes(size_t n) { return storage_of_range(0, n == 0 ? 0 : (int64_t)(n - 1)); }

size_t schema_groups(const struct schema *s)
{
    return s->n_rows / TABLE_GROUP_ROWS + (s->n_rows % TABLE_GROUP_ROWS != 0);
}

static bool is_label(const struct schema *s, size_t column)
{
    return s->task == TABLE_CLASSIFICATION && s->target == (ptrdiff_t)column;
}

bool schema_is_code(const struct schema *s, size_t column)
{
    return s->column[column].kind == TABLE_TEXT || is_label(s, column);
}

size_t schema_code_count(const struct schema *s, size_t column)
{
    return is_label(s, column) ? s->n_labels : s->column[column].n_texts;
}

void statistics_merge(struct column_statistics *into, const struct column_statistics *more)
{
    into->n_missing += more->n_missing;
    into->n_infinite += more->n_infinite;
    if (!more->any) return;
    if (!into->any || more->min < into->min) into->min = more->min;
    if (!into->any || more->max > into->max) into->max = more->max;
    if (!into->any || more->integer_min < into->integer_min) into->integer_min = more->integer_min;
    if (!into->any || more->integer_max > into->integer_max) into->integer_max = more->integer_max;
    into->any = true;
}

bool statistics_equal(const struct column_statistics *a, const struct column_statistics *b, enum page_storage storage)
{
    if (a->n_missing != b->n_missing || a->n_infinite != b->n_infinite || a->any != b->any) return false;
    if (!a->any) return true;
    if (storage_is_real(storage)) return !(a->min < b->min || a->min > b->min || a->max < b->max || a->max > b->max);
    return a->integer_min == b->integer_min && a->integer_max == b->integer_max;
}

void schema_clear(struct schema *s)
{
    for (size_t i = 0; s->column != NULL && i < s->n_columns; i++) free(s->column[i].name);
    free(s->column);
    for (size_t i = 0; s->label != NULL && i < s->n_labels; i++) free(s->label[i]);
    free(s->label);
    *s = (struct schema){.target = TABLE_NO_TARGET};
}

int schema_copy(struct schema *out, const struct schema *s, struct tabft_failure *f)
{
    int error = 0;
    *out = *s;
    out->column = NULL; /* until they are out's own */
    out->label = NULL;
    TRY(memory_new(&out->column, s->n_columns, sizeof *s->column, "a schema", f));
    for (size_t i = 0; i < s->n_columns; i++) {
        out->column[i] = s->column[i];
        out->column[i].name = NULL;
    }
    for (size_t i = 0; i < s->n_columns; i++) TRY(memory_copy_string(&out->column[i].name, s->column[i].name, f));
    TRY(memory_new(&out->label, s->n_labels, sizeof *s->label, "a label list", f));
    for (size_t i = 0; i < s->n_labels; i++) TRY(memory_copy_string(&out->label[i], s->label[i], f));
    return 0;
fail:
    schema_clear(out);
    return error;
}

int json_text(json_t *value, char **text, size_t *size, struct tabft_failure *f)
{
    char *dumped = value == NULL ? NULL : json_dumps(value, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(value);
    if (dumped == NULL) return tabft_fail(f, TABFT_SYSTEM, "no memory for JSON text; give the job more memory");
    *text = dumped;
    *size = strlen(dumped);
    return 0;
}

static int check_fits(size_t size, const char *what, struct tabft_failure *f)
{
    if (size <= TBF_PAYLOAD_MAX) return 0;
    return tabft_fail(f, TABFT_INPUT,
                      "the %s takes %zu bytes and a record holds %d; use fewer columns or shorter names", what, size,
                      (int)TBF_PAYLOAD_MAX);
}

int schema_to_json(const struct schema *s, char **text, size_t *size, struct tabft_failure *f)
{
    json_t *columns = json_array();
    for (size_t i = 0; i < s->n_columns; i++) {
        const struct schema_column *c = &s->column[i];
        json_t *entry = json_pack("{s:s, s:s, s:s, s:I}", "name", c->name, "kind", kind_name(c->kind), "storage",
                                  storage_name(c->storage), "texts", (json_int_t)c->n_texts);
        if (storage_is_decimal(c->storage)) json_object_set_new(entry, "decimals", json_integer(c->decimals));
        json_array_append_new(columns, entry);
    }
    json_t *labels = json_array();
    for (size_t i = 0; i < s->n_labels; i++) json_array_append_new(labels, json_string(s->label[i]));
    bool whole = json_array_size(columns) == s->n_columns && json_array_size(labels) == s->n_labels;
    json_t *all = json_pack("{s:s, s:I, s:i, s:I, s:s, s:o, s:o}", "format", "tabft-table", "rows",
                            (json_int_t)s->n_rows, "group_rows", (int)TABLE_GROUP_ROWS, "target", (json_int_t)s->target,
                            "task", task_name(s->task), "labels", labels, "columns", columns);
    if (!whole) {
        json_decref(all);
        all = NULL;
    }
    int error = json_text(all, text, size, f);
    if (error < 0) return error;
    error = check_fits(*size, "schema", f);
    if (error < 0) {
        free(*text);
        *text = NULL;
    }
    return error;
}

json_t *statistics_json(const struct schema *s, size_t column, const struct column_statistics *statistics)
{
    json_t *all = json_pack("{s:I, s:I}", "missing", (json_int_t)statistics->n_missing, "infinite",
                            (json_int_t)statistics->n_infinite);
    if (all == NULL || !statistics->any) return all;
    bool real = storage_is_real(s->column[column].storage);
    json_object_set_new(all, "min", real ? json_real(statistics->min) : json_integer(statistics->integer_min));
    json_object_set_new(all, "max", real ? json_real(statistics->max) : json_integer(statistics->integer_max));
    return all;
}

int statistics_to_json(const struct schema *s, const struct column_statistics *statistics, char **text, size_t *size,
                       struct tabft_failure *f)
{
    json_t *columns = json_array();
    for (size_t i = 0; i < s->n_columns; i++) json_array_append_new(columns, statistics_json(s, i, &statistics[i]));
    json_t *all = NULL;
    if (json_array_size(columns) == s->n_columns) all = json_pack("{s:o}", "columns", columns);
    else json_decref(columns);
    int error = json_text(all, text, size, f);
    if (error < 0) return error;
    error = check_fits(*size, "statistics record", f);
    if (error < 0) {
        free(*text);
        *text = NULL;
    }
    return error;
}

/* ---- reading ---- */

static int bad_schema(struct tabft_failure *f, const char *what)
{
    return tabft_fail(f, TABFT_INPUT, "the schema record is not as tbf(5) says: %s", what);
}

static int name_index(const char *const *names, int first, int n, const json_t *value)
{
    const char *text = json_string_value(value);
    for (int i = first; text != NULL && i < n; i++) {
        if (strcmp(names[i], text) == 0) return i;
    }
    return -1;
}

static int column_from_json(struct schema_column *c, const json_t *value, struct tabft_failure *f)
{
    const char *name = json_string_value(json_object_get(value, "name"));
    const json_t *texts = json_object_get(value, "texts"), *decimals = json_object_get(value, "decimals");
    int kind = name_index(kind_names, 1, 5, json_object_get(value, "kind"));
    int storage = name_index(storage_names, 1, 10, json_object_get(value, "storage"));
    if (name == NULL || *name == '\0' || strlen(name) > TABLE_NAME_MAX) return bad_schema(f, "a column's name");
    if (kind < 0 || storage < 0) return bad_schema(f, "a column's kind or storage");
    if (!json_is_integer(texts) || json_integer_value(texts) < 0 || json_integer_value(texts) > INT32_MAX) {
        return bad_schema(f, "a column's number of texts");
    }
    json_int_t places = json_integer_value(decimals); /* 0 where there are none */
    if (storage_is_decimal((enum page_storage)storage) != json_is_integer(decimals) || places < 0 ||
        places > TABLE_DECIMALS_MAX)
        return bad_schema(f, "a column's decimals");
    c->kind = (enum table_kind)kind;
    c->decimals = (unsigned)places;
    c->storage = (enum page_storage)storage;
    c->n_texts = (size_t)json_integer_value(texts);
    return memory_copy_string(&c->name, name, f);
}

static int columns_from_json(struct schema *s, const json_t *columns, struct tabft_failure *f)
{
    int error = 0;
    size_t n = json_array_size(columns);
    if (!json_is_array(columns) || n < 1 || n > TABLE_COLUMNS_MAX) return bad_schema(f, "the number of columns");
    TRY(memory_new(&s->column, n, sizeof *s->column, "a schema", f));
    s->n_columns = n;
    for (size_t i = 0; i < n; i++) TRY(column_from_json(&s->column[i], json_array_get(columns, i), f));
    return 0;
fail:
    return error;
}

static int labels_from_json(struct schema *s, const json_t *labels, struct tabft_failure *f)
{
    int error = 0;
    size_t n = json_array_size(labels);
    if (!json_is_array(labels) || n > TABLE_LABELS_MAX) return bad_schema(f, "the label list");
    TRY(memory_new(&s->label, n, sizeof *s->label, "a label list", f));
    s->n_labels = n;
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(labels, i));
        if (text == NULL) return bad_schema(f, "a label");
        TRY(memory_copy_string(&s->label[i], text, f));
    }
    return 0;
fail:
    return error;
}

/* Kind, storage and dictionary of each column must fit each other. */
static int check_columns(const struct schema *s, struct tabft_failure *f)
{
    for (size_t i = 0; i < s->n_columns; i++) {
        const struct schema_column *c = &s->column[i];
        bool real = storage_is_real(c->storage);
        bool code = schema_is_code(s, i);
        if (real != (c->kind == TABLE_FLOAT && !code)) return bad_schema(f, "a column's storage does not fit its kind");
        if (c->n_texts != 0 && (c->kind != TABLE_TEXT || is_label(s, i)))
            return bad_schema(f, "texts of a column that has no dictionary");
        if (code && c->storage != storage_of_codes(schema_code_count(s, i)))
            return bad_schema(f, "a column's storage does not fit its codes");
        if (c->kind == TABLE_BOOLEAN && c->storage != STORAGE_I8) return bad_schema(f, "a boolean column's storage");
    }
    return 0;
}

uint32_t schema_version(const struct schema *s)
{
    bool decimals = false;
    for (size_t i = 0; i < s->n_columns; i++) decimals = decimals || storage_is_decimal(s->column[i].storage);
    return decimals ? TABLE_RECORD_DECIMALS : TABLE_RECORD_VERSION;
}

int schema_from_json(struct schema *s, const char *text, size_t size, struct tabft_failure *f)
{
    int error = 0;
    json_error_t where;
    *s = (struct schema){.target = TABLE_NO_TARGET};
    json_t *all = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (all == NULL) FAIL(f, TABFT_INPUT, "the schema record is not JSON: %s", where.text);
    const char *format = json_string_value(json_object_get(all, "format"));
    const json_t *rows = json_object_get(all, "rows"), *target = json_object_get(all, "target");
    if (format == NULL || strcmp(format, "tabft-table") != 0)
        FAIL(f, TABFT_INPUT, "not a packed table: its first record is no schema");
    if (json_integer_value(json_object_get(all, "group_rows")) != TABLE_GROUP_ROWS)
        TRY(bad_schema(f, "the rows of a group"));
    if (!json_is_integer(rows) || json_integer_value(rows) < 0 || json_integer_value(rows) > INT64_MAX / 16)
        TRY(bad_schema(f, "the number of rows"));
    s->n_rows = (size_t)json_integer_value(rows);
    TRY(columns_from_json(s, json_object_get(all, "columns"), f));
    TRY(labels_from_json(s, json_object_get(all, "labels"), f));
    int task = name_index(task_names, 0, 3, json_object_get(all, "task"));
    if (task < 0) TRY(bad_schema(f, "the task"));
    s->task = (enum table_task)task;
    if (!json_is_integer(target) || json_integer_value(target) < TABLE_NO_TARGET ||
        json_integer_value(target) >= (json_int_t)s->n_columns) {
        TRY(bad_schema(f, "the target's number"));
    }
    s->target = (ptrdiff_t)json_integer_value(target);
    if ((s->target == TABLE_NO_TARGET) != (s->task == TABLE_NO_TASK))
        TRY(bad_schema(f, "a task without a target, or a target without a task"));
    if (s->task != TABLE_CLASSIFICATION && s->n_labels != 0)
        TRY(bad_schema(f, "labels without a classification target"));
    TRY(check_columns(s, f));
fail:
    json_decref(all);
    if (error < 0) schema_clear(s);
    return error;
}

static bool count_from_json(const json_t *value, size_t n_rows, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > n_rows)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

int statistics_from_json(const struct schema *s, struct column_statistics *statistics, const char *text, size_t size,
                         struct tabft_failure *f)
{
    int error = 0;
    json_error_t where;
    json_t *all = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (all == NULL) FAIL(f, TABFT_INPUT, "the statistics record is not JSON: %s", where.text);
    const json_t *columns = json_object_get(all, "columns");
    if (!json_is_array(columns) || json_array_size(columns) != s->n_columns) {
        FAIL(f, TABFT_INPUT, "the statistics record does not have %zu columns", s->n_columns);
    }
    for (size_t i = 0; i < s->n_columns; i++) {
        const json_t *c = json_array_get(columns, i), *min = json_object_get(c, "min"),
                     *max = json_object_get(c, "max");
        bool real = storage_is_real(s->column[i].storage);
        struct column_statistics *to = &statistics[i];
        *to = (struct column_statistics){.any = min != NULL};
        bool good = count_from_json(json_object_get(c, "missing"), s->n_rows, &to->n_missing) &&
                    count_from_json(json_object_get(c, "infinite"), s->n_rows, &to->n_infinite) &&
                    (min == NULL) == (max == NULL);
        if (good && to->any) {
            good = real ? json_is_number(min) && json_is_number(max) : json_is_integer(min) && json_is_integer(max);
            to->min = json_number_value(min);
            to->max = json_number_value(max);
            to->integer_min = json_integer_value(min);
            to->integer_max = json_integer_value(max);
        }
        if (!good) FAIL(f, TABFT_INPUT, "the statistics record is not as tbf(5) says at column %zu", i);
    }
fail:
    json_decref(all);
    return error;
}
