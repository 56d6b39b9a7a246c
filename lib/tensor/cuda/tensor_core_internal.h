/* Products of small tiles by a warp: the one place that knows of tensor cores and of what feeds them, whose instructions the
 * emulation replaces by plain versions (tests/cuda/cuda_runtime.h).
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

/* ---- bf16 ----
 * Two numbers are a word, the first its lower half. With g and t as above a lane holds, a word each,
 *   of a [16 rows][16]:    (g, 2 t) and (g, 2 t + 1); of row g + 8; (g, 2 t + 8) and (g, 2 t + 9); of row g + 8
 *   of b [16][8 columns]:  (2 t, g) and (2 t + 1, g); (2 t + 8, g) and (2 t + 9, g)
 * and of c [16][8] what it does above: two of them beside each other, rounded, are an a (PTX ISA, mma.m16n8k16). */
#ifndef TABFT_CUDA_EMULATION
/* c += a b. */
__device__ static inline void multiply_bf16(struct tile_c *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c->x[0]), "+f"(c->x[1]), "+f"(c->x[2]), "+f"(c->x[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ static inline uint32_t shared_address(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }

/* Four matrices [8][8] from shared memory: lane 8 i + r names row r of matrix i, 16 aligned bytes. x[i] becomes the numbers
 * (g, 2 t) and (g, 2 t + 1) of matrix i; turned, (2 t, g) and (2 t + 1, g). */
__device__ static inline void load_matrices(uint32_t *x, const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ static inline void load_matrices_turned(uint32_t *x, const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Copies 16 aligned bytes to shared memory, or zeros unless they are `there`, while the thread goes on; they are there for it
 * after copies_wait, and for the others of its block after a barrier behind that. */
__device__ static inline void copy_16(void *shared, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ static inline void copies_wait(void) { asm volatile("cp.async.wait_all;" : : : "memory"); }

/* What copies and stores have written to shared memory is seen by a warpgroup's products, after a barrier behind this of all
 * who have written. */
__device__ static inline void fence_shared(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

/* 2^x as the special function unit gives it, to 2^-22; 0 where it is no normal number. */
__device__ static inline float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x as that unit gives it, to one unit of the last place. */
__device__ static inline float reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

/* ---- a warpgroup's products (Hopper; PTX ISA, asynchronous warpgroup level matrix instructions) ----
 * Four warps, the first one's number a multiple of four, multiply a [64 rows][16] with b [16][64 columns]: warp w has rows 16 w
 * to 16 w + 15 of a and c, in its lanes' registers as above (c: eight tiles [16][8] beside each other). Products are begun, and
 * go on beside the warps; until they are waited for neither c, nor an a in registers, nor shared memory that they read may
 * be touched.
 * What lies in shared memory is a tile [rows][64] of bf16, 128 bytes a row, from a multiple of 1024 bytes on, whose eighths
 * of rows have changed places (128-byte swizzling): eighth e of row r lies where e ^ r % 8 would. Read by its rows such a tile
 * is an a or the columns of a b (K-major), 16 numbers of each row a product; turned, 16 rows a product are a b (MN-major). */
static constexpr unsigned GROUP_THREADS = 128, GROUP_ROWS = 64, TILE_WIDTH = 64;

__device__ static inline unsigned place_in_tile(unsigned row, unsigned eighth)
{
    return row * TILE_WIDTH + (eighth ^ row % 8) * 8;
}

/* A matrix descriptor: of 16 columns from 16 * step on, or of 16 rows. Eight rows are 1024 bytes from the next eight, in both
 * (PTX ISA, matrix descriptor format; canonical layouts: K-major ((8,m),(T,2k)):((8T,SBO),(1,T)), MN-major
 * ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)), of which 64 columns need no LBO). */
__device__ static inline uint64_t described(const uint16_t *tile)
{
    const uint64_t swizzled = (uint64_t)1 << 62, eight_rows = (uint64_t)(1024 >> 4) << 32, leading = (uint64_t)1 << 16;
    return swizzled | eight_rows | leading | (shared_address(tile) & 0x3ffffu) >> 4;
}
__device__ static inline uint64_t columns_of(const uint16_t *tile, unsigned step) { return described(tile) + 2 * step; }
__device__ static inline uint64_t rows_of(const uint16_t *tile, unsigned step) { return described(tile) + 128 * step; }

#ifndef TABFT_CUDA_EMULATION
#define EIGHT_TILES(c)                                                                                                 \
    "+f"(c[0].x[0]), "+f"(c[0].x[1]), "+f"(c[0].x[2]), "+f"(c[0].x[3]), "+f"(c[1].x[0]), "+f"(c[1].x[1]),              \
        "+f"(c[1].x[2]), "+f"(c[1].x[3]), "+f"(c[2].x[0]), "+f"(c[2].x[1]), "+f"(c[2].x[2]), "+f"(c[2].x[3]),          \
        "+f"(c[3].x[0]), "+f"(c[3].x[1]), "+f"(c[3].x[2]), "+f"(c[3].x[3]), "+f"(c[4].x[0]), "+f"(c[4].x[1]),          \
        "+f"(c[4].x[2]), "+f"(c[4].x[3]), "+f"(c[5].x[0]), "+f"(c[5].x[1]), "+f"(c[5].x[2]), "+f"(c[5].x[3]),          \
        "+f"(c[6].x[0]), "+f"(c[6].x[1]), "+f"(c[6].x[2]), "+f"(c[6].x[3]), "+f"(c[7].x[0]), "+f"(c[7].x[1]),          \
        "+f"(c[7].x[2]), "+f"(c[7].x[3])
#define OF_EIGHT_TILES                                                                                                 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                                          \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"

/* Registers are as the warps have left them: before the first product behind anything that wrote to c or a. */
__device__ static inline void begin_products(void) { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

/* c = a b, or c += a b, both read by the columns of tiles. */
__device__ static inline void multiply_columns(struct tile_c *c, bool add, uint64_t a, uint64_t b)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;"
                 " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " OF_EIGHT_TILES ", %32, %33, p, 1, 1, 0, 0; }"
                 : EIGHT_TILES(c)
                 : "l"(a), "l"(b), "r"((int)add));
}

/* c += a b, a in registers, b rows of a tile. */
__device__ static inline void multiply_rows(struct tile_c *c, const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " OF_EIGHT_TILES
                 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : EIGHT_TILES(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* All products since the last time are a set; `left` of the last sets may still be under way behind products_wait. */
__device__ static inline void end_products(void) { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <unsigned left> __device__ static inline void products_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(left) : "memory");
}

/* Behind that: nothing that reads c, or writes where a was, comes before this. */
__device__ static inline void hold(struct tile_c *c) { asm volatile("" : EIGHT_TILES(c) : : "memory"); }
__device__ static inline void hold(uint32_t (*a)[4])
{
    for (unsigned n = 0; n < 4; n++)
        asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3]) : : "memory");
}

/* Tiles in shared memory, as many as a launch gives bytes for. */
#define SHARED_TILES(name)                                                                                             \
    extern __shared__ struct shared_tile name[];                                                                       \
    if (shared_address(name) % alignof(struct shared_tile) != 0) __trap()
#else
#define SHARED_TILES(name) struct shared_tile *const name = (struct shared_tile *)(void *)emulation_shared()
#endif
struct alignas(1024) shared_tile {
    uint16_t x[64 * TILE_WIDTH];
};

#endif
