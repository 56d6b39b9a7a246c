/* Runs a plan: turns buffer numbers into pointers, call by call. */
#define TABFT_TENSOR_ROOM
#include <assert.h>

#include "tensor/tape_internal.h"

void *tape_plan_input(const struct tape_plan *p, void *memory, int value)
{
    assert(p->input_buffer[value] >= 0);
    return (char *)memory + p->buffers[p->input_buffer[value]].offset;
}

const void *tape_plan_last(const struct tape_plan *p, const void *memory)
{
    return (const char *)memory + p->buffers[p->last_buffer].offset;
}

struct runner {
    const struct tape_plan *p;
    const struct tape *t;
    void *memory, *kept;
    const float *values;
    float *gradient;
};

static void *buffer(const struct runner *r, int number, size_t bytes)
{
    if (number < 0) return NULL;
    const struct tape_buffer *b = &r->p->buffers[number];
    assert(bytes <= b->bytes);
    (void)bytes;
    return (char *)(b->kept ? r->kept : r->memory) + b->offset;
}

static void *value_buffer(const struct runner *r, int number, int value)
{
    return buffer(r, number, value == TAPE_NONE ? 0 : tape_value_bytes(r->t, value));
}

static struct op_call call_of(const struct runner *r, const struct tape_step *s)
{
    const struct tape_node *n = &r->t->nodes[s->node];
    struct op_call call = {.op = &n->op, .scratch = buffer(r, s->scratch, 0)};
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        int value = n->in[i];
        if (value == TAPE_NONE) continue;
        const struct tape_value *v = &r->t->values[value];
        bool parameter = v->origin == TAPE_PARAMETER;
        call.in[i] = parameter ? (const void *)(r->values + v->offset) : value_buffer(r, s->in[i], value);
        if (s->wants[i]) call.d_in[i] = value_buffer(r, s->d_in[i], value);
        call.add[i] = s->add[i];
    }
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) call.out[i] = value_buffer(r, s->out[i], n->out[i]);
    call.d_out = value_buffer(r, s->d_out, n->out[0]);
    return call;
}

/* What is done with a value's gradient as a whole. */
static void run_whole(const struct runner *r, const struct tensor_backend *backend, const struct tape_step *s)
{
    const struct tape_value *v = &r->t->values[s->node];
    float *const d = value_buffer(r, s->d_out, s->node);
    if (s->kind == STEP_ZERO) backend->zero(backend->state, d, v->rows * v->width);
    else backend->add(backend->state, d, r->gradient + v->offset, v->rows * v->width);
}

static int run(const struct runner *r, const struct tensor_backend *backend, struct tabft_failure *f)
{
    const struct tape_plan *p = r->p;
    const struct tape *t = r->t;
    if (t->failure.code != 0) return tabft_fail(f, t->failure.code, "%s", t->failure.message);
    assert(t->n_nodes == p->n_nodes && t->n_values == p->n_values);
    assert((r->gradient != NULL) == p->options.backward);
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct tape_step *s = &p->steps[i];
        if (s->kind == STEP_ZERO || s->kind == STEP_GIVE) {
            run_whole(r, backend, s);
            continue;
        }
        struct op_call call = call_of(r, s);
        const struct tensor_kernels *k = &backend->kernels[call.op->kind];
        if (s->kind == STEP_FORWARD)
            k->forward(backend->state, &call);
        else
            k->backward(backend->state, &call);
    }
    return backend->finish(backend->state, f);
}

int tape_run(const struct tape_plan *p, const struct tape *t, const struct tensor_backend *backend, void *memory,
             const float *values, float *gradient, struct tabft_failure *f)
{
    assert(p->kept == 0);
    return run(&(struct runner){.p = p, .t = t, .memory = memory, .values = values, .gradient = gradient}, backend, f);
}

int tape_run_kept(const struct tape_plan *p, const struct tape *t, const struct tensor_backend *backend, void *memory,
                  void *kept, const float *values, struct tabft_failure *f)
{
    return run(&(struct runner){.p = p, .t = t, .memory = memory, .kept = kept, .values = values}, backend, f);
}
