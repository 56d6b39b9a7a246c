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
    MODEL_DRAW_XAVIER, /* uniform within sqrt(6 / (fan in + fan out)) */
    MODEL_DRAW_SMALL,  /* normal, deviation 0.02 */
    MODEL_DRAW_UNIT,   /* normal, rows of length 1 in the mean */
    MODEL_DRAW_WAVES   /* normal, deviation 2 */
};

/* The stages of a network of the v3 family before the one whose sizes stand in struct model_config. */
struct model_stages {
    size_t column_blocks, column_heads, inducing; /* rows of a column meet in `inducing` points */
    size_t row_blocks, row_heads, row_tokens;     /* columns of a row meet, and end up in row_tokens tokens */
    size_t context_kv_heads, query_kv_heads;      /* of the last stage */
    size_t scaling_hidden;                        /* hidden layers of the networks that scale queries */
    size_t decoder_heads, decoder_width;          /* of a classifier's */
    double rope_base;
    size_t fourier;                      /* frequencies of a cell's numbers; 0: cells are embedded linearly */
    size_t rank_frequencies, rank_edges; /* with fourier: of a number's rank, and the most numbers that it counts by */
    bool norms_heads;                    /* of queries and keys */
    bool norms_targets;                  /* what targets add to tokens */
    bool rotates;                        /* the columns of a row know their places */
    bool decoder_scales;                 /* the decoder's queries, too */
    bool has_indicators;                 /* of what is missing or infinite */
    size_t borders;                      /* numbers of the buffer regression_borders */
};

/* The sizes of a network: what its config says. v3: `width` is that of a cell; layers and heads are the last stage's.
 */
struct model_config {
    size_t width, layers, heads, group_features, thinking_rows;
    size_t encoder_hidden; /* width of the feature encoder's hidden layer; 0: it is linear */
    enum model_task task;
    bool both_tasks;             /* it has a head for each, and `task` says which one is used */
    size_t max_classes, buckets; /* of the heads that there are */
    size_t hidden_factor;        /* hidden layers of blocks and head have hidden_factor * width */
    bool has_thinking_rows;      /* a parameter for them, even if there are 0 */
    bool norm_has_weights;       /* RMSNorm; else layer normalisation without weights */
    bool groups_as_they_stand;   /* constant columns count when columns are grouped; else they are left out before */
    bool classes_as_ranks;       /* the network sees a class's rank among those of the context, not its code */
    bool column_table;           /* column embeddings from the table where it has them */
    uint32_t column_seed;        /* of those drawn */
    bool groups_overlap;         /* there are as many groups as columns: each begins another */
    struct model_stages stages;  /* v3 */
};

/* Which rows a call computes. Query rows see nothing of each other, so those of MODEL_QUERY, against what a call of
 * MODEL_CONTEXT has kept (tape_keep), come out as those of MODEL_WHOLE. */
enum model_part { MODEL_WHOLE, MODEL_CONTEXT, MODEL_QUERY };

/* What a call of a network records on: the numbers of its tape's inputs and results. */
struct model_tape {
    int feature;             /* [rows * groups][2 * group_features]: values, then indicators (if it has any) */
    int target;              /* [rows][2]; v3: the context's, [n_context][1], int32 of classes */
    int column;              /* [groups][width / 4]; v2 family */
    int log_keys;            /* [1][1]: the logarithm of n_context; v3 */
    int room;                /* what filling the inputs takes, [1][numbers]; v3.5, or TAPE_NONE */
    int turns;               /* [groups + row_tokens][width / row_heads], see struct op_heads; v3, or TAPE_NONE */
    int labels;              /* int32, a regressor's float [n_query] */
    int permutation;         /* int32 [n_classes]; a classifier's */
    int borders, impossible; /* [buckets + 1], [buckets]; a regressor's */
    int logits, loss;        /* loss: TAPE_NONE where none was asked for. MODEL_CONTEXT: logits is what is kept last */
    enum model_part part;    /* set before recording */
};
struct model_call_shape {
    size_t n_context, n_query, n_groups;
    enum model_part part;           /* MODEL_CONTEXT: n_query is 0 */
    size_t n_classes;               /* of a classifier's loss; 0: no such loss */
    double scale;                   /* of a classifier's loss */
    const struct op_bar_loss *bars; /* a regressor's loss; NULL: none */
};

/* Where a parameter's numbers lie in a file: number j of row i is number first + i * row + j * column of the tensor; a
 * vector is one row. */
struct model_source {
    const struct ckpt_tensor *tensor; /* NULL: not there */
    size_t first, row, column;
};

/* One architecture: its config, its parameters by name, its operations. */
struct model_architecture {
    const char *name;
    const char *borders; /* the constant that holds a regressor's; NULL: a criterion's alone */
    /* Reads a config (checked: TABFT_INPUT). NULL: the published size. Gives the whole config as a JSON object. */
    int (*configure)(struct model_config *out, const json_t *config, json_t **whole, struct tabft_failure *f);
    /* Declares every parameter in order. After an error of configure, *whole is still the caller's. */
    int (*declare)(struct model *m, struct tabft_failure *f);
    /* Declares, in the same way, those that the task has no use for. NULL: there are none. */
    int (*declare_idle)(struct model *m, struct tabft_failure *f);
    void (*record)(const struct model *m, const struct model_call_shape *shape, struct tape *t, struct model_tape *io);
    /* Fills the inputs that record made, but for those of the loss. `used`: as of encode_columns. */
    void (*fill)(const struct model *m, const struct tape_plan *p, const struct tape_memory *memory,
                 const struct model_tape *io, const struct model_input *input, const bool *used);
    /* Finds a parameter that the file does not have by its name under the name and in the layout of older files, or
     * not. Errors: TABFT_INPUT for a wrong shape. NULL: there are no older files. */
    int (*older)(const struct model *m, const struct model_parameter *p, const struct ckpt *c, struct model_source *out,
                 struct tabft_failure *f);
};
extern const struct model_architecture model_tabpfn_v2, model_tabpfn_v2_5, model_tabpfn_v2_6, model_tabpfn_v3,
    model_tabpfn_v3_5;

struct model_metadata {
    char *key, *value;
};
/* A tensor of the file that is no weight of the network (a regressor's criterion): kept for writing. */
struct model_extra {
    struct ckpt_tensor tensor;
    char *name;
    void *data;
};

/* A vector of numbers that belongs to a network but is not trained (PyTorch: a buffer, or a parameter without
 * gradient). */
struct model_constant {
    char *name;
    float *values;
    size_t count;
};

struct model {
    const struct model_architecture *architecture;
    struct model_config config;
    struct model_parameter *parameters;
    enum model_draw *draws;
    size_t n_parameters, n_values;         /* of the task */
    size_t n_all_parameters, n_all_values; /* with the idle ones, which follow */
    size_t parameters_room;
    float *values; /* [n_all_values] */
    struct model_metadata *metadata;
    size_t n_metadata;
    char *inference_config;
    struct model_extra *extras;
    size_t n_extras;
    struct model_constant *constants;
    size_t n_constants;
    float *borders; /* [buckets + 1] of a regressor's criterion, NULL without */
};

/* Appends a parameter of one or two dimensions (columns 0: one); the name is formatted as by printf. */
int model_declare(struct model *m, enum model_draw draw, size_t rows, size_t columns, struct tabft_failure *f,
                  const char *name, ...) TABFT_MUST_CHECK TABFT_PRINTF(6, 7);
/* Appends a constant, whose numbers the caller fills with what a fresh network has; a file's take their place. */
int model_declare_constant(struct model *m, const char *name, size_t count, float **values,
                           struct tabft_failure *f) TABFT_MUST_CHECK;
/* The numbers of a constant; NULL where none of that name was declared. */
const float *model_constant(const struct model *m, const char *name);
/* Takes weights, constants, borders and what else belongs to a network from a file; nothing of it may be left over.
 * `moved`: the file, whose weights are forgotten as soon as they are copied, or NULL. Errors: TABFT_INPUT naming the
 * tensor. */
int model_load(struct model *m, const struct ckpt *c, struct ckpt *moved, struct tabft_failure *f) TABFT_MUST_CHECK;
/* A regressor's buckets: those of the file's criterion, or, from v3 on, the network's own. c NULL: there is no file. */
int model_load_borders(struct model *m, const struct ckpt *c, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Takes all constants from a file. Errors: TABFT_INPUT naming the tensor. */
int model_copy_constants(struct model *m, const struct ckpt *c, struct tabft_failure *f) TABFT_MUST_CHECK;
void model_free_constants(struct model *m);
/* A tensor that is there (not NULL) and holds floating-point numbers: else TABFT_INPUT. */
int model_check_numbers(const char *name, const struct ckpt_tensor *t, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Records the loss of io->logits that the shape asks for, or none, with its inputs. */
void model_record_loss(const struct model *m, const struct model_call_shape *shape, struct tape *t,
                       struct model_tape *io);
/* Draws all weights. */
void model_draw_values(struct model *m, uint64_t seed);

/* `config` laid over `published` (JSON; config NULL: that alone). The caller owns *out. */
int model_config_over(json_t **out, const char *published, const json_t *config,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* A whole number of a config from `least` to `most`. */
int model_config_size(const json_t *config, const char *key, size_t least, size_t most, size_t *out,
                      struct tabft_failure *f) TABFT_MUST_CHECK;

/* ---- loss.c: what a call's loss is made of ---- */
struct loss_target { /* one of them */
    const struct model_target *classes;
    const struct model_regression_target *numbers;
};
/* A regressor's loss needs the borders of its buckets: TABFT_INPUT where there are none. */
int loss_check_borders(const struct model *m, struct tabft_failure *f) TABFT_MUST_CHECK;
int loss_check(const struct model *m, const struct model_input *input, const struct loss_target *target,
               struct tabft_failure *f) TABFT_MUST_CHECK;
/* Puts the loss into a shape; `bars` is room that the shape may point to. */
void loss_shape(const struct loss_target *target, struct op_bar_loss *bars, struct model_call_shape *shape);
/* Fills the inputs that the loss adds to a tape. */
void loss_fill(const struct model *m, const struct tape_plan *p, const struct tape_memory *memory,
               const struct model_tape *io, const struct model_input *input, const struct loss_target *target);

/* ---- encode.c: the table as the v2 family's networks see it ---- */
struct encode_sizes {
    size_t n_context, n_query, n_columns, group_features;
    size_t judged;      /* rows that tell whether a column differs anywhere: the first ones */
    size_t first, end;  /* rows that are encoded; row `first` is the first of the output */
    bool as_they_stand; /* groups are made of all columns; else of the used ones */
    bool overlap;       /* as many groups as columns; encode_features is not for these */
};
struct encode_sizes encode_sizes_of(const struct model *m, const struct model_shape *shape);
/* The rows that a part of the network takes in. */
struct encode_sizes encode_sizes_for(const struct model *m, const struct model_input *input, enum model_part part);
/* What stands beside a number to say that it is missing or infinite, 0 otherwise. */
float encode_indicator(float x);
/* Mean of the finite ones of n numbers `stride` apart; 0 where there are none. */
float encode_mean(size_t n, const float *x, size_t stride);
/* One column standardised by its context rows: to[i * stride] for row first + i, missing and infinite ones filled.
 * Returns whether it differs anywhere. */
bool encode_column(const struct encode_sizes *s, const float *x, float *to, size_t stride);
/* Rows `first` to before `end` of one column as they are, missing and infinite ones filled, side by side. */
void encode_fill(const struct encode_sizes *s, const float *x, size_t first, size_t end, float *to);
/* Marks the columns that differ anywhere over the judged rows; returns how many. */
size_t encode_columns(const struct encode_sizes *s, const float *x, bool *used);
/* How many groups there are when `n_used` columns are used. */
size_t encode_groups(const struct encode_sizes *s, size_t n_used);
/* feature [rows][groups][2 * group_features] from the used columns of each group, in order. */
void encode_features(const struct encode_sizes *s, const float *x, const bool *used, float *feature);
/* target [rows][2]. What stands for a missing target is the context's mean; ENCODE_CODES: rounded up to a class code;
 * ENCODE_RANKS: all targets are whole numbers and become how many different ones of the context are below them. */
enum encode_kind { ENCODE_NUMBERS, ENCODE_CODES, ENCODE_RANKS };
void encode_targets(const struct encode_sizes *s, const float *y_context, enum encode_kind kind, float *target);

/* ---- ranks.c: where numbers stand among those of a context ---- */
/* Numbers of the room that ranks take. */
size_t ranks_room(size_t n_context, size_t edges_max);
/* Puts the ranks of the numbers x [n] among `context` [n_context] in their place: from 0 to 1, the middle of those that
 * are equal. Of more than edges_max different numbers it counts exactly by edges_max of them, and between two by the
 * line from one to the other. All numbers are finite; `context` is sorted meanwhile; room [ranks_room]. Float32, as in
 * TabPFN. */
void ranks_of(size_t n_context, float *context, size_t edges_max, size_t n, float *x, float *room);

/* ---- columns.c: column embeddings ---- */
/* out [n_columns][width] as TabPFN draws them: its table for the first 2,000 at width 48, else torch.randn of seed
 * 42. */
void column_embeddings(size_t n_columns, size_t width, float *out);
/* torch.randn(count, generator=torch.Generator().manual_seed(seed)) on a CPU, to float32 rounding. */
void column_randn(uint32_t seed, size_t count, float *out);

#endif
