/* Sines and cosines of numbers times frequencies: rows in blocks; the frequencies' gradient in parts, as in linear.c.
 */
#define TABFT_TENSOR_ROOM
#include <string.h>

#include "tensor/cpu/cpu_internal.h"

enum { BLOCK_ROWS = 128 };

struct fourier {
    struct cpu *cpu;
    const struct op_call *call;
    struct cpu_split split;
};

static void fourier_block(void *context, size_t block, int thread)
{
    const struct fourier *f = context;
    const struct op_fourier *s = &f->call->op->fourier;
    const float *frequency = f->call->in[1];
    (void)thread;
    for (size_t r = block * BLOCK_ROWS; r < smaller((block + 1) * BLOCK_ROWS, s->rows); r++)
        f->cpu->k->fourier(s->numbers, s->frequencies, (const float *)f->call->in[0] + r * s->x_width, frequency,
                           (float *)f->call->out[0] + r * 2 * s->frequencies);
}

static void fourier_forward(void *state, const struct op_call *call)
{
    struct fourier f = {.cpu = state, .call = call};
    threads_run(f.cpu->pool, (call->op->fourier.rows + BLOCK_ROWS - 1) / BLOCK_ROWS, fourier_block, &f);
}

static void fourier_part(void *context, size_t part, int thread)
{
    const struct fourier *f = context;
    const struct op_fourier *s = &f->call->op->fourier;
    const size_t count = s->numbers * s->frequencies;
    float *const d = (float *)f->call->scratch + part * count;
    (void)thread;
    memset(d, 0, count * sizeof *d);
    for (size_t r = part * f->split.rows; r < smaller((part + 1) * f->split.rows, s->rows); r++)
        f->cpu->k->fourier_backward(s->numbers, s->frequencies, (const float *)f->call->in[0] + r * s->x_width,
                                    f->call->in[1], f->call->d_out + r * 2 * s->frequencies, d);
}

static void fourier_backward(void *state, const struct op_call *call)
{
    const struct op_fourier *s = &call->op->fourier;
    const size_t count = s->numbers * s->frequencies;
    struct fourier f = {.cpu = state, .call = call, .split = cpu_split_of(s->rows)};
    if (call->d_in[1] == NULL) return;
    threads_run(f.cpu->pool, f.split.parts, fourier_part, &f);
    if (!call->add[1]) memset(call->d_in[1], 0, count * sizeof *call->d_in[1]);
    cpu_split_sum(f.cpu, f.split.parts, count, call->scratch, call->d_in[1]);
}

static size_t fourier_scratch(const void *state, const struct op *op)
{
    (void)state;
    return cpu_split_parts_max(op->fourier.rows) * op->fourier.numbers * op->fourier.frequencies * sizeof(float);
}

const struct tensor_kernels cpu_fourier = {cpu_no_scratch, fourier_scratch, fourier_forward, fourier_backward};
