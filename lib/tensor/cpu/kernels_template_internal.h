/* The kernels for one instruction set. A file sets SIMD_WIDTH, TILE_ROWS and KERNELS (the name of the table), allows
 * the compiler the instructions, and includes this. What a kernel does is said in cpu_internal.h. */
#define TABFT_TENSOR_ROOM
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "tensor/cpu/cpu_internal.h"
#include "tensor/cpu/simd_internal.h"

enum { TILE_VECS = 2, TILE_COLUMNS = TILE_VECS * SIMD_WIDTH };
/* Numbers of b that the second cache has room for beside what else a product touches. */
enum { PANELS_WHOLE = 1 << 19, PANELS_SOME = 9 << 15 };
/* A tile's share of a, copied: so many numbers a row at most, rows so far apart. */
enum { COPY_MOST = 2048, COPY_ROW = COPY_MOST + 16, COPY_STEP = 16 };

/* ---- matrix products ---- */

/* What a tile asks for while it computes: a few lines each STEPS steps of k, so that they arrive beside the products
 * and never in a burst. `ahead`: `count` lines of a for tiles to come, `ahead_step` apart. */
enum { LINE = 16, STEPS = 8 };
struct fetch {
    const float *ahead;
    size_t ahead_step, count;
};

/* One tile of up to TILE_ROWS rows and one panel, or its first half; `rows`, `half` and `unit_step` (a_step == 1, else
 * a_row == 1) are constants after inlining. */
INLINE void tile(const size_t rows, const bool half, const bool unit_step, const struct product *p, const float *a, const float *b,
                 float *c, const float *init, size_t columns, struct fetch fetch)
{
    vec sum[TILE_ROWS][TILE_VECS] = {0};
    const size_t a_row = p->a_row, a_step = p->a_step, k = p->k;
    /* Three places to start from: twelve rows counted from one need more registers than there are. */
    const float *a4 = a + 4 * a_row, *a8 = a + 8 * a_row;
    const size_t share = (fetch.count * STEPS + k - 1) / k;
    const char *out = (const char *)c, *in = init == NULL ? out : (const char *)init;
    for (size_t s = 0; s < k;) {
        for (size_t l = 0; l < share; l++, fetch.ahead += fetch.ahead_step) __builtin_prefetch(fetch.ahead);
        __builtin_prefetch(out, 1);
        __builtin_prefetch(out + sizeof(float) * LINE, 1);
        __builtin_prefetch(in);
        __builtin_prefetch(in + sizeof(float) * LINE);
        out += sizeof(float) * p->c_row;
        in += sizeof(float) * (init == NULL ? p->c_row : p->init_row);
        for (const size_t end = smaller(s + STEPS, k); s < end; s++) {
            vec b0 = v_load(b), b1 = half ? b0 : v_load(b + SIMD_WIDTH);
            b += TILE_COLUMNS;
#pragma GCC unroll 12
            for (size_t i = 0; i < rows; i++) {
                vec x = v_splat(!unit_step ? a[i] : (i < 4 ? a : i < 8 ? a4 : a8)[i % 4 * a_row]);
                sum[i][0] = v_fma(x, b0, sum[i][0]);
                if (!half) sum[i][1] = v_fma(x, b1, sum[i][1]);
            }
            a += unit_step ? 1 : a_step;
            if (!unit_step) continue;
            a4++;
            a8++;
            __asm__("" : "+r"(a4), "+r"(a8)); /* the compiler would count from one place again */
        }
    }
    if (columns == (half ? SIMD_WIDTH : TILE_COLUMNS)) {
#pragma GCC unroll 12
        for (size_t i = 0; i < rows; i++) {
            float *to = c + i * p->c_row;
            vec s0 = sum[i][0], s1 = sum[i][1];
            if (init != NULL) {
                s0 += v_load(init + i * p->init_row);
                if (!half) s1 += v_load(init + i * p->init_row + SIMD_WIDTH);
            }
            v_store(to, s0);
            if (!half) v_store(to + SIMD_WIDTH, s1);
        }
        return;
    }
#pragma GCC unroll 12
    for (size_t i = 0; i < rows; i++) {
        float whole[TILE_COLUMNS];
        v_store(whole, sum[i][0]);
        v_store(whole + SIMD_WIDTH, sum[i][1]);
        for (size_t j = 0; j < columns; j++)
            c[i * p->c_row + j] = init == NULL ? whole[j] : whole[j] + init[i * p->init_row + j];
    }
}

#define TILE_CASE(rows) \
    case rows: tile(rows, half, unit_step, p, a, b, c, init, columns, fetch); break;

INLINE void tile_of(size_t rows, const bool half, const bool unit_step, const struct product *p, const float *a, const float *b,
                    float *c, const float *init, size_t columns, struct fetch fetch)
{
    switch (rows) {
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
#if TILE_ROWS > 4
        TILE_CASE(5)
        TILE_CASE(6)
#endif
#if TILE_ROWS > 6
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
        TILE_CASE(12)
#endif
    }
}

/* The lines of a that the tiles below this one need, a share for each of the panels that pass by, from column `begin` to
 * `end`: the next tile's rows where they follow each other (those of a large tensor), or the lines behind this tile's
 * where all together are no small matter. */
INLINE struct fetch fetch_ahead(const bool unit_step, const struct product *p, size_t i, size_t j, size_t begin,
                                size_t n)
{
    const size_t small = 1 << 14;
    if (i + TILE_ROWS >= p->m || (unit_step ? p->a_row != p->k : p->k * p->a_step <= small))
        return (struct fetch){p->a, 0, 0};
    const size_t rows = smaller(TILE_ROWS, p->m - i - TILE_ROWS), lines = unit_step ? rows * p->k / LINE : p->k;
    const size_t first = lines * (j - begin) / n, end = smaller(lines * (j - begin + TILE_COLUMNS) / n, lines);
    if (unit_step) return (struct fetch){p->a + (i + TILE_ROWS) * p->k + first * LINE, LINE, end - first};
    return (struct fetch){p->a + i + TILE_ROWS + rows - 1 + first * p->a_step, p->a_step, end - first};
}

/* Columns `begin` to `end` of c. copy: room for the rows of a tile [TILE_ROWS][COPY_ROW], where they are copied first,
 * or NULL. */
INLINE void product_part(const bool unit_step, const struct product *p, size_t begin, size_t end, float *copy)
{
    struct product q = *p;
    if (copy != NULL) *(unit_step ? &q.a_row : &q.a_step) = unit_step ? COPY_ROW : COPY_STEP;
    for (size_t i = 0; i < p->m; i += TILE_ROWS) {
        const size_t rows = smaller(TILE_ROWS, p->m - i);
        const float *a = p->a + i * p->a_row;
        if (copy != NULL) {
            for (size_t r = 0; unit_step && r < rows; r++)
                memcpy(copy + r * COPY_ROW, a + r * p->a_row, p->k * sizeof *a);
            for (size_t s = 0; !unit_step && s < p->k; s++)
                memcpy(copy + s * COPY_STEP, a + s * p->a_step, rows * sizeof *a);
            a = copy;
        }
        for (size_t j = begin; j < end; j += TILE_COLUMNS) {
            const float *init = p->init == NULL ? NULL : p->init + i * p->init_row + j;
            float *const c = p->c + i * p->c_row + j;
            const struct fetch fetch = fetch_ahead(unit_step, p, i, j, begin, end - begin);
            const size_t columns = smaller(TILE_COLUMNS, end - j);
            if (columns > SIMD_WIDTH) tile_of(rows, false, unit_step, &q, a, p->b + j * p->k, c, init, columns, fetch);
            else tile_of(rows, true, unit_step, &q, a, p->b + j * p->k, c, init, columns, fetch);
        }
    }
}

/* As many panels at a time as stay in the second cache while all rows pass by; all of them where they do anyway. */
INLINE void product_of(const bool unit_step, const struct product *p, float *copy)
{
    const size_t some = PANELS_SOME / (p->k + 1) / TILE_COLUMNS * TILE_COLUMNS;
    const size_t step = p->n * p->k <= PANELS_WHOLE ? p->n : some > TILE_COLUMNS ? some : TILE_COLUMNS;
    for (size_t begin = 0; begin < p->n; begin += step)
        product_part(unit_step, p, begin, smaller(begin + step, p->n), copy);
}

static void product_rows(const struct product *p) { product_of(true, p, NULL); }
static void product_columns(const struct product *p) { product_of(false, p, NULL); }
__attribute__((noinline)) static void product_rows_copied(const struct product *p)
{
    _Alignas(64) float copy[TILE_ROWS * COPY_ROW];
    product_of(true, p, copy);
}
__attribute__((noinline)) static void product_columns_copied(const struct product *p)
{
    _Alignas(64) float copy[COPY_MOST * COPY_STEP];
    product_of(false, p, copy);
}

/* Whether a tile's lines of a, as far apart as this, meet in the same few places of the first cache. */
INLINE bool collide(size_t stride) { return stride * sizeof(float) % 2048 == 0; }

static void product(const struct product *p)
{
    const bool rows = p->a_step == 1, copies = p->k <= COPY_MOST && p->n > 2 * TILE_COLUMNS;
    if (copies && collide(rows ? p->a_row : p->a_step)) (rows ? product_rows_copied : product_columns_copied)(p);
    else (rows ? product_rows : product_columns)(p);
}

static void pack_rows(size_t k, size_t n, const float *source, size_t stride, float scale, float *panels)
{
    for (size_t j = 0; j < n; j += TILE_COLUMNS, panels += k * TILE_COLUMNS) {
        size_t columns = smaller(TILE_COLUMNS, n - j);
        for (size_t s = 0; s < k; s++) {
            const float *from = source + s * stride + j;
            float *to = panels + s * TILE_COLUMNS;
            if (columns == TILE_COLUMNS) {
                v_store(to, v_load(from) * scale);
                v_store(to + SIMD_WIDTH, v_load(from + SIMD_WIDTH) * scale);
                continue;
            }
            for (size_t c = 0; c < TILE_COLUMNS; c++) to[c] = c < columns ? from[c] * scale : 0.0f;
        }
    }
}

/* Some of the SIMD_WIDTH columns of half a panel from k numbers of as many rows of the source. */
INLINE void pack_transposed(size_t k, size_t columns, const float *source, size_t stride, float scale, float *to)
{
    size_t s = 0;
    for (; s + SIMD_WIDTH <= k; s += SIMD_WIDTH) {
        vec row[SIMD_WIDTH];
#pragma GCC unroll 16
        for (size_t c = 0; c < SIMD_WIDTH; c++)
            row[c] = c < columns ? v_load(source + c * stride + s) * scale : v_splat(0.0f);
        v_transpose(row);
#pragma GCC unroll 16
        for (size_t i = 0; i < SIMD_WIDTH; i++) v_store(to + (s + i) * TILE_COLUMNS, row[i]);
    }
    for (; s < k; s++)
        for (size_t c = 0; c < SIMD_WIDTH; c++)
            to[s * TILE_COLUMNS + c] = c < columns ? source[c * stride + s] * scale : 0.0f;
}

static void pack_columns(size_t k, size_t n, const float *source, size_t stride, float scale, float *panels)
{
    for (size_t j = 0; j < n; j += TILE_COLUMNS, panels += k * TILE_COLUMNS)
        for (size_t part = 0; part < TILE_COLUMNS; part += SIMD_WIDTH) {
            const size_t first = smaller(j + part, n), columns = smaller(SIMD_WIDTH, n - first);
            const float *from = source + first * stride;
            if (columns == 0)
                for (size_t s = 0; s < k; s++) v_store(panels + part + s * TILE_COLUMNS, v_splat(0.0f));
            else if (columns == SIMD_WIDTH)
                pack_transposed(k, SIMD_WIDTH, from, stride, scale, panels + part);
            else
                pack_transposed(k, columns, from, stride, scale, panels + part);
        }
}

/* ---- attention ---- */

static void softmax_block(size_t rows, size_t columns, float *scores, size_t stride, float scale2, float *maximum,
                          float *sum, float *factor)
{
    const size_t room = round_up(columns, SUM_LANES);
    for (size_t i = 0; i < rows; i++) {
        float *row = scores + i * stride;
        for (size_t j = columns; j < room; j++) row[j] = -3.0e38f; /* 2^(this) is nothing */
        struct lanes top;
        for (int l = 0; l < SUM_VECS; l++) top.v[l] = v_load(row + l * SIMD_WIDTH);
        for (size_t j = SUM_LANES; j < room; j += SUM_LANES)
            for (int l = 0; l < SUM_VECS; l++) top.v[l] = v_max(v_load(row + j + (size_t)l * SIMD_WIDTH), top.v[l]);
        float most = lanes_max(&top) * scale2;
        most = most > maximum[i] ? most : maximum[i];
        vec from = v_splat(-most), scale = v_splat(scale2);
        struct lanes total = {0};
        for (size_t j = 0; j < room; j += SUM_LANES)
            for (int l = 0; l < SUM_VECS; l++) {
                float *at = row + j + (size_t)l * SIMD_WIDTH;
                vec e = v_exp2(v_fma(v_load(at), scale, from));
                v_store(at, e);
                total.v[l] += e;
            }
        factor[i] = maximum[i] == most ? 1.0f : v_exp2(v_splat(maximum[i] - most))[0];
        sum[i] = sum[i] * factor[i] + lanes_sum(&total);
        maximum[i] = most;
    }
}

static void softmax_slopes(size_t rows, size_t columns, float *scores, float *slopes, size_t stride, float scale2,
                           const float *maximum, const float *inverse, const float *mean)
{
    const size_t room = round_up(columns, SUM_LANES);
    for (size_t i = 0; i < rows; i++) {
        float *p = scores + i * stride, *d = slopes + i * stride;
        vec from = v_splat(-maximum[i]), scale = v_splat(scale2);
        for (size_t j = 0; j < room; j += SIMD_WIDTH) {
            vec e = v_exp2(v_fma(v_load(p + j), scale, from)) * inverse[i];
            v_store(p + j, e);
            v_store(d + j, e * (v_load(d + j) - mean[i]));
        }
    }
}

static void scale_rows(size_t rows, size_t width, float *x, size_t stride, const float *factor)
{
    for (size_t i = 0; i < rows; i++) {
        float *row = x + i * stride;
        size_t j = 0;
        if (factor[i] == 1.0f) continue;
        for (; j + SIMD_WIDTH <= width; j += SIMD_WIDTH) v_store(row + j, v_load(row + j) * factor[i]);
        for (; j < width; j++) row[j] *= factor[i];
    }
}

/* ---- elementwise and row by row ---- */

/* Loads up to SUM_LANES numbers, zeros behind them. */
INLINE struct lanes lanes_load(const float *p, size_t count)
{
    struct lanes l;
    float whole[SUM_LANES];
    if (count < SUM_LANES) {
        for (size_t i = 0; i < SUM_LANES; i++) whole[i] = i < count ? p[i] : 0.0f;
        p = whole;
    }
    for (int i = 0; i < SUM_VECS; i++) l.v[i] = v_load(p + i * SIMD_WIDTH);
    return l;
}

INLINE void lanes_store(float *p, const struct lanes *l, size_t count)
{
    if (count >= SUM_LANES) {
        for (int i = 0; i < SUM_VECS; i++) v_store(p + i * SIMD_WIDTH, l->v[i]);
        return;
    }
    float whole[SUM_LANES];
    for (int i = 0; i < SUM_VECS; i++) v_store(whole + i * SIMD_WIDTH, l->v[i]);
    for (size_t i = 0; i < count; i++) p[i] = whole[i];
}

static float dot(size_t width, const float *x, const float *y)
{
    struct lanes total = {0};
    for (size_t j = 0; j < width; j += SUM_LANES) {
        struct lanes a = lanes_load(x + j, width - j), b = lanes_load(y + j, width - j);
        for (int l = 0; l < SUM_VECS; l++) total.v[l] = v_fma(a.v[l], b.v[l], total.v[l]);
    }
    return lanes_sum(&total);
}

static void add(size_t count, const float *x, float *y)
{
    size_t j = 0;
    for (; j + SIMD_WIDTH <= count; j += SIMD_WIDTH) v_store(y + j, v_load(y + j) + v_load(x + j));
    for (; j < count; j++) y[j] += x[j];
}

/* erf to 1e-7: an odd polynomial below 0.93, beyond it 1 - 2^-q(|x|) with |x| cut at 4, where erf is 1 in float32. */
INLINE vec v_erf(vec x)
{
    vec t = v_abs(x), s = x * x;
    vec near = v_fma(v_splat(-0.00059538835f), s, v_splat(0.0049859746f));
    near = v_fma(near, s, v_splat(-0.02676175f));
    near = v_fma(near, s, v_splat(0.11281684f));
    near = v_fma(near, s, v_splat(-0.3761248f));
    near = v_fma(near, s, v_splat(1.1283791f)) * x;
    vec u = (vec)(((vec_int)t & (t < 4.0f)) | ((vec_int)v_splat(4.0f) & ~(t < 4.0f)));
    vec q = v_fma(v_splat(1.0433115e-05f), u, v_splat(-0.0003148581f));
    q = v_fma(q, u, v_splat(0.003610342f));
    q = v_fma(q, u, v_splat(-0.023694566f));
    q = v_fma(q, u, v_splat(0.10615905f));
    q = v_fma(q, u, v_splat(0.63519806f));
    q = v_fma(q, u, v_splat(1.1286371f)) * u;
    vec far = 1.0f - v_exp2(q * -1.44269504f);
    far = (vec)((vec_int)far | ((vec_int)x & INT32_MIN));
    return v_select(t < 0.93f, near, far);
}

INLINE vec v_gelu(vec x) { return 0.5f * x * (1.0f + v_erf(x * 0.707106781f)); }

INLINE vec v_gelu_slope(vec x)
{
    vec density = v_exp2(x * x * -0.721347520f) * 0.398942280f; /* exp(-x^2/2) / sqrt(2 pi) */
    return v_fma(x, density, 0.5f * (1.0f + v_erf(x * 0.707106781f)));
}

static void gelu(size_t count, const float *x, float *y)
{
    for (size_t j = 0; j < count; j += SUM_LANES) {
        struct lanes a = lanes_load(x + j, count - j);
        for (int l = 0; l < SUM_VECS; l++) a.v[l] = v_gelu(a.v[l]);
        lanes_store(y + j, &a, count - j);
    }
}

static void gelu_backward(size_t count, const float *x, const float *dy, float *dx, bool add_to)
{
    for (size_t j = 0; j < count; j += SUM_LANES) {
        struct lanes a = lanes_load(x + j, count - j), d = lanes_load(dy + j, count - j), old = {0};
        if (add_to) old = lanes_load(dx + j, count - j);
        for (int l = 0; l < SUM_VECS; l++) a.v[l] = v_fma(v_gelu_slope(a.v[l]), d.v[l], old.v[l]);
        lanes_store(dx + j, &a, count - j);
    }
}

/* 1 / sqrt(mean of squares + epsilon) of one row. */
INLINE float inverse_rms(size_t width, float epsilon, const float *x)
{
    struct lanes total = {0};
    for (size_t j = 0; j < width; j += SUM_LANES) {
        struct lanes a = lanes_load(x + j, width - j);
        for (int l = 0; l < SUM_VECS; l++) total.v[l] = v_fma(a.v[l], a.v[l], total.v[l]);
    }
    return 1.0f / sqrtf(lanes_sum(&total) / (float)width + epsilon);
}

static void rms_norm(size_t rows, size_t width, float epsilon, const float *x, const float *w, float *y)
{
    for (size_t i = 0; i < rows; i++, x += width, y += width) {
        const float r = inverse_rms(width, epsilon, x);
        for (size_t j = 0; j < width; j += SUM_LANES) {
            struct lanes a = lanes_load(x + j, width - j), b = lanes_load(w + j, width - j);
            for (int l = 0; l < SUM_VECS; l++) a.v[l] = a.v[l] * r * b.v[l];
            lanes_store(y + j, &a, width - j);
        }
    }
}

static void rms_norm_backward(size_t rows, size_t width, float epsilon, const float *x, const float *w, const float *dy,
                              float *dx, bool add_to, float *dw)
{
    for (size_t i = 0; i < rows; i++, x += width, dy += width, dx += width) {
        const float r = inverse_rms(width, epsilon, x);
        struct lanes total = {0};
        for (size_t j = 0; j < width; j += SUM_LANES) {
            struct lanes a = lanes_load(x + j, width - j), b = lanes_load(w + j, width - j),
                         d = lanes_load(dy + j, width - j);
            struct lanes g = lanes_load(dw + j, width - j);
            for (int l = 0; l < SUM_VECS; l++) {
                total.v[l] = v_fma(a.v[l] * b.v[l], d.v[l], total.v[l]);
                g.v[l] = v_fma(a.v[l] * r, d.v[l], g.v[l]);
            }
            lanes_store(dw + j, &g, width - j);
        }
        const float back = lanes_sum(&total) / (float)width * r * r * r;
        for (size_t j = 0; j < width; j += SUM_LANES) {
            struct lanes a = lanes_load(x + j, width - j), b = lanes_load(w + j, width - j),
                         d = lanes_load(dy + j, width - j), old = {0};
            if (add_to) old = lanes_load(dx + j, width - j);
            for (int l = 0; l < SUM_VECS; l++) a.v[l] = old.v[l] + (b.v[l] * d.v[l] * r - a.v[l] * back);
            lanes_store(dx + j, &a, width - j);
        }
    }
}

#include "tensor/cpu/kernels_fourier_internal.h"
#include "tensor/cpu/kernels_layer_norm_internal.h"

const struct cpu_kernels KERNELS = {
    .isa = KERNELS_ISA,
    .mr = TILE_ROWS,
    .nr = TILE_COLUMNS,
    .product = product,
    .pack_rows = pack_rows,
    .pack_columns = pack_columns,
    .softmax_block = softmax_block,
    .softmax_slopes = softmax_slopes,
    .scale_rows = scale_rows,
    .dot = dot,
    .add = add,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .rms_norm = rms_norm,
    .rms_norm_backward = rms_norm_backward,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .fourier = fourier,
    .fourier_backward = fourier_backward,
};
