/* Every network against numbers made with TabPFN 9.2.0 in float64: logits, loss and every gradient; for both ways of
 * recomputing and 1 to 3 threads, which must agree bit for bit. Compiled for it (TABFT_TEST_CUDA), on the emulation of
 * GPUs instead of threads. */
#ifdef TABFT_TEST_CUDA
#define UNIT_TIMEOUT 3600 /* the emulation under a sanitizer takes its time */
#endif
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "model/model.h"
#include "unit_backend.h"

static struct tabft_failure f;

/* A tensor of the file as numbers; the caller frees. */
static float *floats(const struct ckpt *c, const char *name, size_t *rows)
{
    const struct ckpt_tensor *t = ckpt_find(c, name);
    float *out;
    ck_assert_msg(t != NULL, "no %s", name);
    MUST(memory_new(&out, t->count, sizeof *out, "a test", &f));
    for (size_t i = 0; i < t->count; i++) out[i] = (float)ckpt_value(t, i);
    if (rows != NULL) *rows = t->shape[0];
    return out;
}

static int32_t *codes(const struct ckpt *c, const char *name)
{
    const struct ckpt_tensor *t = ckpt_find(c, name);
    int32_t *out;
    ck_assert_msg(t != NULL, "no %s", name);
    MUST(memory_new(&out, t->count, sizeof *out, "a test", &f));
    for (size_t i = 0; i < t->count; i++) out[i] = (int32_t)ckpt_value(t, i);
    return out;
}

static struct model *open_model(const char *name, enum model_task task)
{
    struct ckpt *c;
    struct model *m;
    MUST(ckpt_open(&c, unit_data(name), &f));
    MUST(model_open(&m, c, task, &f));
    ckpt_close(c);
    return m;
}

/* One call of the network as the vectors hold it. */
struct recorded {
    struct ckpt *c;
    struct model_input input;
    struct model_target classes;
    struct model_regression_target numbers;
    float *x, *y, *values;
    int32_t *query;
};

static struct recorded open_recorded(const char *name)
{
    struct recorded r;
    size_t rows, n_context;
    MUST(ckpt_open(&r.c, unit_data(name), &f));
    r.x = floats(r.c, "x", &rows);
    r.y = floats(r.c, "y_context", &n_context);
    r.values = floats(r.c, "y_query", NULL);
    r.query = codes(r.c, "y_query");
    r.input = (struct model_input){
        .shape = {n_context, rows - n_context, ckpt_find(r.c, "x")->shape[2]}, .x = r.x, .y_context = r.y};
    r.classes = (struct model_target){.y_query = r.query, .n_classes = 3, .scale = 1.0};
    r.numbers = (struct model_regression_target){.y_query = r.values, .temperature = 1.0, .ce = 1.0, .scale = 1.0};
    return r;
}

static void close_recorded(struct recorded *r)
{
    free(r->x);
    free(r->y);
    free(r->values);
    free(r->query);
    ckpt_close(r->c);
}

/* How far logits and loss may be off, and gradients by the model's largest: v3 is deeper, and float32 alone costs more
 * there. */
struct bounds {
    double logits, loss, gradients;
};
static const struct bounds v2_bounds = {2e-6, 1e-6, 1e-5}, v3_bounds = {5e-6, 1e-6, 2e-5};

static void check_logits(const struct ckpt *c, const char *name, const float *logits, double bound)
{
    const struct ckpt_tensor *t = ckpt_find(c, name);
    double worst = 0;
    ck_assert_msg(t != NULL, "no %s", name);
    for (size_t i = 0; i < t->count; i++) worst = fmax(worst, fabs(logits[i] - ckpt_value(t, i)));
    ck_assert_msg(worst <= bound, "%s differ by %.2e", name, worst);
}

static void check_gradients(const struct recorded *r, const struct model *m, const float *gradient, double bound)
{
    double largest = 0, worst = 0;
    const char *where = "";
    for (size_t i = 0; i < model_parameter_count(m); i++) {
        const struct model_parameter *p = model_parameter_at(m, i);
        char name[256];
        (void)snprintf(name, sizeof name, "grad.%s", p->name);
        const struct ckpt_tensor *t = ckpt_find(r->c, name);
        ck_assert_msg(t != NULL && t->count == p->count, "no %s", name);
        for (size_t j = 0; j < p->count; j++) {
            const double right = ckpt_value(t, j), d = fabs(gradient[p->offset + j] - right);
            largest = fmax(largest, fabs(right));
            if (d > worst) {
                worst = d;
                where = p->name;
            }
        }
    }
    ck_assert_msg(worst <= bound * largest, "gradient of %s differs by %.2e of the largest, %.2e", where,
                  worst / largest, largest);
}

static void *as_copied(const void *from, size_t bytes)
{
    void *to;
    MUST(memory_new(&to, bytes, 1, "a test", &f));
    memcpy(to, from, bytes);
    return to;
}

/* The gradient comes out on the host. */
static double gradient(struct model_run *run, const struct tensor_backend *b, const float *values,
                       const struct model *m, const struct recorded *r, float *out)
{
    double loss;
    float *there = unit_floats(b, NULL, model_parameters(m));
    if (model_task(m) == MODEL_CLASSIFICATION)
        MUST(model_gradient(run, values, &r->input, &r->classes, &loss, there, &f));
    else MUST(model_gradient_regression(run, values, &r->input, &r->numbers, &loss, there, &f));
    unit_floats_out(b, out, there, model_parameters(m));
    unit_floats_free(b, there);
    return loss;
}

/* One backend, both ways of recomputing; `first` is what came out before, or empty and filled. */
struct results {
    float *logits, *slopes;
};
static void check_on(const struct tensor_backend *b, const struct model *m, const struct recorded *r,
                     struct bounds bounds, struct results *first)
{
    const size_t n = model_parameters(m), n_logits = r->input.shape.n_query * model_outputs(m);
    const double right = ckpt_value(ckpt_find(r->c, "loss"), 0);
    float *logits, *slopes, *values = unit_floats(b, model_values(m), n);
    MUST(memory_new(&logits, n_logits, sizeof *logits, "a test", &f));
    MUST(memory_new(&slopes, n, sizeof *slopes, "a test", &f));
    for (int again = 0; again <= 1; again++) {
        struct model_run *run;
        MUST(model_run_open(&run, m, r->input.shape, again ? MODEL_RECOMPUTE_BLOCK : MODEL_RECOMPUTE_NONE, true, b, &f));
        MUST(model_forward(run, values, &r->input, logits, &f));
        const double loss = gradient(run, b, values, m, r, slopes);
        check_logits(r->c, "logits", logits, bounds.logits);
        ck_assert_msg(fabs(loss - right) <= bounds.loss, "loss %.9f instead of %.9f", loss, right);
        check_gradients(r, m, slopes, bounds.gradients);
        if (first->slopes == NULL) {
            first->slopes = as_copied(slopes, n * sizeof *slopes);
            first->logits = as_copied(logits, n_logits * sizeof *logits);
        }
        ck_assert_mem_eq(first->slopes, slopes, n * sizeof *slopes);
        ck_assert_mem_eq(first->logits, logits, n_logits * sizeof *logits);
        model_run_close(run);
    }
    unit_floats_free(b, values);
    free(logits);
    free(slopes);
}

#ifdef TABFT_TEST_CUDA
static void check_gpu(enum tensor_precision precision, const struct model *m, const struct recorded *r,
                      struct bounds bounds, struct results *first)
{
    struct tensor_backend gpu;
    unit_gpu_open(&gpu, precision);
    check_on(&gpu, m, r, bounds, first);
    gpu.close(gpu.state);
}

static void check_backends(const struct model *m, const struct recorded *r, struct bounds bounds, struct results *first)
{
    check_gpu(TENSOR_FLOAT32, m, r, bounds, first);
}
#else
static void check_backends(const struct model *m, const struct recorded *r, struct bounds bounds, struct results *first)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct threads *pool;
        MUST(threads_open(&pool, threads, &f));
        check_on(unit_cpu(pool), m, r, bounds, first);
        threads_close(pool);
    }
}
#endif

static void check_network(const char *model, enum model_task task, const char *vectors, struct bounds bounds)
{
    struct model *m = open_model(model, task);
    struct recorded r = open_recorded(vectors);
    struct results first = {NULL, NULL};
    check_backends(m, &r, bounds, &first);
    free(first.logits);
    free(first.slopes);
    close_recorded(&r);
    model_close(m);
}

#define NETWORK(name, model, task, vectors, bounds)                                                                     \
    START_TEST(name##_comes_out)                                                                                       \
    {                                                                                                                  \
        check_network("reference/" model ".model.safetensors", task, "reference/" vectors ".vectors.safetensors",     \
                      bounds);                                                                                         \
    }                                                                                                                  \
    END_TEST

/* On the emulation the others take minutes: they are a program of their own. v3.5 has one file for both tasks. */
#ifndef TABFT_TEST_LONG
NETWORK(v2_6_cls, "v2_6_cls", MODEL_ANY_TASK, "v2_6_cls", v2_bounds)
NETWORK(v3_cls, "v3_cls", MODEL_ANY_TASK, "v3_cls", v3_bounds)
#endif
#if !defined TABFT_TEST_CUDA || defined TABFT_TEST_LONG
NETWORK(v2_cls, "v2_cls", MODEL_ANY_TASK, "v2_cls", v2_bounds)
NETWORK(v2_reg, "v2_reg", MODEL_ANY_TASK, "v2_reg", v2_bounds)
NETWORK(v2_5_cls, "v2_5_cls", MODEL_ANY_TASK, "v2_5_cls", v2_bounds)
NETWORK(v2_5_reg, "v2_5_reg", MODEL_ANY_TASK, "v2_5_reg", v2_bounds)
NETWORK(v2_5_mlp_cls, "v2_5_mlp_cls", MODEL_ANY_TASK, "v2_5_mlp_cls", v2_bounds)
NETWORK(v2_5_mlp_reg, "v2_5_mlp_reg", MODEL_ANY_TASK, "v2_5_mlp_reg", v2_bounds)
NETWORK(v2_6_reg, "v2_6_reg", MODEL_ANY_TASK, "v2_6_reg", v2_bounds)
NETWORK(v3_reg, "v3_reg", MODEL_ANY_TASK, "v3_reg", v3_bounds)
NETWORK(v3_variant_cls, "v3_variant_cls", MODEL_ANY_TASK, "v3_variant_cls", v3_bounds)
NETWORK(v3_5_cls, "v3_5", MODEL_CLASSIFICATION, "v3_5_cls", v3_bounds)
NETWORK(v3_5_reg, "v3_5", MODEL_REGRESSION, "v3_5_reg", v3_bounds)
NETWORK(v3_5_variant_cls, "v3_5_variant", MODEL_CLASSIFICATION, "v3_5_variant_cls", v3_bounds)
NETWORK(v3_5_variant_reg, "v3_5_variant", MODEL_REGRESSION, "v3_5_variant_reg", v3_bounds)
#endif

#ifndef TABFT_TEST_CUDA
/* One table through a version's network, against recorded logits. v3.5 has one file for both tasks. */
static void check_table(const struct ckpt *c, const char *name, enum model_task task, struct bounds bounds)
{
    const char *const which = task == MODEL_CLASSIFICATION ? "cls" : "reg";
    char model[100], target[100], logits_name[100];
    size_t rows, n_context;
    (void)snprintf(model, sizeof model, "reference/%s%s%s.model.safetensors", name, strcmp(name, "v3_5") == 0 ? "" : "_",
                   strcmp(name, "v3_5") == 0 ? "" : which);
    (void)snprintf(target, sizeof target, "%s.y_context", which);
    (void)snprintf(logits_name, sizeof logits_name, "%s_%s.logits", name, which);
    struct model *m = open_model(model, task);
    float *x = floats(c, "x", &rows), *y = floats(c, target, &n_context), *logits;
    const struct model_input input = {
        .shape = {n_context, rows - n_context, ckpt_find(c, "x")->shape[2]}, .x = x, .y_context = y};
    struct model_run *run;
    MUST(memory_new(&logits, input.shape.n_query * model_outputs(m), sizeof *logits, "a test", &f));
    MUST(model_run_open(&run, m, input.shape, MODEL_RECOMPUTE_NONE, false, unit_cpu(NULL), &f));
    MUST(model_forward(run, model_values(m), &input, logits, &f));
    check_logits(c, logits_name, logits, bounds.logits);
    model_run_close(run);
    model_close(m);
    free(x);
    free(y);
    free(logits);
}

static void check_tables(const char *vectors, size_t n_versions)
{
    static const char *const names[] = {"v2", "v2_5", "v2_6", "v3", "v3_5"};
    struct ckpt *c;
    MUST(ckpt_open(&c, unit_data(vectors), &f));
    for (size_t i = 0; i < n_versions; i++)
        for (int task = MODEL_CLASSIFICATION; task <= MODEL_REGRESSION; task++)
            check_table(c, names[i], (enum model_task)task, i < 3 ? v2_bounds : v3_bounds);
    ckpt_close(c);
}

/* Constant columns, which v2 pushes to the end of their groups and the others leave out; columns without a number;
 * infinities; and classes that the context lacks, which v2 does not count. */
START_TEST(constant_columns_come_out)
{
    check_tables("reference/constant_columns.vectors.safetensors", 3);
}
END_TEST

/* Numbers whose squares are beyond float32, or vanish in it, as they do in TabPFN's. */
START_TEST(far_numbers_come_out)
{
    check_tables("reference/far_numbers.vectors.safetensors", 5);
}
END_TEST

UNIT_MAIN("model/reference", v2_6_cls_comes_out, v3_cls_comes_out, v2_cls_comes_out, v2_reg_comes_out,
          v2_5_cls_comes_out, v2_5_reg_comes_out, v2_5_mlp_cls_comes_out, v2_5_mlp_reg_comes_out, v2_6_reg_comes_out,
          v3_reg_comes_out, v3_variant_cls_comes_out, v3_5_cls_comes_out, v3_5_reg_comes_out,
          v3_5_variant_cls_comes_out, v3_5_variant_reg_comes_out, constant_columns_come_out, far_numbers_come_out)
#else
#ifndef TABFT_TEST_LONG
/* What rounding the operands of products costs, against float64. The bounds are 1.1 to 3.8 times what was measured. */
static void check_precision(enum tensor_precision precision, const char *name, struct bounds bounds)
{
    char model[100], vectors[100];
    (void)snprintf(model, sizeof model, "reference/%s.model.safetensors", name);
    (void)snprintf(vectors, sizeof vectors, "reference/%s.vectors.safetensors", name);
    struct model *m = open_model(model, MODEL_ANY_TASK);
    struct recorded r = open_recorded(vectors);
    struct results first = {NULL, NULL};
    check_gpu(precision, m, &r, bounds, &first);
    free(first.logits);
    free(first.slopes);
    close_recorded(&r);
    model_close(m);
}

START_TEST(tf32_costs_this_much)
{
    check_precision(TENSOR_TF32, "v2_6_cls", (struct bounds){9e-4, 7e-5, 1.2e-3});
    check_precision(TENSOR_TF32, "v3_cls", (struct bounds){9e-4, 2e-5, 5e-3});
}
END_TEST

START_TEST(bf16_costs_this_much)
{
    check_precision(TENSOR_BF16, "v2_6_cls", (struct bounds){6.5e-3, 5e-4, 7e-3});
    check_precision(TENSOR_BF16, "v3_cls", (struct bounds){4e-3, 5e-4, 2.3e-2});
}
END_TEST

UNIT_MAIN("model/reference on GPUs", v2_6_cls_comes_out, v3_cls_comes_out, tf32_costs_this_much, bf16_costs_this_much)
#else
UNIT_MAIN("model/reference on GPUs, all", v2_cls_comes_out, v2_reg_comes_out, v2_5_cls_comes_out, v2_5_reg_comes_out,
          v2_5_mlp_cls_comes_out, v2_5_mlp_reg_comes_out, v2_6_reg_comes_out, v3_reg_comes_out,
          v3_variant_cls_comes_out, v3_5_cls_comes_out, v3_5_reg_comes_out, v3_5_variant_cls_comes_out,
          v3_5_variant_reg_comes_out)
#endif
#endif
