#define TABFT_ENSEMBLE_ROOM
#include "ensemble/power.h"

#include <float.h>
#include <math.h>

#include "ensemble/ensemble_internal.h"

static double transform(double x, double lambda)
{
    if (x >= 0) return fabs(lambda) < DBL_EPSILON ? log1p(x) : expm1(lambda * log1p(x)) / lambda;
    if (isnan(x)) return x;
    return fabs(lambda - 2) > DBL_EPSILON ? -expm1((2 - lambda) * log1p(-x)) / (2 - lambda) : -log1p(-x);
}

static double invert(double y, double lambda)
{
    const double log_most = log(DBL_MAX), most = log_most - 4 * (nextafter(log_most, INFINITY) - log_most);
    double argument;
    if (y >= 0)
        argument = fabs(lambda) < DBL_EPSILON ? y : log1p(y * lambda) / lambda;
    else
        argument = fabs(lambda - 2) > DBL_EPSILON ? log1p(-(2 - lambda) * y) / (2 - lambda) : -y;
    if (isnan(argument)) return argument;
    argument = fmin(fmax(argument, -most), most);
    return y >= 0 ? expm1(argument) : -expm1(argument);
}

/* ---- The likelihood and its maximum ---- */
struct sample {
    const double *x; /* [n], no gaps */
    size_t n;
    double logs; /* sum of sign(x) log1p(|x|) */
    double *scratch;
};

static double population_variance(double *value, size_t n)
{
    double mean = numbers_sum(value, n) / (double)n;
    for (size_t i = 0; i < n; i++) {
        value[i] -= mean;
        value[i] *= value[i];
    }
    return numbers_sum(value, n) / (double)n;
}

/* Negative log likelihood; infinite where the transformed values hardly vary. */
static double cost(const struct sample *s, double lambda)
{
    for (size_t i = 0; i < s->n; i++) s->scratch[i] = transform(s->x[i], lambda);
    double variance = population_variance(s->scratch, s->n);
    if (variance < DBL_MIN) return INFINITY;
    double likelihood = -(double)s->n / 2 * log(variance) + (lambda - 1) * s->logs;
    return isinf(likelihood) ? INFINITY : -likelihood;
}

static double sign_or_one(double x) { return x < 0 ? -1.0 : 1.0; }

/* The point where the state of the search would look next: at the parabola's minimum through the three best points
 * where that is sound, otherwise at the golden section of the larger side (Brent 1973, chapter 5, in scipy's
 * arrangement). */
struct search {
    double a, b;                /* the interval */
    double best, second, third; /* points */
    double f_best, f_second, f_third;
    double step, last_step;
};

static double next_step(struct search *s, double middle, double tolerance)
{
    const double golden = 0.5 * (3.0 - sqrt(5.0));
    if (fabs(s->last_step) > tolerance) {
        double r = (s->best - s->second) * (s->f_best - s->f_third),
               q = (s->best - s->third) * (s->f_best - s->f_second);
        double p = (s->best - s->third) * q - (s->best - s->second) * r;
        q = 2.0 * (q - r);
        if (q > 0) p = -p;
        q = fabs(q);
        r = s->last_step;
        s->last_step = s->step;
        if (fabs(p) < fabs(0.5 * q * r) && p > q * (s->a - s->best) && p < q * (s->b - s->best)) {
            double step = p / q, x = s->best + step;
            return x - s->a < 2 * tolerance || s->b - x < 2 * tolerance ? tolerance * sign_or_one(middle - s->best)
                                                                        : step;
        }
    }
    s->last_step = s->best >= middle ? s->a - s->best : s->b - s->best;
    return golden * s->last_step;
}

static void note(struct search *s, double x, double fx)
{
    if (fx <= s->f_best) {
        *(x >= s->best ? &s->a : &s->b) = s->best;
        s->third = s->second, s->f_third = s->f_second;
        s->second = s->best, s->f_second = s->f_best;
        s->best = x, s->f_best = fx;
        return;
    }
    *(x < s->best ? &s->a : &s->b) = x;
    if (fx <= s->f_second || s->second == s->best) {
        s->third = s->second, s->f_third = s->f_second;
        s->second = x, s->f_second = fx;
    } else if (fx <= s->f_third || s->third == s->best || s->third == s->second) {
        s->third = x, s->f_third = fx;
    }
}

static double minimise(const struct sample *sample, double low, double high)
{
    const double relative = sqrt(2.2e-16), absolute = 1.48e-8;
    enum { CALLS_MAX = 500 };
    struct search s = {.a = low, .b = high};
    s.best = s.second = s.third = low + 0.5 * (3.0 - sqrt(5.0)) * (high - low);
    s.f_best = s.f_second = s.f_third = cost(sample, s.best);
    for (int calls = 1; calls < CALLS_MAX; calls++) {
        double middle = 0.5 * (s.a + s.b), tolerance = relative * fabs(s.best) + absolute / 3.0;
        if (fabs(s.best - middle) <= 2 * tolerance - 0.5 * (s.b - s.a)) break;
        s.step = next_step(&s, middle, tolerance);
        double x = s.best + sign_or_one(s.step) * fmax(fabs(s.step), tolerance);
        note(&s, x, cost(sample, x));
    }
    return s.best;
}

static double find_lambda(const double *x, size_t n, double *scratch)
{
    struct sample s = {.x = x, .n = n, .scratch = scratch};
    double largest = 0;
    bool all_negative = true, some_negative = false;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(x[i]));
        all_negative = all_negative && x[i] < 0;
        some_negative = some_negative || x[i] < 0;
        scratch[i] = copysign(log1p(fabs(x[i])), x[i]);
    }
    if (largest == 0) return 1.0;
    s.logs = numbers_sum(scratch, n);
    /* Half of the exponents' range, so that variances of transformed values can be computed. */
    double reach = log1p(20 * largest);
    double low = (log(DBL_MIN) - log(DBL_EPSILON)) / 2 / reach, high = (log(DBL_MAX) + log(DBL_EPSILON)) / 2 / reach;
    if (all_negative) return minimise(&s, 2 - high, 2 - low);
    if (some_negative) return minimise(&s, fmax(2 - high, low), fmin(2 - low, high));
    return minimise(&s, low, high);
}

/* ---- The transform ---- */

/* Mean of the finite ones; the others are set to it. 0 where none is finite. */
static double fill_gaps(double *value, size_t n)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(value[i])) {
            sum += value[i];
            count += 1;
        }
    double mean = count > 0 ? sum / count : 0;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(value[i])) value[i] = mean;
    return mean;
}

/* What scikit-learn takes for constant: a variance that rounding alone explains. */
static bool is_constant(double variance, double mean, size_t n)
{
    double noise = (double)n * mean * DBL_EPSILON;
    return variance <= (double)n * DBL_EPSILON * variance + noise * noise;
}

void power_fit(struct power *p, const double *value, size_t n, double *scratch)
{
    double *present = scratch, *work = scratch + n;
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(value[i])) present[m++] = value[i];
    for (size_t i = 0; i < m; i++) work[i] = present[i];
    double mean = numbers_sum(work, m) / (double)m;
    bool constant = m == n && is_constant(population_variance(work, m), mean, m);
    p->lambda = constant ? 1.0 : find_lambda(present, m, work);
    for (size_t i = 0; i < n; i++) work[i] = transform(value[i], p->lambda);
    p->fill = fill_gaps(work, n);
    p->mean = numbers_sum(work, n) / (double)n;
    for (size_t i = 0; i < n; i++) present[i] = work[i];
    double variance = population_variance(present, n);
    p->scale = is_constant(variance, p->mean, n) ? 1.0 : sqrt(variance);
    for (size_t i = 0; i < n; i++) work[i] = (work[i] - p->mean) / p->scale;
    p->last_fill = fill_gaps(work, n);
}

double power_apply(const struct power *p, double x)
{
    double y = transform(x, p->lambda);
    y = ((isfinite(y) ? y : p->fill) - p->mean) / p->scale;
    return isfinite(y) ? y : p->last_fill;
}

double power_inverse(const struct power *p, double y) { return invert(y * p->scale + p->mean, p->lambda); }
