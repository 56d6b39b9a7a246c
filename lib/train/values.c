/* What a step changes: weights, sums of gradients, moments and best weights, in the memory in which the run computes. */
#include "train/train_internal.h"

/* A vector of floats where steps compute. */
static int vector_new(struct trainer *t, float **out, size_t n, const char *what, struct tabft_failure *f)
{
    void *memory = NULL;
    const int error = t->vectors.memory_new(t->vectors.state, &memory, n * sizeof **out, what, f);
    if (error == 0) *out = memory;
    return error;
}

int trainer_values_open(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    const struct vectors *v = &t->vectors;
    if (t->backend.vectors.host) vectors_host(&t->vectors, t->pool);
    else t->vectors = t->backend.vectors;
    if (v->host) {
        t->values = t->weights;
    } else {
        TRY(vector_new(t, &t->values, t->n_parameters, "the weights", f));
        v->copy_in(v->state, t->values, t->weights, t->n_parameters * sizeof *t->values);
    }
    t->reduce_n = t->plan.n_items;
    TRY(reduce_open(&t->reduce, t->c, v, t->reduce_n, t->n_parameters, f));
    reduce_slice(t->reduce, &t->slice_begin, &t->slice_end);
    const size_t n = t->slice_end - t->slice_begin;
    TRY(optimiser_open(&t->optimiser, v, n, f));
    if (t->data.n_valid > 0 && t->o->patience > 0 && t->o->epochs >= t->o->validation_frequency) {
        TRY(vector_new(t, &t->best, n, "the best weights", f));
        trainer_best_keep(t);
    }
    TRY(v->finish(v->state, f));
fail:
    return error;
}

void trainer_values_close(struct trainer *t)
{
    const struct vectors *v = &t->vectors;
    optimiser_close(t->optimiser);
    reduce_close(t->reduce);
    if (v->memory_free == NULL) return; /* it was not come to */
    v->memory_free(v->state, t->best);
    if (!v->host) v->memory_free(v->state, t->values);
}

static size_t slice_bytes(const struct trainer *t) { return (t->slice_end - t->slice_begin) * sizeof *t->values; }

void trainer_best_keep(struct trainer *t)
{
    if (t->best != NULL)
        t->vectors.copy(t->vectors.state, t->best, t->values + t->slice_begin, slice_bytes(t));
}

void trainer_best_take(struct trainer *t)
{
    t->vectors.copy(t->vectors.state, t->values + t->slice_begin, t->best, slice_bytes(t));
}

int trainer_weights_fetch(struct trainer *t, struct tabft_failure *f)
{
    const struct vectors *v = &t->vectors;
    if (!v->host) v->copy_out(v->state, t->weights, t->values, t->n_parameters * sizeof *t->weights);
    return v->finish(v->state, f);
}
