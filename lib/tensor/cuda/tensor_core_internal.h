/* Products of small tiles by a warp: the one place that knows of tensor cores, whose instruction the emulation replaces by a
 * plain version (tests/cuda/cuda_runtime.h).
 * A tile's numbers lie in the lanes' registers. With g = lane / 4 and t = lane % 4, a lane holds
 *   of a [16 rows][8]:    x[0] = (g, t), x[1] = (g + 8, t), x[2] = (g, t + 4), x[3] = (g + 8, t + 4)
 *   of b [8][8 columns]:  x[0] = (t, g), x[1] = (t + 4, g)
 *   of c [16][8]:         x[0] = (g, 2 t), x[1] = (g, 2 t + 1), x[2] = (g + 8, 2 t), x[3] = (g + 8, 2 t + 1)
 * The steps of a sum may come in any order if a and b agree: with number t of the sum standing for step 2 t, and t + 4 for
 * step 2 t + 1, c's registers (0, 2, 1, 3) are those of an a (PTX ISA, mma.m16n8k8). */
#ifndef TABFT_TENSOR_CUDA_TENSOR_CORE_INTERNAL_H
#define TABFT_TENSOR_CUDA_TENSOR_CORE_INTERNAL_H
#ifndef TABFT_TENSOR_ROOM
#error "tensor_core_internal.h is private to lib/tensor"
#endif

#include "tensor/cuda/device_internal.h"

struct tile_a {
    float x[4];
};
struct tile_b {
    float x[2];
};
struct tile_c {
    float x[4];
};

#ifndef TABFT_CUDA_EMULATION
/* x rounded to tf32: a float32 whose last 13 bits are 0. */
__device__ static inline uint32_t tf32_of(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/* c += a b of numbers that are tf32. */
__device__ static inline void multiply_tf32(struct tile_c *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c->x[0]), "+f"(c->x[1]), "+f"(c->x[2]), "+f"(c->x[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

__device__ static inline float float_of(uint32_t bits)
{
    return __uint_as_float(bits);
}

/* c += a b. With `exact` each number is the sum of two tf32 ones, and the three larger of the four products are summed:
 * what is left out is below float32's last bit of the product. */
template <bool exact> __device__ static inline void multiply(struct tile_c *c, const struct tile_a &a, const struct tile_b &b)
{
    uint32_t a_high[4], b_high[2];
    for (int i = 0; i < 4; i++) a_high[i] = tf32_of(a.x[i]);
    for (int i = 0; i < 2; i++) b_high[i] = tf32_of(b.x[i]);
    if (exact) {
        uint32_t a_low[4], b_low[2];
        for (int i = 0; i < 4; i++) a_low[i] = tf32_of(a.x[i] - float_of(a_high[i]));
        for (int i = 0; i < 2; i++) b_low[i] = tf32_of(b.x[i] - float_of(b_high[i]));
        multiply_tf32(c, a_low, b_high);
        multiply_tf32(c, a_high, b_low);
    }
    multiply_tf32(c, a_high, b_high);
}

#endif
