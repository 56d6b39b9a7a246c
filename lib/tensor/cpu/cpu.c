#define TABFT_TENSOR_ROOM
#include "tensor/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/memory.h"
#include "tensor/cpu/cpu_internal.h"

/* The fastest set, or the one named; NULL where this processor lacks it, or *known is false. */
static const struct cpu_kernels *choose(const char *pinned, bool *known)
{
    *known = pinned == NULL;
#if defined(__x86_64__)
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    const struct {
        const struct cpu_kernels *kernels;
        bool has;
    } sets[] = {{&cpu_kernels_avx512, has_avx512}, {&cpu_kernels_avx2, has_avx2}, {&cpu_kernels_baseline, true}};
#else
    const struct {
        const struct cpu_kernels *kernels;
        bool has;
    } sets[] = {{&cpu_kernels_baseline, true}};
    if (pinned != NULL && (strcmp(pinned, "avx512") == 0 || strcmp(pinned, "avx2") == 0)) *known = true;
#endif
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        bool named = pinned == NULL || strcmp(pinned, sets[i].kernels->isa) == 0;
        *known |= named;
        if (named && sets[i].has) return sets[i].kernels;
    }
    return NULL;
}

size_t cpu_no_scratch(const void *state, const struct op *op)
{
    (void)state;
    (void)op;
    return 0;
}

static int kernels_in_use(const struct cpu_kernels **out, struct tabft_failure *f)
{
    const char *pinned = getenv("TABFT_ISA");
    bool known;
    if (pinned != NULL && *pinned == '\0') pinned = NULL;
    *out = choose(pinned, &known);
    if (*out != NULL) return 0;
    if (!known)
        return tabft_fail(f, TABFT_USE,
                          "TABFT_ISA=%.40s: there is no such instruction set here; use avx512, avx2 or baseline",
                          pinned);
    return tabft_fail(f, TABFT_USE, "TABFT_ISA=%s: this processor has it not; use avx2 or baseline", pinned);
}

int tensor_isa(const char **isa, struct tabft_failure *f)
{
    const struct cpu_kernels *k;
    int error = kernels_in_use(&k, f);
    if (error == 0) *isa = k->isa;
    return error;
}

/* Large blocks ask for large pages: attention strides through memory by whole rows of a table, a page or more each
 * time. What is behind the last whole one stays in small pages, so that a block takes no more than was planned. */
static int cpu_memory_new(void *state, void **out, size_t bytes, const char *what, struct tabft_failure *f)
{
    const size_t page = (size_t)1 << 21;
    (void)state;
    if (bytes < 4 * page) return memory_new_aligned(out, bytes, 1, what, f);
    if (posix_memalign(out, page, bytes) != 0)
        return tabft_fail(f, TABFT_SYSTEM, "no memory for %s (%zu bytes); give the job more memory", what, bytes);
    (void)madvise(*out, bytes / page * page, MADV_HUGEPAGE); /* a wish: without it the same numbers come, later */
    return 0;
}

/* A call is done when it returns. */
static void cpu_mark(void *state, unsigned place)
{
    struct cpu *cpu = state;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    cpu->marks[place] = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int cpu_wait(void *state, unsigned place, struct tabft_failure *f)
{
    (void)state, (void)place, (void)f;
    return 0;
}

static double cpu_between(void *state, unsigned from, unsigned to)
{
    const struct cpu *cpu = state;
    return cpu->marks[to] - cpu->marks[from];
}

static int open_for(struct tensor_backend *out, struct threads *pool, int n_threads, struct tabft_failure *f)
{
    struct cpu *cpu = NULL;
    const struct cpu_kernels *k;
    int error = kernels_in_use(&k, f);
    if (error < 0) return error;
    error = memory_new(&cpu, 1, sizeof *cpu, "the CPU backend", f);
    if (error < 0) return error;
    *cpu = (struct cpu){.pool = pool, .n_threads = (size_t)n_threads, .k = k};
    *out = (struct tensor_backend){
        .name = "cpu",
        .isa = k->isa,
        .state = cpu,
        .kernels = {[OP_LINEAR] = cpu_linear,
                    [OP_ATTENTION] = cpu_attention,
                    [OP_RMS_NORM] = cpu_rms_norm,
                    [OP_LAYER_NORM] = cpu_layer_norm,
                    [OP_GELU] = cpu_gelu,
                    [OP_ASSEMBLE] = cpu_assemble,
                    [OP_SELECT] = cpu_select,
                    [OP_PREPEND] = cpu_prepend,
                    [OP_ADD_ROWS] = cpu_add_rows,
                    [OP_LOOKUP] = cpu_lookup,
                    [OP_HEADS] = cpu_heads,
                    [OP_FOURIER] = cpu_fourier,
                    [OP_MODULATE] = cpu_modulate,
                    [OP_VOTE] = cpu_vote,
                    [OP_CROSS_ENTROPY] = cpu_cross_entropy,
                    [OP_BAR_LOSS] = cpu_bar_loss},
        .in_place = {[OP_LINEAR] = 1u << 3,
                     [OP_RMS_NORM] = 1u << 0,
                     [OP_LAYER_NORM] = 1u << 0,
                     [OP_GELU] = 1u << 0,
                     [OP_ADD_ROWS] = 1u << 0,
                     [OP_HEADS] = 1u << 0,
                     [OP_MODULATE] = 1u << 0},
        .mark = cpu_mark,
        .wait = cpu_wait,
        .between = cpu_between,
        .close = free,
    };
    vectors_host(&out->vectors, pool);
    out->vectors.memory_new = cpu_memory_new;
    return 0;
}

int cpu_backend_open(struct tensor_backend *out, struct threads *pool, struct tabft_failure *f)
{
    return open_for(out, pool, threads_count(pool), f);
}

int cpu_backend_open_planning(struct tensor_backend *out, int n_threads, struct tabft_failure *f)
{
    return open_for(out, NULL, n_threads, f);
}

struct cpu_split cpu_split_of(size_t rows)
{
    size_t each = round_up((rows + CPU_SPLITS - 1) / CPU_SPLITS, CPU_SPLIT_ROWS);
    return (struct cpu_split){rows == 0 ? 0 : (rows + each - 1) / each, each};
}

size_t cpu_split_parts_max(size_t rows) { return smaller(CPU_SPLITS, (rows + CPU_SPLIT_ROWS - 1) / CPU_SPLIT_ROWS); }

struct sum_context {
    const struct cpu_kernels *k;
    size_t parts, count;
    const float *partial;
    float *target;
};
enum { SUM_BLOCK = 1024 };

static void sum_block(void *context, size_t block, int thread)
{
    const struct sum_context *s = context;
    (void)thread;
    size_t first = block * SUM_BLOCK;
    for (size_t part = 0; part < s->parts; part++)
        s->k->add(smaller(SUM_BLOCK, s->count - first), s->partial + part * s->count + first, s->target + first);
}

void cpu_split_sum(struct cpu *cpu, size_t parts, size_t count, const float *partial, float *target)
{
    struct sum_context s = {cpu->k, parts, count, partial, target};
    threads_run(cpu->pool, (count + SUM_BLOCK - 1) / SUM_BLOCK, sum_block, &s);
}
