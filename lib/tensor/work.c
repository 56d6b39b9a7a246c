/* What a plan computes and moves, counted call by call. */
#define TABFT_TENSOR_ROOM
#include "tensor/tape_internal.h"

/* Scores of an attention times the width of a head: one multiplication each for every product of matrices. */
static double scores(const struct op *op)
{
    if (op->kind == OP_VOTE)
        return (double)op->vote.rows * (double)op->vote.n_keys * (double)(op->vote.heads * op->vote.width);
    const struct op_attention *a = &op->attention;
    return (double)a->sequences * (double)(a->n_context + a->n_query) * (double)a->n_keys *
           (double)(a->heads * a->width);
}

/* Forward: q k^T and p v. Backward: q k^T again, and the products for dv, dp, dq and dk. A vote's values are classes: it
 * has only q k^T forward, and that with dq and dk backward. */
static double flops_of(const struct op *op, const struct tape_step *s)
{
    const bool backward = s->kind == STEP_BACKWARD;
    switch (op->kind) {
    case OP_LINEAR: {
        const double one = 2.0 * (double)op->linear.rows * (double)op->linear.in_width * (double)op->linear.out_width;
        return backward ? one * ((s->wants[0] ? 1 : 0) + (s->wants[1] ? 1 : 0)) : one;
    }
    case OP_ATTENTION: return 2.0 * scores(op) * (backward ? 5 : 2);
    case OP_VOTE: return 2.0 * scores(op) * (backward ? 3 : 1);
    default: return 0;
    }
}

static bool seen_before(const int *values, int i)
{
    for (int j = 0; j < i; j++)
        if (values[j] == values[i]) return true;
    return false;
}

/* Tensors that a call reads and writes, each once, however many of its inputs it is; but each product of matrices that a
 * call makes reads its own operands. */
static double bytes_of(const struct tape_plan *p, const struct tape *t, const struct tape_node *n,
                       const struct tape_step *s)
{
    double bytes = 0;
    const bool backward = s->kind == STEP_BACKWARD;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (n->in[i] == TAPE_NONE || seen_before(n->in, i)) continue;
        const double gradient = (double)tape_plan_gradient_bytes(p, t, n->in[i]);
        if (!backward || tape_backward_reads(&n->op, i)) bytes += (double)tape_plan_value_bytes(p, t, n->in[i]);
        if (backward && s->wants[i]) bytes += s->add[i] ? 2 * gradient : gradient;
    }
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (n->out[i] != TAPE_NONE && (!backward || tape_backward_reads_output(n->op.kind, i)))
            bytes += (double)tape_plan_value_bytes(p, t, n->out[i]);
    if (!backward) return bytes;
    const int products = n->op.kind == OP_LINEAR ? (s->wants[0] ? 1 : 0) + (s->wants[1] ? 1 : 0) : 1;
    return bytes + (products > 1 ? products : 1) * (double)tape_plan_gradient_bytes(p, t, n->out[0]);
}

struct tape_work tape_work_of(const struct tape_plan *p, const struct tape *t)
{
    struct tape_work work = {0};
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct tape_step *s = &p->steps[i];
        if (s->kind == STEP_ZERO || s->kind == STEP_GIVE) { /* a gradient is written, or read and added to a sum */
            work.bytes += (s->kind == STEP_ZERO ? 1 : 3) * (double)tape_plan_gradient_bytes(p, t, s->node);
            continue;
        }
        const struct tape_node *n = &t->nodes[s->node];
        work.flops += flops_of(&n->op, s);
        work.bytes += bytes_of(p, t, n, s);
    }
    return work;
}
