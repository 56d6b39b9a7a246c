#include "table/page.h"

#include <math.h>

static const uint64_t missing_bits = UINT64_C(0x7ff8000000000000); /* the one NaN that is stored */

size_t page_size(enum page_storage storage, size_t n, bool bitmap)
{
    return n * storage_size(storage) + (bitmap ? (n + 63) / 64 * 8 : 0);
}

static void count_reals(const struct cells *cells, size_t n, struct column_statistics *s)
{
    double min = INFINITY, max = -INFINITY;
    uint64_t n_missing = 0, n_infinite = 0;
    for (size_t i = 0; i < n; i++) {
        double v = slot_double(cells->slot[i]);
        bool missing = v != v, infinite = v - v != 0 && !missing;
        n_missing += missing;
        n_infinite += infinite;
        if (!missing && !infinite) {
            min = v < min ? v : min;
            max = v > max ? v : max;
        }
    }
    s->n_missing = n_missing;
    s->n_infinite = n_infinite;
    s->any = n_missing + n_infinite < n;
    if (!s->any) return;
    s->min = min + 0.0; /* -0 counts as 0: which of them comes first must not show */
    s->max = max + 0.0;
}

static void count_integers(bool codes, const struct cells *cells, size_t n, struct column_statistics *s)
{
    int64_t min = INT64_MAX, max = INT64_MIN;
    uint64_t n_missing = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t v = slot_integer(cells->slot[i]);
        if (cells->absent[i]) {
            n_missing++;
            continue;
        }
        min = v < min ? v : min;
        max = v > max ? v : max;
    }
    s->n_missing = n_missing;
    s->any = !codes && n_missing < n;
    if (!s->any) return;
    s->integer_min = min;
    s->integer_max = max;
}

static void put_reals(enum page_storage storage, const struct cells *cells, size_t n, unsigned char *to)
{
    if (storage == STORAGE_F64) {
        for (size_t i = 0; i < n; i++) {
            double v = slot_double(cells->slot[i]);
            uint64_t bits = v == v ? cells->slot[i] : missing_bits;
            memcpy(to + 8 * i, &bits, 8);
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double v = slot_double(cells->slot[i]);
        float narrow = (float)v;
        uint32_t bits;
        memcpy(&bits, &narrow, 4);
        if (v != v) bits = UINT32_C(0x7fc00000);
        memcpy(to + 4 * i, &bits, 4);
    }
}

static void put_integers(enum page_storage storage, const struct cells *cells, size_t n, unsigned char *to)
{
    for (size_t i = 0; i < n; i++) {
        int64_t v = cells->absent[i] ? 0 : slot_integer(cells->slot[i]);
        switch (storage) {
        case STORAGE_I8: to[i] = (unsigned char)(uint64_t)v; break;
        case STORAGE_I16: memcpy(to + 2 * i, &(int16_t){(int16_t)v}, 2); break;
        case STORAGE_I32: memcpy(to + 4 * i, &(int32_t){(int32_t)v}, 4); break;
        default: memcpy(to + 8 * i, &v, 8); break;
        }
    }
}

void page_encode(enum page_storage storage, bool codes, const struct cells *cells, size_t n, void *page, size_t *size,
                 struct column_statistics *statistics)
{
    *statistics = (struct column_statistics){0};
    if (storage_is_real(storage)) {
        count_reals(cells, n, statistics);
        put_reals(storage, cells, n, page);
        *size = page_size(storage, n, false);
        return;
    }
    count_integers(codes, cells, n, statistics);
    put_integers(storage, cells, n, page);
    bool bitmap = statistics->n_missing > 0;
    *size = page_size(storage, n, bitmap);
    if (!bitmap) return;
    unsigned char *bits = (unsigned char *)page + page_size(storage, n, false);
    memset(bits, 0, (n + 63) / 64 * 8);
    for (size_t i = 0; i < n; i++) {
        if (cells->absent[i]) bits[i / 8] = (unsigned char)(bits[i / 8] | 1u << i % 8);
    }
}

static void get_reals(enum page_storage storage, const unsigned char *from, struct cells *cells, size_t n)
{
    memset(cells->absent, 0, n);
    if (storage == STORAGE_F64) {
        memcpy(cells->slot, from, n * 8);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float narrow;
        memcpy(&narrow, from + 4 * i, 4);
        cells->slot[i] = narrow != narrow ? missing_bits : slot_of_double((double)narrow);
    }
}

static void get_integers(enum page_storage storage, const unsigned char *from, struct cells *cells, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        int32_t v32;
        int16_t v16;
        switch (storage) {
        case STORAGE_I8: v = (int8_t)from[i]; break;
        case STORAGE_I16: memcpy(&v16, from + 2 * i, 2), v = v16; break;
        case STORAGE_I32: memcpy(&v32, from + 4 * i, 4), v = v32; break;
        default: memcpy(&v, from + 8 * i, 8); break;
        }
        cells->slot[i] = (uint64_t)v;
    }
}

int page_decode(enum page_storage storage, size_t n_codes, bool codes, const void *page, size_t size,
                struct cells *cells, size_t n, struct column_statistics *statistics, struct tabft_failure *f)
{
    bool real = storage_is_real(storage), bitmap = !real && size == page_size(storage, n, true);
    if (!bitmap && size != page_size(storage, n, false)) {
        return tabft_fail(f, TABFT_INPUT, "a page of %zu bytes instead of %zu", size, page_size(storage, n, false));
    }
    *statistics = (struct column_statistics){0};
    if (real) {
        get_reals(storage, page, cells, n);
        count_reals(cells, n, statistics);
        return 0;
    }
    get_integers(storage, page, cells, n);
    const unsigned char *bits = (const unsigned char *)page + page_size(storage, n, false);
    for (size_t i = 0; i < n; i++) cells->absent[i] = bitmap && (bits[i / 8] >> i % 8 & 1) != 0;
    for (size_t i = 0; codes && i < n; i++) {
        if (!cells->absent[i] && cells->slot[i] >= n_codes) {
            return tabft_fail(f, TABFT_INPUT, "code %lld where %zu texts are known", (long long)cells->slot[i],
                              n_codes);
        }
    }
    count_integers(codes, cells, n, statistics);
    return 0;
}
