/* What tape.c, plan.c and tape_run.c share: the record and the ordered work. */
#ifndef TABFT_TENSOR_TAPE_INTERNAL_H
#define TABFT_TENSOR_TAPE_INTERNAL_H
#ifndef TABFT_TENSOR_ROOM
#error "tape_internal.h is private to lib/tensor"
#endif

#include "tensor/tape.h"

enum tape_origin { TAPE_INPUT, TAPE_PARAMETER, TAPE_COMPUTED };

struct tape_value {
    enum tape_origin origin;
    size_t rows, width;
    size_t offset; /* TAPE_PARAMETER: in the flat vector */
    int node;      /* TAPE_COMPUTED: who makes it */
    bool cheap, dear;
    bool kept;         /* its place is in the block of kept tensors */
    bool has_gradient; /* a parameter is behind it */
};

struct tape_node {
    struct op op;
    int in[OP_INPUTS_MAX]; /* values, TAPE_NONE */
    int out[OP_OUTPUTS_MAX];
    int segment; /* -1: kept whole */
};

struct tape {
    struct tape_value *values;
    struct tape_node *nodes;
    size_t n_values, n_nodes, values_room, nodes_room;
    int segment, n_segments;
    struct tabft_failure failure;
};

/* STEP_GIVE: the gradient of a parameter is whole and joins the flat gradient. */
enum step_kind { STEP_FORWARD, STEP_BACKWARD, STEP_ZERO, STEP_GIVE };

/* One call in order. Buffers are numbers into the plan's list, -1 where there is none; a parameter itself has none, but
 * its gradient has. */
struct tape_step {
    enum step_kind kind;
    int node; /* STEP_ZERO, STEP_GIVE: the value instead */
    int in[OP_INPUTS_MAX];
    int out[OP_OUTPUTS_MAX];
    int d_out; /* STEP_ZERO, STEP_GIVE: the buffer */
    int d_in[OP_INPUTS_MAX];
    bool wants[OP_INPUTS_MAX], add[OP_INPUTS_MAX];
    int scratch;
    struct op_bf16 bf16; /* of the call's record */
};

/* A stretch of memory for the time from step `first` to step `last`, both included. */
struct tape_buffer {
    size_t bytes, offset;
    long first, last;
    bool scratch;
    bool kept; /* `offset` is in the block of kept tensors, whatever the time */
};

struct tape_plan {
    struct tape_options options;
    struct tape_step *steps;
    struct tape_buffer *buffers;
    size_t n_steps, n_buffers, steps_room, buffers_room;
    int *input_buffer;    /* [n_values]: of an input */
    size_t *input_offset; /* [n_values]: of an input in the host's block of inputs; NULL where there is no such block */
    size_t inputs;        /* bytes of that block */
    size_t n_values, n_nodes;
    bool *bf16, *bf16_gradient; /* [n_values]: the value, or its gradient, is kept in two bytes a number */
    int last_buffer;
    size_t total, kept; /* bytes of the two blocks */
};

/* Gives every buffer an offset such that buffers alive at the same time do not overlap; sets p->total and *sizes. */
int tape_layout(struct tape_plan *p, struct tape_sizes *sizes, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Bytes of a value's elements, or of its gradient's, as a plan keeps them. */
size_t tape_plan_value_bytes(const struct tape_plan *p, const struct tape *t, int value);
size_t tape_plan_gradient_bytes(const struct tape_plan *p, const struct tape *t, int value);

/* Whether backward needs input i, or output i, of what forward read and wrote. */
bool tape_backward_reads(const struct op *op, int i);
bool tape_backward_reads_output(enum op_kind kind, int i);

/* What a run of a plan on the tape that it was made of computes and moves. */
struct tape_work tape_work_of(const struct tape_plan *p, const struct tape *t);

#endif
