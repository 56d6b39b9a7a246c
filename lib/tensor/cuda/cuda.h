/* The operations on NVIDIA GPUs: the table of ops.h filled with cuBLAS for products and kernels of our own for the rest.
 * Compiled by nvcc for a GPU, or by a C++ compiler against the emulation under tests/cuda for tests. Every sum has a fixed
 * order and shape: no atomics on floats, cuBLAS with one stream and a workspace of its own, sums over rows in a fixed
 * number of parts; the same bits run after run on one kind of GPU. Sizes and element numbers are 64 bits wide. */
#ifndef TABFT_TENSOR_CUDA_H
#define TABFT_TENSOR_CUDA_H

#include "base/failure.h"
#include "tensor/device.h"
#include "tensor/ops.h"

/* The functions of struct tensor_device_plugin. Pointers of calls are into memory of backend->vectors, which is the
 * GPU's. Calls return before they are done. */
int cuda_backend_open(struct tensor_backend *out, int index, enum tensor_precision precision,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
int cuda_backend_open_planning(struct tensor_backend *out, enum tensor_precision precision,
                               struct tabft_failure *f) TABFT_MUST_CHECK;
int cuda_count(int *n, struct tabft_failure *f) TABFT_MUST_CHECK;
int cuda_about(int index, struct tensor_gpu *out, struct tabft_failure *f) TABFT_MUST_CHECK;
int cuda_taken(int index, size_t *bytes, struct tabft_failure *f) TABFT_MUST_CHECK;
void cuda_versions(char *text, size_t size);

/* What CUDA takes of a GPU beside what it is asked for. The context and what cuBLAS brings: an estimate, from what is told
 * of GPUs of the classes A100 and H100. Of it the code of kernels is loaded when they first run, behind what cuda_taken sees:
 * an estimate too. */
enum { CUDA_EXPECTED = 640 << 20, CUDA_LOADED_LATER = 32 << 20 };

#endif
