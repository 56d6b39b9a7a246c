/* Which chunks this rank is going to gather, for reading ahead. */
#include <stdlib.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "train/train_internal.h"

/* Adds the chunks of this rank's items of a step. */
static size_t add_own(const struct trainer *t, const struct chunk *const *step, size_t n_step,
                      const struct chunk **own, size_t n)
{
    size_t begin, end, estimators = (size_t)t->o->estimators;
    reduce_share(n_step * estimators, comm_size(t->c), comm_rank(t->c), &begin, &end);
    if (begin == end) return n;
    for (size_t i = begin / estimators; i <= (end - 1) / estimators; i++) own[n++] = step[i];
    return n;
}

int trainer_expect(struct trainer *t, const struct chunks *chunks, size_t first, struct tabft_failure *f)
{
    int error = 0;
    size_t n_chunks = chunks_count(chunks), most = (size_t)t->o->chunks_per_step, n_kept = 0, n = 0, missing;
    const struct chunk **kept = NULL, **own = NULL;
    if (t->data.ahead == NULL) return 0;
    TRY(memory_new(&kept, n_chunks, sizeof *kept, "the chunks to come", f));
    TRY(memory_new(&own, n_chunks, sizeof *own, "the chunks to come", f));
    for (size_t i = first; i < n_chunks; i++)
        if (!step_must_skip(t, chunks_at(chunks, i), &missing)) kept[n_kept++] = chunks_at(chunks, i);
    for (size_t i = 0; i < n_kept; i += most)
        n = add_own(t, kept + i, n_kept - i < most ? n_kept - i : most, own, n);
    TRY(train_data_expect(&t->data, own, n, f));
fail:
    free(kept);
    free(own);
    return error;
}
