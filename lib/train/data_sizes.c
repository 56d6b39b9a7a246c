/* The sizes that memory follows from. */
#define TABFT_IN_TRAIN_DATA
#include "table/store.h"
#include "train/data_internal.h"

static struct chunks_rules rules_of(const struct train_options *o, size_t n_rows, size_t n_classes,
                                    const int32_t *label)
{
    return (struct chunks_rules){
        .n_rows = n_rows,
        .chunk_rows = (size_t)o->chunk_rows,
        .query_fraction = o->query_fraction,
        .query_min = n_classes > 0 ? n_classes : 1,
        .seed = (uint32_t)o->seed,
        .label = label,
        .n_labels = n_classes,
    };
}

struct chunks_rules train_data_rules(const struct train_data *d, const struct train_options *o)
{
    return rules_of(o, d->n_train, d->n_classes, d->train_label);
}

/* What is loaded of a table, and the ranks of its texts. */
static size_t target_bytes(const struct table *t, const struct train_options *o)
{
    if (t == NULL) return 0;
    size_t bytes = table_parts_bytes(t, train_options_threads(o));
    for (size_t c = 0; c < t->n_columns; c++)
        if (t->column[c].kind == TABLE_TEXT) bytes += t->column[c].n_dictionary * sizeof(double);
    return bytes;
}

static size_t count_texts(const struct table *t)
{
    size_t n = 0;
    for (size_t c = 0; c < t->n_columns; c++) n += t->column[c].kind == TABLE_TEXT;
    return n;
}

static size_t count_used_texts(const struct train_data *d)
{
    size_t n = 0;
    for (size_t c = 0; c < d->n_columns; c++) n += d->is_text[c];
    return n;
}

/* Once a node, or a rank's windows and what a validation reads from disk at once. Columns NULL: all. */
static int add_cells(struct train_sizes *sizes, const struct table *t, const size_t *column, const struct table *v,
                     const size_t *valid_column, const struct train_options *o, struct tabft_failure *f)
{
    struct table_part part = {
        .table = t, .column = column, .n_columns = sizes->n_columns, .n_rows = t->n_rows, .whole = true};
    sizes->cell_bytes = table_part_bytes(&part);
    struct ahead_rules rules = data_ahead_rules(t, column, sizes->n_columns, o, sizes);
    sizes->window_bytes = ahead_bytes(&rules, sizes->n_train);
    if (v != NULL) {
        struct table_part valid = {
            .table = v, .column = valid_column, .n_columns = sizes->n_columns, .n_rows = v->n_rows, .whole = true};
        size_t more = table_part_bytes(&valid);
        sizes->cell_bytes = more > SIZE_MAX - sizes->cell_bytes ? SIZE_MAX : sizes->cell_bytes + more;
    }
    size_t most = sizes->n_train > sizes->n_valid ? sizes->n_train : sizes->n_valid;
    size_t picks = table_pick_bytes(v != NULL ? v : t, most, rules.n_threads) + most * sizeof(size_t);
    if (sizes->n_valid > 0 && sizes->window_bytes < SIZE_MAX - picks) sizes->window_bytes += picks;
    if (sizes->cell_bytes < SIZE_MAX / 2 && sizes->window_bytes < SIZE_MAX / 2) return 0;
    return tabft_fail(f, TABFT_SYSTEM, "%s: %zu rows of %zu columns are more than memory can be", t->path, t->n_rows,
                      sizes->n_columns);
}

int train_data_sizes(const struct train_data *d, const struct train_options *o, struct train_sizes *sizes,
                     struct tabft_failure *f)
{
    int error = 0;
    struct chunks_rules rules = train_data_rules(d, o);
    struct chunks *chunks = NULL;
    *sizes = (struct train_sizes){.is_regression = d->is_regression,
                                  .n_columns = d->n_columns,
                                  .n_classes = d->n_classes,
                                  .n_train = d->n_train,
                                  .n_valid = d->n_valid,
                                  .n_texts = count_used_texts(d),
                                  .target_bytes = target_bytes(d->table, o) + target_bytes(d->valid, o)};
    /* Every epoch is cut into the same sizes, so those of the first are exact. */
    TRY(chunks_open(&chunks, &rules, 0, f));
    sizes->chunks.n_chunks = chunks_count(chunks);
    for (size_t i = 0; i < chunks_count(chunks); i++) {
        const struct chunk *c = chunks_at(chunks, i);
        if (c->n_context > sizes->chunks.n_context) sizes->chunks.n_context = c->n_context;
        if (c->n_query > sizes->chunks.n_query) sizes->chunks.n_query = c->n_query;
    }
    TRY(add_cells(sizes, d->table, d->column, d->valid, d->valid_column, o, f));
fail:
    chunks_close(chunks);
    return error;
}

int train_schema_sizes(const struct train_options *o, struct train_sizes *sizes, struct tabft_failure *f)
{
    int error = 0;
    struct table *t = NULL, *v = NULL;
    TRY(table_open_schema(&t, o->data, f));
    TRY(data_check_task(t, o, f));
    TRY(data_check_records(t, o, t->n_labels, t->n_labels == 1 ? t->label[0] : "", f));
    if (o->valid != NULL) TRY(table_open_schema(&v, o->valid, f));
    *sizes = (struct train_sizes){.is_regression = t->task == TABLE_REGRESSION,
                                  .n_columns = t->n_columns,
                                  .n_classes = t->n_labels,
                                  .n_train = t->n_rows,
                                  .n_texts = count_texts(t),
                                  .target_bytes = target_bytes(t, o) + target_bytes(v, o)};
    if (v != NULL) {
        sizes->n_valid = v->n_rows;
    } else if (o->validation_split > 0) {
        sizes->n_valid = data_held_rows(o, t->n_rows, t->n_labels);
        sizes->n_train -= sizes->n_valid;
    }
    struct chunks_rules rules = rules_of(o, sizes->n_train, sizes->n_classes, NULL);
    TRY(chunks_sizes(&rules, &sizes->chunks, f));
    TRY(add_cells(sizes, t, NULL, v, NULL, o, f));
fail:
    table_close(t);
    table_close(v);
    return error;
}
