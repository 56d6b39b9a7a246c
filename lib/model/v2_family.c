/* The v2 family's network: tokens are cells (a row's feature group, or its target); each block lets the cells of a row,
 * then those of a column attend to each other, then transforms each alone, with a norm after each of the three. What
 * differs between the members stands in struct model_config. */
#define TABFT_MODEL_ROOM
#include <float.h>
#include <string.h>

#include "model/v2_family_internal.h"

enum {
    WIDTH_MAX = 8192,
    LAYERS_MAX = 512,
    HEADS_MAX = 256,
    GROUP_MAX = 64,
    THINKING_MAX = 65536,
    CLASSES_MAX = 100000,
    HIDDEN_MAX = 65536
};

/* ---- config ---- */

static int check_sizes(const struct model_config *c, struct tabft_failure *f)
{
    if (c->width % c->heads != 0)
        return tabft_fail(f, TABFT_INPUT, "config: emsize %zu is no multiple of nhead %zu", c->width, c->heads);
    if (c->width % 4 != 0) return tabft_fail(f, TABFT_INPUT, "config: emsize %zu is no multiple of 4", c->width);
    if (c->max_classes == 0 && c->buckets == 0)
        return tabft_fail(f, TABFT_INPUT,
                          "config: neither max_num_classes nor num_buckets is positive; a network has one of them");
    return 0;
}

/* TabPFN leaves the one that does not apply at -1 or 0 (regressors) or anything (classifiers). */
static int configure_head(struct model_config *out, const json_t *all, struct tabft_failure *f)
{
    const bool classifies = json_integer_value(json_object_get(all, "max_num_classes")) > 0;
    out->task = classifies ? MODEL_CLASSIFICATION : MODEL_REGRESSION;
    if (classifies) return model_config_size(all, "max_num_classes", 1, CLASSES_MAX, &out->max_classes, f);
    if (json_integer_value(json_object_get(all, "num_buckets")) > 0)
        return model_config_size(all, "num_buckets", 1, CLASSES_MAX, &out->buckets, f);
    return 0;
}

int v2_family_configure(struct model_config *out, const char *published, const json_t *config, json_t **whole,
                        struct tabft_failure *f)
{
    int error = 0;
    json_t *all = NULL;
    TRY(model_config_over(&all, published, config, f));
    *out = (struct model_config){0};
    TRY(model_config_size(all, "emsize", 1, WIDTH_MAX, &out->width, f));
    TRY(model_config_size(all, "nlayers", 0, LAYERS_MAX, &out->layers, f));
    TRY(model_config_size(all, "nhead", 1, HEADS_MAX, &out->heads, f));
    TRY(model_config_size(all, "features_per_group", 1, GROUP_MAX, &out->group_features, f));
    TRY(configure_head(out, all, f));
    TRY(check_sizes(out, f));
    *whole = all;
    all = NULL;
fail:
    json_decref(all);
    return error;
}

int v2_family_configure_later(struct model_config *out, const json_t *whole, struct tabft_failure *f)
{
    int error = 0;
    const char *encoder = json_string_value(json_object_get(whole, "encoder_type"));
    TRY(model_config_size(whole, "num_thinking_rows", 0, THINKING_MAX, &out->thinking_rows, f));
    if (encoder == NULL || (strcmp(encoder, "linear") != 0 && strcmp(encoder, "mlp") != 0))
        FAIL(f, TABFT_INPUT, "config: encoder_type is neither \"linear\" nor \"mlp\"");
    if (strcmp(encoder, "mlp") == 0)
        TRY(model_config_size(whole, "encoder_mlp_hidden_dim", 1, HIDDEN_MAX, &out->encoder_hidden, f));
    out->has_thinking_rows = true;
    out->hidden_factor = 2;
    out->column_seed = 42;
    out->column_table = true;
fail:
    return error;
}

/* ---- parameters, in TabPFN's order ---- */

static int declare_attention(struct model *m, const char *kind, size_t block, struct tabft_failure *f)
{
    int error = 0;
    const size_t e = m->config.width;
    TRY(model_declare(m, MODEL_DRAW_XAVIER, e, e, f, "blocks.%zu.%s.q_projection.weight", block, kind));
    TRY(model_declare(m, MODEL_DRAW_XAVIER, e, e, f, "blocks.%zu.%s.k_projection.weight", block, kind));
    TRY(model_declare(m, MODEL_DRAW_XAVIER, e, e, f, "blocks.%zu.%s.v_projection.weight", block, kind));
    TRY(model_declare(m, MODEL_DRAW_ZERO, e, e, f, "blocks.%zu.%s.out_projection.weight", block, kind));
fail:
    return error;
}

/* The parameters of a block, in numbers from its first. q, k and v lie next to each other, so that one product makes
 * them. */
enum { ROW_Q, ROW_K, ROW_V, ROW_OUT, COLUMN_Q, COLUMN_K, COLUMN_V, COLUMN_OUT, ATTENTION_PARAMETERS };
enum { NORM_ROW, NORM_COLUMN, NORM_MLP, NORMS }; /* behind the attention's, where norms have weights */
enum { MLP_IN, MLP_OUT, MLPS };                  /* behind those */

static size_t norm_parameters(const struct model *m) { return m->config.norm_has_weights ? NORMS : 0; }
static size_t block_parameters(const struct model *m) { return ATTENTION_PARAMETERS + norm_parameters(m) + MLPS; }

static int declare_block(struct model *m, size_t block, struct tabft_failure *f)
{
    int error = 0;
    const size_t e = m->config.width, hidden = m->config.hidden_factor * e;
    TRY(declare_attention(m, "per_sample_attention_between_features", block, f));
    TRY(declare_attention(m, "per_column_attention_between_cells", block, f));
    if (m->config.norm_has_weights) {
        TRY(model_declare(m, MODEL_DRAW_ONE, e, 0, f, "blocks.%zu.layernorm_mha1.weight", block));
        TRY(model_declare(m, MODEL_DRAW_ONE, e, 0, f, "blocks.%zu.layernorm_mha2.weight", block));
        TRY(model_declare(m, MODEL_DRAW_ONE, e, 0, f, "blocks.%zu.layernorm_mlp.weight", block));
    }
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, hidden, e, f, "blocks.%zu.mlp.0.weight", block));
    TRY(model_declare(m, MODEL_DRAW_ZERO, e, hidden, f, "blocks.%zu.mlp.2.weight", block));
fail:
    return error;
}

int v2_family_declare(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_config *c = &m->config;
    const size_t e = c->width, in = 2 * c->group_features, hidden = c->hidden_factor * e;
    const size_t outputs = model_outputs(m);
    for (size_t b = 0; b < c->layers; b++)
        TRY(declare_block(m, b, f)); /* first: block b begins at parameter b * block_parameters(m) */
    if (c->encoder_hidden == 0) {
        TRY(model_declare(m, MODEL_DRAW_FAN_IN, e, in, f, "feature_group_embedder.weight"));
    } else {
        TRY(model_declare(m, MODEL_DRAW_FAN_IN, c->encoder_hidden, in, f, "feature_group_embedder.0.weight"));
        TRY(model_declare(m, MODEL_DRAW_FAN_IN, e, c->encoder_hidden, f, "feature_group_embedder.2.weight"));
    }
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, e, 2, f, "target_embedder.weight"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, e, 0, f, "target_embedder.bias"));
    if (c->has_thinking_rows)
        TRY(model_declare(m, MODEL_DRAW_NORMAL, c->thinking_rows, e, f, "add_thinking_rows.row_token_values_TE"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, hidden, e, f, "output_projection.0.weight"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, hidden, 0, f, "output_projection.0.bias"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, outputs, hidden, f, "output_projection.2.weight"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, outputs, 0, f, "output_projection.2.bias"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, e, e / 4, f, "feature_positional_embedding_embeddings.weight"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, e, 0, f, "feature_positional_embedding_embeddings.bias"));
fail:
    return error;
}

/* ---- operations ---- */

/* `count` parameters of one block from `first` on as one matrix: they follow each other and have equal widths. */
static int block_weight(const struct model *m, struct tape *t, size_t block, size_t first, size_t count)
{
    const struct model_parameter *p = &m->parameters[block * block_parameters(m) + first];
    const bool vector = p->rank == 1;
    return tape_parameter(t, p->offset, vector ? 1 : p->shape[0] * count, vector ? p->shape[0] : p->shape[1]);
}

static int named(const struct model *m, struct tape *t, const char *name)
{
    for (size_t i = 0; i < m->n_parameters; i++) {
        const struct model_parameter *p = &m->parameters[i];
        if (strcmp(p->name, name) == 0)
            return p->rank == 1 ? tape_parameter(t, p->offset, 1, p->shape[0])
                                : tape_parameter(t, p->offset, p->shape[0], p->shape[1]);
    }
    return TAPE_NONE;
}

static int mlp_weight(const struct model *m, struct tape *t, size_t block, size_t which)
{
    return block_weight(m, t, block, ATTENTION_PARAMETERS + norm_parameters(m) + which, 1);
}

/* RMSNorm with weights, or layer normalisation without. */
static int norm(const struct model *m, struct tape *t, size_t block, size_t which, int x)
{
    const float layer_epsilon = 1e-5f;
    if (!m->config.norm_has_weights) return tape_layer_norm(t, x, TAPE_NONE, TAPE_NONE, layer_epsilon);
    return tape_rms_norm(t, x, block_weight(m, t, block, ATTENTION_PARAMETERS + which, 1), FLT_EPSILON);
}

struct tokens {
    size_t rows, n_context, columns; /* rows (of the part) and n_context with the thinking rows */
    enum model_part part;
};

/* The cells of a row attend to each other: a sequence is a row. */
static int between_features(const struct model *m, struct tape *t, size_t block, const struct tokens *n, int x)
{
    const size_t e = m->config.width, h = m->config.heads, c = n->columns;
    int qkv = tape_linear(t, x, n->rows * c, block_weight(m, t, block, ROW_Q, 3), TAPE_NONE, TAPE_NONE);
    struct op_attention a = {
        .sequences = n->rows,
        .n_context = c,
        .n_query = 0,
        .n_keys = c,
        .heads = h,
        .width = e / h,
        .context_kv_heads = h,
        .query_kv_heads = h,
        .q = {c * 3 * e, 3 * e, 0},
        .k = {c * 3 * e, 3 * e, e},
        .v = {c * 3 * e, 3 * e, 2 * e},
        .o = {c * e, e, 0},
        .statistics = {c * 2 * h, 2 * h, 0},
    };
    int o = tape_attention(t, &a, qkv, qkv, qkv);
    tape_cheap(t, o); /* short sequences: nearly free beside the products around it */
    int y = tape_linear(t, o, n->rows * c, block_weight(m, t, block, ROW_OUT, 1), TAPE_NONE, x);
    return norm(m, t, block, NORM_ROW, y);
}

/* Keys and values of the context's cells, and how many heads they have. Query rows need head 0 alone: that is kept. */
static int keys_and_values(const struct model *m, struct tape *t, size_t block, const struct tokens *n, int x,
                           struct model_tape *io, size_t *heads)
{
    const size_t h = m->config.heads, cells = n->n_context * n->columns, width = m->config.width / h;
    *heads = n->part == MODEL_QUERY ? 1 : h;
    if (n->part == MODEL_QUERY) return tape_kept(t, 2 * cells, width);
    const int kv = tape_linear(t, x, cells, block_weight(m, t, block, COLUMN_K, 2), TAPE_NONE, TAPE_NONE);
    if (n->part == MODEL_CONTEXT) {
        io->logits = tape_select_pieces(t, kv, width, 0, h, 1, 2 * cells);
        tape_keep(t, io->logits);
    }
    return kv;
}

/* The cells of a column attend to those of the context rows; query rows all use key-value head 0. */
static int between_cells(const struct model *m, struct tape *t, size_t block, const struct tokens *n, int x,
                         struct model_tape *io)
{
    const size_t e = m->config.width, h = m->config.heads, c = n->columns;
    size_t kv_heads;
    int kv = keys_and_values(m, t, block, n, x, io, &kv_heads);
    const size_t kv_width = kv_heads * (e / h), n_context = n->part == MODEL_QUERY ? 0 : n->n_context;
    int q = tape_linear(t, x, n->rows * c, block_weight(m, t, block, COLUMN_Q, 1), TAPE_NONE, TAPE_NONE);
    struct op_attention a = {
        .sequences = c,
        .n_context = n_context,
        .n_query = n->rows - n_context,
        .n_keys = n->n_context,
        .heads = h,
        .width = e / h,
        .context_kv_heads = kv_heads,
        .query_kv_heads = 1,
        .q = {e, c * e, 0},
        .k = {2 * kv_width, c * 2 * kv_width, 0},
        .v = {2 * kv_width, c * 2 * kv_width, kv_width},
        .o = {e, c * e, 0},
        .statistics = {2 * h, c * 2 * h, 0},
    };
    int o = tape_attention(t, &a, q, kv, kv);
    int y = tape_linear(t, o, n->rows * c, block_weight(m, t, block, COLUMN_OUT, 1), TAPE_NONE, x);
    return norm(m, t, block, NORM_COLUMN, y);
}

static int each_alone(const struct model *m, struct tape *t, size_t block, const struct tokens *n, int x)
{
    int hidden = tape_linear(t, x, n->rows * n->columns, mlp_weight(m, t, block, MLP_IN), TAPE_NONE, TAPE_NONE);
    int active = tape_gelu(t, hidden);
    int y = tape_linear(t, active, n->rows * n->columns, mlp_weight(m, t, block, MLP_OUT), TAPE_NONE, x);
    tape_cheap(t, active);
    return norm(m, t, block, NORM_MLP, y);
}

static int embed_features(const struct model *m, struct tape *t, int feature, size_t rows)
{
    if (m->config.encoder_hidden == 0)
        return tape_linear(t, feature, rows, named(m, t, "feature_group_embedder.weight"), TAPE_NONE, TAPE_NONE);
    int hidden = tape_linear(t, feature, rows, named(m, t, "feature_group_embedder.0.weight"), TAPE_NONE, TAPE_NONE);
    return tape_linear(t, tape_gelu(t, hidden), rows, named(m, t, "feature_group_embedder.2.weight"), TAPE_NONE,
                       TAPE_NONE);
}

/* The table as the blocks' tokens. */
static int embed(const struct model *m, const struct model_call_shape *s, struct tape *t, struct model_tape *io)
{
    const struct model_config *c = &m->config;
    const size_t rows = s->part == MODEL_QUERY ? s->n_query : s->n_context + s->n_query;
    io->feature = tape_input(t, rows * s->n_groups, 2 * c->group_features);
    io->target = tape_input(t, rows, 2);
    io->column = tape_input(t, s->n_groups, c->width / 4);
    int feature = embed_features(m, t, io->feature, rows * s->n_groups);
    int column = tape_linear(t, io->column, s->n_groups, named(m, t, "feature_positional_embedding_embeddings.weight"),
                             named(m, t, "feature_positional_embedding_embeddings.bias"), TAPE_NONE);
    int target = tape_linear(t, io->target, rows, named(m, t, "target_embedder.weight"),
                             named(m, t, "target_embedder.bias"), TAPE_NONE);
    int thinking = s->part == MODEL_QUERY ? TAPE_NONE : named(m, t, "add_thinking_rows.row_token_values_TE");
    return tape_assemble(t, feature, column, target, thinking);
}

void v2_family_record(const struct model *m, const struct model_call_shape *s, struct tape *t, struct model_tape *io)
{
    const struct model_config *c = &m->config;
    struct tokens n = {c->thinking_rows + s->n_context + s->n_query, c->thinking_rows + s->n_context, s->n_groups + 1,
                       s->part};
    if (s->part == MODEL_QUERY) n.rows = s->n_query;
    int x = embed(m, s, t, io);
    for (size_t b = 0; b < c->layers; b++) {
        tape_segment(t);
        x = between_features(m, t, b, &n, x);
        tape_cheap(t, x);
        if (b + 1 == c->layers) { /* columns no longer meet, and the answer is in the last one */
            x = tape_select(t, x, n.columns - 1, n.columns, n.rows);
            n.columns = 1;
        }
        x = between_cells(m, t, b, &n, x, io);
        tape_cheap(t, x);
        x = each_alone(m, t, b, &n, x);
        tape_cheap(t, x);
    }
    tape_segment_end(t);
    if (s->part == MODEL_CONTEXT) return;
    const size_t first = n.rows - s->n_query;
    int answer = tape_select(t, x, first * n.columns + n.columns - 1, n.columns,
                             s->n_query); /* the target column of query rows */
    int hidden = tape_linear(t, answer, s->n_query, named(m, t, "output_projection.0.weight"),
                             named(m, t, "output_projection.0.bias"), TAPE_NONE);
    io->logits = tape_linear(t, tape_gelu(t, hidden), s->n_query, named(m, t, "output_projection.2.weight"),
                             named(m, t, "output_projection.2.bias"), TAPE_NONE);
    model_record_loss(m, s, t, io);
}

/* The columns' embeddings depend on how many groups there are. */
void v2_family_fill(const struct model *m, const struct tape_plan *p, const struct tape_memory *memory,
                    const struct model_tape *io, const struct model_input *input, const bool *used)
{
    const struct model_config *c = &m->config;
    const struct encode_sizes s = encode_sizes_for(m, input, io->part);
    const enum encode_kind kind = model_task(m) != MODEL_CLASSIFICATION ? ENCODE_NUMBERS
                                  : c->classes_as_ranks                 ? ENCODE_RANKS
                                                                        : ENCODE_CODES;
    float *column = tape_plan_input(p, memory, io->column);
    size_t n_used = 0;
    for (size_t i = 0; i < s.n_columns; i++) n_used += used[i];
    const size_t n_groups = encode_groups(&s, n_used);
    encode_features(&s, input->x, used, tape_plan_input(p, memory, io->feature));
    encode_targets(&s, input->y_context, kind, tape_plan_input(p, memory, io->target));
    if (c->column_table) column_embeddings(n_groups, c->width / 4, column);
    else column_randn(c->column_seed, n_groups * (c->width / 4), column);
}
