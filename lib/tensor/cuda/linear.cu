/* y = x w^T: cuBLAS on what is, to it, a matrix of columns. Bias and residual are written first and added to, but for a residual
 * whose place y takes. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

static cublasComputeType_t compute_of(const struct cuda *c)
{
    switch (c->precision) {
    case TENSOR_TF32: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case TENSOR_BF16: return CUBLAS_COMPUTE_32F_FAST_16BF;
    default: return CUBLAS_COMPUTE_32F_PEDANTIC;
    }
}

/* c [n][m] = op(a) op(b) (+ c) as cuBLAS sees it: columns of m numbers; k: the length of the sums. */
static void product(struct cuda *c, bool turn_a, bool turn_b, size_t m, size_t n, size_t k, const float *a, size_t a_stride,
                    const float *b, size_t b_stride, bool add, float *to)
{
    const float one = 1.0f, init = add ? 1.0f : 0.0f;
    if (c->failure.code != 0 || cuda_workspace(c, &c->failure) < 0) return;
    const cublasStatus_t status =
        cublasGemmEx_64(c->blas, turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, turn_b ? CUBLAS_OP_T : CUBLAS_OP_N, (int64_t)m,
                        (int64_t)n, (int64_t)k, &one, a, CUDA_R_32F, (int64_t)a_stride, b, CUDA_R_32F,
                        (int64_t)b_stride, &init, to, CUDA_R_32F, (int64_t)m, compute_of(c), CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS && c->failure.code == 0)
        (void)tabft_fail(&c->failure, TABFT_SYSTEM, "GPU %d: a product of %zu x %zu x %zu numbers failed in cuBLAS (%d)",
                         c->device, m, n, k, (int)status);
}

__global__ static void write_init(size_t rows, size_t width, const float *bias, const float *residual, float *y)
{
    for (size_t i = thread_in_grid(); i < rows * width; i += threads_in_grid()) {
        float x = bias == NULL ? 0.0f : bias[i % width];
        if (residual != NULL) x += residual[i];
        y[i] = x;
    }
}

static void linear_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_linear *s = &call->op->linear;
    const float *bias = (const float *)call->in[2], *residual = (const float *)call->in[3];
    float *y = (float *)call->out[0];
    if (bias != NULL || (residual != NULL && residual != y)) {
        LAUNCH(write_init, grid_of(s->rows * s->out_width, BLOCK), BLOCK, 0, c->stream, s->rows, s->out_width, bias,
               residual, y);
        cuda_launched(c, "bias and residual");
    }
    product(c, true, false, s->out_width, s->rows, s->in_width, (const float *)call->in[1], s->in_width,
            (const float *)call->in[0], s->in_width, bias != NULL || residual != NULL, y);
}

__global__ static void add_up(size_t count, const float *x, float *y)
{
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) y[i] += x[i];
}

static void linear_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_linear *s = &call->op->linear;
    const float *d = call->d_out, *x = (const float *)call->in[0], *w = (const float *)call->in[1];
    if (call->d_in[0] != NULL)
        product(c, false, false, s->in_width, s->rows, s->out_width, w, s->in_width, d, s->out_width, call->add[0],
                call->d_in[0]);
    if (call->d_in[1] != NULL)
        product(c, false, true, s->in_width, s->out_width, s->rows, x, s->in_width, d, s->out_width, call->add[1],
                call->d_in[1]);
    if (call->d_in[2] != NULL)
        sum_rows(c, row_term{d, s->out_width}, s->rows, s->out_width, (float *)call->scratch, call->add[2],
                 call->d_in[2]);
    if (call->d_in[3] != NULL) {
        const size_t count = s->rows * s->out_width;
        LAUNCH(add_up, grid_of(count, BLOCK), BLOCK, 0, c->stream, count, d, call->d_in[3]);
        cuda_launched(c, "the residual's gradient");
    }
}

static size_t linear_scratch(const void *state, const struct op *op)
{
    (void)state;
    return sum_floats(op->linear.rows, op->linear.out_width) * sizeof(float);
}

const struct tensor_kernels cuda_linear = {cuda_no_scratch, linear_scratch, linear_forward, linear_backward};
