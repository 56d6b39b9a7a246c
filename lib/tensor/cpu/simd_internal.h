/* One vector type for three instruction sets. Included by kernels_template_internal.h after SIMD_WIDTH is set to 16
 * (AVX-512), 8 (AVX2 and FMA) or 4 (whatever the compiler makes of it). Arithmetic operators work on the type; the
 * rest is here. */
#ifndef SIMD_WIDTH
#error "simd_internal.h is included by the kernel files only"
#endif

#include <stdint.h>
#include <string.h>

typedef float vec __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef uint32_t vec_bits __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef int32_t vec_int __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef float vec_unaligned __attribute__((vector_size(4 * SIMD_WIDTH), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vec v_load(const float *p) { return *(const vec_unaligned *)p; }
INLINE void v_store(float *p, vec v) { *(vec_unaligned *)p = v; }
INLINE vec v_splat(float x) { return x - (vec){0}; }

#if SIMD_WIDTH == 16
INLINE vec v_fma(vec a, vec b, vec c) { return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vec v_max(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
#elif SIMD_WIDTH == 8
INLINE vec v_fma(vec a, vec b, vec c) { return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vec v_max(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
#else
INLINE vec v_fma(vec a, vec b, vec c) { return a * b + c; }
INLINE vec v_max(vec a, vec b)
{
    vec_int m = a > b;
    return (vec)(((vec_int)a & m) | ((vec_int)b & ~m));
}
#endif

INLINE vec v_select(vec_int mask, vec yes, vec no) { return (vec)(((vec_int)yes & mask) | ((vec_int)no & ~mask)); }
INLINE vec v_abs(vec a) { return (vec)((vec_int)a & 0x7fffffff); }

/* 2^x to 1.5 units in the last place, x at least -126 (less counts as -126) and at most 127. Adding 1.5 * 2^23 rounds
 * to the nearest whole number, which then stands in the low bits. */
INLINE vec v_exp2(vec x)
{
    const float magic = 12582912.0f;
    x = v_max(x, v_splat(-126.0f));
    vec shifted = x + magic;
    vec f = x - (shifted - magic);
    vec p = v_fma(v_splat(0.00132647238f), f, v_splat(0.00967151299f));
    p = v_fma(p, f, v_splat(0.0555073358f));
    p = v_fma(p, f, v_splat(0.240222424f));
    p = v_fma(p, f, v_splat(0.693147004f));
    p = v_fma(p, f, v_splat(1.0f));
    return (vec)((vec_bits)p + ((vec_bits)shifted << 23));
}

/* Within a vector: lane l of the result is lane l of `a` where (l & step) is 0, else lane l - step of `b`; and lane l
 * + step of `a`, else lane l of `b`. Two of them exchange blocks of `step` lanes between two rows. */
INLINE vec_int lane_numbers(void)
{
    vec_int n;
    for (int i = 0; i < SIMD_WIDTH; i++) n[i] = i;
    return n;
}
INLINE vec v_low(vec a, vec b, int step)
{
    const vec_int lane = lane_numbers(), upper = (lane & step) != 0;
    return __builtin_shuffle(a, b, lane + (upper & (SIMD_WIDTH - step)));
}
INLINE vec v_high(vec a, vec b, int step)
{
    const vec_int lane = lane_numbers(), lower = (lane & step) == 0;
    return __builtin_shuffle(a, b, lane + (lower & step) + (~lower & SIMD_WIDTH));
}

/* Rows become columns. */
INLINE void v_transpose(vec row[SIMD_WIDTH])
{
#pragma GCC unroll 4
    for (int step = SIMD_WIDTH / 2; step > 0; step /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < SIMD_WIDTH; i++) {
            if ((i & step) != 0) continue;
            const vec a = row[i], b = row[i + step];
            row[i] = v_low(a, b, step);
            row[i + step] = v_high(a, b, step);
        }
}

/* Sums over lanes go over 16 lanes whatever the width, then lane i with i + 8, i + 4, i + 2 and i + 1: the same order
 * for every instruction set. */
enum { SUM_LANES = 16, SUM_VECS = SUM_LANES / SIMD_WIDTH };
struct lanes {
    vec v[SUM_VECS];
};

INLINE float lanes_sum(const struct lanes *l)
{
    struct lanes s = *l;
#pragma GCC unroll 4
    for (int n = SUM_VECS / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) s.v[i] += s.v[i + n];
    vec a = s.v[0];
#pragma GCC unroll 4
    for (int step = SIMD_WIDTH / 2; step > 0; step /= 2) a += v_high(a, a, step);
    return a[0];
}

INLINE float lanes_max(const struct lanes *l)
{
    vec a = l->v[0];
    for (int i = 1; i < SUM_VECS; i++) a = v_max(a, l->v[i]);
#pragma GCC unroll 4
    for (int step = SIMD_WIDTH / 2; step > 0; step /= 2) a = v_max(a, v_high(a, a, step));
    return a[0];
}
