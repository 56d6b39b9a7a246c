/* The parameters and constants of the v3 family, by TabPFN's names, in the order in which v3_family.c takes them. */
#define TABFT_MODEL_ROOM
#include <math.h>
#include <stdio.h>

#include "model/v3_family_internal.h"

static int declare_norm(struct model *m, size_t width, const char *name, struct tabft_failure *f)
{
    return model_declare(m, MODEL_DRAW_ONE, width, 0, f, "%s.weight", name);
}

/* A linear layer with a bias. */
static int declare_linear(struct model *m, enum model_draw draw, size_t out, size_t in, const char *name,
                          struct tabft_failure *f)
{
    int error = model_declare(m, draw, out, in, f, "%s.weight", name);
    return error < 0 ? error : model_declare(m, draw, out, 0, f, "%s.bias", name);
}

enum { PREFIX = 128 };
struct prefix {
    char text[PREFIX + 64];
};
static struct prefix joined(const char *prefix, const char *name)
{
    struct prefix p;
    (void)snprintf(p.text, sizeof p.text, "%s.%s", prefix, name);
    return p;
}

static int declare_scaling(struct model *m, size_t heads, size_t width, const char *prefix, struct tabft_failure *f)
{
    int error = 0;
    const size_t hidden = m->config.stages.scaling_hidden;
    TRY(declare_linear(m, MODEL_DRAW_FAN_IN, hidden, 1, joined(prefix, "base_mlp.0").text, f));
    TRY(declare_linear(m, MODEL_DRAW_FAN_IN, heads * width, hidden, joined(prefix, "base_mlp.2").text, f));
    TRY(declare_linear(m, MODEL_DRAW_FAN_IN, hidden, width, joined(prefix, "query_mlp.0").text, f));
    TRY(declare_linear(m, MODEL_DRAW_ZERO, width, hidden, joined(prefix, "query_mlp.2").text, f));
fail:
    return error;
}

/* Queries, keys, values: `kv_width` numbers of the latter two. */
static int declare_attention(struct model *m, size_t width, size_t kv_width, size_t heads, bool scales,
                             const char *prefix, struct tabft_failure *f)
{
    int error = 0;
    const bool norms = m->config.stages.norms_heads;
    TRY(model_declare(m, MODEL_DRAW_XAVIER, width, width, f, "%s.q_projection.weight", prefix));
    TRY(model_declare(m, MODEL_DRAW_XAVIER, kv_width, width, f, "%s.k_projection.weight", prefix));
    TRY(model_declare(m, MODEL_DRAW_XAVIER, kv_width, width, f, "%s.v_projection.weight", prefix));
    if (norms) TRY(declare_norm(m, width / heads, joined(prefix, "q_norm").text, f));
    if (norms) TRY(declare_norm(m, width / heads, joined(prefix, "k_norm").text, f));
    if (scales) TRY(declare_scaling(m, heads, width / heads, joined(prefix, "softmax_scaling_layer").text, f));
    TRY(model_declare(m, MODEL_DRAW_ZERO, width, width, f, "%s.out_projection.weight", prefix));
fail:
    return error;
}

static int declare_mlp(struct model *m, size_t width, const char *prefix, const char *norm, struct tabft_failure *f)
{
    int error = 0;
    const size_t hidden = m->config.hidden_factor * width;
    TRY(declare_norm(m, width, joined(prefix, norm).text, f));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, hidden, width, f, "%s.mlp.0.weight", prefix));
    TRY(model_declare(m, MODEL_DRAW_ZERO, width, hidden, f, "%s.mlp.2.weight", prefix));
fail:
    return error;
}

static int declare_cross_block(struct model *m, const char *prefix, bool scales, struct tabft_failure *f)
{
    int error = 0;
    const size_t e = m->config.width;
    TRY(declare_norm(m, e, joined(prefix, "layernorm_q").text, f));
    TRY(declare_norm(m, e, joined(prefix, "layernorm_kv").text, f));
    TRY(declare_attention(m, e, e, m->config.stages.column_heads, scales, joined(prefix, "attn").text, f));
    TRY(declare_mlp(m, e, prefix, "layernorm2", f));
fail:
    return error;
}

static int declare_columns(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_stages *s = &m->config.stages;
    for (size_t b = 0; b < s->column_blocks; b++) {
        char prefix[PREFIX];
        (void)snprintf(prefix, sizeof prefix, "feature_distribution_embedder.layers.%zu", b);
        TRY(model_declare(m, MODEL_DRAW_SMALL, s->inducing, m->config.width, f, "%s.inducing_vectors", prefix));
        TRY(declare_cross_block(m, joined(prefix, "cross_attn_block1").text, true, f));
        TRY(declare_cross_block(m, joined(prefix, "cross_attn_block2").text, false, f));
    }
fail:
    return error;
}

static int declare_rows(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_stages *s = &m->config.stages;
    const size_t e = m->config.width;
    TRY(model_declare(m, MODEL_DRAW_SMALL, s->row_tokens, e, f, "column_aggregator.cls_tokens"));
    for (size_t b = 0; b < s->row_blocks; b++) {
        char prefix[PREFIX];
        (void)snprintf(prefix, sizeof prefix, "column_aggregator.blocks.%zu", b);
        TRY(declare_norm(m, e, joined(prefix, "layernorm").text, f));
        TRY(declare_attention(m, e, e, s->row_heads, false, joined(prefix, "attention").text, f));
        TRY(declare_mlp(m, e, prefix, "layernorm_mlp", f));
    }
    TRY(declare_norm(m, e, "column_aggregator.out_ln", f));
fail:
    return error;
}

static int declare_context(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_config *c = &m->config;
    const size_t e = c->width * c->stages.row_tokens;
    for (size_t b = 0; b < c->layers; b++) {
        char prefix[PREFIX];
        (void)snprintf(prefix, sizeof prefix, "icl_blocks.%zu", b);
        TRY(declare_norm(m, e, joined(prefix, "layernorm").text, f));
        TRY(declare_attention(m, e, e / c->heads * c->stages.context_kv_heads, c->heads, true,
                              joined(prefix, "icl_attention").text, f));
        TRY(declare_mlp(m, e, prefix, "layernorm_mlp", f));
    }
    TRY(declare_norm(m, e, "output_norm", f));
fail:
    return error;
}

/* Attention that votes, from rows of `width` numbers. */
static int declare_decoder(struct model *m, size_t width, const char *prefix, struct tabft_failure *f)
{
    int error = 0;
    const struct model_stages *s = &m->config.stages;
    const size_t votes = s->decoder_heads * s->decoder_width;
    TRY(declare_linear(m, MODEL_DRAW_FAN_IN, votes, width, joined(prefix, "k_projection").text, f));
    TRY(declare_linear(m, MODEL_DRAW_FAN_IN, votes, width, joined(prefix, "q_projection").text, f));
    if (s->decoder_scales)
        TRY(declare_scaling(m, s->decoder_heads, s->decoder_width, joined(prefix, "softmax_scaling_layer").text, f));
fail:
    return error;
}

/* The head for a task, of networks that have one head and of those that have both. */
static int declare_head(struct model *m, enum model_task task, struct tabft_failure *f)
{
    int error = 0;
    const struct model_config *c = &m->config;
    const size_t e = c->width * c->stages.row_tokens, hidden = c->hidden_factor * e;
    if (c->both_tasks && task == MODEL_CLASSIFICATION) {
        TRY(declare_mlp(m, e, "heads.mlp_classification", "norm", f));
        TRY(declare_decoder(m, e, "heads.many_class_decoder", f));
    } else if (c->both_tasks) {
        TRY(declare_mlp(m, e, "heads.mlp_regression", "norm", f));
        TRY(declare_linear(m, MODEL_DRAW_FAN_IN, c->buckets, e, "heads.output_projection", f));
    } else if (task == MODEL_CLASSIFICATION) {
        TRY(declare_decoder(m, e, "many_class_decoder", f));
    } else {
        TRY(declare_linear(m, MODEL_DRAW_FAN_IN, hidden, e, "output_projection.0", f));
        TRY(declare_linear(m, MODEL_DRAW_FAN_IN, c->buckets, hidden, "output_projection.2", f));
    }
fail:
    return error;
}

/* What the targets of a task add to the tokens of context rows. */
static int declare_targets(struct model *m, enum model_task task, size_t width, const char *prefix,
                           struct tabft_failure *f)
{
    const bool classifies = task == MODEL_CLASSIFICATION, both = m->config.both_tasks;
    const struct prefix name = joined(prefix, classifies ? "multiclass" : "regression");
    if (both) prefix = name.text;
    if (!classifies) return declare_linear(m, MODEL_DRAW_FAN_IN, width, 1, prefix, f);
    return model_declare(m, MODEL_DRAW_UNIT, m->config.max_classes, width, f, "%s.embedding.weight", prefix);
}

/* A layer normalisation with its weights. */
static int declare_layer_norm(struct model *m, size_t width, const char *name, struct tabft_failure *f)
{
    int error = declare_norm(m, width, name, f);
    return error < 0 ? error : model_declare(m, MODEL_DRAW_ZERO, width, 0, f, "%s.bias", name);
}

/* What makes tokens of cells. */
static int declare_cells(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_config *c = &m->config;
    const struct model_stages *s = &c->stages;
    const size_t numbers = v3_family_numbers(c);
    if (s->fourier == 0) return declare_linear(m, MODEL_DRAW_FAN_IN, c->width, numbers, "x_embed", f);
    TRY(model_declare(m, MODEL_DRAW_WAVES, c->group_features, s->fourier, f, "x_embed.fourier.frequencies"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, c->width, 2 * s->fourier, f, "x_embed.fourier.in_linear.weight"));
    TRY(model_declare(m, MODEL_DRAW_FAN_IN, c->width, numbers, f, "x_embed.metadata_linear.weight"));
    TRY(declare_layer_norm(m, c->width, "x_embed.layernorm", f));
fail:
    return error;
}

/* A regressor's buckets as TabPFN v3 lays them out for any number of them: lines between points. */
static void draw_borders(size_t n, float *borders)
{
    enum { BORDER_POINTS = 15 };
    static const double at[BORDER_POINTS] = {0,    5,    20,   100,  200,  500,  1000, 2500,
                                             4000, 4500, 4800, 4900, 4980, 4995, 5000},
                        value[BORDER_POINTS] = {-128, -16.9, -13,  -9.9, -8.47, -6.48, -4.40, 0,
                                                4.40, 6.48,  8.47, 9.9,  13,    16.9,  128};
    const double scale = (double)(n - 1) / at[BORDER_POINTS - 1];
    for (size_t i = 0; i < n; i++) {
        size_t p = 1;
        while (p + 1 < BORDER_POINTS && (double)i > at[p] * scale) p++;
        const double left = at[p - 1] * scale, right = at[p] * scale;
        const double along = right > left ? ((double)i - left) / (right - left) : 0;
        borders[i] = (float)(value[p - 1] + along * (value[p] - value[p - 1]));
    }
}

static int declare_constants(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_stages *s = &m->config.stages;
    const size_t width = m->config.width / s->row_heads;
    float *values;
    TRY(model_declare_constant(m, m->architecture->borders, s->borders, &values, f));
    draw_borders(s->borders, values);
    if (!s->rotates) return 0;
    TRY(model_declare_constant(m, V3_FREQS, width / 2, &values, f));
    for (size_t i = 0; i < width / 2; i++) values[i] = (float)pow(s->rope_base, -2.0 * (double)i / (double)width);
fail:
    return error;
}

int v3_family_declare(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_config *c = &m->config;
    const size_t wide = c->width * c->stages.row_tokens;
    TRY(declare_constants(m, f));
    TRY(declare_cells(m, f));
    TRY(declare_targets(m, c->task, c->width, "col_y_encoder", f));
    if (c->stages.norms_targets) TRY(declare_layer_norm(m, c->width, "col_y_layernorm", f));
    TRY(declare_columns(m, f));
    TRY(declare_rows(m, f));
    TRY(declare_targets(m, c->task, wide, "icl_y_encoder", f));
    if (c->stages.norms_targets) TRY(declare_layer_norm(m, wide, "icl_y_layernorm", f));
    TRY(declare_context(m, f));
    TRY(declare_head(m, c->task, f));
fail:
    return error;
}

int v3_family_declare_idle(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_config *c = &m->config;
    const enum model_task other = c->task == MODEL_CLASSIFICATION ? MODEL_REGRESSION : MODEL_CLASSIFICATION;
    TRY(declare_targets(m, other, c->width, "col_y_encoder", f));
    TRY(declare_targets(m, other, c->width * c->stages.row_tokens, "icl_y_encoder", f));
    TRY(declare_head(m, other, f));
fail:
    return error;
}
