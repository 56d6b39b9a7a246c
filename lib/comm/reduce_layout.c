/* Who holds what of a step, and how many bytes that takes. */
#include "comm/reduce_internal.h"

#include <stdint.h>

#include "base/memory.h"

enum {
    EXCHANGE_BYTES = 8 << 20,     /* of the send and of the receive buffer, about; more only with very many ranks */
    EXCHANGE_LEAST = 256          /* floats of a piece, however many ranks there are */
};

void reduce_share(size_t n, int size, int rank, size_t *begin, size_t *end)
{
    const size_t each = n / (size_t)size, more = n % (size_t)size, r = (size_t)rank;
    *begin = r * each + (r < more ? r : more);
    *end = *begin + each + (r < more ? 1 : 0);
}

void reduce_slice_of(size_t n_parameters, int size, int rank, size_t *begin, size_t *end)
{
    const size_t n_blocks = (n_parameters + REDUCE_BLOCK - 1) / REDUCE_BLOCK;
    reduce_share(n_blocks, size, rank, begin, end);
    *begin *= REDUCE_BLOCK;
    *end *= REDUCE_BLOCK;
    if (*begin > n_parameters) *begin = n_parameters;
    if (*end > n_parameters) *end = n_parameters;
}

size_t reduce_roots_of(size_t n_items, int size, int rank, struct tree_node cover[TREE_COVER_MAX])
{
    size_t begin, end;
    reduce_share(n_items, size, rank, &begin, &end);
    return tree_cover(n_items, begin, end, cover);
}

void reduce_layout_of(size_t n_items, size_t n_parameters, int size, int rank, struct reduce_layout *l)
{
    struct tree_node cover[TREE_COVER_MAX];
    *l = (struct reduce_layout){0};
    reduce_share(n_items, size, rank, &l->item_begin, &l->item_end);
    reduce_slice_of(n_parameters, size, rank, &l->slice_begin, &l->slice_end);
    /* A rank without items finishes its slice in one, too. */
    l->n_slots = larger(1, tree_stack_depth(n_items, l->item_begin, l->item_end));
    l->stride = (n_parameters + 15) / 16 * 16;
    l->n_blocks = (l->slice_end - l->slice_begin + REDUCE_BLOCK - 1) / REDUCE_BLOCK;
    size_t most_roots = 0;
    for (int r = 0; r < size; r++) {
        const size_t roots = reduce_roots_of(n_items, size, r, cover);
        l->n_roots += roots;
        most_roots = larger(most_roots, roots);
        if (r == rank) l->n_own_roots = roots;
    }
    if (size == 1) return;
    /* The same piece on every rank, so all make the same number of exchanges: rank 0 has the longest slice. */
    size_t slice0_begin, slice0_end;
    reduce_slice_of(n_parameters, size, 0, &slice0_begin, &slice0_end);
    const size_t rows = larger(most_roots * (size_t)size, l->n_roots);
    l->piece = larger(EXCHANGE_BYTES / sizeof(float) / rows / 64 * 64, EXCHANGE_LEAST);
    l->piece = smaller(l->piece, slice0_end - slice0_begin);
    l->n_pieces = (slice0_end - slice0_begin + l->piece - 1) / l->piece;
    l->send_floats = l->n_own_roots * (size_t)size * l->piece;
    l->receive_floats = l->n_roots * smaller(l->piece, l->slice_end - l->slice_begin);
}

size_t reduce_bytes(size_t n_items, size_t n_parameters, int size, int rank)
{
    struct reduce_layout l;
    reduce_layout_of(n_items, n_parameters, size, rank, &l);
    size_t floats, bytes;
    if (!size_mul(l.n_slots, l.stride, &floats) || !size_add(floats, l.send_floats, &floats) ||
        !size_add(floats, l.receive_floats, &floats) || !size_mul(floats, sizeof(float), &bytes))
        return SIZE_MAX;
    const size_t small = reduce_struct_bytes() + l.n_blocks * sizeof(double) + l.n_roots * sizeof(struct reduce_merge) +
                         (6 * (size_t)size + 2) * sizeof(size_t);
    return size_add(bytes, small, &bytes) ? bytes : SIZE_MAX;
}
