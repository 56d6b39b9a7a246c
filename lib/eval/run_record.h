/* What a training run left in its folder, as far as the verdict needs it: RUN/model.safetensors, run.json,
 * metrics.jsonl. */
#ifndef TABFT_EVAL_RUN_RECORD_H
#define TABFT_EVAL_RUN_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct ckpt;

struct run_record {
    char *path;           /* the folder */
    struct ckpt *weights; /* loaded */
    json_t *json;         /* run.json */
    /* Borrowed from json: */
    const char *model_sha256, *base_model_sha256, *cpu, *train_path, *train_digest;
    const char *gpu;       /* NULL: it ran on CPUs */
    const json_t *labels;  /* array of texts */
    const json_t *options; /* object */
    size_t world_size, train_rows, epochs, n_estimators;
    uint32_t seed;
    /* From metrics.jsonl, a step each: */
    size_t n_steps;
    double *loss; /* NaN where the line has none (null) */
};

/* Reads and checks the three files. Errors: TABFT_INPUT naming file and field. Does not check model_sha256. */
int run_record_open(struct run_record *out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
void run_record_clear(struct run_record *r);

#endif
