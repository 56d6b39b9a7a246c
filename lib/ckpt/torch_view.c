/* Tensors as PyTorch describes them: an offset, sizes and strides in a storage. */
#define TABFT_IN_CKPT
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/torch_internal.h"

/* The entry data/KEY; keys are plain numbers. NULL where there is none. */
static struct zip_entry *storage_entry(struct zip *z, const struct pickle_value *key)
{
    char name[32];
    if (key->size == 0 || key->size > 9) return NULL;
    for (uint32_t i = 0; i < key->size; i++)
        if (key->of.text[i] < '0' || key->of.text[i] > '9') return NULL;
    (void)snprintf(name, sizeof name, "data/%.*s", (int)key->size, key->of.text);
    return zip_find(z, name);
}

/* Where no two elements share a place, each stride is larger than all that smaller strides reach. A few layouts that
 * interleave are refused with those that overlap; torch.save writes neither. */
static bool overlaps(const struct torch_view *view, const struct ckpt_tensor *t)
{
    uint64_t reach = 0, below = 0; /* strides up to `below` are done and reach that far */
    for (int done = 0; done < t->rank; done++) {
        int next = -1;
        for (int k = 0; k < t->rank; k++) {
            if (t->shape[k] < 2 || (view->stride[k] <= below && done > 0)) continue;
            if (next < 0 || view->stride[k] < view->stride[next]) next = k;
        }
        if (next < 0) break;
        for (int k = 0; k < t->rank; k++)
            if (k != next && t->shape[k] > 1 && view->stride[k] == view->stride[next]) return true;
        if (view->stride[next] <= reach) return true;
        below = view->stride[next];
        reach += (t->shape[next] - 1) * below;
    }
    return false;
}

static bool is_contiguous(const struct torch_view *view, const struct ckpt_tensor *t)
{
    uint64_t expected = 1;
    for (int k = t->rank; k-- > 0;) {
        if (t->shape[k] != 1 && view->stride[k] != expected) return false;
        expected *= t->shape[k];
    }
    return true;
}

/* Offset, sizes and strides within a storage of `elements`; the reason where they are not. */
static const char *read_layout(struct torch_view *view, struct ckpt_tensor *t, const struct pickle *p,
                               const struct pickle_value *v, uint64_t elements)
{
    const int64_t offset = p->value[v->of.item[1]].of.integer;
    const struct pickle_value *sizes = &p->value[v->of.item[2]], *strides = &p->value[v->of.item[3]];
    if (offset < 0) return "begins before its storage (a negative offset)";
    view->offset = (uint64_t)offset;
    t->rank = (int)sizes->size;
    t->count = 1;
    for (int k = 0; k < t->rank; k++) {
        const int64_t size = p->value[sizes->of.item[k]].of.integer, stride = p->value[strides->of.item[k]].of.integer;
        if (size < 0) return "has a negative size";
        if (stride < 0) return "has a negative stride";
        t->shape[k] = (uint64_t)size;
        view->stride[k] = (uint64_t)stride;
    }
    bool empty = false;
    for (int k = 0; k < t->rank; k++) empty = empty || t->shape[k] == 0;
    for (int k = 0; k < t->rank; k++)
        if (__builtin_mul_overflow(t->count, t->shape[k], &t->count)) return "has more than 2^64 elements";
    if (view->offset > elements) return "begins behind its storage";
    view->contiguous = true;
    if (empty) return NULL;
    uint64_t last = view->offset;
    for (int k = 0; k < t->rank; k++) {
        uint64_t part;
        if (__builtin_mul_overflow(t->shape[k] - 1, view->stride[k], &part) ||
            __builtin_add_overflow(last, part, &last))
            return "has strides beyond 2^64";
    }
    if (last >= elements) return "reaches behind its storage";
    if (t->count > elements || overlaps(view, t)) return "has elements that share a place in its storage";
    view->contiguous = is_contiguous(view, t);
    return NULL;
}

int torch_view(struct torch_view *view, struct ckpt_tensor *tensor, const struct pickle *p, uint32_t value,
               struct zip *z, const char *path, struct tabft_failure *f)
{
    int error = 0;
    const struct pickle_value *v = &p->value[value], *storage = &p->value[v->of.item[0]],
                              *key = &p->value[storage->of.item[2]];
    const int64_t elements = p->value[storage->of.item[4]].of.integer;
    const int dtype = pickle_global_dtype(&p->value[storage->of.item[1]]);
    const int shown = key->size < 100 ? (int)key->size : 100;
    uint64_t bytes;
    *view = (struct torch_view){.storage = storage_entry(z, key)};
    if (view->storage == NULL)
        FAIL(f, TABFT_INPUT, "%s: tensor %.200s: its storage \"%.*s\" is no entry data/NUMBER of the archive", path,
             tensor->name, shown, key->of.text);
    tensor->dtype = (enum ckpt_dtype)dtype;
    if (elements < 0 || __builtin_mul_overflow((uint64_t)elements, (uint64_t)ckpt_dtype_size(tensor->dtype), &bytes) ||
        bytes != view->storage->size)
        FAIL(f, TABFT_INPUT, "%s: tensor %.200s: its storage data/%.*s has %" PRId64 " elements of %s, but %u bytes",
             path, tensor->name, shown, key->of.text, elements, ckpt_dtype_name(tensor->dtype), view->storage->size);
    const char *wrong = read_layout(view, tensor, p, v, (uint64_t)elements);
    if (wrong != NULL) FAIL(f, TABFT_INPUT, "%s: tensor %.200s: %s; save it anew", path, tensor->name, wrong);
fail:
    return error;
}

void torch_gather(const struct torch_view *view, const struct ckpt_tensor *tensor, const void *storage, void *to)
{
    const size_t size = ckpt_dtype_size(tensor->dtype);
    uint64_t at[CKPT_RANK_MAX] = {0}, place = view->offset;
    for (uint64_t i = 0; i < tensor->count; i++) {
        memcpy((char *)to + i * size, (const char *)storage + place * size, size);
        for (int k = tensor->rank; k-- > 0;) {
            place += view->stride[k];
            if (++at[k] < tensor->shape[k]) break;
            place -= tensor->shape[k] * view->stride[k];
            at[k] = 0;
        }
    }
}
