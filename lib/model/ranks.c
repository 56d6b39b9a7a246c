/* Ranks of numbers among those of a context, as TabPFN v3.5 counts them. */
#define TABFT_MODEL_ROOM
#include <math.h>
#include <stdlib.h>

#include "model/model_internal.h"

/* Numbers of the context in ascending order, how many are below each and how many at most as large. */
struct edges {
    size_t n;
    float *value, *below, *at_most; /* [n] */
};

static size_t edges_of(size_t n_context, size_t edges_max) { return n_context < edges_max ? n_context : edges_max; }

size_t ranks_room(size_t n_context, size_t edges_max) { return 3 * edges_of(n_context, edges_max); }

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static size_t count_different(size_t n, const float *sorted)
{
    size_t count = 1;
    for (size_t i = 1; i < n; i++) count += sorted[i] != sorted[i - 1];
    return count;
}

/* Up to as many different numbers as there are edges, all of them are, some more than once; of more, those at places
 * evenly spread over the rows. */
static void find_edges(size_t n, const float *sorted, struct edges *e)
{
    const size_t different = count_different(n, sorted);
    const bool by_number = different <= e->n;
    const float step = e->n == 1   ? 0.0f
                       : by_number ? (float)(different - 1) / (float)(e->n - 1)
                                   : (float)((double)(n - 1) / (double)(e->n - 1));
    size_t first = 0, end = 1, number = 0; /* a run of equal numbers, and which it is */
    while (end < n && sorted[end] == sorted[first]) end++;
    for (size_t i = 0; i < e->n; i++) {
        const size_t wanted = (size_t)rintf((float)i * step);
        while (end < n && (by_number ? number < wanted : end <= wanted)) {
            first = end++;
            number++;
            while (end < n && sorted[end] == sorted[first]) end++;
        }
        e->value[i] = sorted[first];
        e->below[i] = (float)first;
        e->at_most[i] = (float)end;
    }
}

/* How many edges are below x. */
static size_t edges_below(const struct edges *e, float x)
{
    size_t low = 0, high = e->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (e->value[middle] < x) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* How many of the context stand before x, half of those equal to it among them; never fewer than before its smallest
 * number, nor more than before its largest. */
static float count_before(const struct edges *e, float x)
{
    const size_t last = e->n - 1, at = edges_below(e, x);
    const float least = 0.5f * (e->below[0] + e->at_most[0]), most = 0.5f * (e->below[last] + e->at_most[last]);
    if (at > last) return most;
    if (e->value[at] == x) return 0.5f * (e->below[at] + e->at_most[at]);
    if (at == 0) return least;
    const float along = (x - e->value[at - 1]) / (e->value[at] - e->value[at - 1]);
    const float count = e->at_most[at - 1] + along * (e->below[at] - e->at_most[at - 1]);
    return count < least ? least : count > most ? most : count;
}

void ranks_of(size_t n_context, float *context, size_t edges_max, size_t n, float *x, float *room)
{
    const size_t count = edges_of(n_context, edges_max);
    struct edges e = {count, room, room + count, room + 2 * count};
    qsort(context, n_context, sizeof *context, ascending);
    find_edges(n_context, context, &e);
    for (size_t i = 0; i < n; i++) x[i] = count_before(&e, x[i]) / e.at_most[count - 1];
}
