#include "table/page.h"

#include <math.h>

#include "table/decimals.h"

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

static void put_decimals(const struct page_form *form, const struct cells *cells, size_t n, unsigned char *to)
{
    const double power = decimal_power(form->decimals);
    const int32_t zero = decimal_minus_zero(storage_size(form->storage));
    for (size_t i = 0; form->storage == STORAGE_D32 && i < n; i++) {
        double v = slot_double(cells->slot[i]);
        int32_t item = v == v ? decimal_of(v, power, zero) : 0;
        memcpy(to + 4 * i, &item, 4);
    }
    for (size_t i = 0; form->storage != STORAGE_D32 && i < n; i++) {
        double v = slot_double(cells->slot[i]);
        int16_t item = (int16_t)(v == v ? decimal_of(v, power, zero) : 0);
        if (form->storage == STORAGE_D8) to[i] = (unsigned char)item;
        else memcpy(to + 2 * i, &item, 2);
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

/* Floats say themselves what is missing. */
static bool has_bitmap(enum page_storage s) { return !storage_is_real(s) || storage_is_decimal(s); }

struct page_form page_form_of(const struct schema *s, size_t column)
{
    const struct schema_column *c = &s->column[column];
    return (struct page_form){c->storage, c->decimals, schema_is_code(s, column), schema_code_count(s, column)};
}

void page_encode(const struct page_form *form, const struct cells *cells, size_t n, void *page, size_t *size,
                 struct column_statistics *statistics)
{
    const enum page_storage storage = form->storage;
    const bool real = storage_is_real(storage);
    *statistics = (struct column_statistics){0};
    if (real) count_reals(cells, n, statistics);
    else count_integers(form->codes, cells, n, statistics);
    if (storage_is_decimal(storage)) put_decimals(form, cells, n, page);
    else if (real) put_reals(storage, cells, n, page);
    else put_integers(storage, cells, n, page);
    bool bitmap = has_bitmap(storage) && statistics->n_missing > 0;
    *size = page_size(storage, n, bitmap);
    if (!bitmap) return;
    unsigned char *bits = (unsigned char *)page + page_size(storage, n, false);
    memset(bits, 0, (n + 63) / 64 * 8);
    for (size_t i = 0; i < n; i++) {
        if (cell_missing(cells, i, real)) bits[i / 8] = (unsigned char)(bits[i / 8] | 1u << i % 8);
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

static void get_decimals(const struct page_form *form, const unsigned char *from, struct cells *cells, size_t n)
{
    const double power = decimal_power(form->decimals);
    const int32_t zero = decimal_minus_zero(storage_size(form->storage));
    memset(cells->absent, 0, n);
    for (size_t i = 0; form->storage == STORAGE_D32 && i < n; i++) {
        int32_t item;
        memcpy(&item, from + 4 * i, 4);
        cells->slot[i] = slot_of_double(decimal_value(item, power, zero));
    }
    for (size_t i = 0; form->storage != STORAGE_D32 && i < n; i++) {
        int16_t item;
        if (form->storage == STORAGE_D8) item = (int8_t)from[i];
        else memcpy(&item, from + 2 * i, 2);
        cells->slot[i] = slot_of_double(decimal_value(item, power, zero));
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

int page_decode(const struct page_form *form, const void *page, size_t size, struct cells *cells, size_t n,
                struct column_statistics *statistics, struct tabft_failure *f)
{
    const enum page_storage storage = form->storage;
    bool bitmap = has_bitmap(storage) && size == page_size(storage, n, true);
    if (!bitmap && size != page_size(storage, n, false)) {
        return tabft_fail(f, TABFT_INPUT, "a page of %zu bytes instead of %zu", size, page_size(storage, n, false));
    }
    const unsigned char *bits = (const unsigned char *)page + page_size(storage, n, false);
    *statistics = (struct column_statistics){0};
    if (storage_is_real(storage)) {
        if (storage_is_decimal(storage)) get_decimals(form, page, cells, n);
        else get_reals(storage, page, cells, n);
        for (size_t i = 0; bitmap && i < n; i++)
            if ((bits[i / 8] >> i % 8 & 1) != 0) cells->slot[i] = missing_bits;
        count_reals(cells, n, statistics);
        return 0;
    }
    get_integers(storage, page, cells, n);
    for (size_t i = 0; i < n; i++) cells->absent[i] = bitmap && (bits[i / 8] >> i % 8 & 1) != 0;
    for (size_t i = 0; form->codes && i < n; i++) {
        if (!cells->absent[i] && cells->slot[i] >= form->n_codes) {
            return tabft_fail(f, TABFT_INPUT, "code %lld where %zu texts are known", (long long)cells->slot[i],
                              form->n_codes);
        }
    }
    count_integers(form->codes, cells, n, statistics);
    return 0;
}
