/* The kernels in whatever the compiler's target offers: right on every machine, fast on none. */
#define SIMD_WIDTH 4
#define TILE_ROWS 4
#define KERNELS cpu_kernels_baseline
#define KERNELS_ISA "baseline"
#include "tensor/cpu/kernels_template_internal.h"
