/* Rows and tokens put together, picked out and looked up: a thread has a number of the result; where a gradient is a sum,
 * of the gradient. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

/* ---- assemble ---- */

__global__ static void assemble(const struct op_assemble s, const float *feature, const float *column,
                                const float *target, const float *thinking, float *out)
{
    const size_t e = s.width, row_width = (s.n_groups + 1) * e, count = (s.n_thinking + s.n_rows) * row_width;
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) {
        const size_t row = i / row_width, at = i % row_width;
        if (row < s.n_thinking) out[i] = thinking[row * e + at % e];
        else if (at < s.n_groups * e) out[i] = feature[(row - s.n_thinking) * s.n_groups * e + at] + column[at];
        else out[i] = target[(row - s.n_thinking) * e + at % e];
    }
}

/* The gradients of features, targets and thinking rows; those not asked for are NULL. */
__global__ static void assemble_back(const struct op_assemble s, const float *d, float *feature, bool add_feature,
                                     float *target, bool add_target, float *thinking, bool add_thinking)
{
    const size_t e = s.width, row_width = (s.n_groups + 1) * e, count = (s.n_thinking + s.n_rows) * row_width;
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) {
        const size_t row = i / row_width, at = i % row_width;
        if (row < s.n_thinking) {
            if (at >= e || thinking == NULL) continue;
            float sum = 0.0f;
            for (size_t g = 0; g <= s.n_groups; g++) sum += d[i + g * e];
            put(thinking + row * e + at, add_thinking, sum);
        } else if (at < s.n_groups * e) {
            if (feature != NULL) put(feature + (row - s.n_thinking) * s.n_groups * e + at, add_feature, d[i]);
        } else if (target != NULL) {
            put(target + (row - s.n_thinking) * e + at % e, add_target, d[i]);
        }
    }
}

static void assemble_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_assemble s = call->op->assemble;
    const size_t count = (s.n_thinking + s.n_rows) * (s.n_groups + 1) * s.width;
    LAUNCH(assemble, grid_of(count, BLOCK), BLOCK, 0, c->stream, s, (const float *)call->in[0],
           (const float *)call->in[1], (const float *)call->in[2], (const float *)call->in[3], (float *)call->out[0]);
    cuda_launched(c, "the tokens of a table");
}

static void assemble_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_assemble s = call->op->assemble;
    const size_t row_width = (s.n_groups + 1) * s.width, count = (s.n_thinking + s.n_rows) * row_width;
    LAUNCH(assemble_back, grid_of(count, BLOCK), BLOCK, 0, c->stream, s, call->d_out, call->d_in[0], call->add[0],
           call->d_in[2], call->add[2], call->d_in[3], call->add[3]);
    cuda_launched(c, "the gradient of a table's tokens");
    if (call->d_in[1] != NULL)
        sum_rows(c, row_term{call->d_out + s.n_thinking * row_width, row_width}, s.n_rows, s.n_groups * s.width,
                 (float *)call->scratch, call->add[1], call->d_in[1]);
}

static size_t assemble_scratch(const void *state, const struct op *op)
{
    (void)state;
    return sum_floats(op->assemble.n_rows, op->assemble.n_groups * op->assemble.width) * sizeof(float);
}

/* ---- select ---- */

__global__ static void select(const struct op_select s, const float *x, float *out)
{
    const size_t count = s.rows * s.width, each = s.run * s.width;
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid())
        out[i] = x[(s.first + i / each * s.step) * s.width + i % each];
}

__global__ static void select_back(const struct op_select s, const float *d, bool add, float *dx)
{
    const size_t count = s.rows * s.width, each = s.run * s.width;
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid())
        put(dx + (s.first + i / each * s.step) * s.width + i % each, add, d[i]);
}

static void select_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_select s = call->op->select;
    LAUNCH(select, grid_of(s.rows * s.width, BLOCK), BLOCK, 0, c->stream, s, (const float *)call->in[0],
           (float *)call->out[0]);
    cuda_launched(c, "picking rows");
}

static void select_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_select s = call->op->select;
    if (call->d_in[0] == NULL) return;
    LAUNCH(select_back, grid_of(s.rows * s.width, BLOCK), BLOCK, 0, c->stream, s, call->d_out, call->add[0],
           call->d_in[0]);
    cuda_launched(c, "the gradient of picked rows");
}

/* ---- prepend ---- */

__global__ static void prepend(const struct op_prepend s, const float *lead, const float *x, float *out)
{
    const size_t first = s.lead * s.width, row_width = first + s.columns * s.width, count = s.rows * row_width;
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) {
        const size_t row = i / row_width, at = i % row_width;
        out[i] = at < first ? lead[at] : x[row * (row_width - first) + at - first];
    }
}

__global__ static void prepend_back(const struct op_prepend s, const float *d, bool add, float *dx)
{
    const size_t first = s.lead * s.width, rest = s.columns * s.width;
    for (size_t i = thread_in_grid(); i < s.rows * rest; i += threads_in_grid())
        put(dx + i, add, d[i / rest * (first + rest) + first + i % rest]);
}

static void prepend_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_prepend s = call->op->prepend;
    LAUNCH(prepend, grid_of(s.rows * (s.lead + s.columns) * s.width, BLOCK), BLOCK, 0, c->stream, s,
           (const float *)call->in[0], (const float *)call->in[1], (float *)call->out[0]);
    cuda_launched(c, "rows before rows");
}

static void prepend_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_prepend s = call->op->prepend;
    if (call->d_in[1] != NULL && s.columns > 0) {
        LAUNCH(prepend_back, grid_of(s.rows * s.columns * s.width, BLOCK), BLOCK, 0, c->stream, s, call->d_out,
               call->add[1], call->d_in[1]);
        cuda_launched(c, "the gradient behind rows");
    }
    if (call->d_in[0] != NULL)
        sum_rows(c, row_term{call->d_out, (s.lead + s.columns) * s.width}, s.rows, s.lead * s.width,
                 (float *)call->scratch, call->add[0], call->d_in[0]);
}

static size_t prepend_scratch(const void *state, const struct op *op)
{
    (void)state;
    return sum_floats(op->prepend.rows, op->prepend.lead * op->prepend.width) * sizeof(float);
}

/* ---- add_rows ---- */

__global__ static void add_rows(const struct op_add_rows s, const float *x, const float *y, float *out)
{
    const size_t each = s.tokens * s.width;
    for (size_t i = thread_in_grid(); i < s.tokens_in_all * s.width; i += threads_in_grid())
        out[i] = i / each < s.rows ? x[i] + y[i / each * s.width + i % s.width] : x[i];
}

__global__ static void add_rows_back(const struct op_add_rows s, const float *d, float *dx, bool add_x, float *dy,
                                     bool add_y)
{
    for (size_t i = thread_in_grid(); i < s.tokens_in_all * s.width; i += threads_in_grid()) {
        if (dx != NULL) put(dx + i, add_x, d[i]);
        if (dy == NULL || i >= s.rows * s.width) continue;
        const float *of_row = d + i / s.width * s.tokens * s.width + i % s.width;
        float sum = 0.0f;
        for (size_t t = 0; t < s.tokens; t++) sum += of_row[t * s.width];
        put(dy + i, add_y, sum);
    }
}

static void add_rows_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_add_rows s = call->op->add_rows;
    LAUNCH(add_rows, grid_of(s.tokens_in_all * s.width, BLOCK), BLOCK, 0, c->stream, s, (const float *)call->in[0],
           (const float *)call->in[1], (float *)call->out[0]);
    cuda_launched(c, "rows added to tokens");
}

static void add_rows_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_add_rows s = call->op->add_rows;
    LAUNCH(add_rows_back, grid_of(s.tokens_in_all * s.width, BLOCK), BLOCK, 0, c->stream, s, call->d_out, call->d_in[0],
           call->add[0], call->d_in[1], call->add[1]);
    cuda_launched(c, "the gradient of added rows");
}

/* ---- lookup ---- */

__global__ static void lookup(const struct op_lookup s, const float *table, const int32_t *codes, float *out)
{
    for (size_t i = thread_in_grid(); i < s.rows * s.width; i += threads_in_grid())
        out[i] = table[(size_t)codes[i / s.width] * s.width + i % s.width];
}

struct entry_term {
    const float *d;
    const int32_t *codes;
    size_t width;
    __device__ float operator()(size_t r, size_t c) const
    {
        return (size_t)codes[r] == c / width ? d[r * width + c % width] : 0.0f;
    }
};

static void lookup_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_lookup s = call->op->lookup;
    LAUNCH(lookup, grid_of(s.rows * s.width, BLOCK), BLOCK, 0, c->stream, s, (const float *)call->in[0],
           (const int32_t *)call->in[1], (float *)call->out[0]);
    cuda_launched(c, "looking up");
}

static void lookup_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_lookup s = call->op->lookup;
    if (call->d_in[0] != NULL)
        sum_rows(c, entry_term{call->d_out, (const int32_t *)call->in[1], s.width}, s.rows, s.entries * s.width,
                 (float *)call->scratch, call->add[0], call->d_in[0]);
}

static size_t lookup_scratch(const void *state, const struct op *op)
{
    (void)state;
    return sum_floats(op->lookup.rows, op->lookup.entries * op->lookup.width) * sizeof(float);
}

const struct tensor_kernels cuda_assemble = {cuda_no_scratch, assemble_scratch, assemble_forward, assemble_backward};
const struct tensor_kernels cuda_select = {cuda_no_scratch, cuda_no_scratch, select_forward, select_backward};
const struct tensor_kernels cuda_prepend = {cuda_no_scratch, prepend_scratch, prepend_forward, prepend_backward};
const struct tensor_kernels cuda_add_rows = {cuda_no_scratch, cuda_no_scratch, add_rows_forward, add_rows_backward};
const struct tensor_kernels cuda_lookup = {cuda_no_scratch, lookup_scratch, lookup_forward, lookup_backward};
