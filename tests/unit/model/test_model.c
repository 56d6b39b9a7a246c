/* Opening, drawing and writing networks, what they refuse, and what a run promises about memory and shapes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "model/model.h"
#include "unit_backend.h"

static struct tabft_failure f;
static const char small[] =
    "{\"emsize\": 32, \"nlayers\": 2, \"nhead\": 2, \"features_per_group\": 3, \"num_thinking_rows\": 4}";

static void *room(size_t n, size_t size)
{
    void *x;
    MUST(memory_new(&x, n, size, "a test", &f));
    return x;
}

static struct model *draw_architecture(const char *architecture, const char *config, uint64_t seed)
{
    struct model *m;
    MUST(model_init(&m, architecture, config, seed, &f));
    return m;
}

static struct model *draw_model(const char *config, uint64_t seed)
{
    return draw_architecture("tabpfn_v2_6", config, seed);
}

static const char small_v3[] =
    "{\"embed_dim\": 32, \"dist_embed_num_blocks\": 2, \"dist_embed_num_heads\": 4,"
    " \"dist_embed_num_inducing_points\": 8, \"feat_agg_num_blocks\": 2, \"feat_agg_num_heads\": 4,"
    " \"feat_agg_num_cls_tokens\": 2, \"nlayers\": 2, \"icl_num_heads\": 4, \"icl_num_kv_heads_test\": 2,"
    " \"decoder_head_dim\": 8, \"decoder_num_heads\": 3, \"softmax_scaling_mlp_hidden_dim\": 16}";

static const char small_v3_5[] =
    "{\"embed_dim\": 32, \"dist_embed_num_blocks\": 2, \"dist_embed_num_heads\": 4,"
    " \"dist_embed_num_inducing_points\": 8, \"feat_agg_num_blocks\": 2, \"feat_agg_num_heads\": 4,"
    " \"feat_agg_num_cls_tokens\": 2, \"nlayers\": 2, \"icl_num_heads\": 4, \"icl_num_kv_heads_test\": 2,"
    " \"decoder_head_dim\": 8, \"decoder_num_heads\": 3, \"softmax_scaling_mlp_hidden_dim\": 16,"
    " \"fourier_encoding_num_frequencies\": 6, \"cell_ecdf_num_frequencies\": 2, \"cell_ecdf_num_buckets\": 64}";

/* ---- opening and writing ---- */

START_TEST(published_size_is_the_default)
    {
        struct model *m = draw_model(NULL, 1), *again = draw_model(NULL, 1), *other = draw_model(NULL, 2);
        ck_assert_uint_eq(model_parameters(m), 10732042);
        ck_assert_uint_eq(model_outputs(m), 10);
        ck_assert_int_eq(model_task(m), MODEL_CLASSIFICATION);
        ck_assert_mem_eq(model_values(m), model_values(again), model_parameters(m) * sizeof(float));
        ck_assert(memcmp(model_values(m), model_values(other), model_parameters(m) * sizeof(float)) != 0);
        model_close(m);
        model_close(again);
        model_close(other);
    }
END_TEST

/* TabPFN counts 53,023,736 parameters: eight frequencies that are not trained are among them. */
START_TEST(published_size_of_v3_is_the_default)
    {
        struct model *m = draw_architecture("tabpfn_v3", NULL, 1);
        ck_assert_uint_eq(model_parameters(m), 53023728);
        ck_assert_uint_eq(model_outputs(m), 10);
        ck_assert_int_eq(model_task(m), MODEL_CLASSIFICATION);
        model_close(m);
        m = draw_architecture("tabpfn_v3", "{\"max_num_classes\": 0, \"num_buckets\": 5000, \"nlayers\": 0}", 1);
        ck_assert_int_eq(model_task(m), MODEL_REGRESSION);
        ck_assert_float_eq(model_borders(m)[0], -128);
        ck_assert_float_eq(model_borders(m)[5], -16.9f);
        ck_assert_float_eq(model_borders(m)[2500], 0);
        ck_assert_float_eq_tol(model_borders(m)[4600], 6.48f + (8.47f - 6.48f) / 3, 1e-6f);
        ck_assert_float_eq(model_borders(m)[5000], 128);
        model_close(m);
    }
END_TEST

static struct model *open_for(const char *path, enum model_task task)
{
    struct ckpt *c;
    struct model *m;
    MUST(ckpt_open(&c, path, &f));
    MUST(model_open(&m, c, task, &f));
    ckpt_close(c);
    return m;
}
static struct model *open_at(const char *path) { return open_for(path, MODEL_ANY_TASK); }

/* A v3.5 network has both heads, TabPFN counts the parameters of both, and eight frequencies that are not trained. */
START_TEST(published_size_of_v3_5_is_the_default)
    {
        char folder[] = "test_model.XXXXXX", file[64];
        struct model *m = draw_architecture("tabpfn_v3_5", "{\"nlayers\": 1}", 1);
        const struct model_parameter *p = model_parameter_at(m, 0);
        ck_assert_int_eq(model_task(m), MODEL_CLASSIFICATION);
        ck_assert_uint_eq(model_outputs(m), 10);
        ck_assert_uint_eq(model_parameters(m), 14774008 - 8);
        ck_assert_uint_eq(model_weight_bytes(m), 4 * (24096640 - 8));
        ck_assert_str_eq(p->name, "x_embed.fourier.frequencies");
        double squares = 0;
        for (size_t i = 0; i < p->count; i++) squares += pow(model_values(m)[i], 2) / (double)p->count;
        ck_assert_double_eq_tol(sqrt(squares), 2, 0.4);
        ck_assert(mkdtemp(folder) != NULL);
        (void)snprintf(file, sizeof file, "%s/m.safetensors", folder);
        MUST(model_write(m, model_values(m), file, false, &f));
        model_close(m);
        m = open_for(file, MODEL_REGRESSION);
        ck_assert_int_eq(model_task(m), MODEL_REGRESSION);
        ck_assert_uint_eq(model_outputs(m), 5000);
        ck_assert_uint_eq(model_parameters(m), 19069184 - 8);
        ck_assert_float_eq(model_borders(m)[5], -16.9f);
        ck_assert_float_eq(model_borders(m)[5000], 128);
        model_close(m);
        ck_assert_int_eq(unlink(file), 0);
        ck_assert_int_eq(rmdir(folder), 0);
    }
END_TEST

/* The same network where the file's numbers go as they are copied. */
static void check_moving(const char *from, enum model_task task)
{
    struct ckpt *c;
    struct model *m = open_for(from, task), *moved;
    MUST(ckpt_open(&c, from, &f));
    MUST(model_open_moving(&moved, c, task, &f));
    for (size_t i = 0; i < model_parameter_count(moved); i++) {
        const struct ckpt_tensor *t = ckpt_find(c, model_parameter_at(moved, i)->name);
        ck_assert(t == NULL || t->data == NULL); /* NULL: it has another name in an older file */
    }
    ckpt_close(c);
    ck_assert_mem_eq(model_values(m), model_values(moved), model_weight_bytes(m));
    model_close(m);
    model_close(moved);
}

/* Written and read again: the same names, shapes, numbers and metadata. */
static void check_round_trip_for(const char *from, enum model_task task)
{
    char path[] = "test_model.XXXXXX";
    struct ckpt *a, *b;
    struct model *m = open_for(from, task);
    ck_assert(mkdtemp(path) != NULL);
    char file[64];
    (void)snprintf(file, sizeof file, "%s/m.safetensors", path);
    MUST(model_write(m, model_values(m), file, false, &f));
    MUST(ckpt_open(&a, from, &f));
    MUST(ckpt_open(&b, file, &f));
    ck_assert_uint_eq(ckpt_count(a), ckpt_count(b));
    for (size_t i = 0; i < ckpt_count(a); i++) {
        const struct ckpt_tensor *x = ckpt_at(a, i), *y = ckpt_at(b, i);
        ck_assert_str_eq(x->name, y->name);
        ck_assert_int_eq(x->rank, y->rank);
        ck_assert_mem_eq(x->data, y->data, x->count * sizeof(float));
    }
    ck_assert_uint_eq(ckpt_metadata_count(a), ckpt_metadata_count(b));
    for (size_t i = 0; i < ckpt_metadata_count(a); i++) {
        const char *key, *value;
        ckpt_metadata_at(a, i, &key, &value);
        ck_assert_str_eq(ckpt_metadata(b, key), value);
    }
    ckpt_close(a);
    ckpt_close(b);
    model_close(m);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(rmdir(path), 0);
    check_moving(from, task);
}

static void check_round_trip(const char *from) { check_round_trip_for(from, MODEL_ANY_TASK); }

/* A v3.5 network keeps the other task's weights, and a regressor's criterion as a classifier. */
START_TEST(written_models_come_back)
    {
        check_round_trip(unit_data("reference/v2_6_cls.model.safetensors"));
        check_round_trip(unit_data("reference/v2_6_reg.model.safetensors"));
        check_round_trip(unit_data("reference/v2_reg.model.safetensors"));
        check_round_trip(unit_data("reference/v2_5_mlp_reg.model.safetensors"));
        check_round_trip(unit_data("reference/v3_cls.model.safetensors"));
        check_round_trip(unit_data("reference/v3_reg.model.safetensors"));
        check_round_trip_for(unit_data("reference/v3_5.model.safetensors"), MODEL_CLASSIFICATION);
        check_round_trip_for(unit_data("reference/v3_5.model.safetensors"), MODEL_REGRESSION);
    }
END_TEST

/* As TabPFN's published v2 and v2.5 files are laid out: the same network as with today's names. */
static void check_base_layout(const char *base, const char *today, const char *architecture, size_t n_tensors)
{
    char folder[] = "test_model.XXXXXX", file[64];
    struct model *a = open_at(unit_data(base)), *b = open_at(unit_data(today));
    struct ckpt *c;
    ck_assert_str_eq(model_architecture(a), architecture);
    ck_assert_uint_eq(model_parameters(a), model_parameters(b));
    ck_assert_mem_eq(model_values(a), model_values(b), model_parameters(a) * sizeof(float));
    ck_assert(mkdtemp(folder) != NULL);
    (void)snprintf(file, sizeof file, "%s/m.safetensors", folder);
    MUST(model_write(a, model_values(a), file, false, &f));
    MUST(ckpt_open(&c, file, &f));
    ck_assert_uint_eq(ckpt_count(c), n_tensors);
    ckpt_close(c);
    model_close(b);
    b = open_at(file);
    ck_assert_mem_eq(model_values(a), model_values(b), model_parameters(a) * sizeof(float));
    model_close(a);
    model_close(b);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(rmdir(folder), 0);
    check_moving(unit_data(base), MODEL_ANY_TASK);
}

START_TEST(published_layouts_are_read)
    {
        check_base_layout("reference/v2_base_cls.model.safetensors", "reference/v2_cls.model.safetensors", "tabpfn_v2",
                          39);
        check_base_layout("reference/v2_5_base_reg.model.safetensors", "reference/v2_5_mlp_reg.model.safetensors",
                          "tabpfn_v2_5", 33);
    }
END_TEST

/* A copy of a good file with one thing changed must be refused, by name. */
enum change { DROP, RESHAPE, RENAME, RETYPE, CONFIG, ARCHITECTURE, NO_CONFIG };
static void check_refusal_of(const char *good, const char *tensor, enum change change, const char *replacement,
                             const char *message)
{
    char folder[] = "test_model.XXXXXX", file[64];
    struct ckpt *c;
    struct model *m;
    MUST(ckpt_open(&c, unit_data(good), &f));
    size_t n = ckpt_count(c), at = n / 2, n_metadata = ckpt_metadata_count(c);
    for (size_t i = 0; i < n && tensor != NULL; i++)
        if (strcmp(ckpt_at(c, i)->name, tensor) == 0) at = i;
    ck_assert(tensor == NULL || strcmp(ckpt_at(c, at)->name, tensor) == 0);
    struct ckpt_tensor *tensors = room(n, sizeof *tensors);
    const char *metadata[2][2] = {{"config", ckpt_metadata(c, "config")},
                                  {"architecture_name", ckpt_metadata(c, "architecture_name")}};
    for (size_t i = 0; i < n; i++) tensors[i] = *ckpt_at(c, i);
    if (change == DROP) tensors[at] = tensors[--n];
    if (change == RESHAPE)
        tensors[at] = (struct ckpt_tensor){.name = tensors[at].name,
                                           .dtype = CKPT_F32,
                                           .rank = 1,
                                           .shape = {tensors[at].count},
                                           .count = tensors[at].count,
                                           .data = tensors[at].data};
    if (change == RENAME) tensors[at].name = replacement;
    if (change == RETYPE) tensors[at].dtype = CKPT_I32;
    if (change == CONFIG) metadata[0][1] = replacement;
    if (change == ARCHITECTURE) metadata[1][1] = replacement;
    if (change == NO_CONFIG) metadata[0][0] = "other";
    ck_assert(mkdtemp(folder) != NULL);
    (void)snprintf(file, sizeof file, "%s/bad.safetensors", folder);
    MUST(ckpt_write(file, false, tensors, n, (const char *const(*)[2])metadata, n_metadata, &f));
    struct ckpt *bad;
    MUST(ckpt_open(&bad, file, &f));
    MUST_FAIL(model_open(&m, bad, MODEL_ANY_TASK, &f), TABFT_INPUT, message);
    ckpt_close(bad);
    ckpt_close(c);
    free(tensors);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void check_refusal(enum change change, const char *replacement, const char *message)
{
    check_refusal_of("reference/v2_6_cls.model.safetensors", NULL, change, replacement, message);
}

static void check_borders_refusal(size_t at, float border, const char *message)
{
    char folder[] = "test_model.XXXXXX", file[64];
    struct ckpt *c, *bad;
    struct model *m;
    MUST(ckpt_open(&c, unit_data("reference/v2_reg.model.safetensors"), &f));
    const size_t n = ckpt_count(c);
    struct ckpt_tensor *tensors = room(n, sizeof *tensors);
    float *borders = room(51, sizeof *borders);
    const char *const metadata[2][2] = {{"architecture_name", ckpt_metadata(c, "architecture_name")},
                                        {"config", ckpt_metadata(c, "config")}};
    for (size_t i = 0; i < n; i++) {
        tensors[i] = *ckpt_at(c, i);
        if (strcmp(tensors[i].name, "criterion.borders") != 0) continue;
        ck_assert_uint_eq(tensors[i].count, 51);
        memcpy(borders, tensors[i].data, 51 * sizeof *borders);
        borders[at] = border;
        tensors[i].data = borders;
    }
    ck_assert(mkdtemp(folder) != NULL);
    (void)snprintf(file, sizeof file, "%s/bad.safetensors", folder);
    MUST(ckpt_write(file, false, tensors, n, metadata, 2, &f));
    MUST(ckpt_open(&bad, file, &f));
    MUST_FAIL(model_open(&m, bad, MODEL_ANY_TASK, &f), TABFT_INPUT, message);
    ckpt_close(bad);
    ckpt_close(c);
    free(tensors);
    free(borders);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}

START_TEST(wrong_borders_and_layouts_are_refused)
    {
        const char *const base = "reference/v2_base_cls.model.safetensors";
        const char *const qkv = "transformer_encoder.layers.1.self_attn_between_items._w_qkv";
        const char *const out = "transformer_encoder.layers.1.self_attn_between_items._w_out";
        check_borders_refusal(20, NAN, "border 20, nan,");
        check_borders_refusal(50, INFINITY, "border 50, inf,");
        check_borders_refusal(20, 3, "border 21");
        check_borders_refusal(1, -9, "border 1, -9,");
        check_refusal_of(base, qkv, RESHAPE, NULL, "its shape is not what the config says");
        check_refusal_of(base, out, RESHAPE, NULL, "its shape is not what the config says");
        check_refusal_of(base, out, DROP, NULL, "out_projection.weight is missing");
    }
END_TEST

START_TEST(wrong_files_are_refused)
    {
        check_refusal(DROP, NULL, "is missing");
        check_refusal(RESHAPE, NULL, "its shape is not");
        check_refusal(RENAME, "nonsense", "is missing");
        check_refusal(RETYPE, NULL, "not floating-point");
        check_refusal(ARCHITECTURE, "\"tabpfn_v9\"", "tabpfn_v9");
        check_refusal(ARCHITECTURE, "tabpfn_v2_6", "not JSON");
        check_refusal(ARCHITECTURE, "3", "not a string");
        check_refusal(NO_CONFIG, NULL, "no config");
        check_refusal(CONFIG, "[]", "not an object");
        check_refusal(CONFIG, "{\"emsize\": 32, \"nhead\": 3}", "no multiple of nhead");
        check_refusal(CONFIG, "{\"emsize\": -32}", "emsize is -32");
        check_refusal(CONFIG, "{\"emsize\": \"32\"}", "emsize is not a whole number");
        check_refusal(CONFIG, "{\"emsize\": 1e300}", "emsize is not a whole number");
        check_refusal(CONFIG, "{\"max_num_classes\": 0}", "neither max_num_classes nor num_buckets");
        check_refusal(CONFIG, "{\"encoder_type\": \"cnn\"}", "encoder_type");
    }
END_TEST

START_TEST(wrong_files_of_v3_are_refused)
    {
        const char *const good = "reference/v3_cls.model.safetensors", *const freqs = "column_aggregator.rope.freqs";
        check_refusal_of(good, freqs, DROP, NULL, "rope.freqs is missing");
        check_refusal_of(good, freqs, RETYPE, NULL, "not floating-point");
        check_refusal_of(good, "regression_borders", DROP, NULL, "regression_borders is missing");
        check_refusal_of(good, "output_norm.weight", RENAME, "nonsense", "output_norm.weight is missing");
        const struct {
            const char *config, *message;
        } wrong[] = {{"{\"feat_agg_num_heads\": 5}", "column aggregator's width 128 is no multiple of its 5 heads"},
                     {"{\"dist_embed_num_heads\": 3}", "distribution embedder's width 128"},
                     {"{\"icl_num_heads\": 7}", "ICL transformer's width 512"},
                     {"{\"feat_agg_num_heads\": 128}", "odd width 1"},
                     {"{\"feat_agg_num_blocks\": 0}", "feat_agg_num_blocks is 0"},
                     {"{\"icl_num_kv_heads\": 3}", "no multiple of icl_num_kv_heads 3"},
                     {"{\"icl_num_kv_heads\": 2, \"icl_num_kv_heads_test\": 4}", "icl_num_kv_heads_test is 4"},
                     {"{\"layernorm_elementwise_affine\": false}", "norms with weights only"},
                     {"{\"use_rope\": 1}", "use_rope is neither true nor false"},
                     {"{\"feat_agg_rope_base\": \"x\"}", "feat_agg_rope_base"},
                     {"{\"max_num_classes\": 1}", "below 2"},
                     {"{\"num_buckets\": 1000000}", "num_buckets is 1000000"}};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            check_refusal_of(good, NULL, CONFIG, wrong[i].config, wrong[i].message);
    }
END_TEST

START_TEST(wrong_files_of_v3_5_are_refused)
    {
        const char *const good = "reference/v3_5.model.safetensors";
        check_refusal_of(good, "heads.output_projection.bias", DROP, NULL, "output_projection.bias is missing");
        check_refusal_of(good, "heads.many_class_decoder.k_projection.weight", RETYPE, NULL, "not floating-point");
        check_refusal_of(good, "heads.regression_borders", DROP, NULL, "regression_borders is missing");
        check_refusal_of(good, "x_embed.fourier.frequencies", RESHAPE, NULL, "its shape is not [3, 6]");
        check_refusal_of(good, "output_norm.weight", RENAME, "nonsense", "output_norm.weight is missing");
        const struct {
            const char *config, *message;
        } wrong[] = {{"{\"max_num_classes\": 0}", "max_num_classes is 0"},
                     {"{\"num_buckets\": 1}", "num_buckets is 1"},
                     {"{\"fourier_encoding_num_frequencies\": 0}", "fourier_encoding_num_frequencies is 0"},
                     {"{\"cell_ecdf_num_frequencies\": -1}", "cell_ecdf_num_frequencies is -1"},
                     {"{\"cell_ecdf_num_buckets\": 1}", "cell_ecdf_num_buckets is 1"},
                     {"{\"cell_ecdf_num_buckets\": null}", "cell_ecdf_num_buckets is not a whole number"},
                     {"{\"feat_agg_num_heads\": 128}", "odd width 1"}};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            check_refusal_of(good, NULL, CONFIG, wrong[i].config, wrong[i].message);
    }
END_TEST

/* ---- runs ---- */

struct call {
    float *x, *y;
    int32_t *labels;
    struct model_input input;
    struct model_target target;
};

static struct call make_call(size_t n_context, size_t n_query, size_t n_columns)
{
    const size_t rows = n_context + n_query;
    struct call c = {.x = room(rows * n_columns, sizeof(float)),
                     .y = room(n_context, sizeof(float)),
                     .labels = room(n_query, sizeof(int32_t))};
    uint32_t state = 9;
    for (size_t i = 0; i < rows * n_columns; i++) {
        state = state * 1664525u + 1013904223u;
        c.x[i] = state % 13 == 0 ? NAN : (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    for (size_t i = 0; i < n_context; i++) c.y[i] = (float)(i % 3);
    for (size_t i = 0; i < n_query; i++) c.labels[i] = (int32_t)(i % 3);
    c.input = (struct model_input){.shape = {n_context, n_query, n_columns}, .x = c.x, .y_context = c.y};
    c.target = (struct model_target){.y_query = c.labels, .n_classes = 3, .scale = 0.5};
    return c;
}

static void free_call(struct call *c)
{
    free(c->x);
    free(c->y);
    free(c->labels);
}

/* Gradient (and logits behind it) of one call in a run planned for `largest`. */
static float *gradient_in(const struct model *m, const struct call *c, struct model_shape largest,
                          size_t recompute, int n_threads)
{
    const size_t n = model_parameters(m), n_logits = c->input.shape.n_query * model_outputs(m);
    float *out = room(n + n_logits + 1, sizeof *out);
    struct threads *pool;
    struct model_run *run;
    double loss;
    MUST(threads_open(&pool, n_threads, &f));
    MUST(model_run_open(&run, m, largest, recompute, true, unit_cpu(pool), &f));
    MUST(model_gradient(run, model_values(m), &c->input, &c->target, &loss, out, &f));
    MUST(model_forward(run, model_values(m), &c->input, out + n, &f));
    out[n + n_logits] = (float)loss;
    model_run_close(run);
    threads_close(pool);
    return out;
}

static struct model_plan plan_of(const struct model *m, size_t n_context, size_t n_query, size_t n_columns,
                                 size_t recompute, bool backward)
{
    struct model_plan plan;
    struct tensor_backend two_threads;
    MUST(cpu_backend_open_planning(&two_threads, 2, &f));
    MUST(model_plan(m, (struct model_shape){n_context, n_query, n_columns}, recompute, backward, &two_threads, &plan,
                    &f));
    two_threads.close(two_threads.state);
    ck_assert_uint_eq(plan.activations + plan.scratch, plan.total);
    return plan;
}

/* Neither the planned size, nor recomputation, nor threads show in a bit; sizes that cross every block's border. */
static void check_plans(const char *architecture, const char *config)
{
    struct model *m = draw_architecture(architecture, config, 3);
    float *values = model_values_mutable(m);
    for (size_t i = 0; i < model_parameters(m); i++)
        values[i] += 0.01f * sinf((float)i); /* no weight left at zero */
    struct call c = make_call(301, 67, 10);
    const size_t n = model_parameters(m) + 67 * model_outputs(m) + 1;
    const struct model_shape exact = c.input.shape, larger = {500, 90, 17};
    float *first = gradient_in(m, &c, exact, MODEL_RECOMPUTE_NONE, 1);
    for (int i = 1; i < 8; i++) {
        float *next = gradient_in(m, &c, i & 1 ? larger : exact,
                                  i & 2 ? MODEL_RECOMPUTE_BLOCK : MODEL_RECOMPUTE_NONE, i & 4 ? 3 : 1);
        ck_assert_mem_eq(first, next, n * sizeof *first);
        free(next);
    }
    const size_t least = plan_of(m, 301, 67, 10, MODEL_RECOMPUTE_BLOCK, true).total,
                 most = plan_of(m, 301, 67, 10, MODEL_RECOMPUTE_NONE, true).total, room = (least + most) / 2;
    ck_assert_uint_le(plan_of(m, 301, 67, 10, room, true).total, room);
    float *between = gradient_in(m, &c, exact, room, 2);
    ck_assert_mem_eq(first, between, n * sizeof *first);
    free(between);
    free(first);
    free_call(&c);
    model_close(m);
}

START_TEST(plans_do_not_show)
    {
        check_plans("tabpfn_v2_6", small);
        check_plans("tabpfn_v2_5", "{\"emsize\": 32, \"nlayers\": 2, \"nhead\": 2, \"encoder_type\": \"mlp\"}");
        check_plans("tabpfn_v2", "{\"emsize\": 32, \"nlayers\": 2, \"nhead\": 2}");
        check_plans("tabpfn_v3", small_v3);
        check_plans("tabpfn_v3_5", small_v3_5);
    }
END_TEST

/* Numbers that are one number in float32, such as 10^12 give or take 400, say nothing, as a constant: what TabPFN makes of
 * such a column is how its sums over float32 happen to be rounded. */
START_TEST(numbers_beyond_float32_say_nothing)
    {
        const struct {
            const char *architecture, *config;
        } networks[] = {{"tabpfn_v2_6", small}, {"tabpfn_v3", small_v3}, {"tabpfn_v3_5", small_v3_5}};
        for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
            struct model *m = draw_architecture(networks[k].architecture, networks[k].config, 3);
            struct call constant = make_call(301, 67, 5), large = make_call(301, 67, 5);
            for (size_t i = 0; i < 368; i++) {
                constant.x[i * 5 + 2] = 7;
                large.x[i * 5 + 2] = (float)(1e12 + (double)(i * 37 % 801) - 400);
            }
            float *a = gradient_in(m, &constant, constant.input.shape, MODEL_RECOMPUTE_NONE, 1),
                  *b = gradient_in(m, &large, large.input.shape, MODEL_RECOMPUTE_NONE, 1);
            ck_assert_mem_eq(a, b, (model_parameters(m) + 67 * model_outputs(m)) * sizeof *a);
            free(a);
            free(b);
            free_call(&constant);
            free_call(&large);
            model_close(m);
        }
    }
END_TEST

/* An item's gradient joins those before it with the bits of adding it when it is whole. */
static void check_sums(const char *architecture, const char *config)
{
    struct model *m = draw_architecture(architecture, config, 3);
    struct call c = make_call(61, 17, 5);
    const size_t n = model_parameters(m);
    float *alone = gradient_in(m, &c, c.input.shape, MODEL_RECOMPUTE_BLOCK, 2), *sum = room(n, sizeof *sum);
    struct model_run *run;
    double loss;
    for (size_t i = 0; i < n; i++) sum[i] = 0.001f * sinf((float)i);
    c.target.add = true;
    MUST(model_run_open(&run, m, c.input.shape, MODEL_RECOMPUTE_BLOCK, true, unit_cpu(NULL), &f));
    MUST(model_gradient(run, model_values(m), &c.input, &c.target, &loss, sum, &f));
    for (size_t i = 0; i < n; i++) {
        const float expected = 0.001f * sinf((float)i) + alone[i];
        ck_assert_mem_eq(&sum[i], &expected, sizeof expected);
    }
    model_run_close(run);
    free(alone);
    free(sum);
    free_call(&c);
    model_close(m);
}

START_TEST(gradients_add_up)
    {
        check_sums("tabpfn_v2_6", small);
        check_sums("tabpfn_v3", small_v3);
        check_sums("tabpfn_v3_5", small_v3_5);
    }
END_TEST

/* Constant columns are left out, all of them if need be; padding and what lies behind does not show. */
START_TEST(constant_columns_do_not_count)
    {
        struct model *m = draw_model(small, 3);
        struct call with = make_call(30, 5, 6), without = make_call(30, 5, 4), none = make_call(30, 5, 2);
        for (size_t i = 0; i < 35; i++) {
            for (size_t c = 0; c < 4; c++) with.x[i * 6 + c + (c >= 2)] = without.x[i * 4 + c];
            with.x[i * 6 + 2] = 7;
            with.x[i * 6 + 5] = -1;
            none.x[2 * i] = none.x[2 * i + 1] = 3;
        }
        float *a = gradient_in(m, &with, with.input.shape, MODEL_RECOMPUTE_NONE, 1),
              *b = gradient_in(m, &without, without.input.shape, MODEL_RECOMPUTE_NONE, 1);
        ck_assert_mem_eq(a, b, (model_parameters(m) + 5 * model_outputs(m)) * sizeof *a);
        free(a);
        free(b);
        free(gradient_in(m, &none, none.input.shape, MODEL_RECOMPUTE_BLOCK, 2));
        free_call(&with);
        free_call(&without);
        free_call(&none);
        model_close(m);
    }
END_TEST

/* Twice the rows, at most twice the bytes and a little: nothing of rows x rows is ever stored, forward or backward.
 * At 100,000 rows such a matrix of one head would alone have 40 GB. */
static void check_growth(const struct model *m, size_t n_columns)
{
    for (int backward = 0; backward <= 1; backward++)
        for (int again = 0; again <= 1; again++) {
            const size_t r = again ? MODEL_RECOMPUTE_BLOCK : MODEL_RECOMPUTE_NONE;
            const struct model_plan one = plan_of(m, 40000, 10000, n_columns, r, backward);
            const struct model_plan two = plan_of(m, 80000, 20000, n_columns, r, backward);
            ck_assert_uint_le(two.total, 2 * one.total + (1 << 20));
            ck_assert_uint_lt(two.total, (size_t)100000 * 100000);
        }
}

START_TEST(memory_grows_with_rows)
    {
        struct model *m = draw_model(small, 3), *v3 = draw_architecture("tabpfn_v3", small_v3, 3),
                     *v3_5 = draw_architecture("tabpfn_v3_5", small_v3_5, 3);
        check_growth(m, 6);
        check_growth(v3, 2); /* a token a column */
        check_growth(v3_5, 2);
        model_close(m);
        model_close(v3_5);
        model_close(v3);
    }
END_TEST

/* The promises at the published size, with what a trainer holds beside the run (six times the weights) and 30 MB for
 * all else. */
START_TEST(published_size_fits)
    {
        struct model *m = draw_model(NULL, 3);
        const struct model_plan none = plan_of(m, 800, 200, 26, MODEL_RECOMPUTE_NONE, true),
                                block = plan_of(m, 800, 200, 26, MODEL_RECOMPUTE_BLOCK, true);
        ck_assert_uint_eq(none.weights, model_parameters(m) * sizeof(float));
        ck_assert_uint_lt(none.total + 6 * none.weights + 30000000, 3000000000);
        ck_assert_uint_lt(block.total + 6 * block.weights + 30000000, 700000000);
        for (size_t room = 100000000; room < none.total; room += 300000000) {
            const struct model_plan some = plan_of(m, 800, 200, 26, room, true);
            const size_t most = room > block.total ? room : block.total;
            ck_assert_uint_le(some.total, most);
            ck_assert_uint_ge(some.total + 120000000, most); /* another block would not have fitted */
        }
        ck_assert_uint_lt(plan_of(m, 800, 200, 26, MODEL_RECOMPUTE_NONE, false).total, 120000000);
        model_close(m);
    }
END_TEST

START_TEST(wrong_calls_are_refused)
    {
        struct model *m = draw_model(small, 3);
        struct model_run *run, *forward;
        struct call c = make_call(20, 4, 5);
        const size_t n = model_parameters(m);
        float *gradient = room(n, sizeof *gradient), logits[4 * 10];
        double loss;
        MUST(model_run_open(&run, m, c.input.shape, MODEL_RECOMPUTE_NONE, true, unit_cpu(NULL), &f));
        MUST(model_run_open(&forward, m, c.input.shape, MODEL_RECOMPUTE_NONE, false, unit_cpu(NULL), &f));
        MUST_FAIL(model_gradient(forward, model_values(m), &c.input, &c.target, &loss, gradient, &f), TABFT_USE,
                  "without backward");
        struct call larger = make_call(21, 4, 5);
        MUST_FAIL(model_forward(run, model_values(m), &larger.input, logits, &f), TABFT_USE, "planned for");
        c.labels[1] = 3;
        MUST_FAIL(model_gradient(run, model_values(m), &c.input, &c.target, &loss, gradient, &f), TABFT_INPUT,
                  "query row 1");
        c.labels[1] = 0;
        c.y[2] = 10;
        MUST_FAIL(model_forward(run, model_values(m), &c.input, logits, &f), TABFT_INPUT, "context row 2");
        c.y[2] = 1;
        model_values_mutable(m)[n / 3] = NAN;
        MUST_FAIL(model_gradient(run, model_values(m), &c.input, &c.target, &loss, gradient, &f), TABFT_INPUT,
                  "not a finite number");
        model_run_close(run);
        model_run_close(forward);
        MUST_FAIL(
            model_run_open(&run, m, (struct model_shape){0, 4, 5}, MODEL_RECOMPUTE_NONE, true, unit_cpu(NULL), &f),
            TABFT_INPUT, "at least one");
        MUST_FAIL(model_run_open(&run, m, (struct model_shape){SIZE_MAX / 2, 4, 5}, MODEL_RECOMPUTE_NONE, true,
                                 unit_cpu(NULL), &f),
                  TABFT_SYSTEM, "fewer rows");
        MUST_FAIL(model_run_open(&run, m, (struct model_shape){(size_t)1 << 31, 4, (size_t)1 << 31},
                                 MODEL_RECOMPUTE_NONE, true, unit_cpu(NULL), &f),
                  TABFT_SYSTEM, "fewer rows");
        free_call(&c);
        free_call(&larger);
        free(gradient);
        model_close(m);
        m = draw_architecture("tabpfn_v3", small_v3, 3);
        MUST_FAIL(
            model_run_open(&run, m, (struct model_shape){20, 4, 0}, MODEL_RECOMPUTE_NONE, true, unit_cpu(NULL), &f),
            TABFT_INPUT, "no columns");
        model_close(m);
    }
END_TEST

/* A regressor's loss needs borders and numbers, a classifier's classes. */
START_TEST(wrong_losses_are_refused)
    {
        struct model *none = draw_model("{\"emsize\": 32, \"nlayers\": 1, \"nhead\": 2, \"max_num_classes\": 0, "
                                        "\"num_buckets\": 7}", 3),
                     *m = open_at(unit_data("reference/v2_6_reg.model.safetensors")),
                     *classifier = draw_model(small, 3);
        struct call c = make_call(20, 4, 5);
        struct model_run *run;
        float y[4] = {0.5f, NAN, -3, 9}, *gradient = room(model_parameters(m), sizeof *gradient);
        double loss, again;
        struct model_regression_target target = {.y_query = y, .temperature = 1, .ce = 1, .scale = 1};
        ck_assert(model_borders(none) == NULL && model_borders(m) != NULL);
        MUST_FAIL(model_run_open(&run, none, c.input.shape, MODEL_RECOMPUTE_NONE, true, unit_cpu(NULL), &f),
                  TABFT_INPUT, "criterion.borders");
        MUST(model_run_open(&run, classifier, c.input.shape, MODEL_RECOMPUTE_NONE, true, unit_cpu(NULL), &f));
        MUST_FAIL(model_gradient_regression(run, model_values(classifier), &c.input, &target, &loss, gradient, &f),
                  TABFT_USE, "is a classifier");
        model_run_close(run);
        MUST(model_run_open(&run, m, c.input.shape, MODEL_RECOMPUTE_NONE, true, unit_cpu(NULL), &f));
        MUST_FAIL(model_gradient(run, model_values(m), &c.input, &c.target, &loss, gradient, &f), TABFT_USE,
                  "is a regressor");
        MUST(model_gradient_regression(run, model_values(m), &c.input, &target, &loss, gradient, &f));
        target.scale = 0.25;
        MUST(model_gradient_regression(run, model_values(m), &c.input, &target, &again, gradient, &f));
        ck_assert_double_eq_tol(again, loss / 4, 1e-12);
        target.crps = -1;
        MUST_FAIL(model_gradient_regression(run, model_values(m), &c.input, &target, &loss, gradient, &f), TABFT_USE,
                  "is -1, not at least 0");
        target.crps = 0;
        target.temperature = 0;
        MUST_FAIL(model_gradient_regression(run, model_values(m), &c.input, &target, &loss, gradient, &f), TABFT_USE,
                  "temperature");
        target.temperature = 1;
        y[2] = INFINITY;
        MUST_FAIL(model_gradient_regression(run, model_values(m), &c.input, &target, &loss, gradient, &f), TABFT_INPUT,
                  "query row 2");
        y[2] = -3;
        bool *impossible = room(model_outputs(m), sizeof *impossible);
        memset(impossible, 1, model_outputs(m));
        target.impossible = impossible;
        MUST_FAIL(model_gradient_regression(run, model_values(m), &c.input, &target, &loss, gradient, &f), TABFT_INPUT,
                  "not a finite number");
        model_run_close(run);
        free(impossible);
        free(gradient);
        free_call(&c);
        model_close(none);
        model_close(m);
        model_close(classifier);
    }
END_TEST

UNIT_MAIN("model/model", published_size_is_the_default, published_size_of_v3_is_the_default,
          published_size_of_v3_5_is_the_default,
          written_models_come_back, published_layouts_are_read, wrong_files_are_refused, wrong_files_of_v3_are_refused,
          wrong_files_of_v3_5_are_refused, wrong_borders_and_layouts_are_refused, wrong_losses_are_refused, plans_do_not_show, gradients_add_up,
          numbers_beyond_float32_say_nothing,
          constant_columns_do_not_count, memory_grows_with_rows, published_size_fits, wrong_calls_are_refused)
