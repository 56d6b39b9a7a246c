/* The kernels with AVX-512: 12 rows by 32 columns in 24 of 32 registers. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prfchw")
#include <immintrin.h>
#define SIMD_WIDTH 16
#define TILE_ROWS 12
#define KERNELS cpu_kernels_avx512
#define KERNELS_ISA "avx512"
#include "tensor/cpu/kernels_template_internal.h"
#else
typedef int kernels_avx512_are_for_x86;
#endif
