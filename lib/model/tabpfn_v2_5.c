/* TabPFN v2.5, "base" in its own checkpoints: v2 with thinking rows, a choice of encoders and smaller hidden layers. */
#define TABFT_MODEL_ROOM
#include "model/v2_family_internal.h"

static const char published[] = "{\"max_num_classes\": 10, \"num_buckets\": -1, \"name\": \"TabPFN-v2.5\", \"emsize\": "
                                "192, \"nlayers\": 24, \"nhead\": 3,"
                                " \"features_per_group\": 3, \"num_thinking_rows\": 64, \"encoder_type\": \"linear\", "
                                "\"encoder_mlp_hidden_dim\": 1024}";

static int configure(struct model_config *out, const json_t *config, json_t **whole, struct tabft_failure *f)
{
    int error = v2_family_configure(out, published, config, whole, f);
    if (error == 0) error = v2_family_configure_later(out, *whole, f);
    return error;
}

const struct model_architecture model_tabpfn_v2_5 = {.name = "tabpfn_v2_5",
                                                     .configure = configure,
                                                     .declare = v2_family_declare,
                                                     .record = v2_family_record,
                                                     .fill = v2_family_fill,
                                                     .older = v2_family_base_source};
