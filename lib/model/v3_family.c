/* The v3 family's network: three stages. Tokens are first cells, each a column with some of those behind it; the cells
 * of a column meet over rows through a few points (so that memory grows with rows alone), then those of a row over
 * columns, where leading tokens gather what the row is. From then on a row is one token, and rows attend to the
 * context's. A class is as likely as the attention that context rows of it get; a regressor's head is a small network.
 * Norms stand before what they are for. */
#define TABFT_MODEL_ROOM
#include <assert.h>
#include <float.h>
#include <math.h>

#include "model/v3_family_internal.h"

/* ---- operations ---- */

/* Where the recording is: the tape, and the parameter that comes next. */
struct recorder {
    const struct model *m;
    struct tape *t;
    const struct model_tape *io;
    size_t next;
    size_t n_context, n_query, n_rows, n_columns;
};

/* The next `count` parameters, of equal widths, as one matrix: they follow each other. */
static int take_some(struct recorder *r, size_t count)
{
    assert(r->next + count <= r->m->n_parameters);
    const struct model_parameter *p = &r->m->parameters[r->next];
    const bool vector = p->rank == 1;
    r->next += count;
    return tape_parameter(r->t, p->offset, vector ? 1 : p->shape[0] * count, vector ? p->shape[0] : p->shape[1]);
}
static int take(struct recorder *r) { return take_some(r, 1); }

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

/* The points of each column attend to its context cells [n_rows][n_columns]: gives [n_columns][inducing]. */
static int gather_column(struct recorder *r, int x)
{
    const struct model_stages *s = &r->m->config.stages;
    const size_t e = r->m->config.width, h = s->column_heads, c = r->n_columns, n = s->inducing;
    const int points = take(r), queries = norm(r, points), cells = norm(r, x);
    const int q = linear(r, queries, n);
    const int kv = tape_linear(r->t, cells, r->n_context * c, take_some(r, 2), TAPE_NONE, TAPE_NONE);
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
    return mlp(r, tape_linear(r->t, o, c * n, take(r), TAPE_NONE, own));
}

/* All cells of a column attend to its points. */
static int spread_column(struct recorder *r, int x, int points)
{
    const struct model_stages *s = &r->m->config.stages;
    const size_t e = r->m->config.width, h = s->column_heads, c = r->n_columns, n = s->inducing;
    const int cells = norm(r, x), keys = norm(r, points);
    const int q = linear(r, cells, r->n_rows * c);
    const int kv = tape_linear(r->t, keys, c * n, take_some(r, 2), TAPE_NONE, TAPE_NONE);
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

/* The first `heads` heads of each token turned by its place in its row. */
static int turned(struct recorder *r, int x, size_t tokens, size_t heads)
{
    return r->io->turns == TAPE_NONE ? x : tape_rotate(r->t, x, r->io->turns, tokens, heads);
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
    qkv = turned(r, qkv, tokens, 2 * h);
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
    const int q = turned(r, linear(r, queries, r->n_rows * n), n, h);
    int kv = tape_linear(r->t, cells, r->n_rows * tokens, take_some(r, 2), TAPE_NONE, TAPE_NONE);
    kv = turned(r, kv, tokens, h);
    struct op_attention a = within_rows(r, n, tokens);
    a.q = (struct op_attention_stride){n * e, e, 0};
    a.k = (struct op_attention_stride){tokens * 2 * e, 2 * e, 0};
    a.v = (struct op_attention_stride){tokens * 2 * e, 2 * e, e};
    const int o = tape_attention(r->t, &a, q, kv, kv);
    return mlp(r, tape_linear(r->t, o, r->n_rows * n, take(r), TAPE_NONE, lead));
}

/* Rows attend to the context's. */
static int context_block(struct recorder *r, int x)
{
    const struct model_config *c = &r->m->config;
    const size_t e = c->width * c->stages.row_tokens, h = c->heads, kv_width = e / h * c->stages.context_kv_heads;
    const int rows = norm(r, x), q = linear(r, rows, r->n_rows);
    const int kv = tape_linear(r->t, rows, r->n_context, take_some(r, 2), TAPE_NONE, TAPE_NONE);
    const struct op_attention a = {.sequences = 1,
                                   .n_context = r->n_context,
                                   .n_query = r->n_query,
                                   .n_keys = r->n_context,
                                   .heads = h,
                                   .width = e / h,
                                   .context_kv_heads = c->stages.context_kv_heads,
                                   .query_kv_heads = c->stages.query_kv_heads,
                                   .q = {0, e, 0},
                                   .k = {0, 2 * kv_width, 0},
                                   .v = {0, 2 * kv_width, kv_width},
                                   .o = {0, e, 0},
                                   .statistics = {0, 2 * h, 0}};
    const int o = tape_attention(r->t, &a, scaled(r, q, h), kv, kv);
    return mlp(r, tape_linear(r->t, o, r->n_rows, take(r), TAPE_NONE, x));
}

/* x with what the targets say added to the context's tokens. */
static int with_targets(struct recorder *r, int x, size_t tokens)
{
    const int y = r->m->config.task == MODEL_CLASSIFICATION ? tape_lookup(r->t, take(r), r->io->target)
                                                            : linear_with_bias(r, r->io->target, r->n_context);
    return tape_add_rows(r->t, x, tokens, y);
}

static int head(struct recorder *r, int x)
{
    const struct model_config *c = &r->m->config;
    const struct model_stages *s = &c->stages;
    const int answer = tape_select(r->t, x, r->n_context, 1, r->n_query);
    if (c->task == MODEL_REGRESSION) return two_layers(r, answer, r->n_query);
    const int k = linear_with_bias(r, x, r->n_context);
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
                         .n_rows = shape->n_context + shape->n_query,
                         .n_columns = shape->n_groups};
    const size_t cells = r.n_rows * r.n_columns, tokens = s->row_tokens + r.n_columns;
    io->column = TAPE_NONE;
    io->feature = tape_input(t, cells, c->group_features * (s->has_indicators ? 2 : 1));
    io->target = tape_input(t, r.n_context, 1);
    io->log_keys = tape_input(t, 1, 1);
    io->turns = s->rotates ? tape_input(t, tokens, c->width / s->row_heads) : TAPE_NONE;
    int x = linear_with_bias(&r, io->feature, cells);
    x = with_targets(&r, x, r.n_columns);
    for (size_t b = 0; b < s->column_blocks; b++) {
        tape_segment(t);
        x = spread_column(&r, x, gather_column(&r, x));
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
    assert(r.next == m->n_parameters);
    model_record_loss(m, shape, t, io);
}

/* ---- inputs ---- */

/* Number i of a cell's values is that of the column 2^i behind it, the columns standing in a ring. */
static void fill_features(const struct model *m, const struct model_input *input, float *feature)
{
    const struct encode_sizes s = encode_sizes_of(m, &input->shape);
    const size_t rows = s.n_context + s.n_query, n = s.n_columns, group = s.group_features;
    const bool indicators = m->config.stages.has_indicators;
    const size_t width = group * (indicators ? 2 : 1), stride = n * width;
    for (size_t c = 0; c < n; c++) {
        float *const first = feature + (c + n - 1 % n) % n * width;
        (void)encode_column(&s, input->x + c, first, stride);
        for (size_t j = 0; j < group; j++) {
            float *const to = feature + (c + n - ((size_t)1 << j) % n) % n * width + j;
            for (size_t i = 0; i < rows; i++) {
                to[i * stride] = first[i * stride];
                if (indicators) to[i * stride + group] = encode_indicator(input->x[i * n + c]);
            }
        }
    }
}

static void fill_targets(const struct model *m, const struct model_input *input, void *target)
{
    const size_t n = input->shape.n_context;
    const float mean = encode_mean(n, input->y_context, 1);
    for (size_t i = 0; i < n; i++) {
        const float y = input->y_context[i];
        if (m->config.task == MODEL_CLASSIFICATION) ((int32_t *)target)[i] = (int32_t)y;
        else ((float *)target)[i] = isfinite(y) ? y : mean;
    }
}

static void fill_turns(const struct model *m, size_t tokens, float *turns)
{
    const size_t half = m->config.width / m->config.stages.row_heads / 2;
    const float *freqs = model_constant(m, V3_FREQS);
    for (size_t i = 0; i < tokens; i++, turns += 2 * half)
        for (size_t j = 0; j < half; j++) {
            const double angle = (double)i * (double)freqs[j];
            turns[j] = (float)cos(angle);
            turns[j + half] = (float)sin(angle);
        }
}

void v3_family_fill(const struct model *m, const struct tape_plan *p, void *memory, const struct model_tape *io,
                    const struct model_input *input, const bool *used)
{
    (void)used;
    fill_features(m, input, tape_plan_input(p, memory, io->feature));
    fill_targets(m, input, tape_plan_input(p, memory, io->target));
    *(float *)tape_plan_input(p, memory, io->log_keys) = (float)log((double)input->shape.n_context);
    if (io->turns != TAPE_NONE)
        fill_turns(m, input->shape.n_columns + m->config.stages.row_tokens, tape_plan_input(p, memory, io->turns));
}
