#include "train/optimiser.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/threads.h"

enum { BLOCK = 16384 }; /* elements a thread takes at a time */

static const double BETA1 = 0.9, BETA2 = 0.999, EPSILON = 1e-8;

struct optimiser {
    size_t n;
    uint64_t steps;
    float *moment1, *moment2; /* [n] each */
};

int optimiser_open(struct optimiser **out, size_t n, struct tabft_failure *f)
{
    int error = 0;
    struct optimiser *o = NULL;
    *out = NULL;
    TRY(memory_new(&o, 1, sizeof *o, "AdamW's state", f));
    o->n = n;
    TRY(memory_new(&o->moment1, n, sizeof *o->moment1, "AdamW's first moments", f));
    TRY(memory_new(&o->moment2, n, sizeof *o->moment2, "AdamW's second moments", f));
    *out = o;
    return 0;
fail:
    optimiser_close(o);
    return error;
}

void optimiser_close(struct optimiser *o)
{
    if (o == NULL) return;
    free(o->moment1);
    free(o->moment2);
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

/* One step's numbers, rounded to float32 once, and the arrays. */
struct update {
    size_t n;
    float keep, clip, blend1, keep2, blend2, root2, epsilon, rate;
    float *weights, *moment1, *moment2;
    const float *gradient;
};

static void update_block(void *context, size_t block, int thread)
{
    (void)thread;
    const struct update u = *(const struct update *)context;
    size_t begin = block * BLOCK, end = begin + BLOCK < u.n ? begin + BLOCK : u.n;
    float *restrict weights = u.weights, *restrict moment1 = u.moment1, *restrict moment2 = u.moment2;
    for (size_t i = begin; i < end; i++) {
        float g = u.gradient[i] * u.clip, w = weights[i] * u.keep;
        float m = moment1[i] + u.blend1 * (g - moment1[i]);
        float v = moment2[i] * u.keep2 + u.blend2 * g * g;
        moment1[i] = m;
        moment2[i] = v;
        weights[i] = w - u.rate * m / (sqrtf(v) / u.root2 + u.epsilon);
    }
}

void optimiser_step(struct optimiser *o, const struct optimiser_step *step, float *weights, const float *gradient,
                    struct threads *pool)
{
    o->steps++;
    double correction1 = 1 - pow(BETA1, (double)o->steps), correction2 = 1 - pow(BETA2, (double)o->steps);
    struct update u = {
        .n = o->n,
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
    threads_run(pool, o->n / BLOCK + (o->n % BLOCK > 0), update_block, &u);
}
