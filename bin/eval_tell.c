/* What tabft-eval predict says besides its table. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble.h"
#include "eval/eval.h"
#include "eval_verbs.h"
#include "table/table.h"
#include "tool.h"

static void tell(const char *column, const char *why)
{
    (void)fputs("tabft-eval: column ", stderr);
    tool_put_text(stderr, column);
    (void)fprintf(stderr, " is left out: %s\n", why);
}

static int tell_unknown(const struct table *train, const struct table *test, struct tabft_failure *f)
{
    int error = 0;
    size_t *place = NULL;
    bool *known = NULL;
    TRY(memory_new(&place, train->n_columns, sizeof *place, "a table's columns", f));
    TRY(memory_new(&known, test->n_columns, sizeof *known, "a table's columns", f));
    TRY(table_match(train, test, place, f));
    for (size_t i = 0; i < train->n_columns; i++) known[place[i]] = true;
    for (size_t i = 0; i < test->n_columns; i++)
        if (!known[i]) tell(test->column[i].name, "not in the training table");
fail:
    free(known);
    free(place);
    return error;
}

int eval_tell_left_out(const struct table *train, const struct table *test, const enum ensemble_use *use,
                       struct tabft_failure *f)
{
    for (size_t i = 0; i < train->n_columns; i++)
        if (use[i] != ENSEMBLE_USED) tell(train->column[i].name, ensemble_use_name(use[i]));
    return tell_unknown(train, test, f);
}

void eval_put_plan(const struct eval_plan *p)
{
    const size_t encodings = eval_plan_encodings(p);
    printf("%zu rows from %zu, %zu columns, in blocks of %zu; each of %zu estimators encodes its context %zu time%s\n",
           p->n_rows, p->n_context, p->n_columns, p->block_rows, p->n_estimators, encodings, encodings == 1 ? "" : "s");
    const struct {
        const char *kind;
        size_t bytes;
    } line[] = {{"weights", p->weights},     {"tables", p->tables},
                {"network", p->network},     {"kept", p->kept_bytes},
                {"preprocessing", p->preprocessing}, {"rows", p->rows},
                {"output", p->output},       {"process", p->process},
                {"total", p->total},         {"available", p->available},
                {"scratch_file", p->disk}};
    for (size_t i = 0; i < sizeof line / sizeof *line; i++) printf("%-14s %15zu\n", line[i].kind, line[i].bytes);
    if (p->gpu > 0) printf("%-14s %15zu\n%-14s %15zu\n", "gpu", p->gpu, "gpu_cuda", p->gpu_taken);
    if (p->gpu > 0 && p->gpu_available != SIZE_MAX) printf("%-14s %15zu\n", "gpu_available", p->gpu_available);
}
