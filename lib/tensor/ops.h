/* The operations that networks are made of, as a table that a backend fills (cpu/, cuda/). An operation is a record of
 * sizes; a call adds pointers into the backend's memory. Nothing here calls back to the host while a pass runs, and
 * nothing allocates: a call's scratch memory is sized beforehand from its record. All tensors are row-major, [rows][width], and
 * float32, but for those that a call's record says are bf16: the upper halves of float32 numbers, two bytes each. Sizes are in
 * elements unless a name says bytes. */
#ifndef TABFT_TENSOR_OPS_H
#define TABFT_TENSOR_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "base/vectors.h"

enum op_kind {
    OP_LINEAR,        /* y = x w^T (+ bias) (+ residual) */
    OP_ATTENTION,     /* softmax(q k^T / sqrt(D)) v over sequences of tokens */
    OP_RMS_NORM,      /* y = w x / sqrt(mean(x^2) + epsilon), each row */
    OP_LAYER_NORM,    /* y = (x - mean(x)) / sqrt(variance(x) + epsilon) (w + bias), each row */
    OP_GELU,          /* y = x/2 (1 + erf(x / sqrt 2)) */
    OP_ASSEMBLE,      /* the tokens of a table: thinking rows, feature groups and the target column */
    OP_SELECT,        /* rows first, first + step, ..., or as many runs of rows */
    OP_PREPEND,       /* the same rows before each row's own */
    OP_ADD_ROWS,      /* a row added to all tokens of a row */
    OP_LOOKUP,        /* rows of a table by code */
    OP_HEADS,         /* heads turned by their token's place, and normalised */
    OP_FOURIER,       /* sines and cosines of numbers times frequencies */
    OP_MODULATE,      /* y = q base (1 + tanh(m)) */
    OP_VOTE,          /* log of the attention that falls on each class */
    OP_CROSS_ENTROPY, /* mean cross-entropy of permuted logits */
    OP_BAR_LOSS,      /* mean loss of a distribution over buckets */
    OP_KINDS
};

enum { OP_INPUTS_MAX = 4, OP_OUTPUTS_MAX = 2 };

/* in: x [rows][in_width] (the first `rows` rows of its tensor), w [out_width][in_width], bias [out_width] or none,
 * residual [rows][out_width] or none. out: y. */
struct op_linear {
    size_t rows, in_width, out_width;
};

/* `sequences` sequences of n_context + n_query tokens, `heads` heads of `width`. Every token attends to the n_keys keys
 * of its sequence alone: where those are the context tokens, query tokens do not see each other. Head h of a context
 * token uses key-value head h / (heads / context_kv_heads); of a query token h / (heads / query_kv_heads): grouped
 * key-value heads, and 1 = multi-query. Token (or key) t of sequence s begins at element s * sequence_stride + t *
 * token_stride of its tensor, head h `width` elements further each; *_column is where head 0 of a row of the tensor
 * begins. Rows and columns are thus attended over without a transpose. in: q, k, v (k and v have max(context_kv_heads,
 * query_kv_heads) heads). out: o, strides as q's but its own token width heads * width; statistics [tokens][heads][2]:
 * the row's maximum and 1 / sum that backward starts from. */
struct op_attention_stride {
    size_t sequence, token, column;
};
struct op_attention {
    size_t sequences, n_context, n_query, n_keys;
    size_t heads, width, context_kv_heads, query_kv_heads;
    struct op_attention_stride q, k, v, o, statistics;
};

/* in: x [rows][width], w [width]. out: y. */
struct op_rms_norm {
    size_t rows, width;
    float epsilon;
};

/* in: x [rows][width], w [width] and bias [width], or neither. out: y, multiplied by w and with bias added where there
 * are such. The variance is the mean square deviation. */
struct op_layer_norm {
    size_t rows, width;
    float epsilon;
};

struct op_gelu {
    size_t rows, width;
};

/* out: [(n_thinking + n_rows)][n_groups + 1][width]. in: feature [n_rows][n_groups][width], column [n_groups][width]
 * (added to the feature tokens of its group), target [n_rows][width] (the last column), thinking [n_thinking][width]
 * (the first rows, the same in each column) or none with n_thinking 0. */
struct op_assemble {
    size_t n_thinking, n_rows, n_groups, width;
};

/* in: x [any][width]. out: [rows][width], row i * run + j being x's row first + i * step + j, j < run. */
struct op_select {
    size_t first, step, run, rows, width;
};

/* out: [rows][lead + columns][width]. in: the lead [lead][width], the same in each row, and x [rows][columns][width],
 * or none with columns 0. */
struct op_prepend {
    size_t rows, lead, columns, width;
};

/* in: x [any][tokens][width], y [rows][width]. out: x, with y's row i added to all tokens of x's row i; rows of x
 * behind y's are as they were (`tokens_in_all` counts those of all rows). */
struct op_add_rows {
    size_t tokens_in_all, tokens, rows, width;
};

/* in: table [entries][width], codes int32 [rows]. out: [rows][width], row i being the table's row codes[i]. */
struct op_lookup {
    size_t entries, rows, width;
};

/* in: x [rows][width], turns [at least tokens][head_width] or none, w [norms][head_width] or none with norms 0. The first
 * heads * head_width numbers of a row are heads, the rest of it stays. With turns, number j < head_width / 2 of a head
 * and number j + head_width / 2 are a point in the plane, turned by the angle whose cosine is number j of the turns' row
 * (row % tokens) and whose sine is number j + head_width / 2. With w, a head is then divided by
 * sqrt(mean of its squares + epsilon) and multiplied by w's row h / (heads / norms), h being its number. out: y. */
struct op_heads {
    size_t rows, width, tokens, heads, head_width, norms;
    float epsilon;
};

/* in: x [rows][any width of at least `numbers`] (row stride x_width), frequencies [numbers][frequencies]. out: [rows][2 *
 * frequencies], number j being the sum over the row's first `numbers` numbers of the sine of number times its frequency
 * j, number frequencies + j that of the cosines. x gets no gradient. */
struct op_fourier {
    size_t rows, x_width, numbers, frequencies;
};

/* in: q [rows][width], m, as many numbers, base [width]. out: y = q base (1 + tanh(m)), base the same in each row. */
struct op_modulate {
    size_t rows, width;
};

/* in: q [rows][heads][width], k [n_keys][heads][width], codes int32 [n_keys] below n_classes. p[c] is the mean over
 * heads of what softmax(q k^T / sqrt(width)) gives keys of code c together. out: log(max(p, 1e-5) + 3e-5)
 * [rows][n_classes]; what backward starts from, [rows][heads][2 + n_classes]: as in op_attention's statistics, then the
 * head's own p. Its memory grows with rows and keys, not with their product. */
struct op_vote {
    size_t rows, n_keys, heads, width, n_classes;
};

/* in: logits [rows][width], labels int32 [rows], permutation int32 [n_classes]. With z'[c] = z[permutation[c]] the
 * loss is scale * mean over rows of -log softmax(z')[label]. out: loss, one double in two floats (its sum is taken in
 * float64). */
struct op_cross_entropy {
    size_t rows, width, n_classes;
    double scale;
};

/* in: logits z [rows][width], target t [rows], borders b [width + 1] in ascending order, impossible [width]: where it
 * is not 0, the bucket's probability is 0. p = softmax(z / temperature); bucket k reaches from b[k] to b[k + 1] and has
 * width w; the outer two, instead, are the halves of normal distributions that begin at their inner border and have
 * half their mass within w. t lies in the bucket whose borders are below t and at least t, or in the nearest. F is the
 * cumulative sum of p, bucket k included. A row's terms:
 *   ce    -log of the density at t
 *   crps  sum of w (F - [k >= t's bucket])^2
 *   crls  sum of -w log F from t's bucket on, of -w log(1 - F) before it; F and 1 - F at least 2^-23
 *   mse   (mean of the distribution - t)^2, at most mse_most
 *   mae   |mean of the distribution - t|, at most mae_most
 * out: scale * mean over rows of the weighted sum, one double in two floats. Rows whose t is NaN count as 0. */
struct op_bar_loss {
    size_t rows, width;
    double scale, temperature;
    double ce, crps, crls, mse, mae; /* weights */
    double mse_most, mae_most;       /* INFINITY: no bound */
};

/* Tensors of an operation that are bf16: bit i of `in` is input i, of `d_in` its gradient; out[0], and the gradient of it.
 * What is written so is rounded to the nearest, ties to even. Such tensors begin at multiples of 16 bytes. */
struct op_bf16 {
    unsigned in, d_in;
    bool out, d_out;
};

struct op {
    enum op_kind kind;
    struct op_bf16 bf16; /* a plan's choice, nothing in a tape */
    union {
        struct op_linear linear;
        struct op_attention attention;
        struct op_rms_norm rms_norm;
        struct op_layer_norm layer_norm;
        struct op_gelu gelu;
        struct op_assemble assemble;
        struct op_select select;
        struct op_prepend prepend;
        struct op_add_rows add_rows;
        struct op_lookup lookup;
        struct op_heads heads;
        struct op_fourier fourier;
        struct op_modulate modulate;
        struct op_vote vote;
        struct op_cross_entropy cross_entropy;
        struct op_bar_loss bar_loss;
    };
};

/* One call. `in`, `out`: what the operation reads and writes (NULL where it has no such input). Backward also gets
 * d_out[0], the gradient of out[0], and writes d_in[i] where it is not NULL: adds to it where add[i], else
 * overwrites. Where the record of an operation says that rows of an input's tensor are not read, backward leaves
 * their gradient alone. d_in[0] may be d_out[0] itself for OP_RMS_NORM, OP_LAYER_NORM, OP_GELU and OP_HEADS; d_in of a
 * residual and of OP_ADD_ROWS' x is NULL when it is d_out[0] already. Gradients that are bf16 are never added to. */
struct op_call {
    const struct op *op;
    const void *in[OP_INPUTS_MAX];
    void *out[OP_OUTPUTS_MAX];
    float *d_out;
    float *d_in[OP_INPUTS_MAX];
    bool add[OP_INPUTS_MAX];
    void *scratch;
};

struct tensor_kernels {
    size_t (*forward_scratch)(const void *state, const struct op *op); /* bytes; monotone in every size of the record */
    size_t (*backward_scratch)(const void *state, const struct op *op);
    void (*forward)(void *state, const struct op_call *call);
    void (*backward)(void *state, const struct op_call *call);
};

/* Places of marks: those of a run, of which two may be under way, each from MARK_RUN times its turn on; and a caller's. */
enum tensor_mark {
    MARK_FORWARD,  /* tape_run: the first call begins */
    MARK_BACKWARD, /* the value is there, backward begins */
    MARK_END,
    MARK_OUTCOME, /* what the host looks at is there */
    MARK_RUN,
    MARK_CALLER = 2 * MARK_RUN, /* this and the rest are nobody's */
    MARKS = MARK_CALLER + 6
};

/* A backend. `vectors` has its memory, into which calls point, and what is done to it outside of calls; calls and those
 * operations run in one order, maybe later than they are called, and vectors.finish waits for both and tells their
 * errors. Not thread safe: one backend, one user. */
struct tensor_backend {
    const char *name; /* "cpu", "cuda" */
    const char *isa;  /* what runs, for reports */
    void *state;
    struct tensor_kernels kernels[OP_KINDS];
    unsigned in_place[OP_KINDS]; /* bit i: forward's out[0] may be in[i] itself, which has as many numbers of the same size */
    /* What may be bf16, each by itself; OP_LINEAR's out and d_out only where it has no bias and no residual. */
    struct op_bf16 bf16[OP_KINDS];
    struct vectors vectors;
    /* NULL where vectors.host, and `workspace` 0. Takes the memory that vectors.memory_new will be asked for, `bytes` in all,
     * and `workspace` bytes that the backend needs itself, in one piece; not while any of what it took before is
     * used. What is asked for beyond it is taken apart. Errors: TABFT_SYSTEM. */
    int (*reserve)(void *state, size_t bytes, struct tabft_failure *f);
    size_t workspace;
    /* Memory of the host from and to which vectors.copy_in and copy_out do not keep the caller waiting. NULL where
     * vectors.host. staging_free takes NULL. */
    int (*staging_new)(void *state, void **out, size_t bytes, struct tabft_failure *f);
    void (*staging_free)(void *state, void *memory);
    /* Time, without waiting for it: `mark` notes, at a place below MARKS, when all that was called before it is done.
     * `wait` waits for that, and for nothing that was called behind it; its errors are those of vectors.finish. `between`
     * gives the seconds from one to another that was noted later, once both have been waited for. */
    void (*mark)(void *state, unsigned place);
    int (*wait)(void *state, unsigned place, struct tabft_failure *f) TABFT_MUST_CHECK;
    double (*between)(void *state, unsigned from, unsigned to);
    void (*close)(void *state);
};

#endif
