/* Fresh weights. */
#define TABFT_MODEL_ROOM
#include <math.h>

#include "base/random.h"
#include "model/model_internal.h"

/* Standard normal by Box-Muller, in float64. */
static double draw_normal(struct random_mt *g)
{
    const double u = random_mt_double(g), v = random_mt_double(g);
    return sqrt(-2.0 * log1p(-u)) * cos(2.0 * 3.14159265358979323846 * v);
}

static float draw_value(struct random_mt *g, enum model_draw draw, double bound)
{
    switch (draw) {
    case MODEL_DRAW_ONE: return 1.0f;
    case MODEL_DRAW_NORMAL: return (float)draw_normal(g);
    case MODEL_DRAW_SMALL:
    case MODEL_DRAW_UNIT:
    case MODEL_DRAW_WAVES: return (float)(draw_normal(g) * bound);
    case MODEL_DRAW_FAN_IN:
    case MODEL_DRAW_XAVIER: return (float)((2.0 * random_mt_double(g) - 1.0) * bound);
    default: return 0.0f;
    }
}

void model_draw_values(struct model *m, uint64_t seed)
{
    struct random_mt g;
    random_mt_seed(&g, (uint32_t)(seed ^ seed >> 32));
    double fan_in = 1;
    for (size_t i = 0; i < m->n_all_parameters; i++) {
        const struct model_parameter *p = &m->parameters[i];
        if (p->rank == 2) fan_in = (double)p->shape[1]; /* a bias follows its weight and has its bound */
        double bound = 1.0 / sqrt(fan_in);
        if (m->draws[i] == MODEL_DRAW_SMALL) bound = 0.02;
        if (m->draws[i] == MODEL_DRAW_WAVES) bound = 2;
        if (m->draws[i] == MODEL_DRAW_XAVIER) bound = sqrt(6.0 / (double)(p->shape[0] + p->shape[1]));
        for (size_t j = 0; j < p->count; j++) m->values[p->offset + j] = draw_value(&g, m->draws[i], bound);
    }
}
