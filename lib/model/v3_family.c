/* The v3 family's network: three stages. Tokens are first cells, each a column with some of those behind it; the cells
 * of a column meet over rows through a few points (so that memory grows with rows alone), then those of a row over
 * columns, where leading tokens gather what the row is. From then on a row is one token, and rows attend to the
 * context's. A class is as likely as the attention that context rows of it get; a regressor's head is a small network.
 * Norms stand before what they are for. */
#define TABFT_MODEL_ROOM
#include <assert.h>
#include <float.h>

#include "model/v3_family_internal.h"

/* ---- operations ---- */

/* Where the recording is: the tape, and the parameter that comes next. */
struct recorder {
    const struct model *m;
    struct tape *t;
    const struct model_tape *io;
    size_t next;
    size_t n_context, n_query, n_rows, n_columns; /* n_rows: of the part */
    enum model_part part;
    int kept; /* what was kept last */
};

/* The next `count` parameters, of equal widths, as one matrix: they follow each other. A vector is a row. */
static int take_some(struct recorder *r, size_t count)
{
    assert(r->next + count <= r->m->n_parameters);
    const struct model_parameter *p = &r->m->parameters[r->next];
    const bool vector = p->rank == 1;
    r->next += count;
    return tape_parameter(r->t, p->offset, vector ? count : p->shape[0] * count, vector ? p->shape[0] : p->shape[1]);
}
static int take(struct recorder *r) { return take_some(r, 1); }

/* Those of what query rows do not compute. */
static void skip(struct recorder *r, size_t count) { r->next += count; }

/* What query rows need of the context: MODEL_CONTEXT keeps it. */
static void keep(struct recorder *r, int x)
{
    if (r->part != MODEL_CONTEXT) return;
    tape_keep(r->t, x);
    r->kept = x;
}

static int norm_by(struct recorder *r, int x, int w)
{
    int y = tape_rms_norm(r->t, x, w, FLT_EPSILON);
    tape_cheap(r->t, y);
    return y;
}
static int norm(struct recorder *r, int x) { return norm_by(r, x, take(r)); }

static int linear(struct recorder *r, int x, size_t rows)
{
    return tape_linear(r->t, x, rows, take(r), TAPE_NONE, TAPE_NONE);
}

static int linear_with_bias(struct recorder *r, int x, size_t rows)
{
    const int w = take(r), bias = take(r);
    return tape_linear(r->t, x, rows, w, bias, TAPE_NONE);
}

static int gelu(struct recorder *r, int x)
{
    int y = tape_gelu(r->t, x);
    tape_cheap(r->t, y);
    return y;
}

static int mlp(struct recorder *r, int x)
{
    const size_t rows = tape_rows(r->t, x);
    const int hidden = linear(r, norm(r, x), rows), active = gelu(r, hidden), w = take(r);
    return tape_linear(r->t, active, rows, w, TAPE_NONE, x);
}

/* A small network of two layers with biases. */
static int two_layers(struct recorder *r, int x, size_t rows)
{
    const int hidden = linear_with_bias(r, x, rows);
    return linear_with_bias(r, gelu(r, hidden), rows);
}

/* Queries scaled by how many keys there are and by themselves, head by head. */
static int scaled(struct recorder *r, int q, size_t heads)
{
    const int base = two_layers(r, r->io->log_keys, 1);
    const int m = two_layers(r, q, tape_rows(r->t, q) * heads);
    return tape_modulate(r->t, q, m, base);
}

/* The first `heads` heads of each token of x normalised, where the network does that. */
static int normed(struct recorder *r, int x, size_t heads, size_t width)
{
    if (!r->m->config.stages.norms_heads) return x;
    const struct op_heads h = {.heads = heads, .head_width = width, .norms = 1, .epsilon = FLT_EPSILON};
    const int y = tape_heads(r->t, &h, x, TAPE_NONE, take(r));
    tape_cheap(r->t, y);
    return y;
}
static void skip_norm(struct recorder *r) { skip(r, r->m->config.stages.norms_heads ? 1 : 0); }

/* How many gather_column takes. */
static size_t gather_parameters(const struct recorder *r) { return r->m->config.stages.norms_heads ? 20 : 18; }

/* The points of each column attend to its context cells [n_rows][n_columns]: gives [n_columns][inducing]. */
static int gather_column(struct recorder *r, int x)
{
    const size_t first = r->next;
    const struct model_stages *s = &r->m->config.stages;
    const size_t e = r->m->config.width, h = s->column_heads, c = r->n_columns, n = s->inducing;
    const int points = take(r), queries = norm(r, points), cells = norm(r, x);
    int q = linear(r, queries, n);
    int kv = tape_linear(r->t, cells, r->n_context * c, take_some(r, 2), TAPE_NONE, TAPE_NONE);
    q = normed(r, q, h, e / h);
    kv = normed(r, kv, h, e / h);
    const int each = tape_prepend(r->t, scaled(r, q, h), TAPE_NONE, c), own = tape_prepend(r->t, points, TAPE_NONE, c);
    tape_cheap(r->t, each);
    const struct op_attention a = {.sequences = c,
                                   .n_context = n,
                                   .n_keys = r->n_context,
                                   .heads = h,
                                   .width = e / h,
                                   .context_kv_heads = h,
                                   .query_kv_heads = h,
                                   .q = {n * e, e, 0},
                                   .k = {2 * e, c * 2 * e, 0},
                                   .v = {2 * e, c * 2 * e, e},
                                   .o = {n * e, e, 0},
                                   .statistics = {n * 2 * h, 2 * h, 0}};
    const int o = tape_attention(r->t, &a, each, kv, kv);
    const int gathered = mlp(r, tape_linear(r->t, o, c * n, take(r), TAPE_NONE, own));
    assert(r->next == first + gather_parameters(r));
    (void)first;
    return gathered;
}

/* All cells of a column attend to its points; their keys and values are kept. */
static int spread_column(struct recorder *r, int x, int points)
{
    const struct model_stages *s = &r->m->config.stages;
    const size_t e = r->m->config.width, h = s->column_heads, c = r->n_columns, n = s->inducing;
    const int cells = norm(r, x), w = take(r), projected = linear(r, cells, r->n_rows * c), kv_w = take_some(r, 2);
    const int q = normed(r, projected, h, e / h);
    int kv;
    if (r->part == MODEL_QUERY) {
        kv = tape_kept(r->t, c * n, 2 * e);
        skip_norm(r);
    } else {
        kv = tape_linear(r->t, norm_by(r, points, w), c * n, kv_w, TAPE_NONE, TAPE_NONE);
        keep(r, kv = normed(r, kv, h, e / h));
    }
    const struct op_attention a = {.sequences = c,
                                   .n_context = r->n_rows,
                                   .n_keys = n,
                                   .heads = h,
                                   .width = e / h,
                                   .context_kv_heads = h,
                                   .query_kv_heads = h,
                                   .q = {e, c * e, 0},
                                   .k = {n * 2 * e, 2 * e, 0},
                                   .v = {n * 2 * e, 2 * e, e},
                                   .o = {e, c * e, 0},
                                   .statistics = {2 * h, c * 2 * h, 0}};
    const int o = tape_attention(r->t, &a, q, kv, kv);
    return mlp(r, tape_linear(r->t, o, r->n_rows * c, take(r), TAPE_NONE, x));
}

/* The first `heads` heads of each token turned by its place in its row, and normalised by the rows of w, where the
 * network does these. */
static int turned(struct recorder *r, int x, size_t tokens, size_t heads, int w)
{
    const struct model_config *c = &r->m->config;
    const struct op_heads h = {.tokens = tokens,
                               .heads = heads,
                               .head_width = c->width / c->stages.row_heads,
                               .norms = w == TAPE_NONE ? 0 : tape_rows(r->t, w),
                               .epsilon = FLT_EPSILON};
    if (r->io->turns == TAPE_NONE && w == TAPE_NONE) return x;
    const int y = tape_heads(r->t, &h, x, r->io->turns, w);
    if (w != TAPE_NONE) tape_cheap(r->t, y);
    return y;
}

/* `n` tokens of a row attend to `keys` ones; strides of what holds them are given in numbers a token. */
static struct op_attention within_rows(const struct recorder *r, size_t n, size_t keys)
{
    const size_t e = r->m->config.width, h = r->m->config.stages.row_heads;
    return (struct op_attention){.sequences = r->n_rows,
                                 .n_context = n,
                                 .n_keys = keys,
                                 .heads = h,
                                 .width = e / h,
                                 .context_kv_heads = h,
                                 .query_kv_heads = h,
                                 .o = {n * e, e, 0},
                                 .statistics = {n * 2 * h, 2 * h, 0}};
}

static int row_block(struct recorder *r, int x, size_t tokens)
{
    const size_t e = r->m->config.width, h = r->m->config.stages.row_heads, all = r->n_rows * tokens;
    const int cells = norm(r, x);
    int qkv = tape_linear(r->t, cells, all, take_some(r, 3), TAPE_NONE, TAPE_NONE);
    qkv = turned(r, qkv, tokens, 2 * h, r->m->config.stages.norms_heads ? take_some(r, 2) : TAPE_NONE);
    struct op_attention a = within_rows(r, tokens, tokens);
    a.q = (struct op_attention_stride){tokens * 3 * e, 3 * e, 0};
    a.k = (struct op_attention_stride){tokens * 3 * e, 3 * e, e};
    a.v = (struct op_attention_stride){tokens * 3 * e, 3 * e, 2 * e};
    const int o = tape_attention(r->t, &a, qkv, qkv, qkv);
    tape_cheap(r->t, o);
    return mlp(r, tape_linear(r->t, o, all, take(r), TAPE_NONE, x));
}

/* The last block: the leading tokens alone go on. */
static int last_row_block(struct recorder *r, int x, size_t tokens)
{
    const struct model_stages *s = &r->m->config.stages;
    const size_t e = r->m->config.width, h = s->row_heads, n = s->row_tokens;
    const int lead = tape_select_runs(r->t, x, 0, tokens, n, r->n_rows), w = take(r);
    const int queries = norm_by(r, lead, w), cells = norm_by(r, x, w);
    int q = linear(r, queries, r->n_rows * n);
    int kv = tape_linear(r->t, cells, r->n_rows * tokens, take_some(r, 2), TAPE_NONE, TAPE_NONE);
    q = turned(r, q, n, h, s->norms_heads ? take(r) : TAPE_NONE);
    kv = turned(r, kv, tokens, h, s->norms_heads ? take(r) : TAPE_NONE);
    struct op_attention a = within_rows(r, n, tokens);
    a.q = (struct op_attention_stride){n * e, e, 0};
    a.k = (struct op_attention_stride){tokens * 2 * e, 2 * e, 0};
    a.v = (struct op_attention_stride){tokens * 2 * e, 2 * e, e};
    const int o = tape_attention(r->t, &a, q, kv, kv);
    return mlp(r, tape_linear(r->t, o, r->n_rows * n, take(r), TAPE_NONE, lead));
}

/* Keys and values of the context's rows, and how many heads they have; the heads that query rows use are kept. */
static int keys_and_values(struct recorder *r, int rows, int w, size_t *heads)
{
    const struct model_config *c = &r->m->config;
    const size_t own = c->stages.context_kv_heads, used = c->stages.query_kv_heads;
    const size_t width = c->width * c->stages.row_tokens / c->heads;
    *heads = r->part == MODEL_QUERY ? used : own;
    if (r->part == MODEL_QUERY) {
        skip_norm(r);
        return tape_kept(r->t, 2 * r->n_context * used, width);
    }
    const int kv = normed(r, tape_linear(r->t, rows, r->n_context, w, TAPE_NONE, TAPE_NONE), own, width);
    if (r->part == MODEL_CONTEXT) keep(r, tape_select_pieces(r->t, kv, width, 0, own, used, 2 * r->n_context));
    return kv;
}

/* Rows attend to the context's. */
static int context_block(struct recorder *r, int x)
{
    const struct model_config *c = &r->m->config;
    const size_t e = c->width * c->stages.row_tokens, h = c->heads;
    const int rows = norm(r, x), projected = linear(r, rows, r->n_rows), kv_w = take_some(r, 2);
    const int q = normed(r, projected, h, e / h);
    size_t kv_heads;
    const int kv = keys_and_values(r, rows, kv_w, &kv_heads);
    const size_t kv_width = e / h * kv_heads, n_context = r->part == MODEL_QUERY ? 0 : r->n_context;
    const struct op_attention a = {.sequences = 1,
                                   .n_context = n_context,
                                   .n_query = r->n_rows - n_context,
                                   .n_keys = r->n_context,
                                   .heads = h,
                                   .width = e / h,
                                   .context_kv_heads = kv_heads,
                                   .query_kv_heads = c->stages.query_kv_heads,
                                   .q = {0, e, 0},
                                   .k = {0, 2 * kv_width, 0},
                                   .v = {0, 2 * kv_width, kv_width},
                                   .o = {0, e, 0},
                                   .statistics = {0, 2 * h, 0}};
    const int o = tape_attention(r->t, &a, scaled(r, q, h), kv, kv);
    tape_dear(r->t, o); /* it costs more to make than all else here of its size */
    return mlp(r, tape_linear(r->t, o, r->n_rows, take(r), TAPE_NONE, x));
}

static int layer_norm(struct recorder *r, int x)
{
    const float epsilon = 1e-5f;
    const int w = take(r), bias = take(r);
    return tape_layer_norm(r->t, x, w, bias, epsilon);
}

/* What cells are as tokens. */
static int embedded(struct recorder *r, size_t cells)
{
    if (r->m->config.stages.fourier == 0) return linear_with_bias(r, r->io->feature, cells);
    const int waves = tape_fourier(r->t, r->io->feature, take(r));
    tape_cheap(r->t, waves);
    const int x = linear(r, waves, cells);
    return layer_norm(r, tape_linear(r->t, r->io->feature, cells, take(r), TAPE_NONE, x));
}

/* x, read as rows of the targets' width, with what the targets say added to the context's tokens. */
static int with_targets(struct recorder *r, int x, size_t tokens)
{
    const bool classifies = r->m->config.task == MODEL_CLASSIFICATION, norms = r->m->config.stages.norms_targets;
    if (r->part == MODEL_QUERY) {
        const size_t width = r->m->parameters[r->next].shape[classifies ? 1 : 0];
        skip(r, classifies ? 1 : 2);
        if (norms) skip(r, 2);
        return tape_width(r->t, x) == width ? x : tape_select_pieces(r->t, x, width, 0, 1, 1, r->n_rows * tokens);
    }
    const int y = classifies ? tape_lookup(r->t, take(r), r->io->target)
                             : linear_with_bias(r, r->io->target, r->n_context);
    return tape_add_rows(r->t, x, tokens, norms ? layer_norm(r, y) : y);
}

static int head(struct recorder *r, int x)
{
    const struct model_config *c = &r->m->config;
    const struct model_stages *s = &c->stages;
    const bool decodes = c->task == MODEL_CLASSIFICATION;
    if (c->both_tasks && decodes) x = mlp(r, x);
    const int w = decodes ? take(r) : TAPE_NONE, bias = decodes ? take(r) : TAPE_NONE;
    int k = TAPE_NONE;
    if (decodes && r->part == MODEL_QUERY) k = tape_kept(r->t, r->n_context, tape_rows(r->t, w));
    else if (decodes) keep(r, k = tape_linear(r->t, x, r->n_context, w, bias, TAPE_NONE));
    if (r->part == MODEL_CONTEXT) return r->kept;
    const int answer = tape_select(r->t, x, r->n_rows - r->n_query, 1, r->n_query);
    if (c->both_tasks && !decodes) return linear_with_bias(r, mlp(r, answer), r->n_query);
    if (!decodes) return two_layers(r, answer, r->n_query);
    int q = linear_with_bias(r, answer, r->n_query);
    if (s->decoder_scales) q = scaled(r, q, s->decoder_heads);
    return tape_vote(r->t, q, k, r->io->target, s->decoder_heads, c->max_classes);
}

void v3_family_record(const struct model *m, const struct model_call_shape *shape, struct tape *t,
                      struct model_tape *io)
{
    const struct model_config *c = &m->config;
    const struct model_stages *s = &c->stages;
    struct recorder r = {.m = m,
                         .t = t,
                         .io = io,
                         .n_context = shape->n_context,
                         .n_query = shape->n_query,
                         .n_rows = shape->n_query + (shape->part == MODEL_QUERY ? 0 : shape->n_context),
                         .n_columns = shape->n_groups,
                         .part = shape->part,
                         .kept = TAPE_NONE};
    const size_t cells = r.n_rows * r.n_columns, tokens = s->row_tokens + r.n_columns;
    io->column = TAPE_NONE;
    io->feature = tape_input(t, cells, v3_family_numbers(c));
    io->room = s->fourier == 0 ? TAPE_NONE : tape_input(t, 1, v3_family_room(c, r.n_context, r.n_rows));
    io->target = tape_input(t, r.n_context, 1);
    io->log_keys = tape_input(t, 1, 1);
    io->turns = s->rotates ? tape_input(t, tokens, c->width / s->row_heads) : TAPE_NONE;
    tape_segment(t);
    int x = embedded(&r, cells);
    x = with_targets(&r, x, r.n_columns);
    for (size_t b = 0; b < s->column_blocks; b++) {
        tape_segment(t);
        int points = TAPE_NONE;
        if (r.part == MODEL_QUERY) skip(&r, gather_parameters(&r));
        else points = gather_column(&r, x);
        x = spread_column(&r, x, points);
    }
    tape_segment(t);
    const int lead = take(&r);
    x = tape_prepend(t, lead, x, r.n_rows);
    for (size_t b = 0; b < s->row_blocks; b++) {
        tape_segment(t);
        x = b + 1 < s->row_blocks ? row_block(&r, x, tokens) : last_row_block(&r, x, tokens);
    }
    x = tape_rms_norm(t, x, take(&r), FLT_EPSILON);
    tape_segment_end(t);
    x = with_targets(&r, x, 1);
    for (size_t b = 0; b < c->layers; b++) {
        tape_segment(t);
        x = context_block(&r, x);
    }
    tape_segment_end(t);
    io->logits = head(&r, norm(&r, x));
    if (r.part == MODEL_CONTEXT) return;
    assert(r.next == m->n_parameters);
    model_record_loss(m, shape, t, io);
}
