/* What the configs of the v3 family have in common, by TabPFN's names. */
#define TABFT_MODEL_ROOM
#include <math.h>

#include "model/v3_family_internal.h"

enum {
    WIDTH_MAX = 8192,
    LAYERS_MAX = 512,
    HEADS_MAX = 256,
    GROUP_MAX = 16,
    POINTS_MAX = 65536,
    TOKENS_MAX = 256,
    FACTOR_MAX = 64
};

int v3_family_flag(const json_t *all, const char *key, bool *out, struct tabft_failure *f)
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

static int check_heads(const char *what, size_t width, size_t heads, struct tabft_failure *f)
{
    if (width % heads == 0) return 0;
    return tabft_fail(f, TABFT_INPUT, "config: the %s's width %zu is no multiple of its %zu heads", what, width, heads);
}

static int check_sizes(const struct model_config *c, struct tabft_failure *f)
{
    int error = 0;
    const struct model_stages *s = &c->stages;
    TRY(check_heads("distribution embedder", c->width, s->column_heads, f));
    TRY(check_heads("column aggregator", c->width, s->row_heads, f));
    TRY(check_heads("ICL transformer", c->width * s->row_tokens, c->heads, f));
    if (!(s->rope_base >= 1) || isinf(s->rope_base))
        FAIL(f, TABFT_INPUT, "config: feat_agg_rope_base is not a number of at least 1");
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
    TRY(v3_family_flag(all, "decoder_use_softmax_scaling", &s->decoder_scales, f));
    s->rope_base = floor(json_number_value(json_object_get(all, "feat_agg_rope_base")));
    c->groups_as_they_stand = c->groups_overlap = true;
fail:
    return error;
}

int v3_family_configure(struct model_config *out, const char *published, const json_t *config, json_t **whole,
                        struct tabft_failure *f)
{
    int error = 0;
    json_t *all = NULL;
    TRY(model_config_over(&all, published, config, f));
    *out = (struct model_config){0};
    TRY(read_sizes(out, all, f));
    TRY(check_sizes(out, f));
    *whole = all;
    all = NULL;
fail:
    json_decref(all);
    return error;
}

int v3_family_check_turns(const struct model_config *c, const char *remedy, struct tabft_failure *f)
{
    const size_t width = c->width / c->stages.row_heads;
    if (width % 2 == 0) return 0;
    return tabft_fail(f, TABFT_INPUT, "config: heads of odd width %zu cannot rotate; %s", width, remedy);
}
