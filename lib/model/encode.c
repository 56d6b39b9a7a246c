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
    const size_t rows = s->n_context + s->n_query;
    return (struct encode_sizes){.n_context = s->n_context,
                                 .n_query = s->n_query,
                                 .n_columns = s->n_columns,
                                 .group_features = c->group_features,
                                 .judged = rows,
                                 .end = rows,
                                 .as_they_stand = c->groups_as_they_stand,
                                 .overlap = c->groups_overlap};
}

struct encode_sizes encode_sizes_for(const struct model *m, const struct model_input *input, enum model_part part)
{
    struct encode_sizes s = encode_sizes_of(m, &input->shape);
    if (input->queries_alone) s.judged = s.n_context;
    if (part == MODEL_CONTEXT) s.end = s.n_context;
    if (part == MODEL_QUERY) s.first = s.n_context;
    return s;
}

size_t encode_columns(const struct encode_sizes *s, const float *x, bool *used)
{
    const size_t n = s->n_columns;
    size_t count = 0;
    for (size_t c = 0; c < n; c++) {
        bool differs = s->judged <= 1; /* a missing value differs from everything, itself too */
        for (size_t i = 1; i < s->judged && !differs; i++) differs = !(x[i * n + c] == x[c]);
        used[c] = differs;
        count += differs;
    }
    return count;
}

/* How one column is standardised. */
struct scale {
    float filling, mean, deviation;
};

static float filled(const struct scale *c, float x) { return isfinite(x) ? x : c->filling; }

static float standardised(const struct scale *c, float x)
{
    const float z = (filled(c, x) - c->mean) / (c->deviation + FLT_EPSILON);
    return z < -100.0f ? -100.0f : z > 100.0f ? 100.0f : z;
}

/* Squares are those of float32, as TabPFN's: a column of numbers whose squares are beyond it is no different from a
 * constant one, and the deviation of one whose squares vanish is taken for 1. */
static struct scale scale_of(size_t n_context, const float *x, size_t n)
{
    struct scale c = {.filling = encode_mean(n_context, x, n), .deviation = 1.0f};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n_context; i++) sum += filled(&c, x[i * n]);
    c.mean = (float)(sum / (double)n_context);
    for (size_t i = 0; i < n_context; i++) {
        const float d = filled(&c, x[i * n]) - c.mean, square = d * d;
        squares += (double)square;
    }
    if (squares > (double)FLT_MAX) squares = (double)INFINITY;
    if (n_context > 1) c.deviation = (float)sqrt(squares / (double)(n_context - 1));
    if (c.deviation == 0.0f) c.deviation = 1.0f;
    return c;
}

bool encode_column(const struct encode_sizes *s, const float *x, float *to, size_t stride)
{
    const size_t n = s->n_columns;
    const struct scale c = scale_of(s->n_context, x, n);
    for (size_t i = s->first; i < s->end; i++) to[(i - s->first) * stride] = standardised(&c, x[i * n]);
    for (size_t i = 1; i < s->judged; i++)
        if (standardised(&c, x[i * n]) != standardised(&c, x[0])) return true;
    return false;
}

void encode_fill(const struct encode_sizes *s, const float *x, size_t first, size_t end, float *to)
{
    const size_t n = s->n_columns;
    const float filling = encode_mean(s->n_context, x, n);
    for (size_t i = first; i < end; i++) to[i - first] = isfinite(x[i * n]) ? x[i * n] : filling;
}

/* One group: its columns, then zeros up to the group's size, scaled by how many of them vary. */
static void encode_group(const struct encode_sizes *s, const float *x, const size_t *columns, size_t n_columns,
                         float *to, size_t stride)
{
    const size_t rows = s->end - s->first, size = s->group_features;
    size_t varying = 0;
    for (size_t j = 0; j < size; j++) {
        bool differs = false;
        if (j < n_columns) differs = encode_column(s, x + columns[j], to + j, stride);
        for (size_t i = 0; i < rows; i++) {
            const float *row = x + (s->first + i) * s->n_columns;
            to[i * stride + size + j] = j < n_columns ? encode_indicator(row[columns[j]]) : 0.0f;
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

/* How many different ones of the context's targets are below y; all are whole numbers. */
static float rank_of(size_t n_context, const float *y_context, float y)
{
    float rank = 0, below = -INFINITY;
    for (;; rank++) {
        float next = INFINITY;
        for (size_t i = 0; i < n_context; i++)
            if (y_context[i] > below && y_context[i] < next) next = y_context[i];
        if (!(next < y)) return rank;
        below = next;
    }
}

void encode_targets(const struct encode_sizes *s, const float *y_context, enum encode_kind kind, float *target)
{
    const float mean = encode_mean(s->n_context, y_context, 1);
    float filling = kind == ENCODE_CODES ? ceilf(mean) : mean;
    if (kind == ENCODE_RANKS && s->first == s->n_context) filling = rank_of(s->n_context, y_context, mean);
    for (size_t i = s->first; i < s->end; i++) {
        const float y = i < s->n_context ? y_context[i] : NAN;
        float *to = target + 2 * (i - s->first);
        to[0] = isfinite(y) ? y : filling;
        to[1] = encode_indicator(y);
    }
    if (kind == ENCODE_RANKS && s->first < s->n_context) rank_targets(s->n_context, s->end, target);
}
