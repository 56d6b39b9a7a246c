/* The network against numbers made with TabPFN 9.2.0 in float64: logits, loss and every gradient; for both ways of
 * recomputing and 1 to 3 threads, which must agree bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "model/model.h"
#include "unit.h"

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

static struct model *open_model(const char *name)
{
    struct ckpt *c;
    struct model *m;
    MUST(ckpt_open(&c, unit_data(name), &f));
    MUST(model_open(&m, c, &f));
    ckpt_close(c);
    return m;
}

/* One call of the network as the vectors hold it. */
struct recorded {
    struct ckpt *c;
    struct model_input input;
    struct model_target target;
    float *x, *y;
    int32_t *query;
};

static struct recorded open_recorded(void)
{
    struct recorded r;
    size_t rows, n_context;
    MUST(ckpt_open(&r.c, unit_data("reference/v2_6_cls.vectors.safetensors"), &f));
    r.x = floats(r.c, "x", &rows);
    r.y = floats(r.c, "y_context", &n_context);
    r.query = codes(r.c, "y_query");
    r.input = (struct model_input){{n_context, rows - n_context, ckpt_find(r.c, "x")->shape[2]}, r.x, r.y};
    r.target = (struct model_target){r.query, NULL, 3, 1.0};
    return r;
}

static void close_recorded(struct recorded *r)
{
    free(r->x);
    free(r->y);
    free(r->query);
    ckpt_close(r->c);
}

static void check_logits(const struct recorded *r, const float *logits)
{
    const struct ckpt_tensor *t = ckpt_find(r->c, "logits");
    double worst = 0;
    for (size_t i = 0; i < t->count; i++) worst = fmax(worst, fabs(logits[i] - ckpt_value(t, i)));
    ck_assert_msg(worst <= 2e-6, "logits differ by %.2e", worst);
}

static void check_gradients(const struct recorded *r, const struct model *m, const float *gradient)
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
    ck_assert_msg(worst <= 1e-5 * largest, "gradient of %s differs by %.2e of the largest, %.2e", where,
                  worst / largest, largest);
}

static void *as_copied(const void *from, size_t bytes)
{
    void *to;
    MUST(memory_new(&to, bytes, 1, "a test", &f));
    memcpy(to, from, bytes);
    return to;
}

START_TEST(vectors_come_out)
    {
        struct model *m = open_model("reference/v2_6_cls.model.safetensors");
        struct recorded r = open_recorded();
        const size_t n = model_parameters(m), n_logits = r.input.shape.n_query * model_outputs(m);
        float *logits, *gradient, *first_gradient = NULL, *first_logits = NULL;
        const double right = ckpt_value(ckpt_find(r.c, "loss"), 0);
        MUST(memory_new(&logits, n_logits, sizeof *logits, "a test", &f));
        MUST(memory_new(&gradient, n, sizeof *gradient, "a test", &f));
        for (int threads = 1; threads <= 3; threads++)
            for (int recompute = MODEL_RECOMPUTE_NONE; recompute <= MODEL_RECOMPUTE_BLOCK; recompute++) {
                struct threads *pool;
                struct model_run *run;
                double loss;
                MUST(threads_open(&pool, threads, &f));
                MUST(model_run_open(&run, m, r.input.shape, (enum model_recompute)recompute, true, pool, &f));
                MUST(model_forward(run, model_values(m), &r.input, logits, &f));
                MUST(model_gradient(run, model_values(m), &r.input, &r.target, &loss, gradient, &f));
                check_logits(&r, logits);
                ck_assert_msg(fabs(loss - right) <= 1e-6, "loss %.9f instead of %.9f", loss, right);
                check_gradients(&r, m, gradient);
                if (first_gradient == NULL) {
                    first_gradient = as_copied(gradient, n * sizeof *gradient);
                    first_logits = as_copied(logits, n_logits * sizeof *logits);
                }
                ck_assert_mem_eq(first_gradient, gradient, n * sizeof *gradient);
                ck_assert_mem_eq(first_logits, logits, n_logits * sizeof *logits);
                model_run_close(run);
                threads_close(pool);
            }
        free(first_gradient);
        free(first_logits);
        free(logits);
        free(gradient);
        close_recorded(&r);
        model_close(m);
    }
END_TEST

/* The first step of a recorded fine-tuning run of TabPFN: the sum over its five estimators of a fifth of each loss. */
START_TEST(first_recorded_step_comes_out)
    {
        enum { ESTIMATORS = 5 };
        struct model *m = open_model("reference/v2_6_cls.model.safetensors");
        struct ckpt *c;
        double total = 0;
        MUST(ckpt_open(&c, unit_data("reference/finetune_v2_6_cls.vectors.safetensors"), &f));
        float *gradient;
        int32_t *query = codes(c, "step0.y_query");
        MUST(memory_new(&gradient, model_parameters(m), sizeof *gradient, "a test", &f));
        for (int e = 0; e < ESTIMATORS; e++) {
            char names[4][64];
            const char *const parts[] = {"X_context", "X_query", "y_context", "class_permutation"};
            for (int i = 0; i < 4; i++) (void)snprintf(names[i], sizeof names[i], "step0.est%d.%s", e, parts[i]);
            const struct ckpt_tensor *context = ckpt_find(c, names[0]), *asked = ckpt_find(c, names[1]);
            const struct model_shape shape = {context->shape[0], asked->shape[0], context->shape[1]};
            float *x, *y = floats(c, names[2], NULL);
            int32_t *permutation = codes(c, names[3]);
            MUST(memory_new(&x, context->count + asked->count, sizeof *x, "a test", &f));
            for (size_t i = 0; i < context->count; i++) x[i] = (float)ckpt_value(context, i);
            for (size_t i = 0; i < asked->count; i++) x[context->count + i] = (float)ckpt_value(asked, i);
            const struct model_input input = {shape, x, y};
            const struct model_target target = {query, permutation, 2, 1.0 / ESTIMATORS};
            struct model_run *run;
            double loss;
            MUST(model_run_open(&run, m, shape, MODEL_RECOMPUTE_BLOCK, true, NULL, &f));
            MUST(model_gradient(run, model_values(m), &input, &target, &loss, gradient, &f));
            total += loss;
            model_run_close(run);
            free(x);
            free(y);
            free(permutation);
        }
        const double right = ckpt_value(ckpt_find(c, "step0.loss"), 0);
        ck_assert_msg(fabs(total - right) <= 1e-6, "loss %.9f instead of %.9f", total, right);
        free(gradient);
        free(query);
        ckpt_close(c);
        model_close(m);
    }
END_TEST

UNIT_MAIN("model/reference", vectors_come_out, first_recorded_step_comes_out)
