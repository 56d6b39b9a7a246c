#define TABFT_ENSEMBLE_ROOM
#include "ensemble/config_json.h"

#include <stdio.h>
#include <string.h>

/* A value as it may be shown in one line. */
static const char *shown(const json_t *value, char text[80])
{
    const char *kind = json_is_array(value) ? "a list" : json_is_object(value) ? "an object" : "";
    if (json_is_string(value))
        (void)snprintf(text, 80, "\"%.60s\"", json_string_value(value));
    else if (json_is_integer(value))
        (void)snprintf(text, 80, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(text, 80, "%.17g", json_real_value(value));
    else
        (void)snprintf(text, 80, "%s",
                       json_is_true(value)    ? "true"
                       : json_is_false(value) ? "false"
                       : json_is_null(value)  ? "null"
                                              : kind);
    return text;
}

int config_refuse(const char *key, const json_t *value, const char *instead, struct tabft_failure *f)
{
    char text[80];
    return tabft_fail(f, TABFT_INPUT, "inference_config: %.80s is %s, which TabFT cannot do; %s", key,
                      shown(value, text), instead);
}

int config_size(size_t *out, const char *key, const json_t *value, size_t least, struct tabft_failure *f)
{
    if (!json_is_integer(value) || json_integer_value(value) < (json_int_t)least)
        return config_refuse(key, value, "a whole number is needed", f);
    *out = (size_t)json_integer_value(value);
    return 0;
}

int config_bool(bool *out, const char *key, const json_t *value, struct tabft_failure *f)
{
    if (!json_is_boolean(value)) return config_refuse(key, value, "true or false is needed", f);
    *out = json_is_true(value);
    return 0;
}

int config_word(int *out, const struct config_word *words, const char *key, const json_t *value,
                struct tabft_failure *f)
{
    const char *text = json_string_value(value);
    char names[200] = "use";
    for (const struct config_word *w = words; w->name != NULL; w++) {
        if (text != NULL && strcmp(w->name, text) == 0) {
            *out = w->value;
            return 0;
        }
        size_t length = strlen(names);
        (void)snprintf(names + length, sizeof names - length, " %s%s", w->name, w[1].name != NULL ? "," : "");
    }
    return config_refuse(key, value, names, f);
}
