/* Reading the values of an inference_config: what is not as it must be is refused by the field's name. */
#ifndef TABFT_ENSEMBLE_CONFIG_JSON_H
#define TABFT_ENSEMBLE_CONFIG_JSON_H

#include <jansson.h>

#include "ensemble/ensemble_internal.h"

/* Records that `key` has a value TabFT cannot do; `instead` says what would do. */
int config_refuse(const char *key, const json_t *value, const char *instead, struct tabft_failure *f);

int config_size(size_t *out, const char *key, const json_t *value, size_t least,
                struct tabft_failure *f) TABFT_MUST_CHECK;
int config_bool(bool *out, const char *key, const json_t *value, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Names and what they stand for; ends in a NULL name. */
struct config_word {
    const char *name;
    int value;
};
int config_word(int *out, const struct config_word *words, const char *key, const json_t *value,
                struct tabft_failure *f) TABFT_MUST_CHECK;

/* Fills c->preprocessor from the list of records PREPROCESS_TRANSFORMS. */
int config_preprocessors(struct config *c, const json_t *list, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
