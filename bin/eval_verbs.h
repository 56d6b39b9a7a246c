/* Verbs of tabft-eval that have files of their own. */
#ifndef TABFT_BIN_EVAL_VERBS_H
#define TABFT_BIN_EVAL_VERBS_H

#include <stdint.h>

#include "base/failure.h"

struct eval_plan;
struct table;
struct threads;

enum { EVAL_THREADS_MAX = 1024 };
/* n_threads 0: all CPUs this process may use. */
int eval_open_pool(uint64_t n_threads, struct threads **pool, struct tabft_failure *f) TABFT_MUST_CHECK;

/* A line on stderr for each column of the training table that told nothing and was left out. */
int eval_tell_left_out(const struct table *train, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The plan on stdout. */
void eval_put_plan(const struct eval_plan *p);

/* As tool_run (tool.h). */
int eval_predict_run(int argc, char **argv, struct tabft_failure *f) TABFT_MUST_CHECK;
int eval_merge_run(int argc, char **argv, struct tabft_failure *f) TABFT_MUST_CHECK;
int eval_score_run(int argc, char **argv, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
