#include "train/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"

static void count_labels(const int32_t *label, size_t n, size_t n_labels, size_t *count)
{
    memset(count, 0, n_labels * sizeof *count);
    for (size_t i = 0; i < n; i++) count[label[i]]++;
}

bool split_can_stratify(const int32_t *label, size_t n, size_t n_labels, size_t n_test, const char **reason)
{
    size_t present = 0;
    bool lone = false;
    for (size_t k = 0; k < n_labels; k++) {
        size_t count = 0;
        for (size_t i = 0; i < n && count < 2; i++) count += (size_t)label[i] == k;
        present += count > 0;
        lone = lone || count == 1;
    }
    *reason = lone                                 ? "a label has a single row"
              : n_test < present                   ? "fewer rows to hold out than labels"
              : n < n_test || n - n_test < present ? "fewer rows to keep than labels"
                                                   : NULL;
    return *reason == NULL;
}

/* How many of `draws` rows come from each class: the expected shares rounded down, and what is missing given to the
 * largest remainders, ties broken by the generator (which is asked even where all tied classes get one). */
static void approximate_mode(struct random_mt *g, const size_t *count, size_t n, size_t draws, size_t *out,
                             double *rest, size_t *tied, size_t *order)
{
    size_t total = 0, given = 0;
    for (size_t k = 0; k < n; k++) total += count[k];
    for (size_t k = 0; k < n; k++) {
        double share = (double)count[k] / (double)total * (double)draws;
        out[k] = (size_t)floor(share);
        rest[k] = share - floor(share);
        given += out[k];
    }
    double below = INFINITY;
    while (given < draws) {
        double largest = -1;
        for (size_t k = 0; k < n; k++)
            if (rest[k] < below && rest[k] > largest) largest = rest[k];
        if (largest < 0) return; /* every class had its turn */
        below = largest;
        size_t n_tied = 0;
        for (size_t k = 0; k < n; k++)
            if (rest[k] >= largest && rest[k] <= largest) tied[n_tied++] = k;
        size_t add = n_tied < draws - given ? n_tied : draws - given;
        random_mt_permutation(g, n_tied, order);
        for (size_t i = 0; i < add; i++) out[tied[order[i]]]++;
        given += add;
    }
}

struct work {
    size_t *count, *train, *test, *tied, *order, *member; /* [labels] five times, then [rows] */
    double *rest;
};

static int work_open(struct work *w, size_t n, size_t n_labels, struct tabft_failure *f)
{
    int error = 0;
    size_t words, longest = n > n_labels ? n : n_labels;
    *w = (struct work){0};
    if (!size_mul(n_labels, 4, &words) || !size_add(words, longest, &words) || !size_add(words, n, &words))
        FAIL(f, TABFT_SYSTEM, "split: %zu rows are too many", n);
    TRY(memory_new(&w->count, words, sizeof *w->count, "the split of rows", f));
    TRY(memory_new(&w->rest, n_labels, sizeof *w->rest, "the split of rows", f));
    w->train = w->count + n_labels;
    w->test = w->train + n_labels;
    w->tied = w->test + n_labels;
    w->order = w->tied + n_labels;
    w->member = w->order + longest;
    return 0;
fail:
    free(w->count);
    *w = (struct work){0};
    return error;
}

static void stratified(struct split *s, const struct work *w, const int32_t *label, size_t n, size_t n_labels,
                       uint32_t seed)
{
    struct random_mt g;
    random_mt_seed(&g, seed);
    /* Only labels with rows take part: the generator is asked once for each of them. */
    size_t present = 0;
    count_labels(label, n, n_labels, w->count);
    for (size_t k = 0; k < n_labels; k++)
        if (w->count[k] > 0) w->count[present++] = w->count[k];
    approximate_mode(&g, w->count, present, s->n_train, w->train, w->rest, w->tied, w->order);
    for (size_t k = 0; k < present; k++) w->count[k] -= w->train[k];
    approximate_mode(&g, w->count, present, s->n_test, w->test, w->rest, w->tied, w->order);
    size_t n_train = 0, n_test = 0;
    for (size_t k = 0, at = 0; k < n_labels; k++) {
        size_t members = 0;
        for (size_t i = 0; i < n; i++)
            if ((size_t)label[i] == k) w->member[members++] = i;
        if (members == 0) continue;
        random_mt_permutation(&g, members, w->order);
        for (size_t i = 0; i < w->train[at]; i++) s->train[n_train++] = w->member[w->order[i]];
        for (size_t i = 0; i < w->test[at]; i++) s->test[n_test++] = w->member[w->order[w->train[at] + i]];
        at++;
    }
    random_mt_shuffle(&g, n_train, s->train);
    random_mt_shuffle(&g, n_test, s->test);
}

int split_rows(struct split *out, const int32_t *label, size_t n, size_t n_labels, size_t n_test, uint32_t seed,
               struct tabft_failure *f)
{
    int error = 0;
    struct work w = {0};
    struct split s = {.n_test = n_test};
    *out = (struct split){0};
    if (n_test == 0 || n_test >= n)
        FAIL(f, TABFT_INPUT, "split: %zu of %zu rows cannot be held out; both parts need rows", n_test, n);
    s.n_train = n - n_test;
    TRY(memory_new(&s.train, n, sizeof *s.train, "the split of rows", f));
    s.test = s.train + s.n_train;
    if (label == NULL) {
        struct random_mt g;
        random_mt_seed(&g, seed);
        TRY(work_open(&w, n, 0, f));
        random_mt_permutation(&g, n, w.order);
        memcpy(s.test, w.order, n_test * sizeof *s.test);
        memcpy(s.train, w.order + n_test, s.n_train * sizeof *s.train);
    } else {
        TRY(work_open(&w, n, n_labels, f));
        stratified(&s, &w, label, n, n_labels, seed);
    }
    *out = s;
    s.train = NULL;
fail:
    free(s.train);
    free(w.count);
    free(w.rest);
    return error;
}

void split_clear(struct split *s)
{
    free(s->train);
    *s = (struct split){0};
}
