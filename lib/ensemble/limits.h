/* What a checkpoint was made for: what TabPFN states, and refuses to go beyond without being asked. */
#ifndef TABFT_ENSEMBLE_LIMITS_H
#define TABFT_ENSEMBLE_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"

struct ensemble_limits {
    size_t classes, columns, rows; /* SIZE_MAX: none */
    bool takes_infinities;         /* PASSTHROUGH_INF */
};

/* The limits of a checkpoint's inference_config (JSON text); of what is not in it, and of all where it is NULL, those
 * of TabPFN's own preset for `architecture`, as of struct ensemble_options. Other fields are not looked at.
 * Errors: TABFT_INPUT for text that is no JSON object, and for a limit that is no whole number above 0 (null: none). */
int ensemble_limits(const char *architecture, const char *inference_config, struct ensemble_limits *out,
                    struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
