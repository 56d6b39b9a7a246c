/* What is drawn for the estimators of a fit: shifts, class permutations, pipeline seeds (spec 2.3, 3.2). */
#define TABFT_ENSEMBLE_ROOM
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "ensemble/ensemble_internal.h"

enum { SHIFT_MOST = 1000, DRAWS_PER_PERMUTATION = 3 };

static int by_first_then_next(const void *a, const void *b, void *context)
{
    const int32_t *x = a, *y = b;
    for (size_t i = 0; i < *(const size_t *)context; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* argsort of n drawn doubles. */
static void draw_order(struct random_pcg *g, size_t n, double *noise, int32_t *order)
{
    for (size_t i = 0; i < n; i++) noise[i] = random_pcg_double(g);
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && noise[order[at - 1]] > noise[i]; at--) order[at] = order[at - 1];
        order[at] = (int32_t)i;
    }
}

/* Distinct drawn orders, sorted, each as often as the others; what is left over by choice with replacement. */
static int shuffle_classes(struct random_pcg *g, size_t n, size_t n_classes, int32_t *out, struct tabft_failure *f)
{
    size_t n_drawn = n * DRAWS_PER_PERMUTATION, n_distinct = 0, done = 0;
    double *noise = NULL;
    int32_t *drawn = NULL;
    size_t bytes = n_classes * sizeof *drawn, *rest = NULL;
    int error;
    TRY(memory_new(&noise, n_classes, sizeof *noise, "class permutations", f));
    TRY(memory_new(&drawn, n_drawn, bytes, "class permutations", f));
    TRY(memory_new(&rest, n, sizeof *rest, "class permutations", f));
    for (size_t i = 0; i < n_drawn; i++) draw_order(g, n_classes, noise, drawn + i * n_classes);
    qsort_r(drawn, n_drawn, bytes, by_first_then_next, &n_classes);
    for (size_t i = 0; i < n_drawn; i++) {
        const int32_t *next = drawn + i * n_classes;
        if (n_distinct > 0 && memcmp(next, drawn + (n_distinct - 1) * n_classes, bytes) == 0) continue;
        memmove(drawn + n_distinct++ * n_classes, next, bytes);
    }
    for (size_t i = 0; i < n_distinct; i++)
        for (size_t k = 0; k < n / n_distinct; k++) memcpy(out + done++ * n_classes, drawn + i * n_classes, bytes);
    if (n > done) {
        random_pcg_choice_repeated(g, n_distinct, n - done, rest);
        for (size_t i = 0; done < n; i++) memcpy(out + done++ * n_classes, drawn + rest[i] * n_classes, bytes);
    }
fail:
    free(rest);
    free(drawn);
    free(noise);
    return error;
}

static int rotate_classes(struct random_pcg *g, size_t n, size_t n_classes, int32_t *out, struct tabft_failure *f)
{
    size_t *shift = NULL, *chosen = NULL;
    int error;
    TRY(memory_new(&shift, n_classes, sizeof *shift, "class permutations", f));
    TRY(memory_new(&chosen, n, sizeof *chosen, "class permutations", f));
    random_pcg_permutation(g, n_classes, shift);
    random_pcg_choice_repeated(g, n_classes, n, chosen);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < n_classes; c++) out[i * n_classes + (c + shift[chosen[i]]) % n_classes] = (int32_t)c;
fail:
    free(chosen);
    free(shift);
    return error;
}

static int draw_classes(struct random_pcg *g, enum shift shift, size_t n, size_t n_classes, int32_t *out,
                        struct tabft_failure *f)
{
    if (shift == SHIFT_SHUFFLE) return shuffle_classes(g, n, n_classes, out, f);
    if (shift == SHIFT_ROTATE) return rotate_classes(g, n, n_classes, out, f);
    for (size_t i = 0; i < n * n_classes; i++) out[i] = (int32_t)(i % n_classes);
    return 0;
}

size_t draws_pair(size_t i, size_t n, size_t n_pairs)
{
    size_t each = n / n_pairs;
    return i < each * n_pairs ? i / each : i - each * n_pairs;
}

int draws_make(struct estimator *estimator, size_t n, const struct config *c, uint32_t seed, size_t n_classes,
               int32_t *permutations, struct sub_seeds *seeds, struct tabft_failure *f)
{
    struct random_pcg g;
    size_t *shift = NULL;
    int error;
    TRY(memory_new(&shift, n, sizeof *shift, "shifts of estimators", f));
    random_pcg_seed(&g, seed);
    size_t start = (size_t)random_pcg_integer(&g, 0, SHIFT_MOST);
    TRY(random_pcg_choice(&g, n, n, shift, f));
    if (n_classes > 0) TRY(draw_classes(&g, c->class_shift, n, n_classes, permutations, f));

    random_pcg_seed(&g, seed); /* the second stream starts from the same seed */
    seeds->pipelines = (uint64_t)random_pcg_integer(&g, 0, INT64_MAX);
    seeds->columns = (uint64_t)random_pcg_integer(&g, 0, INT64_MAX);
    seeds->rows = (uint64_t)random_pcg_integer(&g, 0, INT64_MAX);
    random_pcg_seed(&g, seeds->pipelines);
    for (size_t i = 0; i < n; i++) {
        size_t pair = draws_pair(i, n, c->n_preprocessors * c->n_targets);
        estimator[i].preprocessor = &c->preprocessor[pair / c->n_targets];
        estimator[i].target = c->target[pair % c->n_targets];
        estimator[i].column_shift = start + shift[i];
        estimator[i].class_permutation = permutations + i * n_classes;
        estimator[i].seed = (uint64_t)random_pcg_integer(&g, 0, INT32_MAX);
    }
fail:
    free(shift);
    return error;
}
