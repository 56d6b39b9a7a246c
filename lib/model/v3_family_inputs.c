/* What networks of the v3 family are given: cells, each of which knows some columns behind its own, and targets. */
#define TABFT_MODEL_ROOM
#include <math.h>

#include "model/v3_family_internal.h"

/* ---- cells ---- */

/* Where the numbers of a cell begin: those of its columns, then what these miss, then the waves of their ranks. */
struct layout {
    size_t group, indicators, waves, frequencies, width;
};

static struct layout layout_of(const struct model_config *c)
{
    const size_t group = c->group_features, behind = group * (c->stages.has_indicators ? 2 : 1),
                 frequencies = c->stages.fourier == 0 ? 0 : c->stages.rank_frequencies;
    return (struct layout){group, group, behind, frequencies, behind + group * 2 * frequencies};
}

size_t v3_family_numbers(const struct model_config *c) { return layout_of(c).width; }

/* A column's ranks, its context, and what ranking takes. */
size_t v3_family_room(const struct model_config *c, size_t n_context, size_t n_rows)
{
    return n_rows + n_context + ranks_room(n_context, c->stages.rank_edges);
}

/* sin(pi u k) for k = 1, 2, ..., then the cosines. */
static void put_waves(size_t frequencies, float u, float *to)
{
    const double angle = 3.14159265358979323846 * (double)u, s = sin(angle), c = cos(angle);
    double sine = s, cosine = c;
    for (size_t k = 0; k < frequencies; k++) {
        to[k] = (float)sine;
        to[k + frequencies] = (float)cosine;
        const double next = sine * c + cosine * s;
        cosine = cosine * c - sine * s;
        sine = next;
    }
}

/* Number i of a cell's values is that of the column 2^i behind it, the columns standing in a ring. room: rank [rows of
 * the part], then what finding them takes; NULL where cells have no ranks. */
static void fill_features(const struct model *m, const struct model_input *input, enum model_part part, float *rank,
                          float *feature)
{
    const struct encode_sizes s = encode_sizes_for(m, input, part);
    const struct layout l = layout_of(&m->config);
    const size_t rows = s.end - s.first, n = s.n_columns, stride = n * l.width;
    for (size_t c = 0; c < n; c++) {
        const float *const x = input->x + c;
        float *const first = feature + (c + n - 1 % n) % n * l.width;
        (void)encode_column(&s, x, first, stride);
        if (rank != NULL) {
            float *const context = rank + rows;
            encode_fill(&s, x, s.first, s.end, rank);
            encode_fill(&s, x, 0, s.n_context, context);
            ranks_of(s.n_context, context, m->config.stages.rank_edges, rows, rank, context + s.n_context);
        }
        for (size_t j = 0; j < l.group; j++) {
            float *to = feature + (c + n - ((size_t)1 << j) % n) % n * l.width;
            for (size_t i = 0; i < rows; i++, to += stride) {
                to[j] = first[i * stride];
                if (l.waves > l.indicators) to[l.indicators + j] = encode_indicator(x[(s.first + i) * n]);
                if (rank != NULL) put_waves(l.frequencies, rank[i], to + l.waves + j * 2 * l.frequencies);
            }
        }
    }
}

/* ---- the rest ---- */

static void fill_targets(const struct model *m, const struct model_input *input, void *target)
{
    const size_t n = input->shape.n_context;
    const float mean = encode_mean(n, input->y_context, 1);
    for (size_t i = 0; i < n; i++) {
        const float y = input->y_context[i];
        if (m->config.task == MODEL_CLASSIFICATION) ((int32_t *)target)[i] = (int32_t)y;
        else ((float *)target)[i] = isfinite(y) ? y : mean;
    }
}

static void fill_turns(const struct model *m, size_t tokens, float *turns)
{
    const size_t half = m->config.width / m->config.stages.row_heads / 2;
    const float *freqs = model_constant(m, V3_FREQS);
    for (size_t i = 0; i < tokens; i++, turns += 2 * half)
        for (size_t j = 0; j < half; j++) {
            const double angle = (double)i * (double)freqs[j];
            turns[j] = (float)cos(angle);
            turns[j + half] = (float)sin(angle);
        }
}

void v3_family_fill(const struct model *m, const struct tape_plan *p, const struct tape_memory *memory,
                    const struct model_tape *io, const struct model_input *input, const bool *used)
{
    (void)used;
    fill_features(m, input, io->part, io->room == TAPE_NONE ? NULL : tape_plan_input(p, memory, io->room),
                  tape_plan_input(p, memory, io->feature));
    fill_targets(m, input, tape_plan_input(p, memory, io->target));
    *(float *)tape_plan_input(p, memory, io->log_keys) = (float)log((double)input->shape.n_context);
    if (io->turns != TAPE_NONE)
        fill_turns(m, input->shape.n_columns + m->config.stages.row_tokens, tape_plan_input(p, memory, io->turns));
}
