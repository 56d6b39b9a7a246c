/* The ten fine-tuning runs of TabPFN 9.2.0 that tests/data/train/make_finetune.py packs: 400 rows of 20 columns, five
 * estimators, two epochs of two steps. */
#ifndef TABFT_TESTS_TRAIN_RECORDED_H
#define TABFT_TESTS_TRAIN_RECORDED_H

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "model/model.h"
#include "unit.h"

enum {
    ROWS = 400,
    TEST_ROWS = 100,
    COLUMNS = 20,
    COLUMNS_MAX = 64, /* of a network's input */
    ESTIMATORS = 5,
    STEPS = 4,
    CLASSES = 2,
    CONTEXT = 160,
    QUERY = 40,
    SEED = 17,
    NAME = 192
};

struct recorded_run {
    const char *name, *model; /* of the network's file */
    enum model_task task;
};
static const struct recorded_run recorded_runs[] = {
    {"v2_cls", "v2_cls", MODEL_CLASSIFICATION},     {"v2_reg", "v2_reg", MODEL_REGRESSION},
    {"v2_5_cls", "v2_5_cls", MODEL_CLASSIFICATION}, {"v2_5_reg", "v2_5_reg", MODEL_REGRESSION},
    {"v2_6_cls", "v2_6_cls", MODEL_CLASSIFICATION}, {"v2_6_reg", "v2_6_reg", MODEL_REGRESSION},
    {"v3_cls", "v3_cls", MODEL_CLASSIFICATION},     {"v3_reg", "v3_reg", MODEL_REGRESSION},
    {"v3_5_cls", "v3_5", MODEL_CLASSIFICATION},     {"v3_5_reg", "v3_5", MODEL_REGRESSION},
};
enum { RUNS = sizeof recorded_runs / sizeof *recorded_runs };

static struct ckpt *recorded; /* all of them */

static inline const struct ckpt_tensor *get(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline const struct ckpt_tensor *get(const char *format, ...)
{
    char key[NAME];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    ck_assert_int_lt(length, NAME);
    const struct ckpt_tensor *t = ckpt_find(recorded, key);
    ck_assert_msg(t != NULL, "no tensor %s", key);
    return t;
}

static inline void open_recorded(void)
{
    struct tabft_failure f = {0};
    MUST(ckpt_open(&recorded, unit_data("train/finetune.safetensors"), &f));
}

static inline void model_path(const struct recorded_run *r, char path[NAME])
{
    (void)snprintf(path, NAME, "reference/%s.model.safetensors", r->model);
}

static inline struct model *open_model(const struct recorded_run *r)
{
    struct tabft_failure f = {0};
    struct ckpt *c;
    struct model *m;
    char path[NAME];
    model_path(r, path);
    MUST(ckpt_open(&c, unit_data(path), &f));
    MUST(model_open(&m, c, r->task, &f));
    ckpt_close(c);
    return m;
}

/* What an estimator's network was given in a step. */
struct batch {
    size_t n_columns;
    float x[(CONTEXT + QUERY) * COLUMNS_MAX]; /* [CONTEXT + QUERY][n_columns] */
    float y_context[CONTEXT];
    float asked[QUERY]; /* labels, not permuted, or targets as the estimator sees them */
    int32_t permutation[CLASSES];
};

static inline void read_batch(const struct recorded_run *r, size_t step, size_t estimator, struct batch *b)
{
    const struct ckpt_tensor *columns = get("%s.inputs.%zu.%zu", r->name, step, estimator);
    const struct ckpt_tensor *context = get("columns.context"), *query = get("columns.query");
    b->n_columns = columns->count - 1;
    ck_assert_uint_le(b->n_columns, COLUMNS_MAX);
    for (size_t j = 0; j <= b->n_columns; j++) {
        const size_t from = (size_t)ckpt_value(columns, j);
        const bool last = j == b->n_columns;
        for (size_t i = 0; i < CONTEXT; i++)
            *(last ? &b->y_context[i] : &b->x[i * b->n_columns + j]) = (float)ckpt_value(context, from * CONTEXT + i);
        for (size_t i = 0; i < QUERY; i++)
            *(last ? &b->asked[i] : &b->x[(CONTEXT + i) * b->n_columns + j]) = (float)ckpt_value(query,
                                                                                                 from * QUERY + i);
    }
    for (size_t k = 0; r->task == MODEL_CLASSIFICATION && k < CLASSES; k++)
        b->permutation[k] = (int32_t)ckpt_value(get("%s.permutation.%zu", r->name, estimator), k);
}

#endif
