/* What the two files of TabPFN v3 share: what it is made of (tabpfn_v3_config.c), and what it computes (tabpfn_v3.c),
 * which takes the parameters in the order of their declaration. */
#ifndef TABFT_MODEL_TABPFN_V3_INTERNAL_H
#define TABFT_MODEL_TABPFN_V3_INTERNAL_H

#include "model/model_internal.h"

/* Constants: turns of a row's columns, in radians a place [half a head's width]; a regressor's borders. */
#define V3_FREQS "column_aggregator.rope.freqs"
#define V3_BORDERS "regression_borders"

/* For struct model_architecture. */
int v3_configure(struct model_config *out, const json_t *config, json_t **whole,
                 struct tabft_failure *f) TABFT_MUST_CHECK;
int v3_declare(struct model *m, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
