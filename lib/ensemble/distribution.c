/* From the logits of all estimators to one distribution over the buckets of z, and what to read off it. */
#define TABFT_ENSEMBLE_ROOM
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ensemble/ensemble_internal.h"
#include "ensemble/regression.h"

/* Half of a normal distribution of scale 1 lies within this distance of its middle. */
static const double half_width = 0.6744897501960817;

/* The share of a half-normal tail that lies further out than `distance`; half of it lies within `width`. */
static double beyond(double distance, double width)
{
    double scale = fmax(width, DBL_MIN) / half_width;
    return erfc(distance / (scale * sqrt(2.0)));
}

/* One source bucket's share of a target bucket. */
struct piece {
    size_t from, to;
    double share;
};

/* How buckets between borders a[n] spread over those between b[n]. */
struct translation {
    size_t n_pieces;
    struct piece *piece;
    double *low_tail, *high_tail; /* [n - 1]: shares of the first and the last source bucket */
};

static void translation_close(struct translation *t)
{
    free(t->piece);
    free(t->low_tail);
    free(t->high_tail);
}

/* The last bucket of b[n] whose lower border is below x (at or below x where `at`), within the grid. */
static size_t bucket_of(const double *b, size_t n, double x, bool at)
{
    size_t low = 0, high = n - 1; /* low: a bucket that may hold x */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (b[middle] < x || (at && b[middle] == x)) low = middle;
        else high = middle;
    }
    return low;
}

/* Inner source buckets overlap the target's from their lower to their upper border; one without width is a point. */
static void spread_inner(const double *a, const double *b, size_t n, struct translation *t)
{
    for (size_t k = 1; k + 2 < n; k++) {
        double low = a[k], high = a[k + 1];
        if (low == high) {
            t->piece[t->n_pieces++] = (struct piece){k, bucket_of(b, n, low, true), 1};
            continue;
        }
        size_t to = bucket_of(b, n, low, true);
        while (low < high) {
            double end = to + 2 < n && b[to + 1] < high ? b[to + 1] : high;
            if (end > low) t->piece[t->n_pieces++] = (struct piece){k, to, (end - low) / (high - a[k])};
            low = fmax(low, end);
            to++;
        }
    }
}

static void spread_tails(const double *a, const double *b, size_t n, struct translation *t)
{
    for (size_t j = 0; j + 1 < n; j++) {
        double low = j == 0 ? -INFINITY : b[j], high = j + 2 == n ? INFINITY : b[j + 1];
        double inner_low = a[1], inner_high = a[n - 2], low_width = a[1] - a[0], high_width = a[n - 1] - a[n - 2];
        t->low_tail[j] = fmax(0, beyond(inner_low - fmin(high, inner_low), low_width) -
                                     beyond(inner_low - fmin(low, inner_low), low_width));
        t->high_tail[j] = fmax(0, beyond(fmax(low, inner_high) - inner_high, high_width) -
                                      beyond(fmax(high, inner_high) - inner_high, high_width));
    }
}

static int translation_open(struct translation *t, const double *a, const double *b, size_t n, struct tabft_failure *f)
{
    int error;
    *t = (struct translation){0};
    TRY(memory_new(&t->piece, 2 * n, sizeof *t->piece, "overlaps of buckets", f)); /* a cut at each border of both */
    TRY(memory_new(&t->low_tail, n, sizeof *t->low_tail, "overlaps of buckets", f));
    TRY(memory_new(&t->high_tail, n, sizeof *t->high_tail, "overlaps of buckets", f));
    spread_inner(a, b, n, t);
    spread_tails(a, b, n, t);
fail:
    return error;
}

/* Softmax of the logits that are not masked, over temperature. False where one is not a number or all are masked. */
static bool soften(const float *logit, const bool *is_masked, size_t n, double temperature, double *p)
{
    for (size_t k = 0; k < n; k++) {
        if (!isfinite(logit[k])) return false;
        p[k] = is_masked[k] ? -INFINITY : (double)logit[k] / temperature;
    }
    return numbers_softmax(p, n);
}

static void translate(const struct translation *t, const double *p, size_t n, double *out)
{
    for (size_t j = 0; j < n; j++) out[j] = p[0] * t->low_tail[j] + p[n - 1] * t->high_tail[j];
    for (size_t i = 0; i < t->n_pieces; i++) out[t->piece[i].to] += t->piece[i].share * p[t->piece[i].from];
}

/* What one estimator's logits are read with. */
struct reading {
    const struct ensemble *e;
    size_t estimator, n; /* buckets */
    double *own, *p, *translated;
    bool *is_masked, moves;
    struct translation translation;
};

static void reading_close(struct reading *r)
{
    translation_close(&r->translation);
    free(r->is_masked);
    free(r->translated);
    free(r->p);
    free(r->own);
}

static int reading_open(struct reading *r, const struct ensemble *e, size_t estimator, const double *borders,
                        size_t n_borders, struct tabft_failure *f)
{
    int error;
    *r = (struct reading){.e = e, .estimator = estimator, .n = n_borders - 1};
    if (n_borders < 4) FAIL(f, TABFT_INPUT, "the network has %zu target buckets; at least 3 are needed", r->n);
    TRY(memory_new(&r->own, n_borders, sizeof *r->own, "borders of buckets", f));
    TRY(memory_new(&r->p, r->n, sizeof *r->p, "probabilities", f));
    TRY(memory_new(&r->translated, r->n, sizeof *r->translated, "probabilities", f));
    TRY(memory_new(&r->is_masked, r->n, sizeof *r->is_masked, "borders of buckets", f));
    r->moves = ensemble_borders(e, estimator, borders, n_borders, r->own, r->is_masked);
    if (r->moves) TRY(translation_open(&r->translation, r->own, borders, n_borders, f));
    return 0;
fail:
    reading_close(r);
    *r = (struct reading){0};
    return error;
}

/* *p: the distribution of query row q, [n] of r's memory. */
static int read_row(const struct reading *r, const float *logits, size_t q, const double **p, struct tabft_failure *f)
{
    if (!soften(logits + q * r->n, r->is_masked, r->n, ensemble_temperature(r->e), r->p))
        return tabft_fail(f, TABFT_INPUT,
                          "query row %zu: estimator %zu gives a logit that is not a number; the checkpoint or the row "
                          "is not sound",
                          q + 1, r->estimator + 1);
    if (r->moves) translate(&r->translation, r->p, r->n, r->translated);
    *p = r->moves ? r->translated : r->p;
    return 0;
}

int ensemble_add_distribution(const struct ensemble *e, size_t estimator, const float *logits, size_t n_query,
                              const double *borders, size_t n_borders, double *probability, struct tabft_failure *f)
{
    struct reading r = {0};
    const double *p;
    int error;
    TRY(reading_open(&r, e, estimator, borders, n_borders, f));
    for (size_t q = 0; q < n_query; q++) {
        TRY(read_row(&r, logits, q, &p, f));
        for (size_t k = 0; k < r.n; k++) probability[q * r.n + k] += e->average_before_softmax ? log(p[k]) : p[k];
    }
fail:
    reading_close(&r);
    return error;
}

int ensemble_end_distribution(const struct ensemble *e, size_t n_query, size_t n_borders, double *probability,
                              struct tabft_failure *f)
{
    size_t n = n_borders - 1;
    for (size_t i = 0; i < n_query * n; i++) probability[i] /= (double)ensemble_count(e);
    for (size_t q = 0; e->average_before_softmax && q < n_query; q++)
        if (!numbers_softmax(probability + q * n, n))
            return tabft_fail(f, TABFT_INPUT,
                              "query row %zu: no target is possible to all estimators; average after the softmax",
                              q + 1);
    return 0;
}

int ensemble_distribution(const struct ensemble *e, const float *logits, size_t n_query, const double *borders,
                          size_t n_borders, double *probability, struct tabft_failure *f)
{
    size_t n = n_query * (n_borders - 1);
    int error;
    for (size_t i = 0; i < n; i++) probability[i] = 0;
    for (size_t i = 0; i < ensemble_count(e); i++)
        TRY(ensemble_add_distribution(e, i, logits + i * n, n_query, borders, n_borders, probability, f));
    TRY(ensemble_end_distribution(e, n_query, n_borders, probability, f));
fail:
    return error;
}

int ensemble_add_means(const struct ensemble *e, size_t estimator, const float *logits, size_t n_query,
                       const double *borders, size_t n_borders, double *mean, struct tabft_failure *f)
{
    const struct ensemble_targets scale = ensemble_targets(e);
    struct reading r = {0};
    const double *p;
    int error;
    if (e->average_before_softmax) FAIL(f, TABFT_USE, "means of estimators are averaged after the softmax only");
    TRY(reading_open(&r, e, estimator, borders, n_borders, f));
    for (size_t q = 0; q < n_query; q++) {
        TRY(read_row(&r, logits, q, &p, f));
        mean[q] += ensemble_mean(scale, borders, n_borders, p);
    }
fail:
    reading_close(&r);
    return error;
}

double ensemble_mean(struct ensemble_targets t, const double *borders, size_t n_borders, const double *probability)
{
    const double centre = sqrt(2 / 3.14159265358979323846) / half_width; /* mean of a half-normal with half within 1 */
    size_t last = n_borders - 2;
    double sum = 0, total = 0;
    for (size_t k = 0; k <= last; k++) {
        double width = borders[k + 1] - borders[k];
        double at = k == 0      ? borders[1] - width * centre
                    : k == last ? borders[last] + width * centre
                                : borders[k] + width / 2;
        sum += probability[k] * at;
        total += probability[k];
    }
    return sum / total * t.std + t.mean;
}

/* x with erf(x) = p in [0, 1): bisection, then Newton. */
static double inverse_erf(double p)
{
    double low = 0, high = 6;
    for (int i = 0; i < 40; i++) {
        double middle = (low + high) / 2;
        *(erf(middle) < p ? &low : &high) = middle;
    }
    double x = (low + high) / 2, slope = 2 / sqrt(3.14159265358979323846) * exp(-x * x);
    return slope > 1e-10 ? x - (erf(x) - p) / slope : x;
}

double ensemble_quantile(struct ensemble_targets t, const double *borders, size_t n_borders, const double *probability,
                         double q)
{
    size_t last = n_borders - 2, k = 0;
    double total = 0, before = 0;
    if (q <= 0) return -INFINITY;
    if (q >= 1) return INFINITY;
    for (size_t i = 0; i <= last; i++) total += probability[i];
    while (k < last && before + probability[k] / total < q) before += probability[k++] / total;
    double inside = fmin(fmax((q - before) / (probability[k] / total), 0), 1), width = borders[k + 1] - borders[k], z;
    if (k == 0) z = borders[1] - width / half_width * sqrt(2.0) * inverse_erf(1 - inside);
    else if (k == last) z = borders[last] + width / half_width * sqrt(2.0) * inverse_erf(inside);
    else z = borders[k] + width * inside;
    return z * t.std + t.mean;
}
