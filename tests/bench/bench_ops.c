/* How fast the network's operations run beside the machine's own matrix product, and a whole step of the published
 * size.
 *   bench_ops ops [THREADS]           every operation, forward and backward
 *   bench_ops step MODE [THREADS]     one step of the parity run: MODE none or block (recomputation)
 * Machines are shared: each line measures the product again, right beside the operation. "of sgemm" compares
 * processor time, which others on the machine disturb least; milliseconds and GFLOP/s are by the clock on the wall. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/memory.h"
#include "base/threads.h"
#include "model/model.h"
#include "tensor/cpu/cpu.h"

static struct tabft_failure f;

static void must(int code)
{
    if (code == 0) return;
    (void)fprintf(stderr, "bench_ops: %s\n", f.message);
    exit(tabft_exit_status(code));
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double now(void) { return seconds_of(CLOCK_MONOTONIC); }
static double processor(void) { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

static float *numbers(size_t n)
{
    float *x;
    must(memory_new_aligned(&x, n, sizeof *x, "a benchmark", &f));
    unsigned state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    return x;
}

/* ---- the machine's product: single-threaded cblas_sgemm in every thread at once ---- */

enum { SIDE = 512, SGEMM_CALLS = 4 };
struct sgemm {
    float *a, *b, *c; /* c: one square a thread */
};

static void sgemm_block(void *context, size_t block, int thread)
{
    const struct sgemm *s = context;
    (void)block;
    for (int i = 0; i < SGEMM_CALLS; i++)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, SIDE, SIDE, SIDE, 1.0f, s->a, SIDE, s->b, SIDE, 0.0f,
                    s->c + thread * SIDE * SIDE, SIDE);
}

/* GFLOP a second of processor time. */
static double measure_sgemm(struct threads *pool, const struct sgemm *s)
{
    const double n = threads_count(pool), begin = processor();
    threads_run(pool, (size_t)n * 2, sgemm_block, (void *)s);
    return 2.0 * n * SGEMM_CALLS * 2.0 * SIDE * SIDE * SIDE / (processor() - begin) / 1e9;
}

/* ---- operations ---- */

struct bench {
    struct threads *pool;
    struct tensor_backend backend;
    struct sgemm sgemm;
};

/* Runs one operation for about half a second each way and prints a line. flops: of forward; 0: bytes moved are told
 * instead. */
static void measure(const struct bench *b, const char *name, struct op_call *call, double flops, double backward_flops,
                    double bytes)
{
    const struct tensor_kernels *k = &b->backend.kernels[call->op->kind];
    for (int backward = 0; backward <= 1; backward++) {
        size_t scratch =
            backward ? k->backward_scratch(b->backend.state, call->op) : k->forward_scratch(b->backend.state, call->op);
        must(memory_new_aligned(&call->scratch, scratch, 1, "a benchmark", &f));
        float *d_out = call->d_out;
        if (!backward) call->d_out = NULL;
        double best = INFINITY, least = INFINITY, sgemm = 0, begin = now();
        for (int i = 0; i < 3 || now() - begin < 0.5; i++) {
            const double beside = measure_sgemm(b->pool, &b->sgemm), start = now(), used = processor();
            if (backward)
                k->backward(b->backend.state, call);
            else
                k->forward(b->backend.state, call);
            best = fmin(best, now() - start);
            least = fmin(least, processor() - used);
            sgemm = fmax(sgemm, beside);
        }
        const double done = (backward ? backward_flops : flops) / 1e9;
        if (flops > 0)
            printf("%-30s %-8s %8.3f ms  %6.1f GFLOP/s  %5.2f of sgemm (%.1f a core)\n", name,
                   backward ? "backward" : "forward", best * 1e3, done / best, done / least / sgemm, sgemm);
        else
            printf("%-30s %-8s %8.3f ms  %6.1f GB/s\n", name, backward ? "backward" : "forward", best * 1e3,
                   bytes / best / 1e9);
        (void)fflush(stdout);
        call->d_out = d_out;
        free(call->scratch);
    }
}

static void bench_linear(const struct bench *b, size_t rows, size_t in, size_t out)
{
    struct op op = {.kind = OP_LINEAR, .linear = {rows, in, out}};
    float *x = numbers(rows * in), *w = numbers(in * out), *y = numbers(rows * out), *d = numbers(rows * out),
          *dx = numbers(rows * in), *dw = numbers(in * out);
    struct op_call call = {.op = &op, .in = {x, w}, .out = {y}, .d_out = d, .d_in = {dx, dw}, .add = {false, true}};
    char name[64];
    (void)snprintf(name, sizeof name, "linear %zu x %zu -> %zu", rows, in, out);
    const double flops = 2.0 * (double)rows * (double)in * (double)out;
    measure(b, name, &call, flops, 2 * flops, 0);
    float *all[] = {x, w, y, d, dx, dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void bench_attention(const struct bench *b, const char *name, const struct op_attention *a, size_t q_width,
                            size_t kv_width)
{
    struct op op = {.kind = OP_ATTENTION, .attention = *a};
    const size_t tokens = a->sequences * (a->n_context + a->n_query), e = a->heads * a->width;
    float *q = numbers(tokens * q_width), *kv = numbers(tokens * kv_width), *o = numbers(tokens * e),
          *statistics = numbers(tokens * 2 * a->heads);
    float *d = numbers(tokens * e), *dq = numbers(tokens * q_width), *dkv = numbers(tokens * kv_width);
    struct op_call call = {.op = &op, .in = {q, kv, kv}, .out = {o, statistics}, .d_out = d, .d_in = {dq, dkv, dkv}};
    const double pairs =
        (double)a->sequences * (double)(a->n_context + a->n_query) * (double)a->n_keys * (double)a->heads;
    measure(b, name, &call, 4.0 * pairs * (double)a->width, 10.0 * pairs * (double)a->width, 0);
    float *all[] = {q, kv, o, statistics, d, dq, dkv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void bench_pointwise(const struct bench *b, size_t rows, size_t width)
{
    float *x = numbers(rows * width * 2), *y = numbers(rows * width * 2), *d = numbers(rows * width * 2),
          *w = numbers(width), *dw = numbers(width);
    struct op norm = {.kind = OP_RMS_NORM, .rms_norm = {rows, width, 1e-7f}},
              gelu = {.kind = OP_GELU, .gelu = {rows, 2 * width}};
    struct op_call call = {.op = &norm, .in = {x, w}, .out = {y}, .d_out = d, .d_in = {d, dw}, .add = {false, true}};
    measure(b, "rms_norm", &call, 0, 0, 8.0 * (double)(rows * width));
    call = (struct op_call){.op = &gelu, .in = {x}, .out = {y}, .d_out = d, .d_in = {d}};
    measure(b, "gelu", &call, 0, 0, 16.0 * (double)(rows * width));
    float *all[] = {x, y, d, w, dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Heads of e / h numbers. `tokens` and `keys` say where token t of sequence s stands: in place s * sequence + t * token of
 * its tensor, whose rows are e wide, and 2 e for keys and values, which share theirs. */
static struct op_attention attention_of(size_t sequences, size_t n_tokens, size_t n_keys, size_t h, size_t e,
                                        struct op_attention_stride tokens, struct op_attention_stride keys)
{
    const struct op_attention_stride q = {tokens.sequence * e, tokens.token * e, 0},
                                     k = {keys.sequence * 2 * e, keys.token * 2 * e, 0};
    return (struct op_attention){.sequences = sequences,
                                 .n_context = n_tokens,
                                 .n_keys = n_keys,
                                 .heads = h,
                                 .width = e / h,
                                 .context_kv_heads = h,
                                 .query_kv_heads = h,
                                 .q = q,
                                 .k = k,
                                 .v = {k.sequence, k.token, e},
                                 .o = q,
                                 .statistics = {tokens.sequence * 2 * h, tokens.token * 2 * h, 0}};
}

/* A sequence's tokens stand together, or as many apart as there are sequences. */
static struct op_attention_stride together(size_t n_tokens) { return (struct op_attention_stride){n_tokens, 1, 0}; }
static struct op_attention_stride apart(size_t sequences) { return (struct op_attention_stride){1, sequences, 0}; }

/* v3 at its published size on 1,000 rows of 20 columns: cells of columns meet in 128 points, rows of 24 tokens, then a
 * row a token. */
static void bench_v3(const struct bench *b)
{
    const size_t e = 512, h = 8, context = 800, query = 200, rows = context + query, columns = 20, tokens = 24;
    const size_t cell = 128, points = 128;
    bench_linear(b, rows * tokens, cell, 3 * cell);
    bench_linear(b, rows * tokens, cell, 2 * cell);
    bench_linear(b, rows * tokens, 2 * cell, cell);
    bench_linear(b, rows * h, e / h, e / h);
    bench_linear(b, rows, e, e);
    bench_linear(b, rows, e, 2 * e);
    bench_linear(b, rows, 2 * e, e);
    bench_linear(b, rows, 2 * e, 4 * e);
    struct op_attention a = attention_of(columns, points, context, h, cell, together(points), apart(columns));
    bench_attention(b, "attention of v3's points", &a, cell, 2 * cell * (context / points + 1));
    a = attention_of(columns, rows, points, h, cell, apart(columns), together(points));
    bench_attention(b, "attention to v3's points", &a, cell, 2 * cell);
    a = attention_of(rows, tokens, tokens, h, cell, together(tokens), together(tokens));
    bench_attention(b, "attention within v3's rows", &a, cell, 2 * cell);
    a = attention_of(1, context, context, h, e, together(0), together(0));
    a.n_query = query;
    bench_attention(b, "attention of v3 over rows", &a, e, 2 * e);
}

/* v2.6 at its published size on 1,064 rows (64 of them thinking rows) and 10 columns. */
static void bench_ops(struct bench *b)
{
    const size_t e = 192, h = 3, columns = 10, context = 864, query = 200, rows = context + query;
    bench_linear(b, rows * columns, e, e);
    bench_linear(b, rows * columns, e, 3 * e);
    bench_linear(b, rows * columns, e, 2 * e);
    bench_linear(b, rows * columns, 2 * e, e);
    struct op_attention a = attention_of(columns, context, context, h, e, apart(columns), apart(columns));
    a.n_query = query;
    a.query_kv_heads = 1;
    bench_attention(b, "attention over rows 864 + 200", &a, e, 2 * e);
    a = attention_of(rows, columns, columns, h, e, together(columns), together(columns));
    bench_attention(b, "attention over 10 features", &a, e, 2 * e);
    bench_pointwise(b, rows * columns, e);
    bench_v3(b);
}

/* ---- a step ---- */

static void bench_step(struct bench *b, size_t recompute)
{
    const size_t n_columns[] = {26, 20, 26, 20}, n_context = 800, n_query = 200, n_estimators = 4;
    struct model *m;
    struct model_run *run;
    struct model_plan plan, own;
    must(model_init(&m, "tabpfn_v2_6", NULL, 17, &f));
    float *gradient = numbers(model_parameters(m)), *x = numbers((n_context + n_query) * 26), *y = numbers(n_context);
    int32_t *labels;
    must(memory_new(&labels, n_query, sizeof *labels, "a benchmark", &f));
    for (size_t i = 0; i < n_context; i++) y[i] = (float)(i % 2);
    for (size_t i = 0; i < n_query; i++) labels[i] = (int32_t)(i % 2);
    const struct model_shape largest = {n_context, n_query, 26};
    must(model_plan(m, largest, recompute, true, &b->backend, &plan, &f));
    must(model_run_open(&run, m, largest, recompute, true, &b->backend, &f));
    double sgemm = measure_sgemm(b->pool, &b->sgemm), flops = 0, seconds = 0, used = 0, loss;
    for (size_t i = 0; i < n_estimators; i++) {
        const struct model_input input = {.shape = {n_context, n_query, n_columns[i]}, .x = x, .y_context = y};
        const struct model_target target = {.y_query = labels, .n_classes = 2, .scale = 0.25};
        const double begin = now(), used_before = processor();
        must(model_gradient(run, model_values(m), &input, &target, &loss, gradient, &f));
        seconds += now() - begin;
        used += processor() - used_before;
        must(model_plan(m, input.shape, recompute, true, &b->backend, &own, &f));
        flops += own.flops;
        sgemm += measure_sgemm(b->pool, &b->sgemm);
    }
    sgemm /= (double)n_estimators + 1;
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    printf("step of 4 estimators, recompute %-6s %6.2f s (%.2f of processors)  %6.1f GFLOP/s  %5.2f of sgemm (%.1f a "
           "core)  planned %.1f MB (scratch %.1f), peak of this process %.1f MB\n",
           recompute == MODEL_RECOMPUTE_BLOCK ? "block" : "none", seconds, used, flops / seconds / 1e9,
           flops / used / 1e9 / sgemm, sgemm, (double)plan.total / 1e6, (double)plan.scratch / 1e6,
           (double)usage.ru_maxrss * 1024 / 1e6);
    model_run_close(run);
    model_close(m);
    free(gradient);
    free(x);
    free(y);
    free(labels);
}

int main(int argc, char **argv)
{
    const bool step =
        argc >= 3 && strcmp(argv[1], "step") == 0 && (strcmp(argv[2], "none") == 0 || strcmp(argv[2], "block") == 0);
    if (!step && !(argc >= 2 && strcmp(argv[1], "ops") == 0)) {
        (void)fprintf(stderr, "bench_ops: what to measure is not said; use bench_ops ops [THREADS] or bench_ops step "
                              "none|block [THREADS]\n");
        return 2;
    }
    const int at = step ? 3 : 2, n_threads = argc > at ? atoi(argv[at]) : threads_default_count();
    struct bench b = {0};
    openblas_set_num_threads(1);
    must(threads_open(&b.pool, n_threads, &f));
    must(cpu_backend_open(&b.backend, b.pool, &f));
    b.sgemm = (struct sgemm){numbers(SIDE * SIDE), numbers(SIDE * SIDE), numbers((size_t)n_threads * SIDE * SIDE)};
    printf("%d threads, %s\n", n_threads, b.backend.isa);
    if (step)
        bench_step(&b, strcmp(argv[2], "block") == 0 ? MODEL_RECOMPUTE_BLOCK : MODEL_RECOMPUTE_NONE);
    else
        bench_ops(&b);
    free(b.sgemm.a);
    free(b.sgemm.b);
    free(b.sgemm.c);
    b.backend.close(b.backend.state);
    threads_close(b.pool);
    return 0;
}
