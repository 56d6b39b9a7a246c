/* Reshapes the distribution of columns: which columns, in which order, next to or instead of the originals. How one
 * column changes is a file of its own, reshape_*.c, and a line in reshape_list. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"
#include "ensemble/reshape.h"

const struct reshape *const reshape_list[] = {
    &reshape_none,
    &reshape_squashing,
    &reshape_squashing_max10,
    &reshape_quantile_coarse,
    &reshape_quantile,
    &reshape_quantile_fine,
    &reshape_quantile_extrapolate,
    &reshape_power,
    &reshape_safepower,
    &reshape_robust,
    /* End of reshape_list */
    NULL,
};

const struct reshape reshape_none = {.name = "none"};

bool reshape_appends(const struct preprocessor *p, size_t n_columns)
{
    if (p->append != APPEND_AUTO) return p->append == APPEND_YES;
    return n_columns < 500 && (double)n_columns <= (double)p->max_columns / 2;
}

/* The columns to reshape, categories first, into which[]; returns their number. */
static size_t choose(const struct frame *x, bool with_categories, size_t *which)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n_columns; i++)
        if (x->column[i].is_category && with_categories) which[n++] = i;
    for (size_t i = 0; i < x->n_columns; i++)
        if (!x->column[i].is_category) which[n++] = i;
    return n;
}

/* Copies the chosen columns behind the originals; which[] then names the copies. */
static int append_copies(struct frame *x, size_t *which, size_t n, struct tabft_failure *f)
{
    int error;
    for (size_t i = 0; i < n; i++) {
        TRY(frame_append(x, false, f));
        size_t copy = x->n_columns - 1;
        memcpy(x->column[copy].value, x->column[which[i]].value, x->n_rows * sizeof(double));
        x->column[copy].infinity = x->column[which[i]].infinity;
        x->column[copy].source = x->column[which[i]].source;
        which[i] = copy;
    }
    return 0;
fail:
    return error;
}

/* Puts categories that stay as they are first, then the chosen columns; which[] then names their new places. */
static int move_chosen_last(struct frame *x, size_t *which, size_t n, struct tabft_failure *f)
{
    size_t *order = NULL, first = 0;
    int error;
    TRY(memory_new(&order, x->n_columns, sizeof *order, "an order of columns", f));
    if (n < x->n_columns)
        for (size_t i = 0; i < x->n_columns; i++)
            if (x->column[i].is_category) order[first++] = i;
    memcpy(order + first, which, n * sizeof *order);
    TRY(frame_select(x, order, x->n_columns, f));
    for (size_t i = 0; i < n; i++) {
        which[i] = first + i;
        x->column[which[i]].is_category = false;
    }
fail:
    free(order);
    return error;
}

struct job {
    struct frame *x;
    const struct reshape *reshape;
    reshape_run *run;
    const size_t *which;
    uint64_t seed;
    double *scratch;
};

static void reshape_one(void *context, size_t block, int thread)
{
    const struct job *job = context;
    double *scratch = job->scratch + 3 * job->x->n_context * (size_t)thread;
    job->run(job->reshape, job->x->column[job->which[block]].value, job->x->n_context, job->x->n_rows, job->seed,
             scratch);
}

/* Runs on the n columns of job.which. */
static int reshape_all(struct job job, size_t n, struct threads *pool, struct tabft_failure *f)
{
    size_t n_scratch = (size_t)threads_count(pool) * 3;
    int error;
    if (!size_mul(n_scratch, job.x->n_context, &n_scratch)) n_scratch = SIZE_MAX;
    TRY(memory_new(&job.scratch, n_scratch, sizeof *job.scratch, "sorting columns", f));
    threads_run(pool, n, reshape_one, &job);
fail:
    free(job.scratch);
    return error;
}

int step_reshape(struct frame *x, const struct preprocessor *p, bool single, uint64_t seed, struct threads *pool,
                 struct tabft_failure *f)
{
    size_t *which = NULL;
    int error;
    TRY(memory_new(&which, x->n_columns, sizeof *which, "a list of columns", f));
    bool appends = reshape_appends(p, x->n_columns);
    size_t n = choose(x, p->categories == CATEGORIES_NUMERIC, which);
    if (appends)
        TRY(append_copies(x, which, n, f));
    else
        TRY(move_chosen_last(x, which, n, f));
    bool waits = single && p->reshape->run_single != NULL;
    for (size_t i = 0; i < n; i++) x->column[which[i]].waits = waits;
    if (p->reshape->run != NULL && !waits)
        TRY(reshape_all((struct job){.x = x, .reshape = p->reshape, .run = p->reshape->run, .which = which, .seed = seed},
                        n, pool, f));
fail:
    free(which);
    return error;
}

static void round_column(void *context, size_t column, int thread)
{
    (void)thread;
    const struct frame *x = context;
    for (size_t i = 0; i < x->n_rows; i++) x->column[column].value[i] = (float)x->column[column].value[i];
}

int step_single(struct frame *x, const struct preprocessor *p, struct threads *pool, struct tabft_failure *f)
{
    size_t *which = NULL, n = 0;
    int error;
    TRY(memory_new(&which, x->n_columns, sizeof *which, "a list of columns", f));
    for (size_t i = 0; i < x->n_columns; i++)
        if (x->column[i].waits) which[n++] = i;
    threads_run(pool, x->n_columns, round_column, x);
    for (size_t i = 0; i < x->n_rows; i++)
        for (size_t j = 0; j < x->n_columns; j++)
            if (isinf(x->column[j].value[i])) TRY(frame_refuse_large(x, i, j, f));
    if (n > 0)
        TRY(reshape_all((struct job){.x = x, .reshape = p->reshape, .run = p->reshape->run_single, .which = which}, n,
                        pool, f));
fail:
    free(which);
    return error;
}
