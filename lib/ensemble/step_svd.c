/* Appends the rows' coordinates along the leading right singular vectors of the scaled columns (spec 3.8). The vectors
 * come from LAPACK's symmetric eigensolver on the Gram matrix of the shorter side, refined in extended precision: the
 * fingerprint hashes the last bits of the coordinates, so they must not depend on the processor, the BLAS or the number
 * of threads. */
#define TABFT_ENSEMBLE_ROOM
#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"
#include "ensemble/svd_sketch.h"

enum { SIDE_MAX = 30000, PROJECTED_ROWS = 64 };

size_t svd_count(size_t divisor, size_t n_rows, size_t n_columns)
{
    size_t most = n_rows / 10 + 1, k = n_columns / divisor;
    if (k > most) k = most;
    return k > 0 ? k : 1;
}

/* How a column is made whole and scaled. */
struct scale {
    double fill, divisor;
};
enum { SINGLE_MOST = 100 }; /* in float32, scaled values are cut there */

struct job {
    const struct frame *x;
    bool single;         /* scaled and given out in float32; large tables are decomposed at random */
    uint64_t seed;       /* of that */
    size_t n_columns, k; /* columns decomposed, coordinates appended behind them */
    struct scale *scale; /* [n_columns] */
    double *vectors;     /* [k][n_columns] */
    double *scratch;     /* [threads][scratch_size]: a context column, or PROJECTED_ROWS rows */
    size_t scratch_size;
};

static double cell(const struct job *job, size_t column, size_t row)
{
    double value = job->x->column[column].value[row];
    const struct scale *s = &job->scale[column];
    if (!isfinite(value)) value = s->fill;
    if (!job->single) return value / s->divisor;
    float scaled = (float)value / (float)s->divisor;
    return fminf(fmaxf(scaled, -SINGLE_MOST), SINGLE_MOST);
}

/* What torch does there: the deviation over all rows of the values that are there, and a little more. */
static void fit_column_single(void *context, size_t column, int thread)
{
    (void)thread;
    const struct job *job = context;
    size_t n = job->x->n_context, present = 0;
    const double *value = job->x->column[column].value;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(value[i])) continue;
        sum += value[i];
        present++;
    }
    float mean = (float)(present > 0 ? sum / (double)present : 0);
    for (size_t i = 0; i < n; i++)
        if (isfinite(value[i])) squares += (value[i] - (double)mean) * (value[i] - (double)mean);
    float deviation = (float)sqrt(squares / (double)n);
    job->scale[column] = (struct scale){mean, (deviation > 0 ? deviation : 1.0f) + FLT_EPSILON};
}

/* scikit-learn's mean imputation and StandardScaler without centring, sums in numpy's order. */
static void fit_column(void *context, size_t column, int thread)
{
    const struct job *job = context;
    size_t n = job->x->n_context, present = 0;
    const double *value = job->x->column[column].value;
    double *whole = job->scratch + job->scratch_size * (size_t)thread;
    for (size_t i = 0; i < n; i++) {
        whole[i] = isfinite(value[i]) ? value[i] : 0.0;
        if (isfinite(value[i])) present++;
    }
    double fill = present > 0 ? numbers_sum(whole, n) / (double)present : 0.0;
    for (size_t i = 0; i < n; i++) whole[i] = isfinite(value[i]) ? value[i] : fill;
    double mean = numbers_sum(whole, n) / (double)n;
    for (size_t i = 0; i < n; i++) whole[i] -= mean;
    double drift = numbers_sum(whole, n);
    for (size_t i = 0; i < n; i++) whole[i] *= whole[i];
    double variance = (numbers_sum(whole, n) - drift * drift / (double)n) / (double)n;
    double mean_noise = (double)n * mean * DBL_EPSILON;
    double noise = (double)n * DBL_EPSILON * variance + mean_noise * mean_noise;
    job->scale[column] = (struct scale){fill, variance <= noise ? 1.0 : sqrt(variance)};
}

/* Scaled rows [first, first + count), a column after the other: [n_columns][count]. */
static void gather_columns(const struct job *job, size_t first, size_t count, double *z)
{
    for (size_t j = 0; j < job->n_columns; j++)
        for (size_t i = 0; i < count; i++) z[j * count + i] = cell(job, j, first + i);
}

static size_t block_rows(size_t first, size_t n_rows)
{
    return n_rows - first < SVD_ROWS_PER_BLOCK ? n_rows - first : SVD_ROWS_PER_BLOCK;
}

/* ---- The Gram matrix of m series z[m][length]: gram[i][j] += z_i . z_j for j <= i, in extended precision ---- */
struct gram {
    const double *z;
    size_t m, length;
    long double *sum; /* [m][m] */
};

static void add_products(void *context, size_t i, int thread)
{
    (void)thread;
    const struct gram *g = context;
    const double *x = g->z + i * g->length;
    size_t j = 0;
    for (; j + 4 <= i + 1; j += 4) { /* four sums at once hide the latency of the additions */
        const double *y = g->z + j * g->length;
        long double a = 0, b = 0, c = 0, d = 0;
        for (size_t t = 0; t < g->length; t++) {
            long double value = x[t];
            a += value * y[t];
            b += value * y[t + g->length];
            c += value * y[t + 2 * g->length];
            d += value * y[t + 3 * g->length];
        }
        long double *out = g->sum + i * g->m + j;
        out[0] += a, out[1] += b, out[2] += c, out[3] += d;
    }
    for (; j <= i; j++) {
        long double a = 0;
        for (size_t t = 0; t < g->length; t++) a += (long double)x[t] * g->z[j * g->length + t];
        g->sum[i * g->m + j] += a;
    }
}

static void mirror(struct gram *g)
{
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < i; j++) g->sum[j * g->m + i] = g->sum[i * g->m + j];
}

/* ---- Eigenvectors ---- */

/* One Newton step on vector c: what its residual has along each other vector, over the distance of their eigenvalues.
 * It takes the rounding of the solver to its square, so the vector, rounded once, is the same on every processor. */
static void refine(const struct gram *g, const double *vectors, const double *values, size_t c, long double *out,
                   long double *residual)
{
    size_t m = g->m;
    const double *x = vectors + c * m;
    long double value = 0, squares = 0;
    for (size_t i = 0; i < m; i++) {
        residual[i] = 0;
        for (size_t j = 0; j < m; j++) residual[i] += g->sum[i * m + j] * x[j];
        value += residual[i] * x[i];
        squares += (long double)x[i] * x[i];
    }
    value /= squares;
    for (size_t i = 0; i < m; i++) {
        residual[i] -= value * x[i];
        out[i] = x[i];
    }
    for (size_t other = 0; other < m; other++) {
        const double *y = vectors + other * m;
        long double along = 0, distance = value - values[other];
        if (other == c || fabsl(distance) <= 1e-13L * value) continue; /* equal values: any basis will do */
        for (size_t i = 0; i < m; i++) along += y[i] * residual[i];
        for (size_t i = 0; i < m; i++) out[i] += along / distance * y[i];
    }
}

/* To length 1, the largest entry (the first of equals) positive. */
static void store(const long double *vector, size_t n, double *out)
{
    long double largest = 0, squares = 0;
    for (size_t j = 0; j < n; j++) {
        if (fabsl(vector[j]) > fabsl(largest)) largest = vector[j];
        squares += vector[j] * vector[j];
    }
    long double length = sqrtl(squares) * (largest < 0 ? -1 : 1);
    for (size_t j = 0; j < n; j++) out[j] = squares > 0 ? (double)(vector[j] / length) : 0;
}

struct finding {
    struct job *job;
    struct gram gram;
    bool by_rows;  /* fewer rows than columns: the Gram matrix is that of the rows, all of which z holds */
    size_t sketch; /* random directions of a sketch; 0: none, vectors are those of the whole matrix */
    double *vectors, *values; /* [m][m], ascending; of a sketch [k][m], descending, without values */
    long double *scratch; /* [threads][2 * m + n_columns] */
};

static void find_vector(void *context, size_t c, int thread)
{
    const struct finding *s = context;
    size_t m = s->gram.m, columns = s->job->n_columns;
    long double *vector = s->scratch + (2 * m + columns) * (size_t)thread, *along = vector + 2 * m;
    for (size_t i = 0; s->sketch > 0 && i < m; i++) vector[i] = s->vectors[c * m + i];
    if (s->sketch == 0) refine(&s->gram, s->vectors, s->values, m - 1 - c, vector, vector + m);
    if (!s->by_rows) {
        store(vector, m, s->job->vectors + c * columns);
        return;
    }
    for (size_t j = 0; j < columns; j++) {
        along[j] = 0;
        for (size_t i = 0; i < m; i++) along[j] += vector[i] * s->gram.z[i * columns + j];
    }
    store(along, columns, s->job->vectors + c * columns);
}

/* The products of all columns, a block of rows after the other, or those of all rows at once. */
static void fill_gram(struct finding *s, double *z, struct threads *pool)
{
    struct job *job = s->job;
    size_t n = job->x->n_context;
    s->gram.z = z;
    s->gram.length = job->n_columns;
    if (s->by_rows) {
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < job->n_columns; j++) z[i * job->n_columns + j] = cell(job, j, i);
        threads_run(pool, s->gram.m, add_products, &s->gram);
    }
    for (size_t first = 0; first < n && !s->by_rows; first += SVD_ROWS_PER_BLOCK) {
        s->gram.length = block_rows(first, n);
        gather_columns(job, first, s->gram.length, z);
        threads_run(pool, s->gram.m, add_products, &s->gram);
    }
    mirror(&s->gram);
}

/* Fills job->vectors, largest singular value first. */
static int find_vectors(struct job *job, struct threads *pool, struct tabft_failure *f)
{
    size_t n = job->x->n_context, columns = job->n_columns, m = n < columns ? n : columns;
    struct finding s = {.job = job, .gram = {.m = m}, .by_rows = n < columns};
    if (job->single) s.sketch = svd_sketch_size(n, columns, job->k);
    size_t n_scratch = (2 * m + columns) * (size_t)threads_count(pool);
    double *z = NULL;
    int error;
    TRY(memory_new(&z, s.by_rows ? n : SVD_ROWS_PER_BLOCK, columns * sizeof *z, "the rows of an SVD", f));
    TRY(memory_new(&s.gram.sum, m * m, sizeof *s.gram.sum, "the Gram matrix of an SVD", f));
    TRY(memory_new(&s.vectors, m * m, sizeof *s.vectors, "singular vectors", f));
    TRY(memory_new(&s.values, m, sizeof *s.values, "singular values", f));
    TRY(memory_new(&s.scratch, n_scratch, sizeof *s.scratch, "singular vectors", f));
    fill_gram(&s, z, pool);
    if (s.sketch > 0) {
        TRY(svd_sketch(s.gram.sum, m, s.sketch, job->k, s.by_rows, job->seed, pool, s.vectors, f));
    } else {
        for (size_t i = 0; i < m * m; i++) s.vectors[i] = (double)s.gram.sum[i];
        TRY(svd_eigen(s.vectors, m, s.values, f));
    }
    threads_run(pool, job->k, find_vector, &s);
fail:
    free(s.scratch);
    free(s.values);
    free(s.vectors);
    free(s.gram.sum);
    free(z);
    return error;
}

/* Plain loops rather than BLAS: a row's coordinates must not depend on where in its block it stands. Eight rows at a
 * time stay in registers while the columns pass. */
static void project_block(void *context, size_t block, int thread)
{
    enum { AT_ONCE = 8 };
    const struct job *job = context;
    size_t first = block * PROJECTED_ROWS, left = job->x->n_rows - first;
    size_t count = left < PROJECTED_ROWS ? left : PROJECTED_ROWS;
    double *scaled = job->scratch + job->scratch_size * (size_t)thread;
    for (size_t j = 0; j < job->n_columns; j++)
        for (size_t i = 0; i < PROJECTED_ROWS; i++)
            scaled[j * PROJECTED_ROWS + i] = i < count ? cell(job, j, first + i) : 0;
    for (size_t c = 0; c < job->k; c++) {
        const double *weight = job->vectors + c * job->n_columns;
        double out[PROJECTED_ROWS];
        for (size_t i = 0; i < PROJECTED_ROWS; i += AT_ONCE) {
            double sum[AT_ONCE] = {0};
            for (size_t j = 0; j < job->n_columns; j++)
                for (size_t r = 0; r < AT_ONCE; r++) sum[r] += scaled[j * PROJECTED_ROWS + i + r] * weight[j];
            memcpy(out + i, sum, sizeof sum);
        }
        for (size_t i = 0; job->single && i < count; i++) out[i] = (float)out[i];
        memcpy(job->x->column[job->n_columns + c].value + first, out, count * sizeof *out);
    }
}

/* OpenBLAS starts its threads before main, each with a buffer of its own, and loops without end where memory for them is
 * short. Ours are all there are: so it is told before it looks, which in a static program is before its own constructor. */
__attribute__((constructor(101))) static void keep_openblas_single(void)
{
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

int step_svd(struct frame *x, const struct preprocessor *p, bool single, uint64_t seed, struct threads *pool,
             struct tabft_failure *f)
{
    size_t columns = x->n_columns, n = x->n_context, scratch_total;
    if (p->svd_divisor == 0 || columns < 2) return 0;
    struct job job = {.x = x,
                      .single = single,
                      .seed = seed,
                      .n_columns = columns,
                      .k = svd_count(p->svd_divisor, n, columns)};
    int error;
    if (columns > SIDE_MAX)
        FAIL(f, TABFT_INPUT, "estimators: an SVD of %zu columns; at most %d are possible: leave some out", columns,
             SIDE_MAX);
    job.scratch_size = n > PROJECTED_ROWS * columns ? n : PROJECTED_ROWS * columns;
    if (!size_mul(job.scratch_size, (size_t)threads_count(pool), &scratch_total)) scratch_total = SIZE_MAX;
    TRY(memory_new(&job.scale, columns, sizeof *job.scale, "scales of columns", f));
    TRY(memory_new(&job.vectors, job.k * columns, sizeof *job.vectors, "singular vectors", f));
    TRY(memory_new(&job.scratch, scratch_total, sizeof *job.scratch, "blocks of an SVD", f));
    openblas_set_num_threads(1); /* the work is cut by our own threads, the library must not */
    threads_run(pool, columns, single ? fit_column_single : fit_column, &job);
    TRY(find_vectors(&job, pool, f));
    for (size_t c = 0; c < job.k; c++) TRY(frame_append(x, false, f));
    threads_run(pool, (x->n_rows + PROJECTED_ROWS - 1) / PROJECTED_ROWS, project_block, &job);
fail:
    free(job.scratch);
    free(job.vectors);
    free(job.scale);
    return error;
}
