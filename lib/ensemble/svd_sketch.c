#define TABFT_ENSEMBLE_ROOM
#include "ensemble/svd_sketch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"

enum { SPARE = 10, CELLS_LEAST = 1000000, POWERS = 2 };

/* LAPACK, from OpenBLAS: eigenvalues ascending in w, eigenvectors in the columns of a. */
void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
            const int *lwork, int *info, size_t jobz_length, size_t uplo_length);

int svd_eigen(double *a, size_t n, double *values, struct tabft_failure *f)
{
    double *work = NULL, best_work = 0;
    int side = (int)n, n_work = -1, info = 0, error;
    dsyev_("V", "L", &side, a, &side, values, &best_work, &n_work, &info, 1, 1);
    n_work = (int)best_work;
    TRY(memory_new(&work, (size_t)n_work, sizeof *work, "singular vectors", f));
    dsyev_("V", "L", &side, a, &side, values, work, &n_work, &info, 1, 1);
    if (info != 0)
        FAIL(f, TABFT_INPUT, "estimators: an SVD of %zu columns did not converge; leave odd columns out", n);
fail:
    free(work);
    return error;
}

size_t svd_sketch_size(size_t n, size_t m, size_t k)
{
    const size_t size = k + SPARE, shorter = n < m ? n : m;
    return (double)n * (double)m > CELLS_LEAST && shorter >= 2 * size ? size : 0;
}

/* Directions w[size][m] of the shorter side, and what the Gram matrix g[m][m] makes of them. */
struct sketch {
    size_t m, size;
    double *g, *w, *image; /* image[size][m] */
    double *inner;         /* [size][size] */
};

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void multiply(void *context, size_t c, int thread)
{
    (void)thread;
    const struct sketch *s = context;
    double *out = s->image + c * s->m;
    memset(out, 0, s->m * sizeof *out);
    for (size_t j = 0; j < s->m; j++) {
        const double weight = s->w[c * s->m + j], *row = s->g + j * s->m;
        for (size_t i = 0; i < s->m; i++) out[i] += weight * row[i];
    }
}

/* Makes w orthonormal (twice, for what rounding leaves), without directions that the others span. */
static void orthonormalise(struct sketch *s)
{
    const size_t m = s->m;
    size_t kept = 0;
    for (size_t c = 0; c < s->size; c++) {
        double *x = s->w + kept * m, before = sqrt(dot(s->w + c * m, s->w + c * m, m));
        memmove(x, s->w + c * m, m * sizeof *x);
        for (int again = 0; again < 2; again++)
            for (size_t k = 0; k < kept; k++) {
                const double *y = s->w + k * m, along = dot(x, y, m);
                for (size_t i = 0; i < m; i++) x[i] -= along * y[i];
            }
        double length = sqrt(dot(x, x, m));
        if (!(length > 1e-11 * before)) continue;
        for (size_t i = 0; i < m; i++) x[i] /= length;
        kept++;
    }
    s->size = kept;
}

/* inner := w image^T, then its lower triangle L with inner = L L^T. */
static void factor(struct sketch *s)
{
    const size_t n = s->size;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            double sum = dot(s->w + i * s->m, s->image + j * s->m, s->m);
            for (size_t k = 0; k < j; k++) sum -= s->inner[i * n + k] * s->inner[j * n + k];
            s->inner[i * n + j] = i == j ? sqrt(fmax(sum, 0)) : s->inner[j * n + j] > 0 ? sum / s->inner[j * n + j] : 0;
        }
}

/* rows[size][m] := L^-1 rows. */
static void solve_rows(const struct sketch *s, double *rows)
{
    for (size_t i = 0; i < s->size; i++) {
        double *x = rows + i * s->m, pivot = s->inner[i * s->size + i];
        for (size_t k = 0; k < i; k++) {
            const double *y = rows + k * s->m, weight = s->inner[i * s->size + k];
            for (size_t t = 0; t < s->m; t++) x[t] -= weight * y[t];
        }
        for (size_t t = 0; t < s->m; t++) x[t] = pivot > 0 ? x[t] / pivot : 0;
    }
}

static void draw(struct sketch *s, uint64_t seed, float *normal)
{
    struct random_mt g;
    random_mt_seed(&g, (uint32_t)seed);
    random_mt_torch_normals(&g, s->m * s->size, normal);
    for (size_t i = 0; i < s->m; i++)
        for (size_t c = 0; c < s->size; c++) s->w[c * s->m + i] = (double)normal[i * s->size + c];
}

/* The projection of the table on the directions is L^-1 image, whose singular vectors on the table's side are wanted:
 * those of the columns are its right ones, those of rows go back through w. */
static int read_off(struct sketch *s, size_t k, bool by_rows, double *vectors, struct tabft_failure *f)
{
    const size_t n = s->size, m = s->m;
    double *products = NULL, *values = NULL, *from = by_rows ? s->w : s->image;
    int error;
    TRY(memory_new(&products, n * n, sizeof *products, "singular vectors", f));
    TRY(memory_new(&values, n, sizeof *values, "singular values", f));
    solve_rows(s, s->image);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) products[i * n + j] = dot(s->image + i * m, s->image + j * m, m);
    TRY(svd_eigen(products, n, values, f));
    if (by_rows) solve_rows(s, s->w);
    memset(vectors, 0, k * m * sizeof *vectors);
    for (size_t c = 0; c < k && c < n; c++)
        for (size_t i = 0; i < n; i++)
            for (size_t t = 0; t < m; t++) vectors[c * m + t] += products[(n - 1 - c) * n + i] * from[i * m + t];
fail:
    free(values);
    free(products);
    return error;
}

int svd_sketch(const long double *sum, size_t m, size_t size, size_t k, bool by_rows, uint64_t seed,
               struct threads *pool, double *vectors, struct tabft_failure *f)
{
    struct sketch s = {.m = m, .size = size};
    float *normal = NULL;
    int error;
    TRY(memory_new(&s.g, m * m, sizeof *s.g, "the Gram matrix of an SVD", f));
    TRY(memory_new(&s.w, size * m, sizeof *s.w, "random directions", f));
    TRY(memory_new(&s.image, size * m, sizeof *s.image, "random directions", f));
    TRY(memory_new(&s.inner, size * size, sizeof *s.inner, "random directions", f));
    TRY(memory_new(&normal, size * m, sizeof *normal, "random directions", f));
    for (size_t i = 0; i < m * m; i++) s.g[i] = (double)sum[i];
    draw(&s, seed, normal);
    for (int power = 0; power < POWERS; power++) {
        threads_run(pool, s.size, multiply, &s);
        memcpy(s.w, s.image, s.size * m * sizeof *s.w);
        orthonormalise(&s);
    }
    threads_run(pool, s.size, multiply, &s);
    factor(&s);
    TRY(read_off(&s, k, by_rows, vectors, f));
fail:
    free(normal);
    free(s.inner);
    free(s.image);
    free(s.w);
    free(s.g);
    return error;
}
