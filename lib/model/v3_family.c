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
    size_t n_context, n_query, n_rows, n_columns; /* n_rows: of the part */
    enum model_part part;
    int kept; /* what was kept last */
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

enum { GATHER_PARAMETERS = 18 }; /* that gather_column takes */

/* The points of each column attend to its context cells [n_rows][n_columns]: gives [n_columns][inducing]. */
static int gather_column(struct recorder *r, int x)
{
    const size_t first = r->next;
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
    const int gathered = mlp(r, tape_linear(r->t, o, c * n, take(r), TAPE_NONE, own));
    assert(r->next == first + GATHER_PARAMETERS);
    (void)first;
    return gathered;
}

/* All cells of a column attend to its points; their keys and values are kept. */
static int spread_column(struct recorder *r, int x, int points)
{
    const struct model_stages *s = &r->m->config.stages;
    const size_t e = r->m->config.width, h = s->column_heads, c = r->n_columns, n = s->inducing;
    const int cells = norm(r, x), w = take(r), q = linear(r, cells, r->n_rows * c), kv_w = take_some(r, 2);
    const int kv = r->part == MODEL_QUERY ? tape_kept(r->t, c * n, 2 * e)
                                          : tape_linear(r->t, norm_by(r, points, w), c * n, kv_w, TAPE_NONE, TAPE_NONE);
    keep(r, kv);
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
    const struct op_heads h = {.tokens = tokens,
                               .heads = heads,
                               .head_width = r->m->config.width / r->m->config.stages.row_heads};
    return r->io->turns == TAPE_NONE ? x : tape_heads(r->t, &h, x, r->io->turns, TAPE_NONE);
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

/* Keys and values of the context's rows, and how many heads they have; the heads that query rows use are kept. */
static int keys_and_values(struct recorder *r, int rows, size_t *heads)
{
    const struct model_config *c = &r->m->config;
    const size_t own = c->stages.context_kv_heads, used = c->stages.query_kv_heads;
    const size_t width = c->width * c->stages.row_tokens / c->heads;
    const int w = take_some(r, 2);
    *heads = r->part == MODEL_QUERY ? used : own;
    if (r->part == MODEL_QUERY) return tape_kept(r->t, 2 * r->n_context * used, width);
    const int kv = tape_linear(r->t, rows, r->n_context, w, TAPE_NONE, TAPE_NONE);
    if (r->part == MODEL_CONTEXT) keep(r, tape_select_pieces(r->t, kv, width, 0, own, used, 2 * r->n_context));
    return kv;
}

/* Rows attend to the context's. */
static int context_block(struct recorder *r, int x)
{
    const struct model_config *c = &r->m->config;
    const size_t e = c->width * c->stages.row_tokens, h = c->heads;
    const int rows = norm(r, x), q = linear(r, rows, r->n_rows);
    size_t kv_heads;
    const int kv = keys_and_values(r, rows, &kv_heads);
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
    return mlp(r, tape_linear(r->t, o, r->n_rows, take(r), TAPE_NONE, x));
}

/* x, read as rows of the targets' width, with what the targets say added to the context's tokens. */
static int with_targets(struct recorder *r, int x, size_t tokens)
{
    const bool classifies = r->m->config.task == MODEL_CLASSIFICATION;
    if (r->part == MODEL_QUERY) {
        const size_t width = r->m->parameters[r->next].shape[classifies ? 1 : 0];
        skip(r, classifies ? 1 : 2);
        return tape_width(r->t, x) == width ? x : tape_select_pieces(r->t, x, width, 0, 1, 1, r->n_rows * tokens);
    }
    const int y = classifies ? tape_lookup(r->t, take(r), r->io->target)
                             : linear_with_bias(r, r->io->target, r->n_context);
    return tape_add_rows(r->t, x, tokens, y);
}

static int head(struct recorder *r, int x)
{
    const struct model_config *c = &r->m->config;
    const struct model_stages *s = &c->stages;
    const bool decodes = c->task == MODEL_CLASSIFICATION;
    const int w = decodes ? take(r) : TAPE_NONE, bias = decodes ? take(r) : TAPE_NONE;
    int k = TAPE_NONE;
    if (decodes && r->part == MODEL_QUERY) k = tape_kept(r->t, r->n_context, tape_rows(r->t, w));
    else if (decodes) keep(r, k = tape_linear(r->t, x, r->n_context, w, bias, TAPE_NONE));
    if (r->part == MODEL_CONTEXT) return r->kept;
    const int answer = tape_select(r->t, x, r->n_rows - r->n_query, 1, r->n_query);
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
    io->feature = tape_input(t, cells, c->group_features * (s->has_indicators ? 2 : 1));
    io->target = tape_input(t, r.n_context, 1);
    io->log_keys = tape_input(t, 1, 1);
    io->turns = s->rotates ? tape_input(t, tokens, c->width / s->row_heads) : TAPE_NONE;
    int x = linear_with_bias(&r, io->feature, cells);
    x = with_targets(&r, x, r.n_columns);
    for (size_t b = 0; b < s->column_blocks; b++) {
        tape_segment(t);
        int points = TAPE_NONE;
        if (r.part == MODEL_QUERY) skip(&r, GATHER_PARAMETERS);
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

/* ---- inputs ---- */

/* Number i of a cell's values is that of the column 2^i behind it, the columns standing in a ring. */
static void fill_features(const struct model *m, const struct model_input *input, enum model_part part, float *feature)
{
    const struct encode_sizes s = encode_sizes_for(m, input, part);
    const size_t rows = s.end - s.first, n = s.n_columns, group = s.group_features;
    const bool indicators = m->config.stages.has_indicators;
    const size_t width = group * (indicators ? 2 : 1), stride = n * width;
    for (size_t c = 0; c < n; c++) {
        float *const first = feature + (c + n - 1 % n) % n * width;
        (void)encode_column(&s, input->x + c, first, stride);
        for (size_t j = 0; j < group; j++) {
            float *const to = feature + (c + n - ((size_t)1 << j) % n) % n * width + j;
            for (size_t i = 0; i < rows; i++) {
                to[i * stride] = first[i * stride];
                if (indicators) to[i * stride + group] = encode_indicator(input->x[(s.first + i) * n + c]);
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
    fill_features(m, input, io->part, tape_plan_input(p, memory, io->feature));
    fill_targets(m, input, tape_plan_input(p, memory, io->target));
    *(float *)tape_plan_input(p, memory, io->log_keys) = (float)log((double)input->shape.n_context);
    if (io->turns != TAPE_NONE)
        fill_turns(m, input->shape.n_columns + m->config.stages.row_tokens, tape_plan_input(p, memory, io->turns));
}
