/* TabPFN v3.5: v3 with both heads in one file, cells embedded by waves of their numbers and of their ranks, and norms
 * of queries, keys and what targets add. Its fast variant is a checkpoint with another config. */
#define TABFT_MODEL_ROOM
#include "model/v3_family_internal.h"

enum { FREQUENCIES_MAX = 1024, EDGES_MAX = 1 << 24 /* float32 counts no further */ };

/* What is only about how much TabPFN computes at once stays in the config, for it to read. */
static const char published[] =
    "{\"name\": \"TabPFN-v3.5\", \"max_num_classes\": 10, \"num_buckets\": 5000, \"embed_dim\": 128,"
    " \"dist_embed_num_blocks\": 3, \"dist_embed_num_heads\": 8, \"dist_embed_num_inducing_points\": 128,"
    " \"feature_group_size\": 3, \"feat_agg_num_blocks\": 3, \"feat_agg_num_heads\": 8,"
    " \"feat_agg_num_cls_tokens\": 8, \"feat_agg_rope_base\": 100000, \"nlayers\": 24, \"icl_num_heads\": 16,"
    " \"icl_num_kv_heads\": null, \"icl_num_kv_heads_test\": 1, \"decoder_head_dim\": 64, \"decoder_num_heads\": 6,"
    " \"decoder_use_softmax_scaling\": true, \"ff_factor\": 2, \"softmax_scaling_mlp_hidden_dim\": 64,"
    " \"fourier_encoding_num_frequencies\": 32, \"cell_ecdf_num_frequencies\": 4, \"cell_ecdf_num_buckets\": 8192,"
    " \"cell_embed_row_chunk_size\": 2048, \"inference_chunk_cells\": 1572864, \"inference_col_chunk_size\": 4,"
    " \"max_batched_estimator_rows\": 32768, \"max_batched_estimator_cells\": 768000000}";

static int configure(struct model_config *out, const json_t *config, json_t **whole, struct tabft_failure *f)
{
    int error = 0;
    struct model_stages *s = &out->stages;
    TRY(v3_family_configure(out, published, config, whole, f));
    TRY(v3_family_check_turns(out, "choose another number of feat_agg_num_heads", f));
    TRY(model_config_size(*whole, "max_num_classes", 2, V3_OUTPUTS_MAX, &out->max_classes, f));
    TRY(model_config_size(*whole, "num_buckets", 2, V3_OUTPUTS_MAX, &out->buckets, f));
    TRY(model_config_size(*whole, "fourier_encoding_num_frequencies", 1, FREQUENCIES_MAX, &s->fourier, f));
    TRY(model_config_size(*whole, "cell_ecdf_num_frequencies", 1, FREQUENCIES_MAX, &s->rank_frequencies, f));
    TRY(model_config_size(*whole, "cell_ecdf_num_buckets", 2, EDGES_MAX, &s->rank_edges, f));
    s->borders = out->buckets + 1;
    s->has_indicators = s->rotates = s->norms_heads = s->norms_targets = true;
    out->both_tasks = true;
fail:
    return error;
}

const struct model_architecture model_tabpfn_v3_5 = {.name = "tabpfn_v3_5",
                                                     .borders = "heads.regression_borders",
                                                     .configure = configure,
                                                     .declare = v3_family_declare,
                                                     .declare_idle = v3_family_declare_idle,
                                                     .record = v3_family_record,
                                                     .fill = v3_family_fill};
