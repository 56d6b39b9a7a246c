/* What the kernels of attention in bf16 share: those by which warps multiply (attention_bf16.cu) and those of Hopper's
 * warpgroups (attention_wgmma.cu). Operands, a warp's softmax, the order in which rows stream past keys. */
#ifndef TABFT_TENSOR_CUDA_ATTENTION_BF16_INTERNAL_H
#define TABFT_TENSOR_CUDA_ATTENTION_BF16_INTERNAL_H
#ifndef TABFT_TENSOR_ROOM
#error "attention_bf16_internal.h is private to lib/tensor"
#endif

#include "tensor/cuda/attention_internal.h"

/* ---- operands ---- */

/* A row for backward: a score's weight is 2^(scaled score - top), top infinite where there is no row; the sum of its p
 * dp. */
struct row_pair {
    float top, mean;
};

/* A tensor as the kernels read it: rows of bf16, `width` numbers or as many as kernels are wide, that begin at
 * multiples of 8 numbers of aligned memory; how far apart they are. */
struct operand {
    const uint16_t *at;
    size_t sequence, token, head;
};
__device__ static inline const uint16_t *row_of(const struct operand &x, size_t sequence, size_t token, size_t head)
{
    return x.at + sequence * x.sequence + token * x.token + head * x.head;
}

/* What kernels read; d: the gradient of the output. */
struct operands {
    struct operand k, v, q, d;
    struct row_pair *pairs; /* [sequences][heads][tokens]: the context's, filled up to whole tiles, then the query's */
    size_t kv_heads, query, tokens; /* query: pairs of a head before those of its query tokens */
};

/* ---- results ---- */

/* Writes a warp's 16 rows, or those there are, from number `at` of a tensor on. */
template <int D>
__device__ static inline void store(const struct tile_c *sum, const float *factor, size_t rows, size_t stride, bool add,
                                    bool bf16, const struct problem &p, float *to, size_t at)
{
    if (bf16) store_rows<D>(sum, factor, rows, p.s.width, stride, false, p.aligned, (struct bf16 *)(void *)to + at);
    else store_rows<D>(sum, factor, rows, p.s.width, stride, add, p.aligned, to + at);
}

/* ---- weights ---- */

/* c's two tiles as an operand. */
__device__ static inline void round_tiles(uint32_t *a, const struct tile_c *c)
{
#pragma unroll
    for (unsigned i = 0; i < 4; i++) a[i] = bf16_pair(c[i / 2].x[i % 2 * 2], c[i / 2].x[i % 2 * 2 + 1]);
}

/* Of a lane's rows: the largest score, and the sum of its own weights. */
struct running {
    float most, sum;
};

/* Scores of 16 rows and a tile of keys to weights; factor is what sums before must be shrunk by. */
template <bool whole>
__device__ static inline void weigh(float scale2, struct tile_c *c, unsigned keys, struct running *r, float *factor)
{
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        float most = r[half].most, sum = 0.0f;
#pragma unroll
        for (unsigned n = 0; n < TILE / 8; n++)
#pragma unroll
            for (unsigned i = 2 * half; i < 2 * half + 2; i++) {
                if (!whole && 8 * n + 2 * lane_in_group() + i % 2 >= keys) c[n].x[i] = -INFINITY;
                most = fmaxf(most, c[n].x[i]);
            }
        most = row_most(most);
        factor[half] = power_of_2((r[half].most - most) * scale2);
        r[half].most = most;
        const float top = most * scale2;
#pragma unroll
        for (unsigned n = 0; n < TILE / 8; n++) {
            if (!whole && n / 2 * 16 >= keys) break;
#pragma unroll
            for (unsigned i = 2 * half; i < 2 * half + 2; i++) {
                c[n].x[i] = power_of_2(c[n].x[i] * scale2 - top);
                sum += c[n].x[i];
            }
        }
        r[half].sum = r[half].sum * factor[half] + sum;
    }
}

/* What a warp's 16 rows of a unit come to, from row `first` of it on: the means of values, and what backward starts
 * from. */
template <int D>
__device__ static inline void end_rows(const struct problem &p, const struct unit &u, unsigned first,
                                       const struct tile_c *o, const struct running *r)
{
    float factor[2];
    for (unsigned i = 0; i < 2; i++) factor[i] = 1.0f / row_sum(r[i].sum);
    if (first >= u.rows) return;
    store<D>(o, factor, u.rows - first, p.s.o.token, false, p.bf16.out, p, p.o,
             place(p.s.o, u.sequence, u.token + first) + u.head * p.s.width);
    for (unsigned i = 0; i < 2 && lane_in_group() == 0; i++) {
        const unsigned row = first + lane_group() + 8 * i;
        if (row >= u.rows) continue;
        float *to = statistics_of(p, u.sequence, u.token + row, u.head);
        to[0] = r[i].most * p.scale2;
        to[1] = factor[i];
    }
}

/* The gradient of the same rows' queries. */
template <int D>
__device__ static inline void end_queries(const struct problem &p, const struct unit &u, unsigned first,
                                          const struct tile_c *dq)
{
    const float factor[2] = {p.scale, p.scale};
    if (first < u.rows)
        store<D>(dq, factor, u.rows - first, p.s.q.token, p.add_q, (p.bf16.d_in & 1) != 0, p, p.dq,
                 place(p.s.q, u.sequence, u.token + first) + u.head * p.s.width);
}

/* Numbers of a score: its weight, and the slope of the loss along it (before scaling). */
__device__ static inline float weight_of(float score, float scale2, const struct row_pair &row)
{
    return power_of_2(score * scale2 - row.top);
}

/* ---- rows that stream past keys ---- */

/* A tile of rows that use a key-value head: `rows` from row `row` of a head on, of the context's tokens or the query's;
 * no rows: there is none. They come head by head, those of the context first. */
struct stream {
    unsigned head, row, rows, query;
};
__device__ static inline struct stream tile_of(const struct problem &p, unsigned head, unsigned row, unsigned query)
{
    return stream{head, row, (unsigned)smaller(TILE, part_of(p.s, query).rows - row), query};
}
/* The first of a part. */
__device__ static inline struct stream first_of_part(const struct problem &p, unsigned kv_head, unsigned query)
{
    const struct part part = part_of(p.s, query);
    const size_t head = kv_head * part.share;
    return part.rows > 0 && head < p.s.heads ? tile_of(p, (unsigned)head, 0, query) : stream{0, 0, 0, query};
}
__device__ static inline struct stream first_of(const struct problem &p, unsigned kv_head)
{
    const struct stream s = first_of_part(p, kv_head, 0);
    return s.rows > 0 ? s : first_of_part(p, kv_head, 1);
}
/* The one behind it. */
__device__ static inline struct stream behind(const struct problem &p, unsigned kv_head, const struct stream &s)
{
    const struct part part = part_of(p.s, s.query);
    if (s.rows == 0) return s;
    if (s.row + s.rows < part.rows) return tile_of(p, s.head, s.row + s.rows, s.query);
    if (s.head + 1 < (kv_head + 1) * part.share) return tile_of(p, s.head + 1, 0, s.query);
    return s.query ? stream{0, 0, 0, 1} : first_of_part(p, kv_head, 1);
}

/* The unit at hand: keys and the values beside them; and where the tile at hand, the next and the one behind it are in
 * the stream. In shared memory, as registers are all taken by sums and operands while rows stream. */
struct keys_unit {
    unsigned sequence, kv_head, key, keys;
};
struct keys_work {
    struct keys_unit unit;
    struct stream stream[3]; /* of tile i: [i % 3] */
};
/* By one thread, before a barrier: unit `number`; and, while tile i is at hand, what is two behind it. */
__device__ static inline void begin_keys(struct keys_work *w, const struct problem &p, const struct cut &cut,
                                         size_t kv_heads, size_t number)
{
    const size_t key = number % cut.tiles[0] * cut.rows, head = number / cut.tiles[0];
    w->unit = keys_unit{(unsigned)(head / kv_heads), (unsigned)(head % kv_heads), (unsigned)key,
                        (unsigned)smaller(cut.rows, p.s.n_keys - key)};
    w->stream[0] = first_of(p, w->unit.kv_head);
    w->stream[1] = behind(p, w->unit.kv_head, w->stream[0]);
}
__device__ static inline void look_ahead(struct keys_work *w, const struct problem &p, unsigned i)
{
    w->stream[(i + 2) % 3] = behind(p, w->unit.kv_head, w->stream[(i + 1) % 3]);
}
/* The gradients of a warp's 16 keys of a unit, from key `first` of it on, and of their values. */
template <int D>
__device__ static inline void end_keys(const struct problem &p, const struct keys_unit &u, unsigned first,
                                       const struct tile_c *dk, const struct tile_c *dv)
{
    const float of_k[2] = {p.scale, p.scale}, of_v[2] = {1.0f, 1.0f};
    const size_t head = u.kv_head * p.s.width;
    if (first >= u.keys) return;
    store<D>(dk, of_k, u.keys - first, p.s.k.token, p.add_k, (p.bf16.d_in & 2) != 0, p, p.dk,
             place(p.s.k, u.sequence, u.key + first) + head);
    store<D>(dv, of_v, u.keys - first, p.s.v.token, p.add_v, (p.bf16.d_in & 4) != 0, p, p.dv,
             place(p.s.v, u.sequence, u.key + first) + head);
}
/* Where a tile's rows are: as tokens, and among the pairs. */
__device__ static inline size_t token_of_tile(const struct problem &p, const struct stream &s)
{
    return (s.query ? p.s.n_context : 0) + s.row;
}
__device__ static inline const struct row_pair *pairs_of_tile(const struct problem &p, const struct operands &r,
                                                              unsigned sequence, const struct stream &s)
{
    return r.pairs + (sequence * p.s.heads + s.head) * r.tokens + (s.query ? r.query : 0) + s.row;
}
/* The pairs of a unit's rows. */
__device__ static inline const struct row_pair *pairs_of_unit(const struct problem &p, const struct operands &r,
                                                              const struct unit &u)
{
    const size_t row = u.token < p.s.n_context ? u.token : u.token - p.s.n_context + r.query;
    return r.pairs + (u.sequence * p.s.heads + u.head) * r.tokens + row;
}

/* Keys from which on warpgroups multiply, where they can: that the rows of a call do not decide it keeps their bits
 * what they are, whatever else is in the call. */
static constexpr size_t WGMMA_KEYS = 256;

/* attention_wgmma.cu: a pass over a problem of heads of 33 to 64 numbers, whose operands are `r`; where c->wgmma. */
void attention_wgmma(struct cuda *c, const struct problem &p, const struct operands &r, bool backward);

#endif
