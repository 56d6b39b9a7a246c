/* y = x w^T: cuBLAS on what is, to it, matrices of columns. With bf16, operands that are not bf16 yet are rounded into scratch
 * memory before, some rows of a tensor at a time, which are then read from the GPU's cache. Where y has a bias or does not take
 * its residual's place, cuBLASLt adds them to the sums before these are written; where it does not promise to, or knows no way
 * to, sums are added to what a kernel has written first. */
#define TABFT_TENSOR_ROOM
#include <cublasLt.h>

#include "tensor/cuda/device_internal.h"

static cublasComputeType_t compute_of(const struct cuda *c)
{
    switch (c->precision) {
    case TENSOR_TF32: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case TENSOR_BF16: return CUBLAS_COMPUTE_32F; /* of operands that are bf16 */
    default: return CUBLAS_COMPUTE_32F_PEDANTIC;
    }
}

/* to [n][m] = op(a) op(b) as cuBLAS sees it: columns of m numbers; k: the length of the sums. A stride is from column to
 * column of what lies in memory. */
struct product {
    bool turn_a, turn_b;
    size_t m, n, k;
    const void *a;
    size_t a_stride;
    const void *b;
    size_t b_stride;
    void *to;
    bool bf16; /* what is written */
};

static cudaDataType operand_type(const struct cuda *c) { return c->precision == TENSOR_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

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
                                   (int64_t)p->m, (int64_t)p->n, (int64_t)p->k, &one, p->a, operand_type(c),
                                   (int64_t)p->a_stride, p->b, operand_type(c), (int64_t)p->b_stride, &init, p->to,
                                   p->bf16 ? CUDA_R_16BF : CUDA_R_32F, (int64_t)p->m, compute_of(c),
                                   CUBLAS_GEMM_DEFAULT));
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
        status = cublasLtMatrixLayoutInit(&t->a, operand_type(c), p->turn_a ? p->k : p->m, p->turn_a ? p->m : p->k,
                                          (int64_t)p->a_stride);
    if (status == 0)
        status = cublasLtMatrixLayoutInit(&t->b, operand_type(c), p->turn_b ? p->n : p->k, p->turn_b ? p->k : p->n,
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

/* Products with an edge of one are not among what it promises; and it reads a bias 16 bytes at a time, of whose alignment it
 * cannot be told. */
static bool is_promised(const struct product *p, const float *bias)
{
    return p->m > 1 && p->n > 1 && p->k > 1 && (uintptr_t)bias % 16 == 0;
}

/* `from` [n][m]: what is added, NULL: nothing; bias [m], or NULL. All float32, and so is the result. Gives whether there is a
 * way to do it, which the shape, alignments and the GPU decide. */
static bool multiply_and_add(struct cuda *c, const struct product *p, const float *from, const float *bias)
{
    const float one = 1.0f, init = from == NULL ? 0.0f : 1.0f;
    const cublasLtHandle_t lt = (cublasLtHandle_t)c->blas; /* every handle of cuBLAS is one of these too */
    struct told t;
    cublasLtMatmulHeuristicResult_t way = {};
    int ways = 0;
    if (!is_promised(p, bias)) return false;
    if (c->failure.code != 0 || cuda_workspace(c, &c->failure) < 0) return true;
    if (from == NULL) from = (const float *)p->to;
    cublasStatus_t status = describe(&t, c, p, bias);
    if (status == 0) status = ask_for(&t, p, from);
    if (status == 0)
        status = cublasLtMatmulAlgoGetHeuristic(lt, &t.product, &t.a, &t.b, &t.to, &t.to, &t.preference, 1, &way, &ways);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == 0 && ways == 0)) return false;
    if (status == 0)
        status = cublasLtMatmul(lt, &t.product, &one, p->a, &t.a, p->b, &t.b, &init, from, &t.to, p->to, &t.to, &way.algo,
                                c->workspace, CUDA_WORKSPACE, c->stream);
    product_failed(c, p, status);
    return true;
}

__global__ static void write_init(size_t rows, size_t width, const float *bias, const float *residual, float *y)
{
    for (size_t i = thread_in_grid(); i < rows * width; i += threads_in_grid()) {
        float x = bias == NULL ? 0.0f : bias[i % width];
        if (residual != NULL) x += residual[i];
        y[i] = x;
    }
}

/* ---- operands ---- */

/* Bytes of rows that are rounded at once, but for eight rows that are longer. */
static constexpr size_t ROUNDED_HERE = ROUNDED_MOST / 4, ROUNDED_ROWS = 8;

static size_t filled(size_t bytes) { return blocks_of(bytes, 64) * 64; }

/* Rows of a tensor of which `each` bytes a row are rounded: those at once, and the scratch memory of them, which grows with both. */
static size_t rows_at_once(size_t rows, size_t each)
{
    const size_t some = each == 0 ? rows : ROUNDED_HERE / each / ROUNDED_ROWS * ROUNDED_ROWS;
    return smaller(rows, some == 0 ? ROUNDED_ROWS : some);
}
static size_t rows_room(size_t rows, size_t each)
{
    const size_t most = ROUNDED_HERE > ROUNDED_ROWS * each ? ROUNDED_HERE : ROUNDED_ROWS * each;
    return smaller(rows * each, most);
}

__global__ static void round_numbers(size_t count, const float *x, struct bf16 *to)
{
    const size_t fours = is_at_four(x) ? count / 4 : 0;
    for (size_t i = thread_in_grid(); i < fours; i += threads_in_grid()) put_four(to + 4 * i, false, four_at(x + 4 * i));
    for (size_t i = 4 * fours + thread_in_grid(); i < count; i += threads_in_grid()) put(to + i, false, x[i]);
}

/* Numbers from `first` on of a tensor as an operand: where they lie, or rounded into `room`. Gives NULL for a tensor that is
 * not there. */
static const void *operand(struct cuda *c, const void *x, bool bf16, size_t first, size_t count, void *room)
{
    if (x == NULL) return NULL;
    if (bf16) return (const struct bf16 *)x + first;
    if (c->precision != TENSOR_BF16) return (const float *)x + first;
    LAUNCH(round_numbers, grid_of(blocks_of(count, 4), BLOCK), BLOCK, 0, c->stream, count, (const float *)x + first,
           (struct bf16 *)room);
    cuda_launched(c, "rounding for a product");
    return room;
}

/* Bytes to round in: of the weights, and of a row of x and of the output's gradient. */
struct rounds {
    size_t weights, x, d;
};
static struct rounds rounds_of(const struct cuda *c, const struct op *op, bool backward)
{
    const struct op_linear *s = &op->linear;
    if (c->precision != TENSOR_BF16) return rounds{0, 0, 0};
    return rounds{filled(s->in_width * s->out_width * sizeof(struct bf16)),
                  (op->bf16.in & 1) != 0 ? 0 : s->in_width * sizeof(struct bf16),
                  !backward || op->bf16.d_out ? 0 : s->out_width * sizeof(struct bf16)};
}

/* ---- the operation ---- */

/* Some rows, whose x is an operand by now. */
static void forward_rows(struct cuda *c, const struct op_call *call, const void *w, const void *x, size_t first, size_t rows)
{
    const struct op_linear *s = &call->op->linear;
    const bool bf16 = call->op->bf16.out;
    const size_t at = first * s->out_width;
    const float *bias = (const float *)call->in[2], *residual = (const float *)call->in[3];
    void *const y = bf16 ? (void *)((struct bf16 *)call->out[0] + at) : (void *)((float *)call->out[0] + at);
    const struct product p = {true, false, s->out_width, rows, s->in_width, w, s->in_width, x, s->in_width, y, bf16};
    if (residual != NULL) residual += at;
    if (bias == NULL && (residual == NULL || residual == y)) {
        multiply(c, &p, residual != NULL);
    } else if (!multiply_and_add(c, &p, residual, bias)) {
        LAUNCH(write_init, grid_of(rows * s->out_width, BLOCK), BLOCK, 0, c->stream, rows, s->out_width, bias, residual,
               (float *)y);
        cuda_launched(c, "bias and residual");
        multiply(c, &p, true);
    }
}

static void linear_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_linear *s = &call->op->linear;
    const struct rounds r = rounds_of(c, call->op, false);
    const size_t step = rows_at_once(s->rows, r.x);
    char *const room = (char *)call->scratch;
    const void *w = operand(c, call->in[1], false, 0, s->in_width * s->out_width, room);
    for (size_t first = 0; first < s->rows; first += step) {
        const size_t rows = smaller(step, s->rows - first);
        const void *x = operand(c, call->in[0], (call->op->bf16.in & 1) != 0, first * s->in_width, rows * s->in_width,
                                room + r.weights);
        forward_rows(c, call, w, x, first, rows);
    }
}

__global__ static void add_up(size_t count, const float *x, float *y)
{
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) y[i] += x[i];
}

/* The gradients of x, and of w as a sum over rows. */
static void backward_products(struct cuda *c, const struct op_call *call, char *room)
{
    const struct op_linear *s = &call->op->linear;
    const struct rounds r = rounds_of(c, call->op, true);
    const bool dx_bf16 = (call->op->bf16.d_in & 1) != 0;
    const size_t step = rows_at_once(s->rows, r.x + r.d), in = s->in_width, out = s->out_width;
    const void *w = call->d_in[0] == NULL ? NULL : operand(c, call->in[1], false, 0, in * out, room);
    for (size_t first = 0; first < s->rows; first += step) {
        const size_t rows = smaller(step, s->rows - first);
        const void *d = operand(c, call->d_out, call->op->bf16.d_out, first * out, rows * out, room + r.weights);
        if (w != NULL) {
            void *const to = dx_bf16 ? (void *)((struct bf16 *)(void *)call->d_in[0] + first * in)
                                     : (void *)(call->d_in[0] + first * in);
            const struct product dx = {false, false, in, rows, out, w, in, d, out, to, dx_bf16};
            multiply(c, &dx, call->add[0]);
        }
        if (call->d_in[1] == NULL) continue;
        const void *x = operand(c, call->in[0], (call->op->bf16.in & 1) != 0, first * in, rows * in,
                                room + r.weights + filled(step * r.d));
        const struct product dw = {false, true, in, out, rows, x, in, d, out, call->d_in[1], false};
        multiply(c, &dw, first > 0 || call->add[1]);
    }
}

static size_t sums_room(const struct op_linear *s)
{
    return filled(sum_floats(s->rows, s->out_width) * sizeof(float));
}

static void linear_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    const struct op_linear *s = &call->op->linear;
    if (call->d_in[0] != NULL || call->d_in[1] != NULL)
        backward_products(c, call, (char *)call->scratch + sums_room(s));
    if (call->d_in[2] != NULL)
        sum_rows(c, row_term{call->d_out, s->out_width}, s->rows, s->out_width, (float *)call->scratch, call->add[2],
                 call->d_in[2]);
    if (call->d_in[3] != NULL) {
        const size_t count = s->rows * s->out_width;
        LAUNCH(add_up, grid_of(count, BLOCK), BLOCK, 0, c->stream, count, (const float *)call->d_out, call->d_in[3]);
        cuda_launched(c, "the residual's gradient");
    }
}

static size_t linear_forward_scratch(const void *state, const struct op *op)
{
    const struct rounds r = rounds_of((const struct cuda *)state, op, false);
    return r.weights + rows_room(op->linear.rows, r.x);
}

static size_t linear_backward_scratch(const void *state, const struct op *op)
{
    const struct rounds r = rounds_of((const struct cuda *)state, op, true);
    return sums_room(&op->linear) + r.weights + filled(rows_room(op->linear.rows, r.x + r.d)) + filled(1);
}

const struct tensor_kernels cuda_linear = {linear_forward_scratch, linear_backward_scratch, linear_forward, linear_backward};
