/* cuBLAS in plain loops. */
#include <vector>

#define TABFT_TENSOR_ROOM
#include "tensor/cuda/tensor_core_internal.h"

/* What the backend must have said before products have the same bits run after run: no atomics, one stream, and a
 * workspace of its own. */
struct emulation_blas {
    cudaStream_t stream;
    bool workspace, atomics;
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
    handle->workspace = false; /* as cuBLAS does */
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    if (workspace == NULL || bytes == 0 || (uintptr_t)workspace % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = true;
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

/* To the nearest of 7 bits of mantissa, ties to even. */
static float bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x7fffu + (bits >> 16 & 1u);
    return float_of(bits & 0xffff0000u);
}

static float operand(float x, cublasComputeType_t compute)
{
    if (compute == CUBLAS_COMPUTE_32F_PEDANTIC) return x;
    return compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? float_of(tf32_of(x)) : bf16_of(x);
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    *value = 0;
    return type <= PATCH_LEVEL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b, int64_t m,
                               int64_t n, int64_t k, const void *alpha, const void *a, cudaDataType a_type,
                               int64_t a_stride, const void *b, cudaDataType b_type, int64_t b_stride, const void *beta,
                               void *c, cudaDataType c_type, int64_t c_stride, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm)
{
    const float *of_a = (const float *)a, *of_b = (const float *)b, one = *(const float *)alpha, init = *(const float *)beta;
    float *to = (float *)c;
    (void)a_type;
    (void)b_type;
    (void)c_type;
    (void)algorithm;
    if (handle->stream == NULL || handle->atomics || !handle->workspace ||
        (compute == CUBLAS_COMPUTE_32F_PEDANTIC) != (handle->math == CUBLAS_PEDANTIC_MATH))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (a_stride < (turn_a == CUBLAS_OP_N ? m : k) || b_stride < (turn_b == CUBLAS_OP_N ? k : n) || c_stride < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    const bool ends = emulation_last() > 0;
    const int64_t first_j = ends && n > LAST_COLUMNS ? n - LAST_COLUMNS : 0, first_p = ends && k > LAST_TERMS ? k - LAST_TERMS : 0;
    emulation_do(handle->stream, [=]() {
        std::vector<double> x((size_t)(m * (k - first_p))), sum((size_t)m);
        for (int64_t i = 0; i < m; i++)
            for (int64_t p = first_p; p < k; p++)
                x[(size_t)((p - first_p) * m + i)] = operand(of_a[turn_a == CUBLAS_OP_N ? p * a_stride + i : i * a_stride + p], compute);
        for (int64_t j = first_j; j < n; j++) {
            sum.assign((size_t)m, 0.0);
            for (int64_t p = first_p; p < k; p++) {
                const double y = operand(of_b[turn_b == CUBLAS_OP_N ? j * b_stride + p : p * b_stride + j], compute);
                for (int64_t i = 0; i < m; i++) sum[(size_t)i] += y * x[(size_t)((p - first_p) * m + i)];
            }
            for (int64_t i = 0; i < m; i++) {
                float *at = to + j * c_stride + i;
                *at = (float)(one * sum[(size_t)i] + (init == 0.0f ? 0.0 : (double)init * *at));
            }
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}
