/* The kernels with AVX2 and FMA: 6 rows by 16 columns in 12 of 16 registers. Processors without prfchw
 * take its instruction for an empty one. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,prfchw")
#include <immintrin.h>
#define SIMD_WIDTH 8
#define TILE_ROWS 6
#define KERNELS cpu_kernels_avx2
#define KERNELS_ISA "avx2"
#include "tensor/cpu/kernels_template_internal.h"
#else
typedef int kernels_avx2_are_for_x86;
#endif
