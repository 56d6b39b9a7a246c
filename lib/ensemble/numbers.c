/* Sorting, quantiles and sums whose bits equal numpy's. */
#define TABFT_ENSEMBLE_ROOM
#include <math.h>
#include <string.h>

#include "ensemble/ensemble_internal.h"

enum { DIGIT_BITS = 11, DIGITS = 6, BUCKETS = 1 << DIGIT_BITS, SMALL = 64 };

/* Bits whose unsigned order is the order of the doubles. */
static uint64_t to_key(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static double from_key(uint64_t key)
{
    uint64_t bits = key >> 63 ? key & ~(UINT64_C(1) << 63) : ~key;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void sort_small(double *value, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        double held = value[i];
        size_t j = i;
        for (; j > 0 && to_key(value[j - 1]) > to_key(held); j--) value[j] = value[j - 1];
        value[j] = held;
    }
}

void numbers_sort(double *value, size_t n, double *scratch)
{
    if (n <= SMALL) {
        sort_small(value, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t key = to_key(value[i]);
        memcpy(&value[i], &key, sizeof key);
    }
    double *from = value, *to = scratch;
    for (int digit = 0; digit < DIGITS; digit++) {
        size_t start[BUCKETS] = {0};
        int shift = digit * DIGIT_BITS;
        for (size_t i = 0; i < n; i++) {
            uint64_t key;
            memcpy(&key, &from[i], sizeof key);
            start[key >> shift & (BUCKETS - 1)]++;
        }
        size_t total = 0;
        for (size_t b = 0; b < BUCKETS; b++) {
            size_t count = start[b];
            start[b] = total;
            total += count;
        }
        for (size_t i = 0; i < n; i++) {
            uint64_t key;
            memcpy(&key, &from[i], sizeof key);
            memcpy(&to[start[key >> shift & (BUCKETS - 1)]++], &key, sizeof key);
        }
        double *held = from;
        from = to;
        to = held;
    }
    for (size_t i = 0; i < n; i++) { /* an even number of passes: the keys are back in value */
        uint64_t key;
        memcpy(&key, &value[i], sizeof key);
        value[i] = from_key(key);
    }
}

/* Where zeros of both signs meet, all become positive: numpy leaves their order open, and a median of -0 would turn -0
 * into 0. */
static void settle_zeros(double *sorted, size_t n)
{
    size_t first = 0, last = n;
    while (first < last) { /* the first that is not below zero */
        size_t middle = first + (last - first) / 2;
        if (sorted[middle] < 0) first = middle + 1;
        else last = middle;
    }
    size_t end = first;
    while (end < n && sorted[end] == 0) end++;
    for (size_t i = first; end > first && !signbit(sorted[end - 1]) && i < end; i++) sorted[i] = 0;
}

size_t numbers_sorted(const double *value, size_t n, double *out, double *scratch)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(value[i])) out[m++] = value[i];
    numbers_sort(out, m, scratch);
    settle_zeros(out, m);
    return m;
}

double numbers_quantile(const double *sorted, size_t m, double q)
{
    double at = q * (double)(m - 1);
    if (at >= (double)(m - 1)) return sorted[m - 1];
    if (at < 0) return sorted[0];
    size_t below = (size_t)at;
    double part = at - floor(at), low = sorted[below], high = sorted[below + 1], width = high - low;
    return part >= 0.5 ? high - width * (1 - part) : low + width * part;
}

float numbers_quantile_single(const double *sorted, size_t m, double q)
{
    double at = q * (double)(m - 1), below = floor(at);
    float part = (float)(at - below), low = (float)sorted[(size_t)below], high = (float)sorted[(size_t)ceil(at)];
    return part < 0.5f ? fmaf(part, high - low, low) : fmaf(part - 1.0f, high - low, high);
}

/* numpy adds up to 128 values in eight interleaved sums and halves what is longer. */
double numbers_sum(const double *value, size_t n)
{
    enum { BLOCK = 128 };
    if (n < 8) {
        double sum = -0.0;
        for (size_t i = 0; i < n; i++) sum += value[i];
        return sum;
    }
    if (n <= BLOCK) {
        double r[8];
        memcpy(r, value, sizeof r);
        size_t i = 8;
        for (; i + 8 <= n; i += 8)
            for (size_t j = 0; j < 8; j++) r[j] += value[i + j];
        double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
        for (; i < n; i++) sum += value[i];
        return sum;
    }
    size_t half = n / 2;
    half -= half % 8;
    return numbers_sum(value, half) + numbers_sum(value + half, n - half);
}

bool numbers_softmax(double *value, size_t n)
{
    double most = -INFINITY, total = 0;
    for (size_t k = 0; k < n; k++)
        if (value[k] > most) most = value[k];
    for (size_t k = 0; k < n; k++) total += value[k] = exp(value[k] - most);
    for (size_t k = 0; k < n; k++) value[k] /= total;
    return isfinite(most) && isfinite(total);
}
