#include "ckpt/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static bool same_form(const struct ckpt_tensor *a, const struct ckpt_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

static void compare_values(struct ckpt_difference *d)
{
    const struct ckpt_tensor *a = d->a, *b = d->b;
    const size_t size = ckpt_dtype_size(a->dtype);
    d->kind = CKPT_SAME;
    if (a->count == 0 || memcmp(a->data, b->data, (size_t)a->count * size) == 0) return;
    d->kind = CKPT_VALUES;
    for (uint64_t i = 0; i < a->count; i++) {
        if (memcmp((const char *)a->data + i * size, (const char *)b->data + i * size, size) == 0) continue;
        double difference = fabs(ckpt_value(a, i) - ckpt_value(b, i));
        if (!isfinite(difference)) difference = NAN;
        if (d->n_different == 0 || (!isnan(d->max_abs) && !(difference <= d->max_abs))) {
            d->max_abs = difference;
            d->worst = i;
        }
        d->n_different++;
    }
}

static bool same_metadata(const struct ckpt *a, const struct ckpt *b)
{
    if (ckpt_metadata_count(a) != ckpt_metadata_count(b)) return false;
    for (size_t i = 0; i < ckpt_metadata_count(a); i++) {
        const char *key, *value;
        ckpt_metadata_at(a, i, &key, &value);
        const char *other = ckpt_metadata(b, key);
        if (other == NULL || strcmp(value, other) != 0) return false;
    }
    return true;
}

/* The next of the union of names, which both files have in order. */
static void take_next(const struct ckpt *a, size_t *i, const struct ckpt *b, size_t *k, struct ckpt_difference *d)
{
    const struct ckpt_tensor *x = *i < ckpt_count(a) ? ckpt_at(a, *i) : NULL,
                             *y = *k < ckpt_count(b) ? ckpt_at(b, *k) : NULL;
    int order = x == NULL ? 1 : y == NULL ? -1 : strcmp(x->name, y->name);
    if (order <= 0) {
        d->a = x;
        (*i)++;
    }
    if (order >= 0) {
        d->b = y;
        (*k)++;
    }
}

int ckpt_compare(const struct ckpt *a, const struct ckpt *b, struct ckpt_comparison *out, struct tabft_failure *f)
{
    int error = 0;
    *out = (struct ckpt_comparison){.comparable = true};
    TRY(memory_new(&out->tensor, ckpt_count(a) + ckpt_count(b), sizeof *out->tensor, "a comparison of checkpoints", f));
    for (size_t i = 0, k = 0; i < ckpt_count(a) || k < ckpt_count(b);) {
        struct ckpt_difference *d = &out->tensor[out->n++];
        take_next(a, &i, b, &k, d);
        if (d->a == NULL) d->kind = CKPT_ONLY_IN_B;
        else if (d->b == NULL) d->kind = CKPT_ONLY_IN_A;
        else if (!same_form(d->a, d->b)) d->kind = CKPT_FORM;
        else compare_values(d);
        if (d->kind != CKPT_SAME) out->n_different++;
        if (d->kind > CKPT_VALUES) out->comparable = false;
        if (!isnan(out->max_abs) && !(d->max_abs <= out->max_abs)) out->max_abs = d->max_abs;
    }
    out->same_metadata = same_metadata(a, b);
    out->identical = out->n_different == 0 && out->same_metadata;
fail:
    return error;
}

void ckpt_comparison_clear(struct ckpt_comparison *c)
{
    free(c->tensor);
    *c = (struct ckpt_comparison){0};
}
