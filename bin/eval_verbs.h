/* Verbs of tabft-eval that have files of their own. */
#ifndef TABFT_BIN_EVAL_VERBS_H
#define TABFT_BIN_EVAL_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/failure.h"
#include "ensemble/ensemble.h"

struct eval_plan;
struct table;
struct tensor_backend;
struct threads;

enum { EVAL_THREADS_MAX = 1024 };
/* n_threads 0: all CPUs this process may use. */
int eval_open_pool(uint64_t n_threads, struct threads **pool, struct tabft_failure *f) TABFT_MUST_CHECK;

/* A line on stderr for each column that was left out: of the training table, for it tells nothing (use[columns]), or of
 * the test table alone. */
int eval_tell_left_out(const struct table *train, const struct table *test, const enum ensemble_use *use,
                       struct tabft_failure *f) TABFT_MUST_CHECK;
/* The plan on stdout. */
void eval_put_plan(const struct eval_plan *p);

/* As tool_run (tool.h). */
int eval_predict_run(int argc, char **argv, struct tabft_failure *f) TABFT_MUST_CHECK;
int eval_merge_run(int argc, char **argv, struct tabft_failure *f) TABFT_MUST_CHECK;
int eval_report_run(int argc, char **argv, struct tabft_failure *f) TABFT_MUST_CHECK;
int eval_score_run(int argc, char **argv, struct tabft_failure *f) TABFT_MUST_CHECK;

/* --device and --precision. */
struct eval_device {
    const char *name; /* "auto", "cpu", "cuda" */
    int precision;    /* enum tensor_precision; 0: what suits the device */
};
int eval_read_precision(const char *text, struct eval_device *d, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Opens the CPU with the threads of `pool`, or the first GPU; planning: for a plan alone, which needs no GPU. Of a GPU,
 * options->gpu_memory and gpu_taken are filled. Closed with out->close, on failure too if that is set. */
struct eval_options;
int eval_open_device(const struct eval_device *asked, bool planning, struct threads *pool, struct tensor_backend *out,
                     struct eval_options *options, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
