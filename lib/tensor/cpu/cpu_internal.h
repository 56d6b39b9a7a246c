/* What the operations on CPUs share: the kernels of one instruction set, and the state of a backend. */
#ifndef TABFT_TENSOR_CPU_INTERNAL_H
#define TABFT_TENSOR_CPU_INTERNAL_H
#ifndef TABFT_TENSOR_ROOM
#error "cpu_internal.h is private to lib/tensor"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/threads.h"
#include "tensor/ops.h"

/* c [m][n] = init + a b, each element one chain of multiply-adds from p = 0 to k - 1, then init: its bits do not
 * depend on m, n or its place. a(i, p) = a[i * a_row + p * a_step], one of the two being 1. b in panels (pack_rows,
 * pack_columns). init may be c itself, with init_row 0 one row for all, or NULL for zeros. */
struct product {
    size_t m, n, k;
    const float *a;
    size_t a_row, a_step;
    const float *b;
    float *c;
    size_t c_row;
    const float *init;
    size_t init_row;
};

/* The kernels of one instruction set. A panel holds `nr` columns of b: k rows of nr numbers, zeros past the last
 * column; panels follow each other. `lanes` of scores are padding behind each row, which kernels may overwrite. */
struct cpu_kernels {
    const char *isa;
    size_t mr, nr; /* rows and columns of the tile that stays in registers */
    void (*product)(const struct product *p);
    /* b(p, j) = source[p * stride + j] * scale, or source[j * stride + p] * scale, p < k, j < n. */
    void (*pack_rows)(size_t k, size_t n, const float *source, size_t stride, float scale, float *panels);
    void (*pack_columns)(size_t k, size_t n, const float *source, size_t stride, float scale, float *panels);
    /* One block of keys for `rows` rows of scores [rows][columns] (row stride `stride`, room up to a multiple of 16):
     * replaces maximum[i] by the largest of itself and scale2 * score, scores by 2^(scale2 * score - maximum), adds
     * their sum to sum[i] (what was there shrunk by factor[i] = 2^(old maximum - new maximum)). */
    void (*softmax_block)(size_t rows, size_t columns, float *scores, size_t stride, float scale2, float *maximum,
                          float *sum, float *factor);
    /* scores := p = inverse[i] * 2^(scale2 * score - maximum[i]); slopes := p * (slopes - mean[i]). */
    void (*softmax_slopes)(size_t rows, size_t columns, float *scores, float *slopes, size_t stride, float scale2,
                           const float *maximum, const float *inverse, const float *mean);
    /* x[i][j] *= factor[i] for `rows` rows. */
    void (*scale_rows)(size_t rows, size_t width, float *x, size_t stride, const float *factor);
    float (*dot)(size_t width, const float *x, const float *y);
    void (*add)(size_t count, const float *x, float *y); /* y += x */
    void (*gelu)(size_t count, const float *x, float *y);
    void (*gelu_backward)(size_t count, const float *x, const float *dy, float *dx, bool add);
    void (*rms_norm)(size_t rows, size_t width, float epsilon, const float *x, const float *w, float *y);
    /* dw [width] is added to; dx may be dy. */
    void (*rms_norm_backward)(size_t rows, size_t width, float epsilon, const float *x, const float *w, const float *dy,
                              float *dx, bool add, float *dw);
    void (*layer_norm)(size_t rows, size_t width, float epsilon, const float *x, float *y);
    /* dx may be dy. */
    void (*layer_norm_backward)(size_t rows, size_t width, float epsilon, const float *x, const float *dy, float *dx,
                                bool add);
    /* One row of OP_FOURIER; d [numbers][frequencies] is added to. */
    void (*fourier)(size_t numbers, size_t frequencies, const float *x, const float *frequency, float *y);
    void (*fourier_backward)(size_t numbers, size_t frequencies, const float *x, const float *frequency,
                             const float *dy, float *d);
};

extern const struct cpu_kernels cpu_kernels_avx512, cpu_kernels_avx2, cpu_kernels_baseline;

struct cpu {
    struct threads *pool;
    size_t n_threads;
    const struct cpu_kernels *k;
    double marks[MARKS]; /* seconds */
};

static inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Adds `count` numbers to those at `to`, or overwrites them. */
static inline void cpu_put(const float *from, size_t count, bool add, const struct cpu_kernels *k, float *to)
{
    if (add) k->add(count, from, to);
    else memcpy(to, from, count * sizeof *to);
}

/* How rows are split for sums over them: at most SPLITS parts, no part below SPLIT_ROWS; the same for every number of
 * threads. */
enum { CPU_SPLITS = 32, CPU_SPLIT_ROWS = 128 };
struct cpu_split {
    size_t parts, rows; /* of each part but the last */
};
struct cpu_split cpu_split_of(size_t rows);
size_t cpu_split_parts_max(size_t rows); /* monotone bound of parts */
/* target[j] += sum over parts of partial[part][j], in the order of parts. */
void cpu_split_sum(struct cpu *cpu, size_t parts, size_t count, const float *partial, float *target);

/* The scratch of an operation that needs none: 0 bytes. */
size_t cpu_no_scratch(const void *state, const struct op *op);

/* The operations; each file fills its entry. */
extern const struct tensor_kernels cpu_linear, cpu_attention, cpu_rms_norm, cpu_layer_norm, cpu_gelu, cpu_assemble,
    cpu_select, cpu_prepend, cpu_add_rows, cpu_lookup, cpu_heads, cpu_fourier, cpu_modulate, cpu_vote, cpu_cross_entropy,
    cpu_bar_loss;

#endif
