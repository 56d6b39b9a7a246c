#include "comm/reduce.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "comm/reduce_internal.h"
#include "comm/tree.h"

struct reduce {
    struct comm *c;
    const struct vectors *v;
    size_t n_items, n_parameters;
    int size, rank;
    struct reduce_layout l;
    size_t next_item;
    struct tree_node stack[TREE_COVER_MAX]; /* what slot i holds */
    size_t depth;
    float *slots, *send, *receive;
    double *block_sums;     /* [n_blocks] */
    double *host_sums;      /* the same on the host: block_sums themselves, or where they are copied to */
    struct reduce_merge *merges;   /* [n_roots - 1] in an order that finishes the tree in row 0 */
    size_t *first_root;     /* [size + 1]: roots of rank r are first_root[r] .. first_root[r + 1] - 1 */
    size_t *slice_begin;    /* [size + 1] */
    size_t *counts;         /* [4 * size]: sizes and offsets of an exchange, in bytes */
};

/* Row numbers of the tree's additions: a node that is some rank's root is a row, any other is its left child's row
 * after its right child's was added. Returns the row of [begin, end). Recursion no deeper than log2(n_items). */
static size_t plan_merges(struct reduce *r, size_t begin, size_t end, const struct tree_node *roots, size_t *n_merges)
{
    /* Rows are in item order, so the row of the root that starts at `begin` is found by bisection. */
    size_t low = 0, high = r->l.n_roots;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (roots[middle].begin <= begin) low = middle;
        else high = middle;
    }
    if (roots[low].begin == begin && roots[low].end == end) return low;
    const size_t middle = tree_split(begin, end);
    const size_t left = plan_merges(r, begin, middle, roots, n_merges);
    const size_t right = plan_merges(r, middle, end, roots, n_merges);
    r->merges[(*n_merges)++] = (struct reduce_merge){left, right};
    return left;
}

static int plan_tree(struct reduce *r, struct tabft_failure *f)
{
    int error = 0;
    struct tree_node *roots = NULL;
    TRY(memory_new(&roots, r->l.n_roots + TREE_COVER_MAX, sizeof *roots, "the plan of the gradient sum", f));
    for (int rank = 0; rank < r->size; rank++) {
        size_t begin, end;
        reduce_slice_of(r->n_parameters, r->size, rank, &begin, &end);
        r->slice_begin[rank] = begin;
        r->slice_begin[rank + 1] = end;
        r->first_root[rank + 1] = r->first_root[rank] + reduce_roots_of(r->n_items, r->size, rank,
                                                                        roots + r->first_root[rank]);
    }
    size_t n_merges = 0;
    (void)plan_merges(r, 0, r->n_items, roots, &n_merges);
fail:
    free(roots);
    return error;
}

static const char what[] = "the gradient sums";

/* What lies in the memory of the vectors. */
static int take_vectors(struct reduce *r, struct tabft_failure *f)
{
    int error = 0;
    const struct vectors *v = r->v;
    const struct reduce_layout *l = &r->l;
    void *slots = NULL, *send = NULL, *receive = NULL, *sums = NULL;
    TRY(v->memory_new(v->state, &slots, l->n_slots * l->stride * sizeof(float), what, f));
    r->slots = slots;
    TRY(v->memory_new(v->state, &send, l->send_floats * sizeof(float), what, f));
    r->send = send;
    TRY(v->memory_new(v->state, &receive, l->receive_floats * sizeof(float), what, f));
    r->receive = receive;
    TRY(v->memory_new(v->state, &sums, l->n_blocks * sizeof(double), what, f));
    r->block_sums = sums;
    r->host_sums = sums;
    if (v->host) return 0;
    r->host_sums = NULL;
    TRY(memory_new(&r->host_sums, l->n_blocks, sizeof *r->host_sums, what, f));
fail:
    return error;
}

int reduce_open(struct reduce **out, struct comm *c, const struct vectors *v, size_t n_items, size_t n_parameters,
                struct tabft_failure *f)
{
    int error = 0;
    struct reduce *r = NULL;
    if (n_items == 0 || n_parameters == 0)
        return tabft_fail(f, TABFT_USE, "a step of %zu items and %zu parameters: both must be at least 1", n_items,
                          n_parameters);
    TRY(memory_new(&r, 1, sizeof *r, what, f));
    r->c = c;
    r->v = v;
    r->n_items = n_items;
    r->n_parameters = n_parameters;
    r->size = comm_size(c);
    r->rank = comm_rank(c);
    if (reduce_bytes(n_items, n_parameters, r->size, r->rank) == SIZE_MAX)
        FAIL(f, TABFT_SYSTEM, "no memory for sums of %zu parameters over %zu items", n_parameters, n_items);
    reduce_layout_of(n_items, n_parameters, r->size, r->rank, &r->l);
    r->next_item = r->l.item_begin;
    const size_t ranks = (size_t)r->size;
    TRY(take_vectors(r, f));
    TRY(memory_new(&r->merges, r->l.n_roots, sizeof *r->merges, what, f));
    TRY(memory_new(&r->first_root, ranks + 1, sizeof *r->first_root, what, f));
    TRY(memory_new(&r->slice_begin, ranks + 1, sizeof *r->slice_begin, what, f));
    TRY(memory_new(&r->counts, 4 * ranks, sizeof *r->counts, what, f));
    TRY(plan_tree(r, f));
    *out = r;
    return 0;
fail:
    reduce_close(r);
    return error;
}

void reduce_close(struct reduce *r)
{
    if (r == NULL) return;
    void *const taken[] = {r->slots, r->send, r->receive, r->block_sums};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) r->v->memory_free(r->v->state, taken[i]);
    if (!r->v->host) free(r->host_sums);
    free(r->merges);
    free(r->first_root);
    free(r->slice_begin);
    free(r->counts);
    free(r);
}

size_t reduce_struct_bytes(void) { return sizeof(struct reduce); }

void reduce_items(const struct reduce *r, size_t *begin, size_t *end)
{
    *begin = r->l.item_begin;
    *end = r->l.item_end;
}

void reduce_slice(const struct reduce *r, size_t *begin, size_t *end)
{
    *begin = r->l.slice_begin;
    *end = r->l.slice_end;
}

/* Whether the gradient of `item` joins the sum that came last. */
static bool joins(const struct reduce *r, size_t item)
{
    return r->depth > 0 && tree_is_node(r->n_items, r->stack[r->depth - 1].begin, item + 1);
}

int reduce_place(struct reduce *r, size_t item, float **place, bool *add, struct tabft_failure *f)
{
    if (item != r->next_item || item >= r->l.item_end)
        return tabft_fail(f, TABFT_SYSTEM, "gradient sum: item %zu came where %zu of %zu..%zu was due", item,
                          r->next_item, r->l.item_begin, r->l.item_end);
    *add = joins(r, item);
    *place = r->slots + (*add ? r->depth - 1 : r->depth) * r->l.stride;
    return 0;
}

void reduce_placed(struct reduce *r)
{
    const size_t item = r->next_item++;
    const struct vectors *v = r->v;
    struct tree_node *stack = r->stack;
    if (joins(r, item)) stack[r->depth - 1].end = item + 1;
    else stack[r->depth++] = (struct tree_node){item, item + 1};
    while (r->depth > 1 && tree_is_node(r->n_items, stack[r->depth - 2].begin, stack[r->depth - 1].end)) {
        float *left = r->slots + (r->depth - 2) * r->l.stride;
        v->add(v->state, left, left + r->l.stride, r->n_parameters);
        stack[r->depth - 2].end = stack[r->depth - 1].end;
        r->depth--;
    }
}

static size_t piece_length(const struct reduce *r, int rank, size_t piece)
{
    const size_t length = r->slice_begin[rank + 1] - r->slice_begin[rank], begin = piece * r->l.piece;
    return begin >= length ? 0 : smaller(r->l.piece, length - begin);
}

/* Packs for every owner its piece of each of our roots, and says what goes and comes. */
static void pack_piece(struct reduce *r, size_t piece)
{
    const size_t ranks = (size_t)r->size, own = piece_length(r, r->rank, piece);
    size_t *send_bytes = r->counts, *send_offset = send_bytes + ranks;
    size_t *receive_bytes = send_offset + ranks, *receive_offset = receive_bytes + ranks;
    size_t at = 0;
    for (int owner = 0; owner < r->size; owner++) {
        const size_t length = piece_length(r, owner, piece);
        send_offset[owner] = at * sizeof(float);
        for (size_t root = 0; root < r->depth; root++, at += length)
            if (length > 0)
                r->v->copy(r->v->state, r->send + at,
                           r->slots + root * r->l.stride + r->slice_begin[owner] + piece * r->l.piece,
                           length * sizeof(float));
        send_bytes[owner] = at * sizeof(float) - send_offset[owner];
        receive_offset[owner] = r->first_root[owner] * own * sizeof(float);
        receive_bytes[owner] = (r->first_root[owner + 1] - r->first_root[owner]) * own * sizeof(float);
    }
}

/* The engine and the host see only what is finished. */
static int exchange_piece(struct reduce *r, struct tabft_failure *f)
{
    int error = 0;
    const struct vectors *v = r->v;
    const size_t ranks = (size_t)r->size, own = (size_t)r->rank;
    const size_t *send_bytes = r->counts, *send_offset = send_bytes + ranks;
    const size_t *receive_bytes = send_offset + ranks, *receive_offset = receive_bytes + ranks;
    if (!v->host)
        v->copy(v->state, (char *)r->receive + receive_offset[own], (const char *)r->send + send_offset[own],
                send_bytes[own]);
    TRY(v->finish(v->state, f));
    if (v->host)
        TRY(comm_exchange(r->c, r->send, send_bytes, send_offset, r->receive, receive_bytes, receive_offset, f));
    else
        TRY(comm_exchange_device(r->c, r->send, send_bytes, send_offset, r->receive, receive_bytes, receive_offset, f));
fail:
    return error;
}

/* The tree above the ranks' roots, for one piece of the own slice. It ends where the piece of the first root was, which
 * has been packed. */
static void merge_piece(struct reduce *r, size_t piece)
{
    const struct vectors *v = r->v;
    const size_t n = piece_length(r, r->rank, piece);
    for (size_t m = 0; m + 1 < r->l.n_roots; m++)
        v->add(v->state, r->receive + r->merges[m].to * n, r->receive + r->merges[m].from * n, n);
    v->copy(v->state, r->slots + r->l.slice_begin + piece * r->l.piece, r->receive, n * sizeof(float));
}

int reduce_finish(struct reduce *r, float **slice, struct tabft_failure *f)
{
    int error = 0;
    if (r->next_item != r->l.item_end)
        return tabft_fail(f, TABFT_SYSTEM, "gradient sum: finished before item %zu of %zu..%zu came", r->next_item,
                          r->l.item_begin, r->l.item_end);
    if (r->size > 1) {
        /* Slow ranks are waited for here, at little cost, so that the exchanges run while all are awake. */
        TRY(comm_barrier(r->c, f));
        for (size_t piece = 0; piece < r->l.n_pieces; piece++) {
            pack_piece(r, piece);
            TRY(exchange_piece(r, f));
            merge_piece(r, piece);
        }
    }
    *slice = r->slots + r->l.slice_begin;
    r->depth = 0;
    r->next_item = r->l.item_begin;
fail:
    return error;
}

int reduce_gather(struct reduce *r, float *values, struct tabft_failure *f)
{
    int error = 0;
    if (r->size == 1) return 0;
    for (int rank = 0; rank < r->size; rank++)
        r->counts[rank] = (r->slice_begin[rank + 1] - r->slice_begin[rank]) * sizeof(float);
    TRY(r->v->finish(r->v->state, f));
    if (r->v->host) TRY(comm_gather_all_v(r->c, values + r->l.slice_begin, r->counts, values, f));
    else TRY(comm_gather_all_device(r->c, r->counts, values, f));
fail:
    return error;
}

int reduce_item_values(struct reduce *r, double *values, struct tabft_failure *f)
{
    if (r->size == 1) return 0;
    for (int rank = 0; rank < r->size; rank++) {
        size_t begin, end;
        reduce_share(r->n_items, r->size, rank, &begin, &end);
        r->counts[rank] = (end - begin) * sizeof(double);
    }
    return comm_gather_all_v(r->c, values + r->l.item_begin, r->counts, values, f);
}

/* The sum of `leaves` along the node [begin, end); leaves[0] is leaf number `first`. */
static double node_sum(const double *leaves, size_t first, size_t begin, size_t end)
{
    if (end - begin == 1) return leaves[begin - first];
    const size_t middle = tree_split(begin, end);
    return node_sum(leaves, first, begin, middle) + node_sum(leaves, first, middle, end);
}

/* The sum along [begin, end) from the sums of all ranks' roots, which come in order at *next. */
static double roots_sum(const struct tree_node **node, const double **value, size_t begin, size_t end)
{
    if ((*node)->begin == begin && (*node)->end == end) {
        (*node)++;
        return *(*value)++;
    }
    const size_t middle = tree_split(begin, end);
    const double left = roots_sum(node, value, begin, middle);
    return left + roots_sum(node, value, middle, end);
}

int reduce_square_sum(struct reduce *r, const float *slice, double *sum, struct tabft_failure *f)
{
    int error = 0;
    double own[TREE_COVER_MAX];
    double *values = NULL;
    struct tree_node *nodes = NULL;
    const size_t n_blocks = (r->n_parameters + REDUCE_BLOCK - 1) / REDUCE_BLOCK;
    const struct vectors *v = r->v;
    v->square_sums(v->state, slice, r->l.slice_end - r->l.slice_begin, r->block_sums);
    if (!v->host) v->copy_out(v->state, r->host_sums, r->block_sums, r->l.n_blocks * sizeof *r->host_sums);
    TRY(v->finish(v->state, f));
    if (r->size == 1) {
        *sum = node_sum(r->host_sums, 0, 0, n_blocks);
        return 0;
    }
    /* Each rank sums the nodes it owns whole; everybody gets these few numbers and finishes the same tree. */
    TRY(memory_new(&nodes, (size_t)r->size * TREE_COVER_MAX, sizeof *nodes, "the gradient norm", f));
    size_t n_nodes = 0;
    for (int rank = 0; rank < r->size; rank++) {
        size_t begin, end;
        reduce_share(n_blocks, r->size, rank, &begin, &end);
        const size_t count = tree_cover(n_blocks, begin, end, nodes + n_nodes);
        for (size_t i = 0; rank == r->rank && i < count; i++)
            own[i] = node_sum(r->host_sums, begin, nodes[n_nodes + i].begin, nodes[n_nodes + i].end);
        r->counts[rank] = count * sizeof *own;
        n_nodes += count;
    }
    TRY(memory_new(&values, n_nodes, sizeof *values, "the gradient norm", f));
    TRY(comm_gather_all_v(r->c, own, r->counts, values, f));
    const struct tree_node *node = nodes;
    const double *value = values;
    *sum = roots_sum(&node, &value, 0, n_blocks);
fail:
    free(nodes);
    free(values);
    return error;
}
