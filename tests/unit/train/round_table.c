/* Rounds the numbers of a packed table to float32: round_table IN.tbf OUT.tbf. A table that was drawn as float32 and
 * printed with nine digits gets its own numbers back. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "table/table.h"

static int round_table(const struct table *in, const char *path, struct tabft_failure *f)
{
    int error = 0;
    double *value = NULL;
    struct table_column *column = NULL;
    TRY(memory_new(&value, in->n_rows * in->n_columns, sizeof *value, "numbers", f));
    TRY(memory_new(&column, in->n_columns + 1, sizeof *column, "columns", f));
    for (size_t c = 0; c < in->n_columns; c++) {
        column[c] = in->column[c];
        column[c].value = value + c * in->n_rows;
        for (size_t i = 0; i < in->n_rows; i++) value[c * in->n_rows + i] = (double)(float)in->column[c].value[i];
    }
    column[in->n_columns] = in->target;
    struct table_output out = {.n_rows = in->n_rows,
                               .n_columns = in->n_columns + 1,
                               .column = column,
                               .target = in->n_columns,
                               .task = in->task,
                               .provenance = "{}"};
    TRY(table_write(path, false, &out, NULL, f));
fail:
    free(value);
    free(column);
    return error;
}

int main(int argc, char **argv)
{
    struct tabft_failure f = {0};
    struct table *in = NULL;
    int error = argc == 3 ? table_open(&in, argv[1], NULL, &f)
                          : tabft_fail(&f, TABFT_USE, "round_table IN.tbf OUT.tbf");
    if (error == 0) error = round_table(in, argv[2], &f);
    table_close(in);
    if (error < 0) (void)fprintf(stderr, "%s\n", f.message);
    return tabft_exit_status(error);
}
