/* Float32 arithmetic where TabPFN's own is float32; sums in float64. */
#define TABFT_MODEL_ROOM
#include <float.h>
#include <math.h>

#include "model/model_internal.h"

float encode_indicator(float x)
{
    if (isnan(x)) return -2.0f;
    if (isinf(x)) return x > 0 ? 2.0f : 4.0f;
    return 0.0f;
}

float encode_mean(size_t n, const float *x, size_t stride)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i * stride])) continue;
        sum += x[i * stride];
        count++;
    }
    return count == 0 ? 0.0f : (float)(sum / (double)count);
}

struct encode_sizes encode_sizes_of(const struct model *m, const struct model_shape *s)
{
    const struct model_config *c = &m->config;
    return (struct encode_sizes){s->n_context,     s->n_query, s->n_columns, c->group_features, c->groups_as_they_stand,
                                 c->groups_overlap};
}

size_t encode_columns(const struct encode_sizes *s, const float *x, bool *used)
{
    const size_t rows = s->n_context + s->n_query, n = s->n_columns;
    size_t count = 0;
    for (size_t c = 0; c < n; c++) {
        bool differs = rows <= 1; /* a missing value differs from everything, itself too */
        for (size_t i = 1; i < rows && !differs; i++) differs = !(x[i * n + c] == x[c]);
        used[c] = differs;
        count += differs;
    }
    return count;
}

bool encode_column(const struct encode_sizes *s, const float *x, float *to, size_t stride)
{
    const size_t rows = s->n_context + s->n_query, n = s->n_columns;
    const float filling = encode_mean(s->n_context, x, n);
    for (size_t i = 0; i < rows; i++) to[i * stride] = isfinite(x[i * n]) ? x[i * n] : filling;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < s->n_context; i++) sum += to[i * stride];
    const float mean = (float)(sum / (double)s->n_context);
    for (size_t i = 0; i < s->n_context; i++) {
        const double d = (double)to[i * stride] - mean;
        squares += d * d;
    }
    float deviation = s->n_context > 1 ? (float)sqrt(squares / (double)(s->n_context - 1)) : 1.0f;
    if (deviation == 0.0f) deviation = 1.0f;
    bool differs = false;
    for (size_t i = 0; i < rows; i++) {
        const float z = (to[i * stride] - mean) / (deviation + FLT_EPSILON);
        to[i * stride] = z < -100.0f ? -100.0f : z > 100.0f ? 100.0f : z;
        differs |= to[i * stride] != to[0];
    }
    return differs;
}

/* One group: its columns, then zeros up to the group's size, scaled by how many of them vary. */
static void encode_group(const struct encode_sizes *s, const float *x, const size_t *columns, size_t n_columns,
                         float *to, size_t stride)
{
    const size_t rows = s->n_context + s->n_query, size = s->group_features;
    size_t varying = 0;
    for (size_t j = 0; j < size; j++) {
        bool differs = false;
        if (j < n_columns) differs = encode_column(s, x + columns[j], to + j, stride);
        for (size_t i = 0; i < rows; i++) {
            to[i * stride + size + j] = j < n_columns ? encode_indicator(x[i * s->n_columns + columns[j]]) : 0.0f;
            if (!differs) to[i * stride + j] = 0.0f;
        }
        varying += differs;
    }
    const float scale = sqrtf((float)size / (float)(varying > 0 ? varying : 1));
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < size; j++) to[i * stride + j] *= scale;
}

size_t encode_groups(const struct encode_sizes *s, size_t n_used)
{
    if (s->overlap) return s->n_columns;
    return ((s->as_they_stand ? s->n_columns : n_used) + s->group_features - 1) / s->group_features;
}

void encode_features(const struct encode_sizes *s, const float *x, const bool *used, float *feature)
{
    enum { GROUP_MAX = 64 };
    size_t n_used = 0, columns[GROUP_MAX], in_group = 0, group = 0;
    for (size_t c = 0; c < s->n_columns; c++) n_used += used[c];
    const size_t n_groups = encode_groups(s, n_used), stride = n_groups * 2 * s->group_features;
    size_t placed = 0; /* columns that have their place in a group */
    for (size_t c = 0; c < s->n_columns; c++) {
        if (used[c]) columns[in_group++] = c;
        if (!used[c] && !s->as_they_stand) continue;
        placed++;
        if (placed % s->group_features != 0 && placed != (s->as_they_stand ? s->n_columns : n_used)) continue;
        encode_group(s, x, columns, in_group, feature + group * 2 * s->group_features, stride);
        group++;
        in_group = 0;
    }
}

/* The smallest number above `y` among the context's targets; INFINITY where there is none. */
static float next_target(size_t rows, const float *target, float y)
{
    float next = INFINITY;
    for (size_t i = 0; i < rows; i++)
        if (target[2 * i] > y && target[2 * i] < next) next = target[2 * i];
    return next;
}

/* Replaces class codes by how many different ones of the context are below. A rank that has taken its code's place
 * stands as -1 - rank meanwhile, which no code is. */
static void rank_targets(size_t n_context, size_t rows, float *target)
{
    float rank = 0, y = next_target(n_context, target, -1.0f);
    while (isfinite(y)) {
        for (size_t i = 0; i < rows; i++)
            if (target[2 * i] >= 0 && target[2 * i] <= y) target[2 * i] = -1.0f - rank;
        rank++;
        y = next_target(n_context, target, y);
    }
    for (size_t i = 0; i < rows; i++) target[2 * i] = target[2 * i] >= 0 ? rank : -1.0f - target[2 * i];
}

void encode_targets(const struct encode_sizes *s, const float *y_context, enum encode_kind kind, float *target)
{
    const size_t rows = s->n_context + s->n_query;
    const float mean = encode_mean(s->n_context, y_context, 1), filling = kind == ENCODE_CODES ? ceilf(mean) : mean;
    for (size_t i = 0; i < rows; i++) {
        const float y = i < s->n_context ? y_context[i] : NAN;
        target[2 * i] = isfinite(y) ? y : filling;
        target[2 * i + 1] = encode_indicator(y);
    }
    if (kind == ENCODE_RANKS) rank_targets(s->n_context, rows, target);
}
