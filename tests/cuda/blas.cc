/* cuBLAS in plain loops. */
#include <vector>

#define TABFT_TENSOR_ROOM
#include "tensor/cuda/tensor_core_internal.h"

cublasStatus_t cublasCreate(cublasHandle_t *out)
{
    *out = NULL;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    (void)handle;
    return workspace != NULL && bytes > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode)
{
    (void)handle;
    (void)mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    (void)handle;
    (void)mode;
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
    (void)handle;
    (void)a_type;
    (void)b_type;
    (void)c_type;
    (void)algorithm;
    if (a_stride < (turn_a == CUBLAS_OP_N ? m : k) || b_stride < (turn_b == CUBLAS_OP_N ? k : n) || c_stride < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    emulation_do([=]() {
        std::vector<double> x((size_t)(m * k)), sum((size_t)m);
        for (int64_t i = 0; i < m; i++)
            for (int64_t p = 0; p < k; p++)
                x[(size_t)(p * m + i)] = operand(of_a[turn_a == CUBLAS_OP_N ? p * a_stride + i : i * a_stride + p], compute);
        for (int64_t j = 0; j < n; j++) {
            sum.assign((size_t)m, 0.0);
            for (int64_t p = 0; p < k; p++) {
                const double y = operand(of_b[turn_b == CUBLAS_OP_N ? j * b_stride + p : p * b_stride + j], compute);
                for (int64_t i = 0; i < m; i++) sum[(size_t)i] += y * x[(size_t)(p * m + i)];
            }
            for (int64_t i = 0; i < m; i++) {
                float *at = to + j * c_stride + i;
                *at = (float)(one * sum[(size_t)i] + (init == 0.0f ? 0.0 : (double)init * *at));
            }
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}
