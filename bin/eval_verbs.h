/* Verbs of tabft-eval that have files of their own. */
#ifndef TABFT_BIN_EVAL_VERBS_H
#define TABFT_BIN_EVAL_VERBS_H

#include "base/failure.h"

/* As tool_run (tool.h). */
int eval_score_run(int argc, char **argv, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
