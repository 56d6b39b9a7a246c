/* The classification loss, in float64: a few numbers a row. */
#define TABFT_TENSOR_ROOM
#include <math.h>
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

/* log of the sum of exp over the permuted classes of one row, and the largest logit. */
static double log_sum(const float *z, const int32_t *permutation, size_t n_classes)
{
    double top = z[permutation[0]], sum = 0;
    for (size_t c = 1; c < n_classes; c++)
        if (z[permutation[c]] > top) top = z[permutation[c]];
    for (size_t c = 0; c < n_classes; c++) sum += exp(z[permutation[c]] - top);
    return top + log(sum);
}

static void cross_entropy_forward(void *state, const struct op_call *call)
{
    const struct op_cross_entropy *s = &call->op->cross_entropy;
    const float *z = call->in[0];
    const int32_t *label = call->in[1], *permutation = call->in[2];
    double loss = 0;
    (void)state;
    for (size_t i = 0; i < s->rows; i++, z += s->width)
        loss += log_sum(z, permutation, s->n_classes) - z[permutation[label[i]]];
    loss *= s->scale / (double)s->rows;
    memcpy(call->out[0], &loss, sizeof loss);
}

static void cross_entropy_backward(void *state, const struct op_call *call)
{
    const struct op_cross_entropy *s = &call->op->cross_entropy;
    const float *z = call->in[0];
    const int32_t *label = call->in[1], *permutation = call->in[2];
    float *d = call->d_in[0];
    const double scale = s->scale / (double)s->rows;
    (void)state;
    if (!call->add[0]) memset(d, 0, s->rows * s->width * sizeof *d);
    for (size_t i = 0; i < s->rows; i++, z += s->width, d += s->width) {
        double total = log_sum(z, permutation, s->n_classes);
        for (size_t c = 0; c < s->n_classes; c++) {
            double p = exp(z[permutation[c]] - total);
            d[permutation[c]] += (float)(scale * (p - ((int32_t)c == label[i] ? 1.0 : 0.0)));
        }
    }
}

const struct tensor_kernels cpu_cross_entropy = {cpu_no_scratch, cpu_no_scratch, cross_entropy_forward,
                                                cross_entropy_backward};
