/* The records of PREPROCESS_TRANSFORMS: how a kind of estimator prepares its columns. */
#define TABFT_ENSEMBLE_ROOM
#include <string.h>

#include "ensemble/config_json.h"

enum { RESHAPES_MAX = 32 };

static int read_categories(struct preprocessor *p, const json_t *value, struct tabft_failure *f)
{
    static const char shuffled[] = "_shuffled";
    char name[64];
    const char *text = json_string_value(value);
    if (text == NULL || strlen(text) >= sizeof name)
        return config_refuse("categorical_name", value, "a name is needed", f);
    memcpy(name, text, strlen(text) + 1);
    size_t length = strlen(name), tail = sizeof shuffled - 1;
    p->shuffled = length > tail && strcmp(name + length - tail, shuffled) == 0;
    if (p->shuffled) name[length - tail] = '\0';
    p->categories = CATEGORIES_ORDINAL;
    p->least_count = 0;
    p->fewer_than_tenth = false;
    if (!p->shuffled && strcmp(name, "none") == 0) {
        p->categories = CATEGORIES_KEPT;
    } else if (!p->shuffled && strcmp(name, "numeric") == 0) {
        p->categories = CATEGORIES_NUMERIC;
    } else if (!p->shuffled && strcmp(name, "onehot") == 0) {
        p->categories = CATEGORIES_ONEHOT;
    } else if (strcmp(name, "ordinal_common_categories") == 0) {
        p->least_count = 10;
    } else if (strcmp(name, "ordinal_very_common_categories") == 0) {
        p->least_count = 10;
        p->fewer_than_tenth = true;
    } else if (strcmp(name, "ordinal") != 0) {
        return config_refuse("categorical_name", value, "use numeric, none, onehot or an ordinal one", f);
    }
    return 0;
}

static int read_reshape(struct preprocessor *p, const json_t *value, struct tabft_failure *f)
{
    struct config_word words[RESHAPES_MAX + 1] = {{0}};
    int which, error;
    for (int i = 0; reshape_list[i] != NULL && i < RESHAPES_MAX; i++)
        words[i] = (struct config_word){reshape_list[i]->name, i};
    TRY(config_word(&which, words, "name", value, f));
    p->reshape = reshape_list[which];
fail:
    return error;
}

static int read_svd(struct preprocessor *p, const json_t *value, struct tabft_failure *f)
{
    const char *text = json_is_null(value) ? "None" : json_string_value(value);
    if (text != NULL && strcmp(text, "None") == 0)
        p->svd_divisor = 0;
    else if (text != NULL && strcmp(text, "svd") == 0)
        p->svd_divisor = 2;
    else if (text != NULL && strcmp(text, "svd_quarter_components") == 0)
        p->svd_divisor = 4;
    else
        return config_refuse("global_transformer_name", value, "use svd, svd_quarter_components or null", f);
    return 0;
}

static int read_record_field(struct preprocessor *p, const char *key, const json_t *value, struct tabft_failure *f)
{
    if (strcmp(key, "name") == 0) return read_reshape(p, value, f);
    if (strcmp(key, "categorical_name") == 0) return read_categories(p, value, f);
    if (strcmp(key, "max_features_per_estimator") == 0) return config_size(&p->max_columns, key, value, 1, f);
    if (strcmp(key, "global_transformer_name") == 0) return read_svd(p, value, f);
    if (strcmp(key, "append_original") == 0) {
        const char *text = json_string_value(value);
        if (text != NULL && strcmp(text, "auto") == 0)
            p->append = APPEND_AUTO;
        else if (json_is_boolean(value))
            p->append = json_is_true(value) ? APPEND_YES : APPEND_NO;
        else
            return config_refuse(key, value, "use true, false or auto", f);
        return 0;
    }
    if (strcmp(key, "max_onehot_cardinality") == 0)
        return json_is_null(value) ? 0 : config_size(&p->max_onehot, key, value, 0, f);
    if (strcmp(key, "differentiable") == 0) return json_is_false(value) ? 0 : config_refuse(key, value, "use false", f);
    return tabft_fail(f, TABFT_INPUT,
                      "inference_config: a preprocessor has the unknown field \"%.80s\"; convert the checkpoint", key);
}

int config_preprocessors(struct config *c, const json_t *list, struct tabft_failure *f)
{
    int error = 0;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > PREPROCESSORS_MAX)
        FAIL(f, TABFT_INPUT, "inference_config: PREPROCESS_TRANSFORMS is not a list of 1 to %d records",
             PREPROCESSORS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct preprocessor *p = &c->preprocessor[i];
        *p = (struct preprocessor){
            .categories = CATEGORIES_KEPT, .append = APPEND_NO, .max_columns = 500, .max_onehot = SIZE_MAX};
        const char *key;
        json_t *value, *record = json_array_get(list, i);
        json_object_foreach (record, key, value) TRY(read_record_field(p, key, value, f));
        if (p->reshape == NULL) FAIL(f, TABFT_INPUT, "inference_config: preprocessor %zu has no name", i + 1);
    }
    c->n_preprocessors = n;
fail:
    return error;
}
