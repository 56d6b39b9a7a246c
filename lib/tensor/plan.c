/* From a tape to ordered work: forward, then backward in reverse with what was not kept computed again just before it
 * is needed, and how long each tensor lives. */
#define TABFT_TENSOR_ROOM
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/tape_internal.h"

/* While the order is made: where each value is at the moment. */
struct maker {
    const struct tape *t;
    const struct tensor_backend *backend;
    struct tape_plan *p;
    struct tabft_failure *f;
    int *instance; /* [n_values] its buffer now, -1 */
    int *gradient; /* [n_values] its gradient's buffer, -1 */
    long *epoch;   /* [n_values] the bout of computing again that made the instance; 0 the forward pass */
    bool *kept;    /* [n_values] by the policy, from forward to backward */
    bool *usable;  /* [n_values] the instance may serve backward */
    int *first;    /* [n_values] the first operation that takes it, -1 */
    int *last;     /* [n_values] the last one */
    int whole;     /* the first of the last segments, of which all is kept */
    long now;      /* the current bout */
};

/* Places in a block, which themselves begin so: cuBLAS may choose how to multiply by what 256 bytes tell of where a matrix
 * begins, and what it computes must not depend on what else is in the block. */
enum { PLACE = 256 };

static int new_buffer(struct maker *m, size_t bytes, bool scratch, int *out)
{
    struct tape_plan *p = m->p;
    if (p->n_buffers == p->buffers_room) {
        size_t room = p->buffers_room == 0 ? 256 : p->buffers_room * 2;
        int error = memory_grow(&p->buffers, room, sizeof *p->buffers, "a memory plan", m->f);
        if (error < 0) return error;
        p->buffers_room = room;
    }
    if (bytes > SIZE_MAX - PLACE)
        return tabft_fail(m->f, TABFT_SYSTEM, "a tensor of %zu bytes does not fit this machine", bytes);
    bytes = (bytes + PLACE - 1) / PLACE * PLACE;
    p->buffers[p->n_buffers] = (struct tape_buffer){.bytes = bytes, .first = -1, .last = -1, .scratch = scratch};
    *out = (int)p->n_buffers++;
    return 0;
}

/* A value's buffer: among the others by its time, or in the block of kept tensors behind those before it. */
static int value_buffer(struct maker *m, int value, int *out)
{
    int error = new_buffer(m, tape_plan_value_bytes(m->p, m->t, value), false, out);
    if (error < 0 || !m->t->values[value].kept) return error;
    struct tape_buffer *b = &m->p->buffers[*out];
    b->kept = true;
    b->offset = m->p->kept;
    if (!size_add(m->p->kept, b->bytes, &m->p->kept))
        return tabft_fail(m->f, TABFT_SYSTEM, "what is kept of a context does not fit this machine; use fewer rows");
    return 0;
}

static int new_step(struct maker *m, const struct tape_step *step)
{
    struct tape_plan *p = m->p;
    if (p->n_steps == p->steps_room) {
        size_t room = p->steps_room == 0 ? 256 : p->steps_room * 2;
        int error = memory_grow(&p->steps, room, sizeof *p->steps, "a memory plan", m->f);
        if (error < 0) return error;
        p->steps_room = room;
    }
    long at = (long)p->n_steps;
    p->steps[p->n_steps++] = *step;
    const int touched[] = {step->in[0], step->in[1],   step->in[2],   step->in[3],   step->out[0],  step->out[1],
                           step->d_out, step->d_in[0], step->d_in[1], step->d_in[2], step->d_in[3], step->scratch};
    for (size_t i = 0; i < sizeof touched / sizeof *touched; i++) {
        if (touched[i] < 0) continue;
        struct tape_buffer *b = &p->buffers[touched[i]];
        if (b->first < 0) b->first = at;
        b->last = at;
    }
    return 0;
}

static const struct tape_step empty_step = {
    .in = {-1, -1, -1, -1}, .out = {-1, -1}, .d_out = -1, .d_in = {-1, -1, -1, -1}, .scratch = -1};

static int scratch_for(struct maker *m, struct tape_step *step)
{
    struct op op = m->t->nodes[step->node].op;
    const struct tensor_kernels *k = &m->backend->kernels[op.kind];
    op.bf16 = step->bf16;
    size_t bytes = step->kind == STEP_BACKWARD ? k->backward_scratch(m->backend->state, &op)
                                               : k->forward_scratch(m->backend->state, &op);
    return bytes == 0 ? 0 : new_buffer(m, bytes, true, &step->scratch);
}

/* Which tensors of a call are bf16. */
static struct op_bf16 storage_of(const struct maker *m, const struct tape_node *n, bool backward)
{
    struct op_bf16 s = {.out = m->p->bf16[n->out[0]], .d_out = backward && m->p->bf16_gradient[n->out[0]]};
    for (unsigned i = 0; i < OP_INPUTS_MAX; i++) {
        if (n->in[i] == TAPE_NONE) continue;
        if (m->p->bf16[n->in[i]]) s.in |= 1u << i;
        if (backward && m->p->bf16_gradient[n->in[i]]) s.d_in |= 1u << i;
    }
    return s;
}

/* An input of this operation whose place its output may take, as nobody needs it any more, or TAPE_NONE. */
static int input_to_replace(const struct maker *m, int node)
{
    const struct tape *t = m->t;
    const struct tape_node *n = &t->nodes[node];
    if (m->now != 0 || t->values[n->out[0]].kept) return TAPE_NONE;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        const int value = n->in[i];
        if ((m->backend->in_place[n->op.kind] >> i & 1) == 0 || value == TAPE_NONE) continue;
        const struct tape_value *v = &t->values[value];
        int times = 0;
        for (int j = 0; j < OP_INPUTS_MAX; j++) times += n->in[j] == value;
        if (v->origin == TAPE_COMPUTED && !v->kept && m->last[value] == node && times == 1 &&
            m->p->bf16[value] == m->p->bf16[n->out[0]] && !(m->p->options.backward && m->kept[value]))
            return value;
    }
    return TAPE_NONE;
}

static int forward_step(struct maker *m, int node)
{
    int error = 0;
    const struct tape_node *n = &m->t->nodes[node];
    struct tape_step step = empty_step;
    step.kind = STEP_FORWARD;
    step.node = node;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (n->in[i] != TAPE_NONE) step.in[i] = m->instance[n->in[i]];
    const int replaced = input_to_replace(m, node);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        int value = n->out[i];
        if (value == TAPE_NONE) continue;
        if (i == 0 && replaced != TAPE_NONE) m->instance[value] = m->instance[replaced];
        else TRY(value_buffer(m, value, &m->instance[value]));
        m->epoch[value] = m->now;
        m->usable[value] = m->now == 0 ? m->kept[value] : !m->t->values[value].cheap;
        step.out[i] = m->instance[value];
    }
    step.bf16 = storage_of(m, n, false);
    TRY(scratch_for(m, &step));
    TRY(new_step(m, &step));
    return 0;
fail:
    return error;
}

/* Computes `value` again unless this bout, or what backward may use, has it. */
static int again(struct maker *m, int value)
{
    const struct tape_value *v = &m->t->values[value];
    if (v->origin != TAPE_COMPUTED || m->usable[value] || m->epoch[value] == m->now) return 0;
    const struct tape_node *n = &m->t->nodes[v->node];
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (n->in[i] == TAPE_NONE) continue;
        int error = again(m, n->in[i]);
        if (error < 0) return error;
    }
    return forward_step(m, v->node);
}

/* Makes sure that backward can read `value` now; a cheap one made for that purpose stays for what follows. */
static int need(struct maker *m, int value)
{
    if (value == TAPE_NONE || m->t->values[value].origin != TAPE_COMPUTED || m->usable[value]) return 0;
    m->now++;
    int error = again(m, value);
    m->usable[value] = true;
    return error;
}

bool tape_backward_reads(const struct op *op, int i)
{
    switch (op->kind) {
    case OP_LINEAR: return i <= 1;
    case OP_ATTENTION: return true;
    case OP_RMS_NORM: return true;
    case OP_LAYER_NORM: return true;
    case OP_GELU: return true;
    case OP_CROSS_ENTROPY: return true;
    case OP_BAR_LOSS: return true;
    case OP_LOOKUP: return i == 1;
    case OP_HEADS: return i == 1 || op->heads.norms > 0;
    case OP_FOURIER: return true;
    case OP_MODULATE: return true;
    case OP_VOTE: return true;
    default: return false;
    }
}

bool tape_backward_reads_output(enum op_kind kind, int i)
{
    return kind == OP_ATTENTION || (kind == OP_VOTE && i == 1);
}

/* The gradient of input i is that of the output, number for number. */
static bool passes_on(enum op_kind kind, int i)
{
    return (kind == OP_LINEAR && i == 3) || (kind == OP_ADD_ROWS && i == 0);
}

/* The gradient of input 0 can be written over that of the output. */
static bool in_place(enum op_kind kind)
{
    return kind == OP_RMS_NORM || kind == OP_LAYER_NORM || kind == OP_GELU || kind == OP_HEADS;
}

static bool covers(const struct maker *m, const struct tape_node *n, int i)
{
    if (n->op.kind == OP_SELECT) return false;
    if (n->op.kind == OP_LINEAR && i == 0) {
        const struct tape_value *x = &m->t->values[n->in[0]];
        return n->op.linear.rows * n->op.linear.in_width == x->rows * x->width;
    }
    return true;
}

/* A call for a value's gradient as a whole. */
static int whole_step(struct maker *m, enum step_kind kind, int value)
{
    struct tape_step step = empty_step;
    step.kind = kind;
    step.node = value;
    step.d_out = m->gradient[value];
    return new_step(m, &step);
}

/* Where the gradient of input i goes, and whether it is added to what is there. */
static int gradient_of_input(struct maker *m, const struct tape_node *n, int i, struct tape_step *step)
{
    int value = n->in[i];
    if (value == TAPE_NONE || !m->t->values[value].has_gradient) return 0;
    step->wants[i] = true;
    step->add[i] = true;
    for (int j = 0; j < i;
         j++) /* attention over one tensor that holds q, k and v: disjoint columns, each written once */
        if (n->in[j] == value && step->d_in[j] >= 0) {
            step->d_in[i] = step->d_in[j];
            step->add[i] = step->add[j];
            return 0;
        }
    bool fresh = m->gradient[value] < 0;
    const bool same_size = m->p->bf16_gradient[value] == m->p->bf16_gradient[n->out[0]];
    bool takes_over = same_size && (passes_on(n->op.kind, i) || (i == 0 && in_place(n->op.kind)));
    if (!fresh) {
        assert(n->op.kind != OP_ATTENTION);
    } else if (takes_over) { /* the gradient of the output has served: it becomes that of the input, in place */
        m->gradient[value] = step->d_out;
        step->add[i] = false;
        if (passes_on(n->op.kind, i)) {
            step->wants[i] = false;
            return 0;
        }
    } else {
        int error = new_buffer(m, tape_plan_gradient_bytes(m->p, m->t, value), false, &m->gradient[value]);
        if (error < 0) return error;
        step->add[i] = m->t->values[value].origin == TAPE_PARAMETER || !covers(m, n, i);
        if (step->add[i]) error = whole_step(m, STEP_ZERO, value);
        if (error < 0) return error;
    }
    step->d_in[i] = m->gradient[value];
    return 0;
}

static int backward_step(struct maker *m, int node)
{
    int error = 0;
    const struct tape_node *n = &m->t->nodes[node];
    bool is_last = n->out[0] == m->p->options.last;
    if (!is_last && m->gradient[n->out[0]] < 0) return 0;
    struct tape_step step = empty_step;
    step.kind = STEP_BACKWARD;
    step.node = node;
    step.d_out = is_last ? -1 : m->gradient[n->out[0]];
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (tape_backward_reads(&n->op, i)) TRY(need(m, n->in[i]));
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (tape_backward_reads_output(n->op.kind, i)) TRY(need(m, n->out[i]));
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (n->in[i] != TAPE_NONE && tape_backward_reads(&n->op, i)) step.in[i] = m->instance[n->in[i]];
        TRY(gradient_of_input(m, n, i, &step));
    }
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (tape_backward_reads_output(n->op.kind, i)) step.out[i] = m->instance[n->out[i]];
    step.bf16 = storage_of(m, n, true);
    TRY(scratch_for(m, &step));
    TRY(new_step(m, &step));
    return 0;
fail:
    return error;
}

/* Gradients of the parameters that no operation before this one takes. */
static int give_gradients(struct maker *m, int node)
{
    int error = 0;
    const struct tape_node *n = &m->t->nodes[node];
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        const int value = n->in[i];
        if (value == TAPE_NONE || m->t->values[value].origin != TAPE_PARAMETER) continue;
        if (m->first[value] != node || m->gradient[value] < 0) continue;
        TRY(whole_step(m, STEP_GIVE, value));
        m->gradient[value] = -1; /* an operation may take it twice */
    }
fail:
    return error;
}

/* What forward leaves for backward: all but the cheap, or, with recomputation, what crosses the border of a segment or
 * is dear. */
static void choose_kept(struct maker *m)
{
    const struct tape *t = m->t;
    for (size_t v = 0; v < t->n_values; v++) {
        const struct tape_value *value = &t->values[v];
        const int segment = value->origin == TAPE_COMPUTED ? t->nodes[value->node].segment : -1;
        const bool again = m->p->options.recompute && segment >= 0 && segment < m->whole;
        m->kept[v] = again ? value->dear : !value->cheap;
    }
    if (!m->p->options.recompute) return;
    for (size_t n = 0; n < t->n_nodes; n++)
        for (int i = 0; i < OP_INPUTS_MAX; i++) {
            int v = t->nodes[n].in[i];
            if (v == TAPE_NONE || t->values[v].origin != TAPE_COMPUTED) continue;
            if (t->nodes[t->values[v].node].segment != t->nodes[n].segment) m->kept[v] = true;
        }
}

/* Where an input lies on the host; what no call reads lies nowhere else. */
static int place_on_host(struct maker *m, int value)
{
    struct tape_plan *p = m->p;
    struct tape_buffer *b = &p->buffers[p->input_buffer[value]];
    if (p->input_offset == NULL || b->kept) return 0;
    p->input_offset[value] = p->inputs;
    if (!size_add(p->inputs, b->bytes, &p->inputs))
        return tabft_fail(m->f, TABFT_SYSTEM, "the inputs do not fit this machine; use fewer rows");
    if (m->first[value] < 0) b->bytes = 0;
    return 0;
}

static int place_inputs(struct maker *m)
{
    int error = 0;
    struct tape_plan *p = m->p;
    for (size_t v = 0; v < m->t->n_values; v++) {
        if (m->t->values[v].origin != TAPE_INPUT) continue;
        TRY(value_buffer(m, (int)v, &m->instance[v]));
        p->input_buffer[v] = m->instance[v];
        p->buffers[m->instance[v]].first = 0; /* filled before the first step */
        p->buffers[m->instance[v]].last = 0;
        TRY(place_on_host(m, (int)v));
    }
fail:
    return error;
}

static int order(struct maker *m)
{
    int error = 0;
    const struct tape *t = m->t;
    struct tape_plan *p = m->p;
    choose_kept(m);
    TRY(place_inputs(m));
    int last_node = t->values[p->options.last].node;
    assert(last_node >= 0);
    for (int n = 0; n <= last_node; n++) TRY(forward_step(m, n));
    p->last_buffer = m->instance[p->options.last];
    for (int n = last_node; p->options.backward && n >= 0; n--) {
        TRY(backward_step(m, n));
        TRY(give_gradients(m, n));
    }
    p->buffers[p->last_buffer].last = (long)p->n_steps; /* read after the run */
    return 0;
fail:
    return error;
}

/* ---- what is kept in two bytes a number ---- */

static size_t numbers_of(const struct tape *t, int value) { return t->values[value].rows * t->values[value].width; }
size_t tape_plan_value_bytes(const struct tape_plan *p, const struct tape *t, int value)
{
    return numbers_of(t, value) * (p->bf16[value] ? sizeof(uint16_t) : sizeof(float));
}
size_t tape_plan_gradient_bytes(const struct tape_plan *p, const struct tape *t, int value)
{
    return numbers_of(t, value) * (p->bf16_gradient[value] ? sizeof(uint16_t) : sizeof(float));
}

/* The operation can write out[0], and read its gradient, in two bytes a number. */
static bool makes_bf16(const struct maker *m, const struct tape_node *n, bool gradient)
{
    const struct op_bf16 *can = &m->backend->bf16[n->op.kind];
    if (n->op.kind == OP_LINEAR && (n->in[2] != TAPE_NONE || n->in[3] != TAPE_NONE)) return false;
    return gradient ? can->d_out : can->out;
}

/* Values that every operation that takes them can read so, and gradients of those that one operation alone takes, which then
 * writes the whole. Not what the caller reads, here or in another tape. */
static void choose_bf16(struct maker *m)
{
    const struct tape *t = m->t;
    bool *const value = m->p->bf16, *const gradient = m->p->bf16_gradient;
    for (size_t v = 0; v < t->n_values; v++) {
        const struct tape_node *n = t->values[v].node < 0 ? NULL : &t->nodes[t->values[v].node];
        const bool inner = n != NULL && n->out[0] == (int)v && !t->values[v].kept && (int)v != m->p->options.last &&
                           m->first[v] >= 0;
        value[v] = inner && makes_bf16(m, n, false);
        gradient[v] = inner && makes_bf16(m, n, true) && t->values[v].has_gradient && m->first[v] == m->last[v];
    }
    for (size_t i = 0; i < t->n_nodes; i++)
        for (int j = 0; j < OP_INPUTS_MAX; j++) {
            const struct tape_node *n = &t->nodes[i];
            const int v = n->in[j];
            const struct op_bf16 *can = &m->backend->bf16[n->op.kind];
            if (v == TAPE_NONE) continue;
            value[v] = value[v] && (can->in >> j & 1) != 0;
            gradient[v] = gradient[v] && (can->d_in >> j & 1) != 0 && covers(m, n, j);
        }
}

static int maker_open(struct maker *m)
{
    int error = 0;
    size_t n = m->t->n_values;
    TRY(memory_new(&m->instance, n, sizeof *m->instance, "a memory plan", m->f));
    TRY(memory_new(&m->gradient, n, sizeof *m->gradient, "a memory plan", m->f));
    TRY(memory_new(&m->epoch, n, sizeof *m->epoch, "a memory plan", m->f));
    TRY(memory_new(&m->kept, n, sizeof *m->kept, "a memory plan", m->f));
    TRY(memory_new(&m->usable, n, sizeof *m->usable, "a memory plan", m->f));
    TRY(memory_new(&m->first, n, sizeof *m->first, "a memory plan", m->f));
    TRY(memory_new(&m->last, n, sizeof *m->last, "a memory plan", m->f));
    TRY(memory_new(&m->p->bf16, n, sizeof *m->p->bf16, "a memory plan", m->f));
    TRY(memory_new(&m->p->bf16_gradient, n, sizeof *m->p->bf16_gradient, "a memory plan", m->f));
    TRY(memory_new(&m->p->input_buffer, n, sizeof *m->p->input_buffer, "a memory plan", m->f));
    if (!m->backend->vectors.host)
        TRY(memory_new(&m->p->input_offset, n, sizeof *m->p->input_offset, "a memory plan", m->f));
    for (size_t v = 0; v < n; v++) m->instance[v] = m->gradient[v] = m->first[v] = m->p->input_buffer[v] = -1;
    for (int i = 0; i < (int)m->t->n_nodes; i++)
        for (int j = 0; j < OP_INPUTS_MAX; j++) {
            const int value = m->t->nodes[i].in[j];
            if (value == TAPE_NONE) continue;
            if (m->first[value] < 0) m->first[value] = i;
            m->last[value] = i;
        }
    choose_bf16(m);
fail:
    return error;
}

/* The plan that keeps all of the segments from number `whole` on. */
static int make(struct tape_plan **out, struct tape *t, const struct tensor_backend *backend,
                struct tape_options options, int whole, struct tape_sizes *sizes, struct tabft_failure *f)
{
    int error = 0;
    struct maker m = {.t = t, .backend = backend, .f = f, .whole = whole};
    TRY(memory_new(&m.p, 1, sizeof *m.p, "a memory plan", f));
    m.p->options = options;
    m.p->n_values = t->n_values;
    m.p->n_nodes = t->n_nodes;
    TRY(maker_open(&m));
    TRY(order(&m));
    TRY(tape_layout(m.p, sizes, f));
    sizes->work = tape_work_of(m.p, t);
    *out = m.p;
    m.p = NULL;
fail:
    tape_plan_close(m.p);
    free(m.instance);
    free(m.gradient);
    free(m.epoch);
    free(m.kept);
    free(m.usable);
    free(m.first);
    free(m.last);
    return error;
}

int tape_plan_open(struct tape_plan **out, struct tape *t, const struct tensor_backend *backend,
                   struct tape_options options, struct tape_sizes *sizes, struct tabft_failure *f)
{
    int error = 0;
    struct tape_plan *best = NULL, *plan;
    struct tape_sizes its;
    if (t->failure.code != 0) return tabft_fail(f, t->failure.code, "%s", t->failure.message);
    TRY(make(&best, t, backend, options, t->n_segments, sizes, f));
    /* How many segments more can be kept whole in the room there is, or without a byte more in all. */
    const size_t room = sizes->total > options.room ? sizes->total : options.room;
    int low = 0, high = options.backward && options.recompute ? t->n_segments : 0;
    while (low < high) {
        const int whole = low + (high - low) / 2;
        TRY(make(&plan, t, backend, options, whole, &its, f));
        if (its.total > room) {
            tape_plan_close(plan);
            low = whole + 1;
            continue;
        }
        tape_plan_close(best);
        best = plan;
        *sizes = its;
        high = whole;
    }
    *out = best;
    return 0;
fail:
    tape_plan_close(best);
    return error;
}

void tape_plan_close(struct tape_plan *p)
{
    if (p == NULL) return;
    free(p->steps);
    free(p->buffers);
    free(p->bf16);
    free(p->bf16_gradient);
    free(p->input_buffer);
    free(p->input_offset);
    free(p);
}
