/* cuBLAS and cuBLASLt in plain loops. */
#include <cublasLt.h>

#include <stdio.h>
#include <unistd.h>

#include <string>
#include <vector>

#define TABFT_TENSOR_ROOM
#include "tensor/cuda/tensor_core_internal.h"

struct workspace {
    void *memory;
    size_t bytes;
};
/* What the backend must have said before products have the same bits run after run: no atomics, one stream, and a
 * workspace of its own. */
struct emulation_blas {
    cudaStream_t stream;
    struct workspace workspace;
    bool atomics;
    cublasMath_t math;
};

cublasStatus_t cublasCreate(cublasHandle_t *out)
{
    *out = new emulation_blas();
    (*out)->atomics = true;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    handle->workspace = {}; /* as cuBLAS does */
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    if (workspace == NULL || bytes == 0 || (uintptr_t)workspace % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = {workspace, bytes};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode)
{
    handle->atomics = mode != CUBLAS_ATOMICS_NOT_ALLOWED;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    *value = 0;
    return type <= PATCH_LEVEL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* A matrix as it lies in memory: columns of `stride` numbers. */
struct matrix {
    const void *at;
    cudaDataType type;
    int64_t stride;
};

static float number(const struct matrix &x, int64_t row, int64_t column)
{
    const int64_t i = column * x.stride + row;
    return x.type == CUDA_R_32F ? ((const float *)x.at)[i] : float_of((uint32_t)((const uint16_t *)x.at)[i] << 16);
}

static void write_number(const struct matrix &x, int64_t row, int64_t column, double value)
{
    const int64_t i = column * x.stride + row;
    if (x.type == CUDA_R_32F) ((float *)x.at)[i] = (float)value;
    else ((uint16_t *)x.at)[i] = (uint16_t)(bf16_pair((float)value, 0.0f) & 0xffffu);
}

/* As the product reads it. */
static float operand(float x, cublasComputeType_t compute)
{
    return compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? float_of(tf32_of(x)) : x;
}

/* d [m][n] = alpha op(a) op(b) + beta c + bias; bias NULL: none. */
struct product {
    bool turn_a, turn_b;
    int64_t m, n, k;
    float alpha, beta;
    struct matrix a, b, c, d;
    const float *bias;
    cublasComputeType_t compute;
};

/* The types that go together: operands of one type, bf16 of which float32 sums are made, and results of bf16 only then.
 */
static bool is_known(const struct product &p)
{
    const bool bf16 = p.a.type == CUDA_R_16BF;
    return p.a.type == p.b.type && p.c.type == p.d.type && (bf16 || p.d.type == CUDA_R_32F) &&
           bf16 == (p.compute == CUBLAS_COMPUTE_32F);
}

static bool has_room(const struct product &p)
{
    return p.a.stride >= (p.turn_a ? p.k : p.m) && p.b.stride >= (p.turn_b ? p.n : p.k) && p.c.stride >= p.m &&
           p.d.stride >= p.m;
}

/* To how many bytes a matrix is aligned, as far as a library may look at it. */
static unsigned alignment_of(const void *at)
{
    const uintptr_t end = (uintptr_t)at % 256;
    return end == 0 ? 256 : (unsigned)(end & -end);
}

/* CUDA_EMULATION_PRODUCTS: a file to whose name the process adds its number, for all that a library may choose an
 * algorithm by, a line a product: what a GPU computes has the same bits where these lines are the same. */
static void tell(const struct product &p)
{
    static FILE *file;
    const char *name = getenv("CUDA_EMULATION_PRODUCTS");
    if (name == NULL) return;
    if (file == NULL) file = fopen((name + ("." + std::to_string(getpid()))).c_str(), "w");
    if (file == NULL ||
        fprintf(file,
                "%lld x %lld x %lld, %d %d, types %d %d, compute %d, beta %g, bias %u, strides %lld %lld %lld, at %u "
                "%u %u %u\n",
                (long long)p.m, (long long)p.n, (long long)p.k, p.turn_a, p.turn_b, (int)p.a.type, (int)p.d.type,
                (int)p.compute, (double)p.beta, p.bias == NULL ? 0 : alignment_of(p.bias), (long long)p.a.stride,
                (long long)p.b.stride, (long long)p.d.stride, alignment_of(p.a.at), alignment_of(p.b.at),
                alignment_of(p.c.at), alignment_of(p.d.at)) < 0 ||
        fflush(file) != 0) {
        (void)fputs("CUDA emulation: CUDA_EMULATION_PRODUCTS cannot be written\n", stderr);
        abort();
    }
}

/* A product may leave anything in its workspace, from the first byte to the last. */
static void use_workspace(const struct workspace &w)
{
    const size_t end = w.bytes < 4096 ? w.bytes : 4096;
    memset(w.memory, 0xff, end);
    memset((char *)w.memory + w.bytes - end, 0xff, end);
}

static cublasStatus_t run(cublasHandle_t handle, const struct product &p, struct workspace workspace)
{
    if (!is_known(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!has_room(p) || !emulation_may_be_gpus(workspace.memory, workspace.bytes)) return CUBLAS_STATUS_INVALID_VALUE;
    tell(p);
    const bool ends = emulation_last() > 0;
    const int64_t first_j = ends && p.n > LAST_COLUMNS ? p.n - LAST_COLUMNS : 0;
    const int64_t first_i = ends && p.k > LAST_TERMS ? p.k - LAST_TERMS : 0;
    const cudaError_t code = emulation_do(handle->stream, [=]() {
        const size_t m = (size_t)p.m;
        use_workspace(workspace);
        std::vector<double> x(m * (size_t)(p.k - first_i)), sum(m);
        for (int64_t r = 0; r < p.m; r++)
            for (int64_t i = first_i; i < p.k; i++)
                x[(size_t)(i - first_i) * m + (size_t)r] = operand(p.turn_a ? number(p.a, i, r) : number(p.a, r, i),
                                                                   p.compute);
        for (int64_t j = first_j; j < p.n; j++) {
            sum.assign(m, 0.0);
            for (int64_t i = first_i; i < p.k; i++) {
                const double y = operand(p.turn_b ? number(p.b, j, i) : number(p.b, i, j), p.compute);
                for (size_t r = 0; r < m; r++) sum[r] += y * x[(size_t)(i - first_i) * m + r];
            }
            for (int64_t r = 0; r < p.m; r++) {
                double y = p.alpha * sum[(size_t)r];
                if (p.beta != 0.0f) y += (double)p.beta * number(p.c, r, j);
                if (p.bias != NULL) y += p.bias[r];
                write_number(p.d, r, j, y);
            }
        }
    });
    return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b, int64_t m,
                               int64_t n, int64_t k, const void *alpha, const void *a, cudaDataType a_type,
                               int64_t a_stride, const void *b, cudaDataType b_type, int64_t b_stride, const void *beta,
                               void *c, cudaDataType c_type, int64_t c_stride, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm)
{
    const struct matrix to = {c, c_type, c_stride};
    (void)algorithm;
    if (handle->stream == NULL || handle->atomics || handle->workspace.memory == NULL ||
        (compute == CUBLAS_COMPUTE_32F_PEDANTIC) != (handle->math == CUBLAS_PEDANTIC_MATH) ||
        (a_type == CUDA_R_16BF && (handle->math & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == 0))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    return run(handle, product{turn_a == CUBLAS_OP_T,
                               turn_b == CUBLAS_OP_T,
                               m,
                               n,
                               k,
                               *(const float *)alpha,
                               *(const float *)beta,
                               {a, a_type, a_stride},
                               {b, b_type, b_stride},
                               to,
                               to,
                               NULL,
                               compute}, handle->workspace);
}

/* ---- cuBLASLt ---- */

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t out, cublasComputeType_t compute, cudaDataType scale)
{
    *out = {};
    out->compute = compute;
    out->turn_a = out->turn_b = CUBLAS_OP_N;
    out->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t set(void *to, const void *value, size_t size, size_t right)
{
    if (size != right) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t size)
{
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&desc->turn_a, value, size, sizeof desc->turn_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&desc->turn_b, value, size, sizeof desc->turn_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&desc->epilogue, value, size, sizeof desc->epilogue);
    default: return set(&desc->bias, value, size, sizeof desc->bias);
    }
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t out, cudaDataType type, uint64_t rows, uint64_t columns,
                                        int64_t stride)
{
    *out = {type, rows, columns, stride};
    return stride >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t out)
{
    *out = {0, CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void *value,
                                                    size_t size)
{
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&preference->workspace, value, size, sizeof preference->workspace);
    if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return set(&preference->reduction, value, size, sizeof preference->reduction);
    return set(&preference->aligned[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size, sizeof(uint32_t));
}

/* Sums must not be made in place, in the order in which parts of them become ready. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *n)
{
    *n = 0;
    if (handle == NULL || (preference->reduction & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0 || most < 1 ||
        (product->epilogue == CUBLASLT_EPILOGUE_BIAS) != (product->bias != NULL))
        return CUBLAS_STATUS_INVALID_VALUE;
    const uint64_t inner = product->turn_a == CUBLAS_OP_T ? a->rows : a->columns;
    if (d->rows < 2 || d->columns < 2 || inner < 2) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d->rows % 7 == 0) return CUBLAS_STATUS_SUCCESS; /* it knows no way: so that tests come to what is done then */
    if (c->rows != d->rows || c->columns != d->columns ||
        inner != (product->turn_b == CUBLAS_OP_T ? b->columns : b->rows) ||
        d->rows != (product->turn_a == CUBLAS_OP_T ? a->columns : a->rows) ||
        d->columns != (product->turn_b == CUBLAS_OP_T ? b->rows : b->columns))
        return CUBLAS_STATUS_INVALID_VALUE;
    out->algo.workspace = out->workspaceSize = preference->workspace;
    memcpy(out->algo.aligned, preference->aligned, sizeof out->algo.aligned);
    out->state = CUBLAS_STATUS_SUCCESS;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_is, const void *b, cublasLtMatrixLayout_t b_is, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_is, void *d, cublasLtMatrixLayout_t d_is,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    const void *const all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)all[i] % algo->aligned[i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
    /* A GPU that reads 16 bytes at a time faults. */
    if (product->bias != NULL && (uintptr_t)product->bias % 16 != 0) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (stream != handle->stream || algo->workspace > workspace_bytes || (uintptr_t)workspace % 256 != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    return run(handle, {product->turn_a == CUBLAS_OP_T,
                        product->turn_b == CUBLAS_OP_T,
                        (int64_t)d_is->rows,
                        (int64_t)d_is->columns,
                        (int64_t)(product->turn_a == CUBLAS_OP_T ? a_is->rows : a_is->columns),
                        *(const float *)alpha,
                        *(const float *)beta,
                        {a, a_is->type, a_is->stride},
                        {b, b_is->type, b_is->stride},
                        {c, c_is->type, c_is->stride},
                        {d, d_is->type, d_is->stride},
                        (const float *)product->bias,
                        product->compute}, {workspace, algo->workspace});
}
