/* Constants of networks: declared by the architecture, read and written with the weights, never trained. */
#define TABFT_MODEL_ROOM
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/model_internal.h"

int model_declare_constant(struct model *m, const char *name, size_t count, float **values, struct tabft_failure *f)
{
    int error = 0;
    struct model_constant c = {NULL, NULL, count};
    TRY(memory_grow(&m->constants, m->n_constants + 1, sizeof *m->constants, "the constants", f));
    TRY(memory_copy_string(&c.name, name, f));
    m->constants[m->n_constants++] = c;
    TRY(memory_new(&m->constants[m->n_constants - 1].values, count, sizeof *c.values, "the constants", f));
    *values = m->constants[m->n_constants - 1].values;
fail:
    return error;
}

const float *model_constant(const struct model *m, const char *name)
{
    for (size_t i = 0; i < m->n_constants; i++)
        if (strcmp(m->constants[i].name, name) == 0) return m->constants[i].values;
    return NULL;
}

int model_check_numbers(const char *name, const struct ckpt_tensor *t, struct tabft_failure *f)
{
    if (t == NULL)
        return tabft_fail(f, TABFT_INPUT, "tensor %s is missing; the config says that the network has it", name);
    if (t->dtype != CKPT_F32 && t->dtype != CKPT_F64 && t->dtype != CKPT_F16 && t->dtype != CKPT_BF16)
        return tabft_fail(f, TABFT_INPUT, "tensor %.200s holds %s, not floating-point numbers", t->name,
                          ckpt_dtype_name(t->dtype));
    if (t->data == NULL && t->count > 0)
        return tabft_fail(f, TABFT_USE, "tensor %.200s: only the header was loaded", t->name);
    return 0;
}

int model_copy_constants(struct model *m, const struct ckpt *c, struct tabft_failure *f)
{
    for (size_t i = 0; i < m->n_constants; i++) {
        const struct model_constant *to = &m->constants[i];
        const struct ckpt_tensor *t = ckpt_find(c, to->name);
        int error = model_check_numbers(to->name, t, f);
        if (error < 0) return error;
        if (t->rank != 1 || t->count != to->count)
            return tabft_fail(f, TABFT_INPUT, "tensor %s: its shape is not [%zu] as the config says", to->name,
                              to->count);
        for (size_t j = 0; j < to->count; j++) {
            to->values[j] = (float)ckpt_value(t, j);
            if (!isfinite(to->values[j]))
                return tabft_fail(f, TABFT_INPUT, "tensor %s: number %zu is not finite", to->name, j);
        }
    }
    return 0;
}

void model_free_constants(struct model *m)
{
    for (size_t i = 0; i < m->n_constants; i++) {
        free(m->constants[i].name);
        free(m->constants[i].values);
    }
    free(m->constants);
}
