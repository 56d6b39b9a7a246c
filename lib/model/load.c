/* A file's tensors become a network's. */
#define TABFT_MODEL_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/model_internal.h"

static int check_shape(const struct model_parameter *p, const struct ckpt_tensor *t, struct tabft_failure *f)
{
    bool same = t->rank == p->rank;
    for (int d = 0; d < p->rank && same; d++) same = t->shape[d] == p->shape[d];
    if (same) return 0;
    if (p->rank == 1)
        return tabft_fail(f, TABFT_INPUT, "tensor %s: its shape is not [%zu] as the config says", p->name, p->shape[0]);
    return tabft_fail(f, TABFT_INPUT, "tensor %s: its shape is not [%zu, %zu] as the config says", p->name, p->shape[0],
                      p->shape[1]);
}

static int find_source(const struct model *m, const struct model_parameter *p, const struct ckpt *c,
                       struct model_source *out, struct tabft_failure *f)
{
    int error = 0;
    *out = (struct model_source){.tensor = ckpt_find(c, p->name), .row = p->shape[1], .column = 1};
    if (out->tensor != NULL) TRY(check_shape(p, out->tensor, f));
    else if (m->architecture->older != NULL) TRY(m->architecture->older(m, p, c, out, f));
    TRY(model_check_numbers(p->name, out->tensor, f));
fail:
    return error;
}

/* A parameter's numbers as float32. */
static void copy_numbers(const struct model_parameter *p, const struct model_source *source, float *to)
{
    const size_t rows = p->rank == 1 ? 1 : p->shape[0], columns = p->rank == 1 ? p->shape[0] : p->shape[1];
    if (source->tensor->dtype == CKPT_F32 && source->column == 1 && (rows == 1 || source->row == columns)) {
        memcpy(to, (const float *)source->tensor->data + source->first, p->count * sizeof *to);
        return;
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++)
            *to++ = (float)ckpt_value(source->tensor, source->first + r * source->row + j * source->column);
}

/* Whether a later parameter than i comes from the same tensor. */
static bool is_needed(const struct model_source *source, size_t i, size_t n)
{
    for (size_t j = i + 1; j < n; j++)
        if (source[j].tensor == source[i].tensor) return true;
    return false;
}

/* source [n_all_parameters]: where each came from. */
static int copy_weights(struct model *m, const struct ckpt *c, struct ckpt *moved, struct model_source *source,
                        struct tabft_failure *f)
{
    for (size_t i = 0; i < m->n_all_parameters; i++) {
        int error = find_source(m, &m->parameters[i], c, &source[i], f);
        if (error < 0) return error;
    }
    for (size_t i = 0; i < m->n_all_parameters; i++) {
        copy_numbers(&m->parameters[i], &source[i], m->values + m->parameters[i].offset);
        if (moved != NULL && !is_needed(source, i, m->n_all_parameters)) ckpt_forget(moved, source[i].tensor);
    }
    return 0;
}

static bool is_among(const struct model_source *source, size_t n, const struct ckpt_tensor *t)
{
    for (size_t i = 0; i < n; i++)
        if (source[i].tensor == t) return true;
    return false;
}

/* A criterion travels with its network (TabPFN reads a regressor's); anything else that the network does not have is a
 * mistake. */
static int copy_extras(struct model *m, const struct ckpt *c, const struct model_source *source,
                       struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&m->extras, ckpt_count(c), sizeof *m->extras, "the weights", f));
    for (size_t i = 0; i < ckpt_count(c); i++) {
        const struct ckpt_tensor *t = ckpt_at(c, i);
        if (is_among(source, m->n_all_parameters, t) || model_constant(m, t->name) != NULL) continue;
        if (strncmp(t->name, "criterion.", 10) != 0)
            FAIL(f, TABFT_INPUT, "tensor %.200s is not one of a %s network", t->name, m->architecture->name);
        struct model_extra *e = &m->extras[m->n_extras++];
        const size_t bytes = t->count * ckpt_dtype_size(t->dtype);
        e->tensor = *t;
        TRY(memory_copy_string(&e->name, t->name, f));
        TRY(memory_new(&e->data, bytes, 1, "the weights", f));
        if (bytes > 0) memcpy(e->data, t->data, bytes);
        e->tensor.name = e->name;
        e->tensor.data = e->data;
    }
fail:
    return error;
}

int model_load_borders(struct model *m, const struct ckpt *c, struct tabft_failure *f)
{
    int error = 0;
    const struct ckpt_tensor *t = c == NULL ? NULL : ckpt_find(c, "criterion.borders");
    const char *const own_name = m->architecture->borders;
    const float *own = own_name != NULL ? model_constant(m, own_name) : NULL;
    const char *name = t != NULL ? "criterion.borders" : own_name;
    const size_t n = m->config.buckets;
    if (m->config.task == MODEL_CLASSIFICATION || (t == NULL && own == NULL)) return 0;
    if (n < 2 || (t != NULL && (t->rank != 1 || t->count != n + 1)))
        FAIL(f, TABFT_INPUT, "tensor %s: its shape is not [%zu], the config's buckets and one", name, n + 1);
    if (t != NULL && t->data == NULL) FAIL(f, TABFT_USE, "tensor %s: only the header was loaded", name);
    TRY(memory_new(&m->borders, n + 1, sizeof *m->borders, "the weights", f));
    for (size_t k = 0; k <= n; k++) {
        m->borders[k] = t != NULL ? (float)ckpt_value(t, k) : own[k];
        const bool ascends = k == 0 || (k == 1 || k == n ? m->borders[k] > m->borders[k - 1]
                                                         : m->borders[k] >= m->borders[k - 1]);
        if (!isfinite(m->borders[k]) || !ascends)
            FAIL(f, TABFT_INPUT, "tensor %s: border %zu, %g, is not a number above the one before it", name, k,
                 (double)m->borders[k]);
    }
fail:
    return error;
}

int model_load(struct model *m, const struct ckpt *c, struct ckpt *moved, struct tabft_failure *f)
{
    int error = 0;
    struct model_source *source = NULL;
    TRY(memory_new(&source, m->n_all_parameters, sizeof *source, "the weights", f));
    TRY(copy_weights(m, c, moved, source, f));
    TRY(model_copy_constants(m, c, f));
    TRY(copy_extras(m, c, source, f));
    TRY(model_load_borders(m, c, f));
fail:
    free(source);
    return error;
}
