#define TABFT_ENSEMBLE_ROOM
#include "ensemble/limits.h"

#include <jansson.h>
#include <stdint.h>

#include "ensemble/ensemble_internal.h"

static int read_limit(const json_t *config, const char *key, size_t *out, struct tabft_failure *f)
{
    const json_t *value = json_object_get(config, key);
    if (value == NULL) return 0;
    if (json_is_null(value)) {
        *out = SIZE_MAX;
        return 0;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return tabft_fail(f, TABFT_INPUT, "inference_config: %s is no whole number above 0", key);
    *out = (size_t)json_integer_value(value);
    return 0;
}

int ensemble_limits(const char *architecture, const char *inference_config, struct ensemble_limits *out,
                    struct tabft_failure *f)
{
    int error = 0;
    const bool v2 = config_is_v2(architecture);
    json_error_t where;
    json_t *config = NULL;
    *out = (struct ensemble_limits){.classes = 10, .columns = v2 ? 500 : 2000, .rows = v2 ? 10000 : 50000};
    if (inference_config == NULL) return 0;
    config = json_loads(inference_config, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(config)) FAIL(f, TABFT_INPUT, "inference_config: not a JSON object; the checkpoint is damaged");
    TRY(read_limit(config, "MAX_NUMBER_OF_CLASSES", &out->classes, f));
    TRY(read_limit(config, "MAX_NUMBER_OF_FEATURES", &out->columns, f));
    TRY(read_limit(config, "MAX_NUMBER_OF_SAMPLES", &out->rows, f));
    out->takes_infinities = json_is_true(json_object_get(config, "PASSTHROUGH_INF"));
fail:
    json_decref(config);
    return error;
}
