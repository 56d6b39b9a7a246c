/* What model.c, run.c and the architectures share. */
#ifndef TABFT_MODEL_INTERNAL_H
#define TABFT_MODEL_INTERNAL_H
#ifndef TABFT_MODEL_ROOM
#error "model_internal.h is private to lib/model"
#endif

#include <jansson.h>

#include "model/model.h"
#include "tensor/tape.h"

/* How a fresh weight is drawn. */
enum model_draw {
    MODEL_DRAW_ZERO,
    MODEL_DRAW_ONE,
    MODEL_DRAW_NORMAL, /* standard normal */
    MODEL_DRAW_FAN_IN, /* uniform within 1 / sqrt(fan in) */
    MODEL_DRAW_XAVIER  /* uniform within sqrt(6 / (fan in + fan out)) */
};

/* The sizes of a network of the v2 family: what its config says. */
struct model_config {
    size_t width, layers, heads, group_features, thinking_rows;
    size_t encoder_hidden;       /* width of the feature encoder's hidden layer; 0: it is linear */
    size_t max_classes, buckets; /* max_classes 0: a regressor with `buckets` */
};

/* What a call of a network records on: the numbers of its tape's inputs and results. */
struct model_tape {
    int feature;             /* [rows * groups][2 * group_features]: the values, then their indicators */
    int target;              /* [rows][2] */
    int column;              /* [groups][width / 4] */
    int labels, permutation; /* int32 [n_query], [n_classes] */
    int logits, loss;        /* loss: TAPE_NONE without n_classes */
};
struct model_call_shape {
    size_t n_context, n_query, n_groups;
    size_t n_classes; /* 0: no loss */
    double scale;
};

/* One architecture: its config, its parameters by name, its operations. */
struct model_architecture {
    const char *name;
    /* Reads a config (checked: TABFT_INPUT). NULL: the published size. Gives the whole config as a JSON object. */
    int (*configure)(struct model_config *out, const json_t *config, json_t **whole, struct tabft_failure *f);
    /* Declares every parameter in order. */
    int (*declare)(struct model *m, struct tabft_failure *f);
    void (*record)(const struct model *m, const struct model_call_shape *shape, struct tape *t, struct model_tape *io);
};
extern const struct model_architecture model_tabpfn_v2_6;

struct model_metadata {
    char *key, *value;
};
/* A tensor of the file that is no weight of the network (a regressor's criterion): kept for writing. */
struct model_extra {
    struct ckpt_tensor tensor;
    char *name;
    void *data;
};

struct model {
    const struct model_architecture *architecture;
    struct model_config config;
    struct model_parameter *parameters;
    enum model_draw *draws;
    size_t n_parameters, parameters_room, n_values;
    float *values;
    struct model_metadata *metadata;
    size_t n_metadata;
    char *inference_config;
    struct model_extra *extras;
    size_t n_extras;
};

/* Appends a parameter of one or two dimensions (columns 0: one); the name is formatted as by printf. */
int model_declare(struct model *m, enum model_draw draw, size_t rows, size_t columns, struct tabft_failure *f,
                  const char *name, ...) TABFT_MUST_CHECK TABFT_PRINTF(6, 7);
/* Draws all weights. */
void model_draw_values(struct model *m, uint64_t seed);

/* A whole number of a config from `least` to `most`. */
int model_config_size(const json_t *config, const char *key, size_t least, size_t most, size_t *out,
                      struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- encode.c: the table as the v2 family's networks see it ---- */
struct encode_sizes {
    size_t n_context, n_query, n_columns, group_features;
};
/* Marks the columns that differ anywhere over context and query; returns how many. */
size_t encode_columns(const struct encode_sizes *s, const float *x, bool *used);
/* feature [rows][groups][2 * group_features] from the used columns; groups = ceil(used / group_features). */
void encode_features(const struct encode_sizes *s, const float *x, const bool *used, float *feature);
/* target [rows][2]. */
void encode_targets(const struct encode_sizes *s, const float *y_context, bool classification, float *target);

/* ---- columns.c: column embeddings ---- */
/* out [n_columns][width] as TabPFN draws them: its table for the first 2,000 at width 48, else torch.randn of seed
 * 42. */
void column_embeddings(size_t n_columns, size_t width, float *out);
/* torch.randn(count, generator=torch.Generator().manual_seed(seed)) on a CPU, to float32 rounding. */
void column_randn(uint32_t seed, size_t count, float *out);

#endif
