/* What tabft-model says about checkpoints, as JSON. */
#ifndef TABFT_EVAL_DESCRIBE_H
#define TABFT_EVAL_DESCRIBE_H

#include <jansson.h>

#include "ckpt/ckpt.h"
#include "ckpt/compare.h"

/* Sizes, architecture, tasks and heads, limits, recorded licence terms, configuration of a file (ckpt_open_header is
 * enough). The caller owns *out. Errors: TABFT_INPUT where metadata that must be JSON is not. */
int describe_checkpoint(const struct ckpt *c, json_t **out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* A comparison: one entry a tensor that differs. NULL without memory; the caller owns it. */
json_t *describe_comparison(const struct ckpt_comparison *d, const struct ckpt *a, const struct ckpt *b);
const char *describe_difference(enum ckpt_difference_kind kind); /* "values", "only in a", ... */

#endif
