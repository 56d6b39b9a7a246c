/* What the kernels of attention share, those of float32 and TF32 (attention.cu) and those of bf16 (attention_bf16.cu):
 * the problem as they see it, how its rows are cut into units of work, and how a warp's rows are summed and written. */
#ifndef TABFT_TENSOR_CUDA_ATTENTION_INTERNAL_H
#define TABFT_TENSOR_CUDA_ATTENTION_INTERNAL_H
#ifndef TABFT_TENSOR_ROOM
#error "attention_internal.h is private to lib/tensor"
#endif

#include "tensor/cuda/tensor_core_internal.h"

/* Keys that pass through shared memory at once; rows of a tile of tensor cores; the widest head. */
static constexpr unsigned TILE = 64, TILE_ROWS = 16, MOST_WIDTH = 128;

/* What both operations are to the kernels. Votes: one sequence of query tokens, a head of keys for each of queries. */
struct problem {
    struct op_attention s;
    struct op_bf16 bf16; /* what is bf16 though its pointer is to float */
    float scale, scale2; /* 1 / sqrt(width), and times log2(e) */
    const float *q, *k, *v;
    float *o, *statistics;
    const float *d_out;
    float *dq, *dk, *dv;
    bool add_q, add_k, add_v;
    bool aligned; /* width, strides and pointers are such that numbers can be read in fours and written in pairs */
    float *means; /* [tokens x heads], as the statistics without the 2: the sum of a row's p dp; not of bf16 */
    /* votes only */
    const int32_t *codes;
    size_t n_classes;
    float *shares;       /* [rows][heads][n_classes], `kept` numbers apart */
    const float *slopes; /* [rows][n_classes] */
    size_t kept;         /* numbers that a row and head keep */
};

__device__ static inline size_t place(const struct op_attention_stride &s, size_t sequence, size_t token)
{
    return sequence * s.sequence + token * s.token + s.column;
}

/* Where a row's numbers lie. */
__device__ static inline float *statistics_of(const struct problem &p, size_t sequence, size_t token, size_t head)
{
    if (p.codes != NULL) return p.shares + (token * p.s.heads + head) * p.kept;
    return p.statistics + place(p.s.statistics, sequence, token) + head * 2;
}

/* Tokens of one kind, context or query, and the key-value head that a head of theirs uses. */
struct part {
    size_t first, rows, share; /* `share` heads use one key-value head */
};
__host__ __device__ static inline struct part part_of(const struct op_attention &s, bool query)
{
    if (query) return part{s.n_context, s.n_query, s.heads / s.query_kv_heads};
    return part{0, s.n_context, s.heads / s.context_kv_heads};
}

/* Heads of keys and values. */
static inline size_t kv_heads_of(const struct op_attention &s)
{
    return s.context_kv_heads > s.query_kv_heads ? s.context_kv_heads : s.query_kv_heads;
}

__device__ static inline unsigned lane_group(void) { return threadIdx.x % WARP / 4; }
__device__ static inline unsigned lane_in_group(void) { return threadIdx.x % 4; }

/* The largest and the sum over the four lanes that share a row. */
__device__ static inline float row_most(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ static inline float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Two numbers that lie beside each other, at an even place. */
__device__ static inline void put_two(float *to, bool add, float x, float y)
{
    float2 *both = (float2 *)to;
    *both = add ? float2{both->x + x, both->y + y} : float2{x, y};
}
__device__ static inline void put_two(struct bf16 *to, bool add, float x, float y)
{
    (void)add;
    *(uint32_t *)to = bf16_pair(x, y);
}

/* Writes, of a warp's 16 rows, those there are: numbers (row, column) of sum times factor[0], of the lower eight rows,
 * or factor[1]. `pairs`: two at a time. */
template <int D, typename T>
__device__ static inline void store_rows(const struct tile_c *sum, const float *factor, size_t rows, size_t width,
                                         size_t stride, bool add, bool pairs, T *to)
{
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        const size_t row = lane_group() + 8 * half;
        if (row >= rows) continue;
#pragma unroll
        for (unsigned j = 0; j < D / 8; j++) {
            const size_t column = 8 * j + 2 * lane_in_group();
            const float x = sum[j].x[2 * half] * factor[half], y = sum[j].x[2 * half + 1] * factor[half];
            T *at = to + row * stride + column;
            if (column >= width) continue;
            if (pairs) {
                put_two(at, add, x, y);
            } else {
                put(at, add, x);
                if (column + 1 < width) put(at + 1, add, y);
            }
        }
    }
}

/* How rows of a part are cut: every block has the same number of warps, at most `most`, and as many as there is use
 * for; a warp has `each` rows. */
struct cut {
    unsigned warps;
    size_t rows;     /* of a block */
    size_t tiles[2]; /* of the context, of the query */
};
static inline struct cut cut_of(size_t n_context, size_t n_query, unsigned each, unsigned most)
{
    const size_t longest = n_context > n_query ? n_context : n_query, pieces = blocks_of(longest, each);
    const size_t blocks = blocks_of(pieces, most);
    struct cut c = {};
    c.warps = (unsigned)(blocks == 0 ? 1 : blocks_of(pieces, blocks));
    c.rows = (size_t)c.warps * each;
    c.tiles[0] = blocks_of(n_context, c.rows);
    c.tiles[1] = blocks_of(n_query, c.rows);
    return c;
}

/* The unit's sequence, head, and rows: below 2^31 each, which attention.cu sees to. */
struct unit {
    unsigned sequence, head, kv_head, token, rows;
};
__device__ static inline struct unit unit_of(const struct problem &p, const struct cut &cut, size_t number)
{
    const size_t tiles = cut.tiles[0] + cut.tiles[1], tile = number % tiles;
    const bool query = tile >= cut.tiles[0];
    const struct part part = part_of(p.s, query);
    const size_t begin = (query ? tile - cut.tiles[0] : tile) * cut.rows;
    struct unit u;
    u.head = (unsigned)(number / tiles % p.s.heads);
    u.sequence = (unsigned)(number / tiles / p.s.heads);
    u.kv_head = u.head / (unsigned)part.share;
    u.token = (unsigned)(part.first + begin);
    u.rows = (unsigned)smaller(cut.rows, part.rows - begin);
    return u;
}

/* attention_bf16.cu. scratch: as many bytes as attention_bf16_scratch says, of the call's memory. */
void attention_bf16(struct cuda *c, struct problem p, void *scratch, bool backward);
size_t attention_bf16_scratch(const struct op *op, bool backward);

/* Shared memory beyond 48 KiB must be asked for. False, and why is in *c: the GPU gives no block so much. */
template <typename Kernel> static inline bool allow_shared(struct cuda *c, const struct problem &p, Kernel kernel, size_t bytes)
{
    if (bytes <= c->shared) {
        cuda_check(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "shared memory for attention");
        return true;
    }
    if (c->failure.code == 0)
        (void)tabft_fail(&c->failure, TABFT_INPUT,
                         "GPU %d: heads of %zu numbers, %zu classes: attention takes %zu bytes of shared memory, a block has %zu "
                         "at most; use --device cpu",
                         c->device, p.s.width, p.n_classes, bytes, c->shared);
    return false;
}

#endif
