#include "train/optimiser.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

static const double BETA1 = 0.9, BETA2 = 0.999, EPSILON = 1e-8;

struct optimiser {
    const struct vectors *v;
    size_t n;
    uint64_t steps;
    float *moment1, *moment2; /* [n] each */
};

/* n zeros. */
static int moments_new(const struct vectors *v, float **out, size_t n, const char *what, struct tabft_failure *f)
{
    void *memory = NULL;
    size_t bytes;
    if (!size_mul(n, sizeof(float), &bytes)) return tabft_fail(f, TABFT_SYSTEM, "no memory for %s", what);
    const int error = v->memory_new(v->state, &memory, bytes, what, f);
    if (error < 0) return error;
    v->zero(v->state, memory, bytes);
    *out = memory;
    return 0;
}

int optimiser_open(struct optimiser **out, const struct vectors *v, size_t n, struct tabft_failure *f)
{
    int error = 0;
    struct optimiser *o = NULL;
    *out = NULL;
    TRY(memory_new(&o, 1, sizeof *o, "AdamW's state", f));
    o->v = v;
    o->n = n;
    TRY(moments_new(v, &o->moment1, n, "AdamW's first moments", f));
    TRY(moments_new(v, &o->moment2, n, "AdamW's second moments", f));
    *out = o;
    return 0;
fail:
    optimiser_close(o);
    return error;
}

void optimiser_close(struct optimiser *o)
{
    if (o == NULL) return;
    o->v->memory_free(o->v->state, o->moment1);
    o->v->memory_free(o->v->state, o->moment2);
    free(o);
}

size_t optimiser_bytes(size_t n) { return n * 2 * sizeof(float); }

struct optimiser_state optimiser_state(struct optimiser *o)
{
    return (struct optimiser_state){.steps = o->steps, .moment1 = o->moment1, .moment2 = o->moment2};
}

void optimiser_set_steps(struct optimiser *o, uint64_t steps) { o->steps = steps; }

double optimiser_clip(double norm, double largest)
{
    if (largest <= 0) return 1;
    float factor = (float)largest / ((float)norm + 1e-6F);
    return factor < 1 ? (double)factor : 1;
}

/* The step's numbers are rounded to float32 once. */
void optimiser_step(struct optimiser *o, const struct optimiser_step *step, float *weights, const float *gradient)
{
    o->steps++;
    double correction1 = 1 - pow(BETA1, (double)o->steps), correction2 = 1 - pow(BETA2, (double)o->steps);
    const struct vectors_adamw u = {
        .count = o->n,
        .keep = (float)(1 - step->learning_rate * step->weight_decay),
        .clip = (float)step->clip,
        .blend1 = (float)(1 - BETA1),
        .keep2 = (float)BETA2,
        .blend2 = (float)(1 - BETA2),
        .root2 = (float)sqrt(correction2),
        .epsilon = (float)EPSILON,
        .rate = (float)(step->learning_rate / correction1),
        .weights = weights,
        .moment1 = o->moment1,
        .moment2 = o->moment2,
        .gradient = gradient,
    };
    o->v->adamw(o->v->state, &u);
}
