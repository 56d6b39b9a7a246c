/* The tape: a network records its operations once per shape; from the record follow the backward pass, what is
 * computed a second time instead of kept, and where every tensor lies in one block of memory, before that block
 * exists. Nothing here computes.
 * A recording function returns the number of the tensor that it makes. What goes wrong while recording (memory, a
 * size that does not fit in size_t) is kept and told by tape_plan_open, so that networks read as formulas. Sizes that
 * do not match are errors of the program and asserted. Not thread safe. */
#ifndef TABFT_TENSOR_TAPE_H
#define TABFT_TENSOR_TAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"
#include "tensor/ops.h"

enum { TAPE_NONE = -1 }; /* no such input */

struct tape;
int tape_open(struct tape **out, struct tabft_failure *f) TABFT_MUST_CHECK;
void tape_close(struct tape *t);

/* Tensors from outside: data of a call [rows][width] (4 bytes an element; no gradient), and `rows` x `width`
 * parameters from `offset` of the flat vector. */
int tape_input(struct tape *t, size_t rows, size_t width);
int tape_parameter(struct tape *t, size_t offset, size_t rows, size_t width);

/* From one tape to another: what a run of the first keeps is an input of every run of the second. Both lie in a block
 * of memory of their own, in the order in which they were recorded, which must be the same in both tapes, as must their
 * sizes in the largest shapes. Forward only. tape_keep marks a tensor that an operation has made. */
void tape_keep(struct tape *t, int value);
int tape_kept(struct tape *t, size_t rows, size_t width);

/* The operations of ops.h. tape_linear takes the first `rows` rows of x, read as rows of w's width. */
int tape_linear(struct tape *t, int x, size_t rows, int w, int bias, int residual);
/* q, k and v may be one tensor; strides say where each begins. Gives o; the statistics follow it unseen. */
int tape_attention(struct tape *t, const struct op_attention *sizes, int q, int k, int v);
int tape_rms_norm(struct tape *t, int x, int w, float epsilon);
/* w and bias: TAPE_NONE, both of them, or neither. */
int tape_layer_norm(struct tape *t, int x, int w, int bias, float epsilon);
int tape_gelu(struct tape *t, int x);
int tape_assemble(struct tape *t, int feature, int column, int target, int thinking);
int tape_select(struct tape *t, int x, size_t first, size_t step, size_t rows);
/* `groups` runs of `run` rows. */
int tape_select_runs(struct tape *t, int x, size_t first, size_t step, size_t run, size_t groups);
/* The same of x read as rows of `width`. */
int tape_select_pieces(struct tape *t, int x, size_t width, size_t first, size_t step, size_t run, size_t groups);
/* rows: of the table; x TAPE_NONE: the lead alone, `rows` times. */
int tape_prepend(struct tape *t, int lead, int x, size_t rows);
/* x is read as rows of y's width, and so the result is. */
int tape_add_rows(struct tape *t, int x, size_t tokens, int y);
int tape_lookup(struct tape *t, int table, int codes);
/* `sizes`: all but rows and width. turns and w may be TAPE_NONE. */
int tape_heads(struct tape *t, const struct op_heads *sizes, int x, int turns, int w);
int tape_fourier(struct tape *t, int x, int frequencies);
int tape_modulate(struct tape *t, int q, int m, int base);
int tape_vote(struct tape *t, int q, int k, int codes, size_t heads, size_t n_classes);
int tape_cross_entropy(struct tape *t, int logits, int labels, int permutation, double scale);
/* `loss`: all but rows and width. */
int tape_bar_loss(struct tape *t, const struct op_bar_loss *loss, int logits, int target, int borders, int impossible);

/* What follows belongs to a new segment: with recomputation by segment only what crosses a border, or is dear, is kept;
 * the rest of a segment is computed again when backward reaches it. Before the first call and after tape_segment_end all
 * is kept, and so are the last segments, as many as there is memory for at the time when the plan's fullest moment is
 * elsewhere. */
void tape_segment(struct tape *t);
void tape_segment_end(struct tape *t);
/* `value`, with what its operation made beside it, is cheap: never kept for backward but computed again from its
 * operation's inputs. */
void tape_cheap(struct tape *t, int value);
/* `value`, with what its operation made beside it, is dear: worth keeping where its segment is computed again. */
void tape_dear(struct tape *t, int value);

size_t tape_rows(const struct tape *t, int value);
size_t tape_width(const struct tape *t, int value);

/* ---- the plan ---- */
struct tape_options {
    bool backward;  /* from `last`, a loss; else forward to `last`, whose value can be read after the run */
    bool recompute; /* by segment */
    size_t room;    /* with that: bytes that more of the last segments may be kept in, if it is more than the least */
    int last;
};
/* What the largest shape costs, counted from its record. flops: multiplications and additions of the products of
 * matrices and of attention, with backward and with what is computed a second time. bytes: of the tensors that calls read
 * and write, each once a call, and an output's gradient once for each product of matrices: what a backend moves at least
 * unless it does several calls in one. */
struct tape_work {
    double flops, bytes;
};
struct tape_sizes {
    size_t total;       /* bytes of the block of memory */
    size_t activations; /* at the fullest moment: tensors that live longer than one operation */
    size_t scratch;     /* total - activations */
    size_t kept;        /* bytes of the other block: of tape_keep and tape_kept; not in total */
    size_t inputs;      /* bytes of the host's block of inputs; 0 where the backend's memory is the host's */
    struct tape_work work;
};

/* Orders the work of a recorded tape and lays out its memory for `backend`. The plan stays good for every tape that
 * records the same operations with no tensor larger. Errors: TABFT_SYSTEM. */
struct tape_plan;
int tape_plan_open(struct tape_plan **out, struct tape *t, const struct tensor_backend *backend,
                   struct tape_options options, struct tape_sizes *sizes, struct tabft_failure *f) TABFT_MUST_CHECK;
void tape_plan_close(struct tape_plan *p);

/* What a run works in, all of the plan's sizes. */
struct tape_memory {
    void *block; /* the backend's */
    void *kept;  /* the backend's; NULL where nothing is kept */
    void *
        inputs; /* the host's, for copies (tensor_backend.staging_new); NULL where the backend's memory is the host's */
};
/* Where input `value` lies: filled by the caller before tape_run. In `inputs` it is free again when the calls of the
 * run have begun. */
void *tape_plan_input(const struct tape_plan *p, const struct tape_memory *memory, int value);
/* Where the plan's `last` lies in the block after the run: [rows][width], or the loss as one double. */
const void *tape_plan_last(const struct tape_plan *p, const struct tape_memory *memory);

/* Runs a plan on a tape it is good for (asserted): copies the inputs, then starts all calls in order; vectors.finish
 * waits for them and tells their errors. `values`: the flat parameters; `gradient`: as many, which the gradient is added
 * to, number by number when it is whole (NULL without backward): the bits are those of adding the gradient afterwards;
 * both the backend's memory. Notes the times of enum tensor_mark for `turn`, 0 or 1, what is computed again counting as
 * backward. Errors: what went wrong while recording. */
int tape_run(const struct tape_plan *p, const struct tape *t, const struct tensor_backend *backend,
             const struct tape_memory *memory, unsigned turn, const float *values, float *gradient,
             struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
