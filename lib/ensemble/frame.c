#define TABFT_ENSEMBLE_ROOM
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"

int frame_open(struct frame *x, size_t n_context, size_t n_rows, struct tabft_failure *f)
{
    *x = (struct frame){.n_context = n_context, .n_rows = n_rows, .room = 16};
    return memory_new(&x->column, x->room, sizeof *x->column, "a table of columns", f);
}

int frame_append(struct frame *x, bool is_category, struct tabft_failure *f)
{
    int error;
    if (x->n_columns == x->room) {
        TRY(memory_grow(&x->column, x->room * 2, sizeof *x->column, "a table of columns", f));
        x->room *= 2;
    }
    struct frame_column *c = &x->column[x->n_columns];
    *c = (struct frame_column){.is_category = is_category, .source = SIZE_MAX};
    TRY(memory_new(&c->value, x->n_rows, sizeof *c->value, "a column of an estimator", f));
    x->n_columns++;
    return 0;
fail:
    return error;
}

int frame_select(struct frame *x, const size_t *order, size_t n, struct tabft_failure *f)
{
    struct frame_column *selected = NULL;
    int error = memory_new(&selected, x->room, sizeof *selected, "a table of columns", f);
    if (error < 0) return error;
    for (size_t i = 0; i < n; i++) {
        selected[i] = x->column[order[i]];
        x->column[order[i]].value = NULL;
    }
    for (size_t i = 0; i < x->n_columns; i++) free(x->column[i].value);
    free(x->column);
    x->column = selected;
    x->n_columns = n;
    return 0;
}

struct column_label column_label(const struct ensemble_columns *table, size_t column)
{
    struct column_label out;
    if (column == SIZE_MAX) (void)snprintf(out.text, sizeof out.text, "computed from several columns");
    else if (table->name != NULL) (void)snprintf(out.text, sizeof out.text, "column \"%.80s\"", table->name[column]);
    else (void)snprintf(out.text, sizeof out.text, "column %zu", column);
    return out;
}

int frame_refuse_large(const struct frame *x, size_t row, size_t column, struct tabft_failure *f)
{
    const bool is_context = row < x->n_context;
    const struct column_label label = column_label(x->table, x->column[column].source);
    return tabft_fail(f, TABFT_INPUT,
                      "%s row %zu (from 0), %s: a value is too large for the network's float32; scale it, or mark such "
                      "cells as missing",
                      is_context ? "context" : "query", row - (is_context ? 0 : x->n_context), label.text);
}

void frame_close(struct frame *x)
{
    for (size_t i = 0; i < x->n_columns; i++) free(x->column[i].value);
    free(x->column);
    for (size_t i = 0; i < x->n_marks; i++) free(x->mark[i]);
    free(x->mark);
    *x = (struct frame){0};
}
