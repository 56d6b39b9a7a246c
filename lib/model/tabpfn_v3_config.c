/* TabPFN v3's config, parameters and constants, by TabPFN's names. */
#define TABFT_MODEL_ROOM
#include <math.h>
#include <stdio.h>

#include "model/tabpfn_v3_internal.h"

static const char published[] =
    "{\"name\": \"TabPFN-v3\", \"max_num_classes\": 10, \"num_buckets\": -1, \"embed_dim\": 128,"
    " \"dist_embed_num_blocks\": 3, \"dist_embed_num_heads\": 8, \"dist_embed_num_inducing_points\": 128,"
    " \"feature_group_size\": 3, \"feat_agg_num_blocks\": 3, \"feat_agg_num_heads\": 8,"
    " \"feat_agg_num_cls_tokens\": 4, \"feat_agg_rope_base\": 100000, \"use_rope\": true, \"nlayers\": 24,"
    " \"icl_num_heads\": 8, \"icl_num_kv_heads\": null, \"icl_num_kv_heads_test\": null, \"decoder_head_dim\": 64,"
    " \"decoder_num_heads\": 6, \"decoder_use_softmax_scaling\": false, \"ff_factor\": 2, \"dropout\": 0.0,"
    " \"softmax_scaling_mlp_hidden_dim\": 64, \"layernorm_elementwise_affine\": true, \"use_nan_indicators\": true}";

enum {
    WIDTH_MAX = 8192,
    LAYERS_MAX = 512,
    HEADS_MAX = 256,
    GROUP_MAX = 16,
    POINTS_MAX = 65536,
    TOKENS_MAX = 256,
    FACTOR_MAX = 64,
    CLASSES_MAX = 100000,
    BORDER_POINTS = 15
};

/* ---- config ---- */

static int read_flag(const json_t *all, const char *key, bool *out, struct tabft_failure *f)
{
    const json_t *value = json_object_get(all, key);
    if (!json_is_boolean(value)) return tabft_fail(f, TABFT_INPUT, "config: %s is neither true nor false", key);
    *out = json_is_true(value);
    return 0;
}

/* Key-value heads: null or a divisor of the heads. */
static int read_kv_heads(const json_t *all, const char *key, size_t heads, size_t otherwise, size_t *out,
                         struct tabft_failure *f)
{
    *out = otherwise;
    if (json_is_null(json_object_get(all, key))) return 0;
    int error = model_config_size(all, key, 1, otherwise, out, f);
    if (error == 0 && heads % *out != 0)
        return tabft_fail(f, TABFT_INPUT, "config: icl_num_heads %zu is no multiple of %s %zu", heads, key, *out);
    return error;
}

/* A network with less than two classes is a regressor. */
static int read_head(struct model_config *c, const json_t *all, struct tabft_failure *f)
{
    int error = 0;
    const json_int_t buckets = json_integer_value(json_object_get(all, "num_buckets"));
    if (json_integer_value(json_object_get(all, "max_num_classes")) >= 2)
        TRY(model_config_size(all, "max_num_classes", 2, CLASSES_MAX, &c->max_classes, f));
    else if (buckets > 0) TRY(model_config_size(all, "num_buckets", 1, CLASSES_MAX, &c->buckets, f));
    else FAIL(f, TABFT_INPUT, "config: max_num_classes is below 2 and num_buckets below 1; a network has one of them");
    if (buckets > CLASSES_MAX)
        FAIL(f, TABFT_INPUT, "config: num_buckets is %lld; it must be at most %d", (long long)buckets, CLASSES_MAX);
    c->stages.borders = buckets < 0 ? 0 : (size_t)buckets + 1;
fail:
    return error;
}

static int check_heads(const char *what, size_t width, size_t heads, struct tabft_failure *f)
{
    if (width % heads == 0) return 0;
    return tabft_fail(f, TABFT_INPUT, "config: the %s's width %zu is no multiple of its %zu heads", what, width, heads);
}

static int check_sizes(const struct model_config *c, const json_t *all, struct tabft_failure *f)
{
    int error = 0;
    bool norms_have_weights = false;
    const struct model_stages *s = &c->stages;
    TRY(check_heads("distribution embedder", c->width, s->column_heads, f));
    TRY(check_heads("column aggregator", c->width, s->row_heads, f));
    TRY(check_heads("ICL transformer", c->width * s->row_tokens, c->heads, f));
    if (s->rotates && c->width / s->row_heads % 2 != 0)
        FAIL(f, TABFT_INPUT, "config: heads of odd width %zu cannot rotate; use use_rope false",
             c->width / s->row_heads);
    if (!(s->rope_base >= 1) || isinf(s->rope_base))
        FAIL(f, TABFT_INPUT, "config: feat_agg_rope_base is not a number of at least 1");
    TRY(read_flag(all, "layernorm_elementwise_affine", &norms_have_weights, f));
    if (!norms_have_weights)
        FAIL(f, TABFT_INPUT, "config: layernorm_elementwise_affine is false; TabFT knows norms with weights only");
fail:
    return error;
}

static int read_sizes(struct model_config *c, const json_t *all, struct tabft_failure *f)
{
    int error = 0;
    struct model_stages *s = &c->stages;
    TRY(model_config_size(all, "embed_dim", 1, WIDTH_MAX, &c->width, f));
    TRY(model_config_size(all, "dist_embed_num_blocks", 0, LAYERS_MAX, &s->column_blocks, f));
    TRY(model_config_size(all, "dist_embed_num_heads", 1, HEADS_MAX, &s->column_heads, f));
    TRY(model_config_size(all, "dist_embed_num_inducing_points", 1, POINTS_MAX, &s->inducing, f));
    TRY(model_config_size(all, "feature_group_size", 1, GROUP_MAX, &c->group_features, f));
    TRY(model_config_size(all, "feat_agg_num_blocks", 1, LAYERS_MAX, &s->row_blocks, f));
    TRY(model_config_size(all, "feat_agg_num_heads", 1, HEADS_MAX, &s->row_heads, f));
    TRY(model_config_size(all, "feat_agg_num_cls_tokens", 1, TOKENS_MAX, &s->row_tokens, f));
    TRY(model_config_size(all, "nlayers", 0, LAYERS_MAX, &c->layers, f));
    TRY(model_config_size(all, "icl_num_heads", 1, HEADS_MAX, &c->heads, f));
    TRY(read_kv_heads(all, "icl_num_kv_heads", c->heads, c->heads, &s->context_kv_heads, f));
    TRY(read_kv_heads(all, "icl_num_kv_heads_test", c->heads, s->context_kv_heads, &s->query_kv_heads, f));
    TRY(model_config_size(all, "decoder_head_dim", 1, WIDTH_MAX, &s->decoder_width, f));
    TRY(model_config_size(all, "decoder_num_heads", 1, HEADS_MAX, &s->decoder_heads, f));
    TRY(model_config_size(all, "ff_factor", 1, FACTOR_MAX, &c->hidden_factor, f));
    TRY(model_config_size(all, "softmax_scaling_mlp_hidden_dim", 1, WIDTH_MAX, &s->scaling_hidden, f));
    TRY(read_flag(all, "decoder_use_softmax_scaling", &s->decoder_scales, f));
    TRY(read_flag(all, "use_nan_indicators", &s->has_indicators, f));
    TRY(read_flag(all, "use_rope", &s->rotates, f));
    s->rope_base = floor(json_number_value(json_object_get(all, "feat_agg_rope_base")));
    c->groups_as_they_stand = c->groups_overlap = true;
fail:
    return error;
}

int v3_configure(struct model_config *out, const json_t *config, json_t **whole, struct tabft_failure *f)
{
    int error = 0;
    json_t *all = json_loads(published, 0, NULL);
    if (all == NULL || (config != NULL && json_object_update(all, (json_t *)config) != 0))
        FAIL(f, TABFT_SYSTEM, "no memory for a config");
    *out = (struct model_config){0};
    TRY(read_sizes(out, all, f));
    TRY(read_head(out, all, f));
    TRY(check_sizes(out, all, f));
    *whole = all;
    all = NULL;
fail:
    json_decref(all);
    return error;
}

/* ---- parameters, in the order in which the recording below takes them ---- */

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

/* Queries, keys, values: `kv_width` numbers of the latter two. heads 0: the queries are not scaled. */
static int declare_attention(struct model *m, size_t width, size_t kv_width, size_t heads, const char *prefix,
                             struct tabft_failure *f)
{
    int error = 0;
    TRY(model_declare(m, MODEL_DRAW_XAVIER, width, width, f, "%s.q_projection.weight", prefix));
    TRY(model_declare(m, MODEL_DRAW_XAVIER, kv_width, width, f, "%s.k_projection.weight", prefix));
    TRY(model_declare(m, MODEL_DRAW_XAVIER, kv_width, width, f, "%s.v_projection.weight", prefix));
    if (heads > 0) TRY(declare_scaling(m, heads, width / heads, joined(prefix, "softmax_scaling_layer").text, f));
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
    TRY(declare_attention(m, e, e, scales ? m->config.stages.column_heads : 0, joined(prefix, "attn").text, f));
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
        TRY(declare_attention(m, e, e, 0, joined(prefix, "attention").text, f));
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
        TRY(declare_attention(m, e, e / c->heads * c->stages.context_kv_heads, c->heads,
                              joined(prefix, "icl_attention").text, f));
        TRY(declare_mlp(m, e, prefix, "layernorm_mlp", f));
    }
    TRY(declare_norm(m, e, "output_norm", f));
fail:
    return error;
}

static int declare_head(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_config *c = &m->config;
    const struct model_stages *s = &c->stages;
    const size_t e = c->width * s->row_tokens, votes = s->decoder_heads * s->decoder_width,
                 hidden = c->hidden_factor * e;
    if (c->max_classes == 0) {
        TRY(declare_linear(m, MODEL_DRAW_FAN_IN, hidden, e, "output_projection.0", f));
        TRY(declare_linear(m, MODEL_DRAW_FAN_IN, c->buckets, hidden, "output_projection.2", f));
        return 0;
    }
    TRY(declare_linear(m, MODEL_DRAW_FAN_IN, votes, e, "many_class_decoder.k_projection", f));
    TRY(declare_linear(m, MODEL_DRAW_FAN_IN, votes, e, "many_class_decoder.q_projection", f));
    if (s->decoder_scales)
        TRY(declare_scaling(m, s->decoder_heads, s->decoder_width, "many_class_decoder.softmax_scaling_layer", f));
fail:
    return error;
}

/* What targets add to the tokens of context rows. */
static int declare_targets(struct model *m, size_t width, const char *name, struct tabft_failure *f)
{
    if (m->config.max_classes == 0) return declare_linear(m, MODEL_DRAW_FAN_IN, width, 1, name, f);
    return model_declare(m, MODEL_DRAW_UNIT, m->config.max_classes, width, f, "%s.embedding.weight", name);
}

/* A regressor's buckets as TabPFN v3 lays them out for any number of them: lines between points. */
static void draw_borders(size_t n, float *borders)
{
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
    TRY(model_declare_constant(m, V3_BORDERS, s->borders, &values, f));
    draw_borders(s->borders, values);
    if (!s->rotates) return 0;
    TRY(model_declare_constant(m, V3_FREQS, width / 2, &values, f));
    for (size_t i = 0; i < width / 2; i++) values[i] = (float)pow(s->rope_base, -2.0 * (double)i / (double)width);
fail:
    return error;
}

int v3_declare(struct model *m, struct tabft_failure *f)
{
    int error = 0;
    const struct model_config *c = &m->config;
    const size_t numbers = c->group_features * (c->stages.has_indicators ? 2 : 1);
    TRY(declare_constants(m, f));
    TRY(declare_linear(m, MODEL_DRAW_FAN_IN, c->width, numbers, "x_embed", f));
    TRY(declare_targets(m, c->width, "col_y_encoder", f));
    TRY(declare_columns(m, f));
    TRY(declare_rows(m, f));
    TRY(declare_targets(m, c->width * c->stages.row_tokens, "icl_y_encoder", f));
    TRY(declare_context(m, f));
    TRY(declare_head(m, f));
fail:
    return error;
}
