/* TabPFN v3, the first of its family: cells are embedded by one linear layer, and a network has one head. */
#define TABFT_MODEL_ROOM
#include "model/v3_family_internal.h"

static const char published[] =
    "{\"name\": \"TabPFN-v3\", \"max_num_classes\": 10, \"num_buckets\": -1, \"embed_dim\": 128,"
    " \"dist_embed_num_blocks\": 3, \"dist_embed_num_heads\": 8, \"dist_embed_num_inducing_points\": 128,"
    " \"feature_group_size\": 3, \"feat_agg_num_blocks\": 3, \"feat_agg_num_heads\": 8,"
    " \"feat_agg_num_cls_tokens\": 4, \"feat_agg_rope_base\": 100000, \"use_rope\": true, \"nlayers\": 24,"
    " \"icl_num_heads\": 8, \"icl_num_kv_heads\": null, \"icl_num_kv_heads_test\": null, \"decoder_head_dim\": 64,"
    " \"decoder_num_heads\": 6, \"decoder_use_softmax_scaling\": false, \"ff_factor\": 2, \"dropout\": 0.0,"
    " \"softmax_scaling_mlp_hidden_dim\": 64, \"layernorm_elementwise_affine\": true, \"use_nan_indicators\": true}";

/* A network with less than two classes is a regressor. */
static int read_head(struct model_config *c, const json_t *all, struct tabft_failure *f)
{
    int error = 0;
    const json_int_t buckets = json_integer_value(json_object_get(all, "num_buckets"));
    if (json_integer_value(json_object_get(all, "max_num_classes")) >= 2)
        TRY(model_config_size(all, "max_num_classes", 2, V3_OUTPUTS_MAX, &c->max_classes, f));
    else if (buckets > 0) TRY(model_config_size(all, "num_buckets", 1, V3_OUTPUTS_MAX, &c->buckets, f));
    else FAIL(f, TABFT_INPUT, "config: max_num_classes is below 2 and num_buckets below 1; a network has one of them");
    if (buckets > V3_OUTPUTS_MAX)
        FAIL(f, TABFT_INPUT, "config: num_buckets is %lld; it must be at most %d", (long long)buckets, V3_OUTPUTS_MAX);
    c->task = c->max_classes > 0 ? MODEL_CLASSIFICATION : MODEL_REGRESSION;
    c->stages.borders = buckets < 0 ? 0 : (size_t)buckets + 1;
fail:
    return error;
}

static int configure(struct model_config *out, const json_t *config, json_t **whole, struct tabft_failure *f)
{
    int error = 0;
    bool norms_have_weights = false;
    struct model_stages *s = &out->stages;
    TRY(v3_family_configure(out, published, config, whole, f));
    TRY(v3_family_flag(*whole, "use_nan_indicators", &s->has_indicators, f));
    TRY(v3_family_flag(*whole, "use_rope", &s->rotates, f));
    if (s->rotates) TRY(v3_family_check_turns(out, "use use_rope false", f));
    TRY(v3_family_flag(*whole, "layernorm_elementwise_affine", &norms_have_weights, f));
    if (!norms_have_weights)
        FAIL(f, TABFT_INPUT, "config: layernorm_elementwise_affine is false; TabFT knows norms with weights only");
    TRY(read_head(out, *whole, f));
fail:
    return error;
}

const struct model_architecture model_tabpfn_v3 = {.name = "tabpfn_v3",
                                                   .borders = "regression_borders",
                                                   .configure = configure,
                                                   .declare = v3_family_declare,
                                                   .record = v3_family_record,
                                                   .fill = v3_family_fill};
