/* The operations on NVIDIA GPUs: the table of ops.h filled with cuBLAS for products and kernels of our own for the rest.
 * Compiled by nvcc for a GPU, or by a C++ compiler against the emulation under tests/cuda for tests. Every sum has a fixed
 * order and shape: no atomics on floats, cuBLAS with one stream and a workspace of its own, sums over rows in a fixed
 * number of parts; the same bits run after run on one kind of GPU. Sizes and element numbers are 64 bits wide. */
#ifndef TABFT_TENSOR_CUDA_H
#define TABFT_TENSOR_CUDA_H

#include "base/failure.h"
#include "tensor/ops.h"

/* How products of matrices are computed; sums are float32 in each. FLOAT32: to float32's precision (attention splits each
 * number in two tf32 ones). TF32: operands are rounded to 10 bits of mantissa. BF16: to 7 bits in cuBLAS's products, tf32
 * in attention. */
enum cuda_precision { CUDA_FLOAT32, CUDA_TF32, CUDA_BF16 };

/* Opens the backend on GPU `device` of those that the process sees (CUDA_VISIBLE_DEVICES). Pointers of calls are into
 * memory of memory_new, which is the GPU's. Calls return before they are done. Closed with backend->close. Errors:
 * TABFT_SYSTEM: no such GPU, no driver, no memory. */
int cuda_backend_open(struct tensor_backend *out, int device, enum cuda_precision precision,
                      struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
