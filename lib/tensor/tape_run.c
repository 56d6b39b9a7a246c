/* Runs a plan: turns buffer numbers into pointers, call by call. */
#define TABFT_TENSOR_ROOM
#include <assert.h>

#include "tensor/tape_internal.h"

void *tape_plan_input(const struct tape_plan *p, const struct tape_memory *memory, int value)
{
    assert(p->input_buffer[value] >= 0);
    if (p->input_offset != NULL) return (char *)memory->inputs + p->input_offset[value];
    return (char *)memory->block + p->buffers[p->input_buffer[value]].offset;
}

const void *tape_plan_last(const struct tape_plan *p, const struct tape_memory *memory)
{
    return (const char *)memory->block + p->buffers[p->last_buffer].offset;
}

struct runner {
    const struct tape_plan *p;
    const struct tape *t;
    const struct tape_memory *memory;
    const float *values;
    float *gradient;
};

static void *buffer(const struct runner *r, int number, size_t bytes)
{
    if (number < 0) return NULL;
    const struct tape_buffer *b = &r->p->buffers[number];
    assert(bytes <= b->bytes);
    (void)bytes;
    return (char *)(b->kept ? r->memory->kept : r->memory->block) + b->offset;
}

static void *value_buffer(const struct runner *r, int number, int value)
{
    return buffer(r, number, value == TAPE_NONE ? 0 : tape_plan_value_bytes(r->p, r->t, value));
}

static float *gradient_buffer(const struct runner *r, int number, int value)
{
    return buffer(r, number, tape_plan_gradient_bytes(r->p, r->t, value));
}

/* op: room for the call's record. */
static struct op_call call_of(const struct runner *r, const struct tape_step *s, struct op *op)
{
    const struct tape_node *n = &r->t->nodes[s->node];
    struct op_call call = {.op = op, .scratch = buffer(r, s->scratch, 0)};
    *op = n->op;
    op->bf16 = s->bf16;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        int value = n->in[i];
        if (value == TAPE_NONE) continue;
        const struct tape_value *v = &r->t->values[value];
        bool parameter = v->origin == TAPE_PARAMETER;
        call.in[i] = parameter ? (const void *)(r->values + v->offset) : value_buffer(r, s->in[i], value);
        if (s->wants[i]) call.d_in[i] = gradient_buffer(r, s->d_in[i], value);
        call.add[i] = s->add[i];
    }
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) call.out[i] = value_buffer(r, s->out[i], n->out[i]);
    call.d_out = gradient_buffer(r, s->d_out, n->out[0]);
    return call;
}

/* What is done with a value's gradient as a whole. */
static void run_whole(const struct runner *r, const struct vectors *vectors, const struct tape_step *s)
{
    const struct tape_value *v = &r->t->values[s->node];
    float *const d = gradient_buffer(r, s->d_out, s->node);
    if (s->kind == STEP_ZERO) vectors->zero(vectors->state, d, tape_plan_gradient_bytes(r->p, r->t, s->node));
    else vectors->add(vectors->state, r->gradient + v->offset, d, v->rows * v->width);
}

static bool is_filled(const struct tape_plan *p, size_t value)
{
    if (p->input_buffer[value] < 0) return false;
    const struct tape_buffer *b = &p->buffers[p->input_buffer[value]];
    return !b->kept && b->bytes > 0;
}

/* Brings what the host has filled to where the calls read it. */
static void copy_inputs(const struct runner *r, const struct vectors *vectors)
{
    const struct tape_plan *p = r->p;
    for (size_t v = 0; v < p->n_values; v++)
        if (is_filled(p, v))
            vectors->copy_in(vectors->state, value_buffer(r, p->input_buffer[v], (int)v),
                             (const char *)r->memory->inputs + p->input_offset[v],
                             tape_plan_value_bytes(p, r->t, (int)v));
}

int tape_run(const struct tape_plan *p, const struct tape *t, const struct tensor_backend *backend,
             const struct tape_memory *memory, unsigned turn, const float *values, float *gradient,
             struct tabft_failure *f)
{
    const struct vectors *vectors = &backend->vectors;
    const unsigned marks = turn * MARK_RUN;
    const struct runner r = {.p = p, .t = t, .memory = memory, .values = values, .gradient = gradient};
    if (t->failure.code != 0) return tabft_fail(f, t->failure.code, "%s", t->failure.message);
    assert(t->n_nodes == p->n_nodes && t->n_values == p->n_values);
    assert((gradient != NULL) == p->options.backward && (memory->kept != NULL || p->kept == 0));
    if (p->input_offset != NULL) copy_inputs(&r, vectors);
    bool backward = false; /* begins with what is no forward call */
    backend->mark(backend->state, marks + MARK_FORWARD);
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct tape_step *s = &p->steps[i];
        if (!backward && s->kind != STEP_FORWARD) {
            backend->mark(backend->state, marks + MARK_BACKWARD);
            backward = true;
        }
        if (s->kind == STEP_ZERO || s->kind == STEP_GIVE) {
            run_whole(&r, vectors, s);
            continue;
        }
        struct op op;
        struct op_call call = call_of(&r, s, &op);
        const struct tensor_kernels *k = &backend->kernels[call.op->kind];
        if (s->kind == STEP_FORWARD) k->forward(backend->state, &call);
        else k->backward(backend->state, &call);
    }
    if (!backward) backend->mark(backend->state, marks + MARK_BACKWARD);
    backend->mark(backend->state, marks + MARK_END);
    return 0;
}
