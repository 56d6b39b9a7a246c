/* The options of a run: defaults, texts to values, refusals, JSON. */
#include <jansson.h>
#include <string.h>

#include "train/options.h"
#include "unit.h"

static int set(struct train_options *o, const char *option, const char *text, struct tabft_failure *f)
{
    for (size_t i = 0; i < train_option_count(); i++)
        if (strcmp(train_option_at(i).name, option) == 0) return train_option_set(o, i, text, f);
    ck_abort_msg("no option %s", option);
    return 0;
}

START_TEST(defaults_are_those_of_tabpfn)
{
    struct train_options o;
    train_options_default(&o);
    ck_assert_uint_eq(o.epochs, 30);
    ck_assert_double_eq(o.learning_rate, 1e-5);
    ck_assert_double_eq(o.weight_decay, 0.01);
    ck_assert_double_eq(o.clip, 1);
    ck_assert_uint_eq(o.chunk_rows, 50000);
    ck_assert_double_eq(o.query_fraction, 0.2);
    ck_assert_double_eq(o.validation_split, 0.1);
    ck_assert_double_eq(o.min_delta, 1e-4);
    ck_assert_uint_eq(o.patience, 8);
    ck_assert_uint_eq(o.estimators, 8);
    ck_assert_uint_eq(o.schedule, SCHEDULE_COSINE);
    ck_assert_uint_eq(o.metric, TRAIN_METRIC_AUTO);
    ck_assert_double_eq(o.losses.crps, 1);
    ck_assert_double_eq(o.losses.mse, 1);
    ck_assert_double_eq(o.losses.ce + o.losses.crls + o.losses.mae + o.losses.mse_clip + o.losses.mae_clip, 0);
}
END_TEST

START_TEST(texts_become_values)
{
    struct tabft_failure f = {0};
    struct train_options o;
    train_options_default(&o);
    MUST(set(&o, "epochs", "2", &f));
    MUST(set(&o, "lr", "3e-4", &f));
    MUST(set(&o, "schedule", "constant", &f));
    MUST(set(&o, "recompute", "block", &f));
    MUST(set(&o, "seed", "4294967295", &f));
    MUST(set(&o, "memory", "800M", &f));
    MUST(set(&o, "validation-split", "0", &f));
    MUST(set(&o, "force", NULL, &f));
    ck_assert_uint_eq(o.epochs, 2);
    ck_assert_double_eq(o.learning_rate, 3e-4);
    ck_assert_uint_eq(o.schedule, SCHEDULE_CONSTANT);
    ck_assert_uint_eq(o.recompute, TRAIN_RECOMPUTE_BLOCK);
    ck_assert_uint_eq(o.seed, 4294967295U);
    ck_assert_uint_eq(o.memory, (uint64_t)800 << 20);
    ck_assert_double_eq(o.validation_split, 0);
    ck_assert(o.force);
}
END_TEST

START_TEST(what_is_no_value_is_refused)
{
    static const char *const wrong[][2] = {
        {"epochs", "0"},
        {"epochs", "-1"},
        {"epochs", "3x"},
        {"epochs", ""},
        {"epochs", "1.5"},
        {"epochs", " 3"},
        {"epochs", "99999999999999999999"},
        {"lr", "0"},
        {"lr", "nan"},
        {"lr", "inf"},
        {"lr", "1e-5x"},
        {"lr", "0x1p-3"},
        {"lr", ""},
        {"query-fraction", "0"},
        {"query-fraction", "1"},
        {"validation-split", "1"},
        {"validation-split", "-0.1"},
        {"seed", "4294967296"},
        {"schedule", "cos"},
        {"schedule", ""},
        {"schedule", "cosine|warmup"},
        {"memory", "0"},
        {"memory", "4GB"},
        {"memory", "-4G"},
        {"model", ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tabft_failure f = {0};
        struct train_options o;
        train_options_default(&o);
        MUST_FAIL(set(&o, wrong[i][0], wrong[i][1], &f), TABFT_USE, wrong[i][0]);
    }
}
END_TEST

START_TEST(what_belongs_together_is_checked)
{
    struct tabft_failure f = {0};
    struct train_options o;
    train_options_default(&o);
    MUST_FAIL(train_options_check(&o, &f), TABFT_USE, "--model");
    o.model = "m";
    MUST_FAIL(train_options_check(&o, &f), TABFT_USE, "--data");
    o.data = "d";
    MUST_FAIL(train_options_check(&o, &f), TABFT_USE, "--out");
    o.plan = true;
    MUST(train_options_check(&o, &f));
    o.seed = 4294967295U - 28;
    MUST_FAIL(train_options_check(&o, &f), TABFT_USE, "--seed");
    o.seed = 4294967295U - 29;
    MUST(train_options_check(&o, &f));
}
END_TEST

START_TEST(json_has_every_option_that_bears_on_the_run)
{
    struct tabft_failure f = {0};
    struct train_options o;
    char *text, *for_result;
    train_options_default(&o);
    o.model = "a\"b";
    MUST(train_options_json(&o, false, &text, &f));
    MUST(train_options_json(&o, true, &for_result, &f));
    json_t *json = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(json);
    ck_assert_str_eq(json_string_value(json_object_get(json, "model")), "a\"b");
    ck_assert_int_eq(json_integer_value(json_object_get(json, "chunks_per_step")), 1);
    ck_assert_double_eq(json_real_value(json_object_get(json, "learning_rate")), 1e-5);
    ck_assert_str_eq(json_string_value(json_object_get(json, "schedule")), "cosine");
    ck_assert(json_is_null(json_object_get(json, "valid")));
    /* --plan, --ranks, --ranks-per-node, --resume, --force */
    ck_assert_uint_eq(json_object_size(json), train_option_count() - 5);
    ck_assert_ptr_null(strstr(for_result, "threads"));
    json_decref(json);
    free(text);
    free(for_result);
}
END_TEST

UNIT_MAIN("options", defaults_are_those_of_tabpfn, texts_become_values, what_is_no_value_is_refused,
          what_belongs_together_is_checked, json_has_every_option_that_bears_on_the_run)
