/* Lays buffers with known lifetimes into one block: largest first, each at the lowest place that is free for its
 * time. */
#define TABFT_TENSOR_ROOM
#include <stdlib.h>

#include "base/memory.h"
#include "tensor/tape_internal.h"

struct placed {
    size_t bytes, offset;
    long first, last;
    size_t index;
};

static int larger_first(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* The lowest offset where `b` fits among the n buffers in list, which are sorted by offset. */
static size_t lowest_place(const struct placed *list, size_t n, const struct placed *b)
{
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const struct placed *o = &list[i];
        if (o->last < b->first || b->last < o->first) continue;
        if (o->offset >= end && o->offset - end >= b->bytes) break;
        if (o->offset + o->bytes > end) end = o->offset + o->bytes;
    }
    return end;
}

/* The most bytes of tensors, scratch memory apart, that live at one step. */
static int fullest(const struct tape_plan *p, size_t *out, struct tabft_failure *f)
{
    long long *change = NULL;
    int error = memory_new(&change, p->n_steps + 2, sizeof *change, "a memory plan", f);
    if (error < 0) return error;
    for (size_t i = 0; i < p->n_buffers; i++) {
        const struct tape_buffer *b = &p->buffers[i];
        if (b->scratch || b->kept || b->first < 0) continue;
        change[b->first] += (long long)b->bytes;
        change[b->last + 1] -= (long long)b->bytes;
    }
    long long live = 0, most = 0;
    for (size_t i = 0; i <= p->n_steps; i++) {
        live += change[i];
        if (live > most) most = live;
    }
    *out = (size_t)most;
    free(change);
    return 0;
}

int tape_layout(struct tape_plan *p, struct tape_sizes *sizes, struct tabft_failure *f)
{
    int error = 0;
    struct placed *by_size = NULL, *by_offset = NULL;
    TRY(memory_new(&by_size, p->n_buffers, sizeof *by_size, "a memory plan", f));
    TRY(memory_new(&by_offset, p->n_buffers, sizeof *by_offset, "a memory plan", f));
    size_t n = 0;
    for (size_t i = 0; i < p->n_buffers; i++) {
        const struct tape_buffer *b = &p->buffers[i];
        if (!b->kept) by_size[n++] = (struct placed){b->bytes, 0, b->first, b->last, i};
    }
    qsort(by_size, n, sizeof *by_size, larger_first);
    p->total = 0;
    for (size_t i = 0; i < n; i++) {
        struct placed b = by_size[i];
        b.offset = lowest_place(by_offset, i, &b);
        size_t end;
        if (!size_add(b.offset, b.bytes, &end))
            FAIL(f, TABFT_SYSTEM, "the plan needs more bytes than this machine can address; use fewer rows");
        if (end > p->total) p->total = end;
        p->buffers[b.index].offset = b.offset;
        size_t at = i; /* keep by_offset sorted */
        while (at > 0 && by_offset[at - 1].offset > b.offset) {
            by_offset[at] = by_offset[at - 1];
            at--;
        }
        by_offset[at] = b;
    }
    TRY(fullest(p, &sizes->activations, f));
    sizes->total = p->total;
    sizes->kept = p->kept;
    sizes->inputs = p->inputs;
    sizes->scratch = sizes->total - sizes->activations;
fail:
    free(by_size);
    free(by_offset);
    return error;
}
