/* The checkpoint's inference_config: JSON text in, checked settings out. A field is one line in the list below; a field
 * or value that is not known, or known and not implemented, is refused by name. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <string.h>

#include "ensemble/config_json.h"
#include "ensemble/limits.h"

enum { OUTLIERS_AUTO = -1 };

/* Where there is no inference_config: what TabPFN's models of v2 and of v2.5 were made with; all else is default.
 */
static const char preset_v2[] =
    "{\"PREPROCESS_TRANSFORMS\": ["
    "{\"name\": \"quantile_uni_coarse\", \"categorical_name\": \"ordinal_very_common_categories_shuffled\","
    " \"append_original\": \"auto\", \"global_transformer_name\": \"svd\", \"max_features_per_estimator\": 1000000},"
    "{\"name\": \"none\", \"categorical_name\": \"numeric\", \"max_features_per_estimator\": 1000000}],"
    "\"FEATURE_SUBSAMPLING_METHOD\": \"random\"}";
static const char preset_v2_regressor[] =
    "{\"PREPROCESS_TRANSFORMS\": ["
    "{\"name\": \"quantile_uni\", \"categorical_name\": \"ordinal_very_common_categories_shuffled\","
    " \"append_original\": true, \"global_transformer_name\": \"svd\"},"
    "{\"name\": \"safepower\", \"categorical_name\": \"onehot\"}],"
    "\"FEATURE_SUBSAMPLING_METHOD\": \"random\"}";
static const char preset_v2_5_regressor[] =
    "{\"PREPROCESS_TRANSFORMS\": ["
    "{\"name\": \"quantile_uni_coarse\", \"categorical_name\": \"numeric\", \"append_original\": \"auto\"},"
    "{\"name\": \"squashing_scaler_default\", \"categorical_name\": \"ordinal_very_common_categories_shuffled\","
    " \"append_original\": false, \"global_transformer_name\": \"svd_quarter_components\"}],"
    "\"FEATURE_SUBSAMPLING_METHOD\": \"random\"}";
static const char preset_v2_5[] =
    "{\"PREPROCESS_TRANSFORMS\": ["
    "{\"name\": \"squashing_scaler_default\", \"categorical_name\": \"ordinal_very_common_categories_shuffled\","
    " \"append_original\": false, \"global_transformer_name\": \"svd_quarter_components\"},"
    "{\"name\": \"none\", \"categorical_name\": \"numeric\"}],"
    "\"FEATURE_SUBSAMPLING_METHOD\": \"random\"}";

static const struct config_word shift_words[] = {{"shuffle", SHIFT_SHUFFLE}, {"rotate", SHIFT_ROTATE}, {NULL, 0}};
static const struct config_word column_words[] = {{"random", SUBSETS_RANDOM},
                                                  {"balanced", SUBSETS_BALANCED},
                                                  {"constant_and_balanced", SUBSETS_CONSTANT_AND_BALANCED},
                                                  {"gini_feature_importance", SUBSETS_GINI},
                                                  {"auto", SUBSETS_AUTO},
                                                  {NULL, 0}};
static const struct config_word row_words[] = {{"auto", ROWS_AUTO},
                                               {"balanced", ROWS_BALANCED},
                                               {"stratified", ROWS_STRATIFIED},
                                               {"majority_downsample", ROWS_MAJORITY},
                                               {NULL, 0}};

typedef int read_field(struct config *c, const char *key, const json_t *value, struct tabft_failure *f);

static int read_transforms(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    (void)key;
    return config_preprocessors(c, value, f);
}

static int read_estimators(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    const char *text = json_string_value(value);
    if (text == NULL) return config_size(&c->n_estimators, key, value, 1, f);
    return strcmp(text, "auto") == 0 ? 0 : config_refuse(key, value, "use auto or a number from 1", f);
}

static int read_temperature(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    if (!json_is_number(value) || !(json_number_value(value) > 0) || !isfinite(json_number_value(value)))
        return config_refuse(key, value, "a number above 0 is needed", f);
    c->temperature = json_number_value(value);
    return 0;
}

static int read_outliers(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    const char *text = json_string_value(value);
    if (json_is_null(value)) c->outlier_std = 0;
    else if (json_is_number(value) && json_number_value(value) > 0) c->outlier_std = json_number_value(value);
    else if (text != NULL && strcmp(text, "auto") == 0) c->outlier_std = OUTLIERS_AUTO;
    else return config_refuse(key, value, "a number above 0, null or auto is needed", f);
    return 0;
}

/* What "auto" means for classifiers and for regressors. */
static int read_outliers_regression(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    if (!c->is_regression) return 0;
    if (json_is_null(value)) {
        c->outlier_auto = 0;
        return 0;
    }
    if (!json_is_number(value) || !(json_number_value(value) > 0))
        return config_refuse(key, value, "a number above 0 or null is needed", f);
    c->outlier_auto = json_number_value(value);
    return 0;
}

static int read_outliers_classification(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    if (c->is_regression) return 0;
    if (!json_is_number(value) || !(json_number_value(value) > 0))
        return config_refuse(key, value, "a number above 0 is needed", f);
    c->outlier_auto = json_number_value(value);
    return 0;
}

/* null and "none" leave the target as it is. */
static int read_targets(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    size_t n = json_array_size(value);
    if (!c->is_regression) return 0;
    if (n == 0 || n > TARGETS_MAX) return config_refuse(key, value, "a list of up to 8 names is needed", f);
    c->n_targets = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_is_null(entry) ? "none" : json_string_value(entry);
        if (name != NULL && strcmp(name, "none") == 0) c->target[i] = TARGET_AS_IS;
        else if (name != NULL && (strcmp(name, "safepower") == 0 || strcmp(name, "power") == 0))
            c->target[i] = TARGET_POWER;
        else return config_refuse(key, entry, "use null, none, power or safepower", f);
    }
    return 0;
}

static int read_shift(enum shift *out, const char *key, const json_t *value, struct tabft_failure *f)
{
    int word = SHIFT_NONE, error = json_is_null(value) ? 0 : config_word(&word, shift_words, key, value, f);
    *out = (enum shift)word;
    return error;
}

static int read_column_shift(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    return read_shift(&c->column_shift, key, value, f);
}

static int read_class_shift(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    return read_shift(&c->class_shift, key, value, f);
}

static int read_fingerprint(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    return config_bool(&c->fingerprint, key, value, f);
}

static int read_polynomials(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    const char *text = json_string_value(value);
    if (text == NULL) return config_size(&c->polynomials, key, value, 1, f);
    c->polynomials = strcmp(text, "all") == 0 ? SIZE_MAX : 0;
    return c->polynomials > 0 || strcmp(text, "no") == 0 ? 0 : config_refuse(key, value, "use no, all or a number", f);
}

static int read_row_subset(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    double size = json_number_value(value);
    if (json_is_null(value)) c->row_subset = 0;
    else if ((json_is_integer(value) && size >= 1) || (json_is_real(value) && size > 0 && size < 1))
        c->row_subset = size;
    else return config_refuse(key, value, "use null, a count of rows from 1 or a share between 0 and 1", f);
    return 0;
}

static int read_row_subsets(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    int word = 0, error = config_word(&word, row_words, key, value, f);
    c->row_subsets = (enum row_subsets)word;
    return error;
}

static int read_column_subsets(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    int word = 0, error = config_word(&word, column_words, key, value, f);
    c->column_subsets = (enum column_subsets)word;
    return error;
}

static int read_important(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    const char *text = json_string_value(value);
    double size = json_number_value(value);
    if (text != NULL && strcmp(text, "auto") == 0) c->important_columns = 0;
    else if ((json_is_integer(value) && size >= 1) || (json_is_real(value) && size > 0 && size <= 1))
        c->important_columns = json_is_real(value) ? -size : size;
    else return config_refuse(key, value, "use auto, a count of columns from 1 or a share up to 1.0", f);
    return 0;
}

static int read_infinities(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    return config_bool(&c->passes_infinities, key, value, f);
}

static int read_single(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    return config_bool(&c->is_single, key, value, f);
}

static int read_must_be_false(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    (void)c;
    return json_is_false(value) ? 0 : config_refuse(key, value, "use false", f);
}

static int read_repair(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    return !c->is_regression || json_is_true(value) ? 0 : config_refuse(key, value, "use true", f);
}

/* Fields that say nothing here: switched off by TabPFN's own fine-tuning and its evaluation (TRANSFORM_*), limits it sets
 * aside there (MAX_NUMBER_OF_FEATURES, _SAMPLES, MAX_CPU_SAMPLES), what only declared
 * categories (MAX_UNIQUE_FOR_CATEGORICAL_FEATURES) or unimplemented choices read, which are refused where they are
 * chosen. */
static int read_nothing(struct config *c, const char *key, const json_t *value, struct tabft_failure *f)
{
    (void)c, (void)key, (void)value, (void)f;
    return 0;
}

#define SIZE_FIELD(function, member, least)                                                              \
    static int function(struct config *c, const char *key, const json_t *value, struct tabft_failure *f) \
    {                                                                                                    \
        return config_size(&c->member, key, value, least, f);                                            \
    }
SIZE_FIELD(read_min_unique_number, min_unique_number, 0)
SIZE_FIELD(read_min_rows, min_rows_to_infer, 0)
SIZE_FIELD(read_min_text, max_unique_text_category, 0)
SIZE_FIELD(read_constant_columns, constant_columns, 0)

static const struct field {
    const char *name;
    read_field *read;
} fields[] = {
    {"PREPROCESS_TRANSFORMS", read_transforms},
    {"MAX_UNIQUE_FOR_CATEGORICAL_FEATURES", read_nothing},
    {"MIN_UNIQUE_FOR_NUMERICAL_FEATURES", read_min_unique_number},
    {"MIN_NUMBER_SAMPLES_FOR_CATEGORICAL_INFERENCE", read_min_rows},
    {"MIN_CARDINALITY_FOR_TEXT", read_min_text},
    {"SOFTMAX_TEMPERATURE", read_temperature},
    {"N_ESTIMATORS", read_estimators},
    {"TRANSFORM_DATES", read_nothing},
    {"TRANSFORM_TEXT", read_nothing},
    {"TEXT_N_COMPONENTS", read_nothing},
    {"OUTLIER_REMOVAL_STD", read_outliers},
    {"FEATURE_SHIFT_METHOD", read_column_shift},
    {"CLASS_SHIFT_METHOD", read_class_shift},
    {"FINGERPRINT_FEATURE", read_fingerprint},
    {"POLYNOMIAL_FEATURES", read_polynomials},
    {"SUBSAMPLE_SAMPLES", read_row_subset},
    {"SAMPLE_SUBSAMPLING_METHOD", read_row_subsets},
    {"ENABLE_GPU_PREPROCESSING", read_single},
    {"FEATURE_SUBSAMPLING_METHOD", read_column_subsets},
    {"FEATURE_SUBSAMPLING_CONSTANT_FEATURE_COUNT", read_constant_columns},
    {"CONSTANT_FEATURE_COUNT", read_constant_columns}, /* its old name */
    {"FEATURE_SUBSAMPLING_IMPORTANCE_TOP_K_COUNT", read_important},
    {"REGRESSION_Y_PREPROCESS_TRANSFORMS", read_targets},
    {"USE_SKLEARN_16_DECIMAL_PRECISION", read_must_be_false},
    {"MAX_NUMBER_OF_CLASSES", read_nothing}, /* limits.c reads these three */
    {"MAX_NUMBER_OF_FEATURES", read_nothing},
    {"MAX_NUMBER_OF_SAMPLES", read_nothing},
    {"MAX_CPU_SAMPLES", read_nothing},
    {"FIX_NAN_BORDERS_AFTER_TARGET_TRANSFORM", read_repair},
    {"PASSTHROUGH_INF", read_infinities},
    {"_REGRESSION_DEFAULT_OUTLIER_REMOVAL_STD", read_outliers_regression},
    {"_CLASSIFICATION_DEFAULT_OUTLIER_REMOVAL_STD", read_outliers_classification},
    /* End of fields */
};

static int read_fields(struct config *c, json_t *root, struct tabft_failure *f)
{
    const char *key;
    json_t *value;
    int error = 0;
    json_object_foreach(root, key, value)
    {
        size_t i = 0;
        while (i < sizeof fields / sizeof *fields && strcmp(fields[i].name, key) != 0) i++;
        if (i == sizeof fields / sizeof *fields)
            FAIL(f, TABFT_INPUT, "inference_config: unknown field \"%.80s\"; this checkpoint needs a newer TabFT", key);
        TRY(fields[i].read(c, key, value, f));
    }
    if (c->n_preprocessors == 0) FAIL(f, TABFT_INPUT, "inference_config: PREPROCESS_TRANSFORMS is missing");
fail:
    return error;
}

bool config_is_v2(const char *architecture)
{
    return architecture == NULL || strcmp(architecture, "tabpfn_v2") == 0 ||
           strcmp(architecture, "\"tabpfn_v2\"") == 0;
}

static const char *preset_of(const char *architecture, bool is_regression)
{
    const bool v2 = config_is_v2(architecture);
    if (is_regression) return v2 ? preset_v2_regressor : preset_v2_5_regressor;
    return v2 ? preset_v2 : preset_v2_5;
}

int config_read(struct config *c, const char *architecture, const char *json, bool is_regression,
                struct tabft_failure *f)
{
    *c = (struct config){
        .min_unique_number = 4,
        .min_rows_to_infer = 100,
        .max_unique_text_category = 30,
        .temperature = 0.9,
        .outlier_std = OUTLIERS_AUTO,
        .outlier_auto = is_regression ? 0.0 : 12.0,
        .is_regression = is_regression,
        .n_targets = is_regression ? 2 : 1,
        .target = {TARGET_AS_IS, TARGET_POWER},
        .column_shift = SHIFT_SHUFFLE,
        .class_shift = SHIFT_SHUFFLE,
        .fingerprint = true,
        .column_subsets = SUBSETS_BALANCED,
        .constant_columns = 50,
        .row_subsets = ROWS_AUTO,
    };
    struct ensemble_limits limits;
    json_error_t where;
    json_t *root = json_loads(json != NULL ? json : preset_of(architecture, is_regression), JSON_REJECT_DUPLICATES,
                              &where);
    int error = 0;
    if (root == NULL)
        FAIL(f, TABFT_INPUT, "inference_config:%d:%d: not JSON (%.80s); the checkpoint is damaged", where.line,
             where.column, where.text);
    if (!json_is_object(root)) FAIL(f, TABFT_INPUT, "inference_config: not a JSON object; the checkpoint is damaged");
    TRY(read_fields(c, root, f));
    TRY(ensemble_limits(architecture, json, &limits, f));
    c->max_classes = limits.classes;
    if (c->outlier_std < 0) c->outlier_std = c->outlier_auto;
fail:
    json_decref(root);
    return error;
}
