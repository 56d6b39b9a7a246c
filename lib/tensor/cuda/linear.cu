/* y = x w^T: cuBLAS on what is, to it, matrices of columns. Where y has a bias or does not take its residual's place, cuBLASLt
 * adds them to the sums before these are written; but products with an edge of one, which it does not promise to take, are
 * added to what a kernel has written first. */
#define TABFT_TENSOR_ROOM
#include <cublasLt.h>

#include "tensor/cuda/device_internal.h"

static cublasComputeType_t compute_of(const struct cuda *c)
{
    switch (c->precision) {
    case TENSOR_TF32: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case TENSOR_BF16: return CUBLAS_COMPUTE_32F_FAST_16BF;
    default: return CUBLAS_COMPUTE_32F_PEDANTIC;
    }
}

/* to [n][m] = op(a) op(b) as cuBLAS sees it: columns of m numbers; k: the length of the sums. A stride is from column to
 * column of what lies in memory. */
struct product {
    bool turn_a, turn_b;
    size_t m, n, k;
    const float *a;
    size_t a_stride;
    const float *b;
    size_t b_stride;
    float *to;
};

static void product_failed(struct cuda *c, const struct product *p, cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS && c->failure.code == 0)
        (void)tabft_fail(&c->failure, TABFT_SYSTEM, "GPU %d: a product of %zu x %zu x %zu numbers failed in cuBLAS (%d)",
                         c->device, p->m, p->n, p->k, (int)status);
}

/* add: to what is in `to`. */
static void multiply(struct cuda *c, const struct product *p, bool add)
{
    const float one = 1.0f, init = add ? 1.0f : 0.0f;
    if (c->failure.code != 0 || cuda_workspace(c, &c->failure) < 0) return;
    product_failed(c, p,
                   cublasGemmEx_64(c->blas, p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                   (int64_t)p->m, (int64_t)p->n, (int64_t)p->k, &one, p->a, CUDA_R_32F,
                                   (int64_t)p->a_stride, p->b, CUDA_R_32F, (int64_t)p->b_stride, &init, p->to, CUDA_R_32F,
                                   (int64_t)p->m, compute_of(c), CUBLAS_GEMM_DEFAULT));
}

/* ---- with bias and residual ---- */

/* What cuBLASLt is told. Aligned: to how many bytes matrices are at least. No more than 16 are told, so that the choice of an
 * algorithm, and with it the bits, does not depend on where in a plan's block a tensor lies. */
struct told {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, to;
    cublasLtMatmulPreferenceOpaque_t preference;
};

static uint32_t alignment_of(const void *x)
{
    uint32_t bytes = 16;
    while ((uintptr_t)x % bytes != 0) bytes /= 2;
    return bytes;
}

static cublasStatus_t say(struct told *t, cublasLtMatmulDescAttributes_t what, const void *value, size_t size)
{
    return cublasLtMatmulDescSetAttribute(&t->product, what, value, size);
}

static cublasStatus_t prefer(struct told *t, cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t size)
{
    return cublasLtMatmulPreferenceSetAttribute(&t->preference, what, value, size);
}

static cublasStatus_t describe(struct told *t, const struct cuda *c, const struct product *p, const float *bias)
{
    const int32_t turns[] = {p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N};
    const uint32_t epilogue = bias == NULL ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
    cublasStatus_t status = cublasLtMatmulDescInit(&t->product, compute_of(c), CUDA_R_32F);
    if (status == 0) status = say(t, CUBLASLT_MATMUL_DESC_TRANSA, &turns[0], sizeof turns[0]);
    if (status == 0) status = say(t, CUBLASLT_MATMUL_DESC_TRANSB, &turns[1], sizeof turns[1]);
    if (status == 0) status = say(t, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (status == 0 && bias != NULL) status = say(t, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (status == 0)
        status = cublasLtMatrixLayoutInit(&t->a, CUDA_R_32F, p->turn_a ? p->k : p->m, p->turn_a ? p->m : p->k,
                                          (int64_t)p->a_stride);
    if (status == 0)
        status = cublasLtMatrixLayoutInit(&t->b, CUDA_R_32F, p->turn_b ? p->n : p->k, p->turn_b ? p->k : p->n,
                                          (int64_t)p->b_stride);
    return status == 0 ? cublasLtMatrixLayoutInit(&t->to, CUDA_R_32F, p->m, p->n, (int64_t)p->m) : status;
}

/* Parts of a sum that are computed beside each other are kept in float32 and added by a second kernel, in order. */
static cublasStatus_t ask_for(struct told *t, const struct product *p, const float *from)
{
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t aligned[] = {alignment_of(p->a), alignment_of(p->b), alignment_of(from), alignment_of(p->to)};
    static constexpr cublasLtMatmulPreferenceAttributes_t of[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const size_t workspace = CUDA_WORKSPACE;
    cublasStatus_t status = cublasLtMatmulPreferenceInit(&t->preference);
    if (status == 0) status = prefer(t, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (status == 0) status = prefer(t, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction);
    for (int i = 0; status == 0 && i < 4; i++) status = prefer(t, of[i], &aligned[i], sizeof aligned[i]);
    return status;
}

/* `from` [n][m]: what is added, NULL: nothing; bias [m], or NULL. */
static void multiply_and_add(struct cuda *c, const struct product *p, const float *from, const float *bias)
{
    const float one = 1.0f, init = from == NULL ? 0.0f : 1.0f;
    const cublasLtHandle_t lt = (cublasLtHandle_t)c->blas; /* every handle of cuBLAS is one of these too */
    struct told t;
    cublasLtMatmulHeuristicResult_t way = {};
    int ways = 0;
    if (c->failure.code != 0 || cuda_workspace(c, &c->failure) < 0) return;
    if (from == NULL) from = p->to;
    cublasStatus_t status = describe(&t, c, p, bias);
    if (status == 0) status = ask_for(&t, p, from);
    if (status == 0)
        status = cublasLtMatmulAlgoGetHeuristic(lt, &t.product, &t.a, &t.b, &t.to, &t.to, &t.preference, 1, &way, &ways);
    if (status == 0 && ways == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == 0)
        status = cublasLtMatmul(lt, &t.product, &one, p->a, &t.a, p->b, &t.b, &init, from, &t.to, p->to, &t.to, &way.algo,
                                c->workspace, CUDA_WORKSPACE, c->stream);
    product_failed(c, p, status);
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
    const struct product p = {true, false, s->out_width, s->rows, s->in_width, (const float *)call->in[1], s->in_width,
                              (const float *)call->in[0], s->in_width, y};
    if (bias == NULL && (residual == NULL || residual == y)) {
        multiply(c, &p, residual != NULL);
    } else if (s->rows > 1 && s->in_width > 1 && s->out_width > 1) {
        multiply_and_add(c, &p, residual, bias);
    } else {
        LAUNCH(write_init, grid_of(s->rows * s->out_width, BLOCK), BLOCK, 0, c->stream, s->rows, s->out_width, bias,
               residual, y);
        cuda_launched(c, "bias and residual");
        multiply(c, &p, true);
    }
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
    const struct product dx = {false, false, s->in_width, s->rows, s->out_width, w, s->in_width, d, s->out_width,
                               call->d_in[0]};
    const struct product dw = {false, true, s->in_width, s->out_width, s->rows, x, s->in_width, d, s->out_width,
                               call->d_in[1]};
    if (call->d_in[0] != NULL) multiply(c, &dx, call->add[0]);
    if (call->d_in[1] != NULL) multiply(c, &dw, call->add[1]);
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
