/* TabPFN v2, the first of its family: no thinking rows, layer normalisation without weights, groups of one or two
 * columns as they stand in the table, and classes as their ranks among those of the context. */
#define TABFT_MODEL_ROOM
#include "model/v2_family_internal.h"

static const char published[] = "{\"max_num_classes\": 10, \"num_buckets\": -1, \"name\": \"TabPFN-v2\", \"emsize\": "
                                "192, \"nlayers\": 12, \"nhead\": 6, \"features_per_group\": 2, \"seed\": 0}";

static int configure(struct model_config *out, const json_t *config, json_t **whole, struct tabft_failure *f)
{
    int error = 0;
    size_t seed;
    TRY(v2_family_configure(out, published, config, whole, f));
    TRY(model_config_size(*whole, "features_per_group", 1, 2, &out->group_features, f));
    TRY(model_config_size(*whole, "seed", 0, UINT32_MAX, &seed, f));
    out->column_seed = (uint32_t)seed;
    out->hidden_factor = 4;
    out->groups_as_they_stand = true;
    out->classes_as_ranks = out->task == MODEL_CLASSIFICATION && out->max_classes >= 2;
fail:
    return error;
}

const struct model_architecture model_tabpfn_v2 = {.name = "tabpfn_v2",
                                                   .configure = configure,
                                                   .declare = v2_family_declare,
                                                   .record = v2_family_record,
                                                   .fill = v2_family_fill,
                                                   .older = v2_family_base_source};
