/* Attention in bf16: q, k, v and the output's gradient are rounded to bf16, and so are weights and slopes where they
 * become operands of a second product; sums, softmax and what is written are float32. Kernels as in attention.cu, with
 * the same owners of every sum. A warp owns 32 rows, or 16 where there are few, and keeps them as operands in registers
 * while the other side streams through shared memory, a tile ahead of the products. With 32 rows each matrix that is
 * loaded feeds two products: with 16, shared memory would give less than tensor cores take. Rows of a tile are 8
 * numbers longer than a head, so that the eight rows of a matrix lie in different banks. What streams is copied to shared
 * memory without passing through registers, of which a prefetch would take those that hold sums. Tensors that are not
 * bf16 yet, or whose rows do not begin at multiples of 8 numbers, are brought into that form in scratch memory
 * beforehand. The bits are the same. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/attention_bf16_internal.h"

/* A block's warps, each of M tiles of rows: with two blocks on a multiprocessor, a thread has registers enough. */
__host__ __device__ static constexpr unsigned most_warps(int width, unsigned m)
{
    return m == 2 ? 4 : width < 32 ? 8 : 6;
}
__host__ __device__ static constexpr unsigned least_blocks(int width) { return width == 128 ? 1 : 2; }
#define BOUNDS(D, M) __launch_bounds__(most_warps(D, M) * WARP, least_blocks(D))

/* ---- operands ---- */

/* Rows, `stride` apart, into shared memory of D + 8 numbers a row: `rows` filled up to a multiple of 16 with zeros, and
 * so is each behind `width`. Whole after copies_wait and a barrier. */
template <int D>
__device__ static void load_tile(uint16_t *to, const uint16_t *from, size_t stride, unsigned rows, unsigned width)
{
    static constexpr unsigned EIGHTS = D / 8;
    const unsigned filled = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    for (unsigned i = threadIdx.x; i < filled * EIGHTS; i += blockDim.x) {
        const unsigned row = i / EIGHTS, j = i % EIGHTS * 8;
        const bool there = row < rows && j < width;
        copy_16(to + row * (D + 8) + j, there ? from + row * stride + j : from, there);
    }
}

/* a [16 rows][D] of rows. */
template <int D>
__device__ static void load_rows(uint32_t (*a)[4], const uint16_t *from, size_t stride, unsigned rows, unsigned width)
{
#pragma unroll
    for (unsigned step = 0; step < D / 16; step++)
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = lane_group() + i % 2 * 8, j = 16 * step + 2 * lane_in_group() + i / 2 * 8;
            a[step][i] = row < rows && j < width ? *(const uint32_t *)(from + row * stride + j) : 0;
        }
}
/* Those of a warp, M tiles of them. */
template <int D, unsigned M>
__device__ static void load_rows_of_warp(uint32_t (*a)[D / 16][4], const uint16_t *from, size_t stride, unsigned first,
                                         unsigned rows, const struct problem &p)
{
#pragma unroll
    for (unsigned m = 0; m < M; m++) {
        const unsigned row = first + TILE_ROWS * m;
        load_rows<D>(a[m], from + row * stride, stride, row < rows ? rows - row : 0, (unsigned)p.s.width);
    }
}

/* sum [M 16 rows][n..n + 1][8 rows of the tile] += a times 16 of those, turned. */
template <int D, unsigned M, unsigned N>
__device__ static void add_scores(struct tile_c (*sum)[N], unsigned n, const uint32_t (*a)[D / 16][4],
                                  const uint16_t *tile, unsigned row)
{
    const unsigned lane = threadIdx.x % WARP;
    const uint16_t *at = tile + (row + lane % 8 + lane / 16 * 8) * (D + 8) + lane / 8 % 2 * 8;
#pragma unroll
    for (unsigned step = 0; step < D / 16; step++) {
        uint32_t b[4];
        load_matrices(b, at + 16 * step);
#pragma unroll
        for (unsigned m = 0; m < M; m++) {
            multiply_bf16(&sum[m][n], a[m][step], b);
            multiply_bf16(&sum[m][n + 1], a[m][step], b + 2);
        }
    }
}

/* sum [M 16 rows][D] += a [M 16 rows][16] times 16 rows of the tile. */
template <int D, unsigned M>
__device__ static void add_products(struct tile_c (*sum)[D / 8], const uint32_t (*a)[4], const uint16_t *tile,
                                    unsigned row)
{
    const unsigned lane = threadIdx.x % WARP;
    const uint16_t *at = tile + (row + lane % 16) * (D + 8) + lane / 16 * 8;
#pragma unroll
    for (unsigned j = 0; j < D / 16; j++) {
        uint32_t b[4];
        load_matrices_turned(b, at + 16 * j);
#pragma unroll
        for (unsigned m = 0; m < M; m++) {
            multiply_bf16(&sum[m][2 * j], a[m], b);
            multiply_bf16(&sum[m][2 * j + 1], a[m], b + 2);
        }
    }
}

/* ---- before the kernels ---- */

/* Four numbers of a row from number j on: zeros behind its last. */
template <typename X> __device__ static float4 four_of(const X *row, size_t j, size_t width, bool aligned)
{
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
    if (j >= width) return x;
    if (aligned) return four_at(row + j);
    x.x = row[j];
    if (j + 1 < width) x.y = row[j + 1];
    if (j + 2 < width) x.z = row[j + 2];
    if (j + 3 < width) x.w = row[j + 3];
    return x;
}

/* to [sequences][tokens][heads][each], `each` being what kernels are wide; one thread for eight numbers. */
template <typename X>
__global__ static void round_rows(const struct problem p, size_t tokens, size_t heads, size_t each, const X *from,
                                  const struct op_attention_stride stride, uint16_t *to)
{
    const size_t eights = each / 8;
    for (size_t i = thread_in_grid(); i < p.s.sequences * tokens * heads * eights; i += threads_in_grid()) {
        const size_t j = i % eights * 8, head = i / eights % heads, token = i / eights / heads % tokens;
        const X *at = from + place(stride, i / eights / heads / tokens, token) + head * p.s.width;
        const float4 x = four_of(at, j, p.s.width, p.aligned), y = four_of(at, j + 4, p.s.width, p.aligned);
        *(uint4 *)(to + i * 8) = uint4{bf16_pair(x.x, x.y), bf16_pair(x.z, x.w), bf16_pair(y.x, y.y),
                                       bf16_pair(y.z, y.w)};
    }
}

/* The token that a pair is of; where there is none: all of them. */
__device__ static size_t token_of(const struct op_attention &s, const struct operands &r, size_t row)
{
    const size_t tokens = s.n_context + s.n_query;
    if (row < r.query) return row < s.n_context ? row : tokens;
    return smaller(row - r.query + s.n_context, tokens);
}

/* Of each row what backward starts from; a lane has eight of its D numbers. The mean is that of the slopes as the products
 * see them: with the gradient of the output rounded. */
template <int D, typename O>
__global__ static void pair_rows(const struct problem p, const struct operands r, const O *o)
{
    constexpr unsigned LANES = D / 8;
    for (size_t i = thread_in_grid(); i < p.s.sequences * p.s.heads * r.tokens * LANES; i += threads_in_grid()) {
        const size_t j = i % LANES * 8, row = i / LANES % r.tokens, head = i / LANES / r.tokens % p.s.heads;
        const size_t sequence = i / LANES / r.tokens / p.s.heads, token = token_of(p.s, r, row);
        const bool there = token < p.s.n_context + p.s.n_query;
        float sum = 0.0f;
        if (there) {
            const O *out = o + place(p.s.o, sequence, token) + head * p.s.width;
            const struct bf16 *d = (const struct bf16 *)row_of(r.d, sequence, token, head);
            for (unsigned k = 0; k < 8; k += 4) {
                const float4 x = four_of(out, j + k, p.s.width, p.aligned), y = four_of(d, j + k, p.s.width, p.aligned);
                sum += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
            }
        }
        for (int step = 1; step < (int)LANES; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (j > 0) continue;
        struct row_pair pair = {INFINITY, 0.0f};
        if (there) {
            const float *s = statistics_of(p, sequence, token, head);
            pair = row_pair{s[0] - log2f(s[1]), sum};
        }
        r.pairs[i / LANES] = pair;
    }
}

/* What streams passes through two buffers of two tiles each: k and v, or q and the output's gradient. */
template <int D> __device__ static uint16_t *tile_at(float *room, unsigned tile_rows, unsigned buffer, unsigned which)
{
    return (uint16_t *)room + (2 * buffer + which) * tile_rows * (D + 8);
}

/* A tile of keys of a sequence and its values. */
template <int D>
__device__ static void load_keys(const struct problem &p, const struct operands &r, unsigned sequence, unsigned kv_head,
                                 unsigned key, float *room, unsigned tile_rows)
{
    const unsigned keys = (unsigned)smaller(TILE, p.s.n_keys - key), buffer = key / TILE % 2, width = (unsigned)p.s.width;
    load_tile<D>(tile_at<D>(room, tile_rows, buffer, 0), row_of(r.k, sequence, key, kv_head), r.k.token, keys, width);
    load_tile<D>(tile_at<D>(room, tile_rows, buffer, 1), row_of(r.v, sequence, key, kv_head), r.v.token, keys, width);
}

/* Waits for the tile of keys from `key` on and asks for the one behind it. Gives how many keys the tile has. */
template <int D>
__device__ static unsigned next_keys(const struct problem &p, const struct operands &r, const struct unit &u, unsigned key,
                                     float *room, unsigned tile_rows)
{
    const unsigned left = (unsigned)p.s.n_keys - key;
    copies_wait();
    __syncthreads(); /* the tile is there, and everybody has done with the one before */
    if (left > TILE) load_keys<D>(p, r, u.sequence, u.kv_head, key + TILE, room, tile_rows);
    return left < TILE ? left : TILE;
}

/* ---- forward ---- */

/* One tile of keys and values for a warp's rows. Of a tile that is not whole the last 16 keys that there are end it. */
template <int D, unsigned M, bool whole>
__device__ static void attend_tile(float scale2, const uint32_t (*q)[D / 16][4], const uint16_t *k, const uint16_t *v,
                                   unsigned keys, struct tile_c (*o)[D / 8], struct running (*r)[2])
{
    struct tile_c c[M][TILE / 8] = {};
    float factor[M][2];
    bool shrinks = false;
#pragma unroll
    for (unsigned n = 0; n < TILE / 16; n++) {
        if (!whole && 16 * n >= keys) break;
        add_scores<D, M>(c, 2 * n, q, k, 16 * n);
    }
#pragma unroll
    for (unsigned m = 0; m < M; m++) {
        weigh<whole>(scale2, c[m], keys, r[m], factor[m]);
        shrinks |= factor[m][0] != 1.0f || factor[m][1] != 1.0f;
    }
    if (__any_sync(0xffffffffu, shrinks)) { /* soon never: the largest scores have been seen */
#pragma unroll
        for (unsigned m = 0; m < M; m++)
#pragma unroll
            for (unsigned j = 0; j < D / 8; j++)
#pragma unroll
                for (unsigned i = 0; i < 4; i++) o[m][j].x[i] *= factor[m][i / 2];
    }
#pragma unroll
    for (unsigned n = 0; n < TILE / 16; n++) {
        uint32_t a[M][4];
        if (!whole && 16 * n >= keys) break;
#pragma unroll
        for (unsigned m = 0; m < M; m++) round_tiles(a[m], &c[m][2 * n]);
        add_products<D, M>(o, a, v, 16 * n);
    }
}

template <int D, unsigned M>
__global__ static void BOUNDS(D, M) attend_bf16(const struct problem p, const struct operands operands,
                                                const struct cut cut, unsigned tile_rows, size_t units)
{
    SHARED_FLOATS(room);
    const unsigned warp_row = threadIdx.x / WARP * TILE_ROWS * M, n_keys = (unsigned)p.s.n_keys;
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        const struct unit u = unit_of(p, cut, number);
        uint32_t q[M][D / 16][4];
        struct tile_c o[M][D / 8] = {};
        struct running r[M][2];
        for (unsigned m = 0; m < M; m++) r[m][0] = r[m][1] = running{-INFINITY, 0.0f};
        load_keys<D>(p, operands, u.sequence, u.kv_head, 0, room, tile_rows);
        load_rows_of_warp<D, M>(q, row_of(operands.q, u.sequence, u.token, u.head), operands.q.token, warp_row, u.rows, p);
        for (unsigned key = 0; key < n_keys; key += TILE) {
            const uint16_t *k = tile_at<D>(room, tile_rows, key / TILE % 2, 0),
                           *v = tile_at<D>(room, tile_rows, key / TILE % 2, 1);
            const unsigned keys = next_keys<D>(p, operands, u, key, room, tile_rows);
            if (keys == TILE) attend_tile<D, M, true>(p.scale2, q, k, v, keys, o, r);
            else attend_tile<D, M, false>(p.scale2, q, k, v, keys, o, r);
        }
#pragma unroll
        for (unsigned m = 0; m < M; m++) end_rows<D>(p, u, warp_row + TILE_ROWS * m, o[m], r[m]);
        __syncthreads(); /* before the next unit's keys */
    }
}

/* ---- backward ---- */

/* One tile of keys and values for the slopes of a warp's rows. */
template <int D, unsigned M, bool whole>
__device__ static void slope_tile(float scale2, const uint32_t (*q)[D / 16][4], const uint32_t (*d)[D / 16][4],
                                  const uint16_t *k, const uint16_t *v, unsigned keys, const struct row_pair (*rows)[2],
                                  struct tile_c (*dq)[D / 8])
{
#pragma unroll 1
    for (unsigned n = 0; n < TILE; n += 16) {
        struct tile_c c[M][2] = {}, slope[M][2] = {};
        uint32_t a[M][4];
        if (!whole && n >= keys) break;
        add_scores<D, M>(c, 0, q, k, n);
        add_scores<D, M>(slope, 0, d, v, n);
#pragma unroll
        for (unsigned m = 0; m < M; m++) {
#pragma unroll
            for (unsigned i = 0; i < 8; i++) {
                const struct row_pair &row = rows[m][i % 4 / 2];
                float *x = &c[m][i / 4].x[i % 4];
                *x = weight_of(*x, scale2, row) * (slope[m][i / 4].x[i % 4] - row.mean);
                if (!whole && n + i / 4 * 8 + 2 * lane_in_group() + i % 2 >= keys) *x = 0.0f;
            }
            round_tiles(a[m], c[m]);
        }
        add_products<D, M>(dq, a, k, n);
    }
}

template <int D, unsigned M>
__global__ static void BOUNDS(D, M) queries_back_bf16(const struct problem p, const struct operands operands,
                                                      const struct cut cut, unsigned tile_rows, size_t units)
{
    SHARED_FLOATS(room);
    const unsigned warp_row = threadIdx.x / WARP * TILE_ROWS * M, n_keys = (unsigned)p.s.n_keys;
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        const struct unit u = unit_of(p, cut, number);
        const struct row_pair *pairs = pairs_of_unit(p, operands, u);
        uint32_t q[M][D / 16][4], d[M][D / 16][4];
        struct row_pair rows[M][2];
        struct tile_c dq[M][D / 8] = {};
        load_keys<D>(p, operands, u.sequence, u.kv_head, 0, room, tile_rows);
        load_rows_of_warp<D, M>(q, row_of(operands.q, u.sequence, u.token, u.head), operands.q.token, warp_row, u.rows, p);
        load_rows_of_warp<D, M>(d, row_of(operands.d, u.sequence, u.token, u.head), operands.d.token, warp_row, u.rows, p);
        for (unsigned i = 0; i < 2 * M; i++) {
            const size_t own = warp_row + lane_group() + 8 * i;
            rows[i / 2][i % 2] = own < u.rows ? pairs[own] : row_pair{INFINITY, 0.0f};
        }
        for (unsigned key = 0; key < n_keys; key += TILE) {
            const uint16_t *k = tile_at<D>(room, tile_rows, key / TILE % 2, 0),
                           *v = tile_at<D>(room, tile_rows, key / TILE % 2, 1);
            const unsigned keys = next_keys<D>(p, operands, u, key, room, tile_rows);
            if (keys == TILE) slope_tile<D, M, true>(p.scale2, q, d, k, v, keys, rows, dq);
            else slope_tile<D, M, false>(p.scale2, q, d, k, v, keys, rows, dq);
        }
#pragma unroll
        for (unsigned m = 0; m < M; m++) end_queries<D>(p, u, warp_row + TILE_ROWS * m, dq[m]);
        __syncthreads(); /* before the next unit's keys */
    }
}

/* What lies there before the tiles: the unit and the stream; and the row pairs of two tiles. */
struct alignas(16) keys_room {
    struct row_pair pairs[2][TILE];
    struct keys_work work;
};
static constexpr unsigned ROOM_FLOATS = sizeof(struct keys_room) / sizeof(float);
static_assert(sizeof(struct keys_room) % 16 == 0, "tiles behind it are aligned");

/* A tile of the stream: queries, and the gradients of their outputs. */
template <int D>
__device__ static void load_stream(const struct problem &p, const struct operands &r, const struct stream &s,
                                   float *room, unsigned tile_rows, unsigned buffer)
{
    struct keys_room *own = (struct keys_room *)room;
    const unsigned sequence = own->work.unit.sequence, width = (unsigned)p.s.width;
    if (s.rows == 0) return;
    const size_t token = token_of_tile(p, s);
    const struct row_pair *pairs = pairs_of_tile(p, r, sequence, s);
    load_tile<D>(tile_at<D>(room + ROOM_FLOATS, tile_rows, buffer, 0), row_of(r.q, sequence, token, s.head), r.q.token,
                 s.rows, width);
    load_tile<D>(tile_at<D>(room + ROOM_FLOATS, tile_rows, buffer, 1), row_of(r.d, sequence, token, s.head), r.d.token,
                 s.rows, width);
    for (unsigned i = threadIdx.x; i < TILE / 2; i += blockDim.x)
        copy_16(&own->pairs[buffer][2 * i], pairs + 2 * i, true);
}

/* One tile of rows for the slopes of a warp's keys and values. Rows that are not there have zeros, and weigh nothing.
 */
template <int D, unsigned M>
__device__ static void key_slopes(float scale2, const uint32_t (*k)[D / 16][4], const uint32_t (*v)[D / 16][4],
                                  const uint16_t *q, const uint16_t *d, const struct row_pair *pairs, unsigned rows,
                                  struct tile_c (*dk)[D / 8], struct tile_c (*dv)[D / 8])
{
#pragma unroll 1
    for (unsigned n = 0; n < rows; n += 16) {
        struct tile_c c[M][2] = {}, slope[M][2] = {};
        uint32_t a[M][4];
        const struct row_pair *own = pairs + n + 2 * lane_in_group();
        add_scores<D, M>(c, 0, k, q, n);
#pragma unroll
        for (unsigned m = 0; m < M; m++) {
#pragma unroll
            for (unsigned i = 0; i < 8; i++)
                c[m][i / 4].x[i % 4] = weight_of(c[m][i / 4].x[i % 4], scale2, own[i / 4 * 8 + i % 2]);
            round_tiles(a[m], c[m]);
        }
        add_products<D, M>(dv, a, d, n);
        add_scores<D, M>(slope, 0, v, d, n);
#pragma unroll
        for (unsigned m = 0; m < M; m++) {
#pragma unroll
            for (unsigned i = 0; i < 8; i++)
                c[m][i / 4].x[i % 4] *= slope[m][i / 4].x[i % 4] - own[i / 4 * 8 + i % 2].mean;
            round_tiles(a[m], c[m]);
        }
        add_products<D, M>(dk, a, q, n);
    }
}

/* A warp's keys or values. */
template <int D, unsigned M>
__device__ static void load_owned(uint32_t (*a)[D / 16][4], const struct operand &from, const struct keys_unit &u,
                                  unsigned warp_key, const struct problem &p)
{
    load_rows_of_warp<D, M>(a, row_of(from, u.sequence, u.key, u.kv_head), from.token, warp_key, u.keys, p);
}

/* A unit: a block's keys of one key-value head of one sequence; all rows of all heads that use it. */
template <int D, unsigned M>
__global__ static void BOUNDS(D, M) keys_back_bf16(const struct problem p, const struct operands operands,
                                                   const struct cut cut, unsigned tile_rows, size_t units)
{
    SHARED_FLOATS(room);
    const unsigned warp_key = threadIdx.x / WARP * TILE_ROWS * M;
    struct keys_room *own = (struct keys_room *)room;
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        if (threadIdx.x == 0) begin_keys(&own->work, p, cut, operands.kv_heads, number);
        __syncthreads();
        uint32_t k[M][D / 16][4], v[M][D / 16][4];
        struct tile_c dk[M][D / 8] = {}, dv[M][D / 8] = {};
        load_stream<D>(p, operands, own->work.stream[0], room, tile_rows, 0);
        load_owned<D, M>(k, operands.k, own->work.unit, warp_key, p);
        load_owned<D, M>(v, operands.v, own->work.unit, warp_key, p);
        for (unsigned i = 0; own->work.stream[i % 3].rows > 0; i++) {
            copies_wait();
            __syncthreads(); /* the tile is there, and everybody has done with the one before */
            if (threadIdx.x == 0) look_ahead(&own->work, p, i);
            load_stream<D>(p, operands, own->work.stream[(i + 1) % 3], room, tile_rows, (i + 1) % 2);
            key_slopes<D, M>(p.scale2, k, v, tile_at<D>(room + ROOM_FLOATS, tile_rows, i % 2, 0),
                             tile_at<D>(room + ROOM_FLOATS, tile_rows, i % 2, 1), own->pairs[i % 2],
                             own->work.stream[i % 3].rows, dk, dv);
        }
#pragma unroll
        for (unsigned m = 0; m < M; m++) end_keys<D>(p, own->work.unit, warp_key + TILE_ROWS * m, dk[m], dv[m]);
        __syncthreads(); /* before the next unit's rows */
    }
}

/* ---- launches ---- */

/* How a problem is cut: its rows and its keys, each for the kernels that own them, with 32 a warp (`wide`) or 16; and
 * what is brought into the form of operands beforehand, for how many sequences at once. */
enum { OPERAND_Q, OPERAND_K, OPERAND_V, OPERAND_D, OPERANDS };
struct way {
    int width; /* of the kernels */
    struct cut rows, keys;
    bool wide, wide_keys, rounds[OPERANDS];
    size_t kv_heads, filled_context, filled_tokens;
    size_t sequences, bytes; /* at once, and their scratch memory */
};

/* 32 rows a warp where there are enough of them, and that makes at most an eighth more of those that are computed. Not
 * with the narrowest heads, which exponentials hold up, nor with the widest, whose sums would not fit registers. */
static bool choose_wide(int width, size_t n_context, size_t n_query, struct cut *out)
{
    const struct cut narrow = cut_of(n_context, n_query, TILE_ROWS, most_warps(width, 1)),
                     wide = cut_of(n_context, n_query, 2 * TILE_ROWS, most_warps(width, 2));
    const size_t in_narrow = (narrow.tiles[0] + narrow.tiles[1]) * narrow.rows,
                 in_wide = (wide.tiles[0] + wide.tiles[1]) * wide.rows;
    const bool chosen = width >= 32 && width < 128 && in_wide >= 128 && in_wide <= in_narrow + in_narrow / 8;
    *out = chosen ? wide : narrow;
    return chosen;
}

static size_t filled(size_t rows) { return blocks_of(rows, TILE) * TILE; }

/* Whether rows begin at multiples of 8 numbers; the tensor itself is aligned. */
static bool in_eights(const struct op_attention_stride &s)
{
    return s.sequence % 8 == 0 && s.token % 8 == 0 && s.column % 8 == 0;
}

static size_t tokens_of(const struct op_attention &s, int which)
{
    return which == OPERAND_K || which == OPERAND_V ? s.n_keys : s.n_context + s.n_query;
}
static size_t heads_of(const struct op_attention &s, int which)
{
    return which == OPERAND_K || which == OPERAND_V ? kv_heads_of(s) : s.heads;
}

static struct way way_of(const struct op_attention *s, const struct op_bf16 *bf16, bool backward)
{
    const bool is_bf16[OPERANDS] = {(bf16->in & 1) != 0, (bf16->in & 2) != 0, (bf16->in & 4) != 0, bf16->d_out};
    const struct op_attention_stride *const strides[OPERANDS] = {&s->q, &s->k, &s->v, &s->o};
    struct way w = {};
    size_t each = 0;
    w.width = s->width <= 16 ? 16 : s->width <= 32 ? 32 : s->width <= 64 ? 64 : 128;
    w.wide = choose_wide(w.width, s->n_context, s->n_query, &w.rows);
    w.wide_keys = choose_wide(w.width, s->n_keys, 0, &w.keys);
    w.kv_heads = kv_heads_of(*s);
    w.filled_context = filled(s->n_context);
    w.filled_tokens = w.filled_context + filled(s->n_query);
    for (int i = 0; i < (backward ? OPERANDS : OPERAND_D); i++) {
        w.rounds[i] = !is_bf16[i] || s->width % 8 != 0 || !in_eights(*strides[i]);
        if (w.rounds[i]) each += tokens_of(*s, i) * heads_of(*s, i) * (size_t)w.width * sizeof(uint16_t);
    }
    if (backward) each += s->heads * w.filled_tokens * sizeof(struct row_pair);
    w.sequences = each == 0 || each * s->sequences <= ROUNDED_MOST ? s->sequences : ROUNDED_MOST / each;
    if (w.sequences == 0) w.sequences = 1;
    w.bytes = w.sequences * each;
    return w;
}

static const float *moved(const float *x, bool bf16, size_t n)
{
    if (x == NULL) return NULL;
    return bf16 ? (const float *)(const void *)((const struct bf16 *)(const void *)x + n) : x + n;
}
static float *moved(float *x, bool bf16, size_t n) { return (float *)(uintptr_t)moved((const float *)x, bf16, n); }

/* The problem of some of its sequences. */
static struct problem sequences_of(const struct problem &all, size_t first, size_t count)
{
    const struct op_bf16 &b = all.bf16;
    struct problem p = all;
    p.s.sequences = count;
    p.q = moved(p.q, (b.in & 1) != 0, first * p.s.q.sequence);
    p.k = moved(p.k, (b.in & 2) != 0, first * p.s.k.sequence);
    p.v = moved(p.v, (b.in & 4) != 0, first * p.s.v.sequence);
    p.o = moved(p.o, b.out, first * p.s.o.sequence);
    p.statistics += first * p.s.statistics.sequence;
    p.d_out = moved(p.d_out, b.d_out, first * p.s.o.sequence);
    p.dq = moved(p.dq, (b.d_in & 1) != 0, first * p.s.q.sequence);
    p.dk = moved(p.dk, (b.d_in & 2) != 0, first * p.s.k.sequence);
    p.dv = moved(p.dv, (b.d_in & 4) != 0, first * p.s.v.sequence);
    return p;
}

/* A tensor as an operand: as it is, or brought into that form at *scratch, which it then moves on. */
static struct operand operand_of(struct cuda *c, const struct problem &p, const struct way &w, int which, const float *x,
                                 bool bf16, const struct op_attention_stride &stride, uint16_t **scratch)
{
    const size_t tokens = tokens_of(p.s, which), heads = heads_of(p.s, which), each = (size_t)w.width,
                 count = p.s.sequences * tokens * heads * each;
    if (!w.rounds[which])
        return operand{(const uint16_t *)(const void *)x + stride.column, stride.sequence, stride.token, p.s.width};
    uint16_t *const to = *scratch;
    *scratch += count;
    if (bf16)
        LAUNCH(round_rows<struct bf16>, grid_of(count / 8, BLOCK), BLOCK, 0, c->stream, p, tokens, heads, each,
               (const struct bf16 *)(const void *)x, stride, to);
    else LAUNCH(round_rows<float>, grid_of(count / 8, BLOCK), BLOCK, 0, c->stream, p, tokens, heads, each, x, stride, to);
    cuda_launched(c, "rounding for attention");
    return operand{to, tokens * heads * each, heads * each, each};
}

/* What kernels read, in scratch memory where it must be. */
static struct operands operands_of(struct cuda *c, const struct problem &p, const struct way &w, bool backward, void *scratch)
{
    uint16_t *at = (uint16_t *)scratch;
    struct operands r = {};
    r.kv_heads = w.kv_heads;
    r.query = w.filled_context;
    r.tokens = w.filled_tokens;
    r.q = operand_of(c, p, w, OPERAND_Q, p.q, (p.bf16.in & 1) != 0, p.s.q, &at);
    r.k = operand_of(c, p, w, OPERAND_K, p.k, (p.bf16.in & 2) != 0, p.s.k, &at);
    r.v = operand_of(c, p, w, OPERAND_V, p.v, (p.bf16.in & 4) != 0, p.s.v, &at);
    if (!backward) return r;
    r.d = operand_of(c, p, w, OPERAND_D, p.d_out, p.bf16.d_out, p.s.o, &at);
    r.pairs = (struct row_pair *)at;
    return r;
}

template <int D> static void launch_pairs(struct cuda *c, const struct problem &p, const struct operands &r)
{
    const unsigned grid = grid_of(p.s.sequences * p.s.heads * r.tokens * (D / 8), BLOCK);
    if (p.bf16.out)
        LAUNCH((pair_rows<D, struct bf16>), grid, BLOCK, 0, c->stream, p, r, (const struct bf16 *)(const void *)p.o);
    else LAUNCH((pair_rows<D, float>), grid, BLOCK, 0, c->stream, p, r, (const float *)p.o);
    cuda_launched(c, "attention's rows");
}

static bool in_fours(const void *x, const struct op_attention_stride &s)
{
    return is_at_four(x) && s.sequence % 4 == 0 && s.token % 4 == 0 && s.column % 4 == 0;
}
static bool is_aligned(const struct problem &p)
{
    return p.s.width % 4 == 0 && in_fours(p.q, p.s.q) && in_fours(p.k, p.s.k) && in_fours(p.v, p.s.v) &&
           in_fours(p.o, p.s.o) && in_fours(p.d_out, p.s.o) && in_fours(p.dq, p.s.q) && in_fours(p.dk, p.s.k) &&
           in_fours(p.dv, p.s.v);
}

/* Rows of a tile of which `most` are there at once, and the bytes of its buffers: one where there is one tile. */
static unsigned tile_rows_of(size_t most) { return (unsigned)(blocks_of(smaller(most, TILE), TILE_ROWS) * TILE_ROWS); }
template <int D> static size_t buffers_of(size_t most, bool single)
{
    return (single ? 2 : 4) * tile_rows_of(most) * (D + 8) * sizeof(uint16_t);
}

template <int D, unsigned M>
static void launch_rows(struct cuda *c, const struct problem &p, const struct operands &r, const struct cut &cut,
                        bool backward)
{
    const size_t units = p.s.sequences * p.s.heads * (cut.tiles[0] + cut.tiles[1]);
    const size_t shared = buffers_of<D>(p.s.n_keys, p.s.n_keys <= TILE);
    const unsigned tile_rows = tile_rows_of(p.s.n_keys);
    const auto kernel = backward ? queries_back_bf16<D, M> : attend_bf16<D, M>;
    if (!allow_shared(c, p, kernel, shared)) return;
    LAUNCH(kernel, grid_of(units, 1), cut.warps * WARP, shared, c->stream, p, r, cut, tile_rows, units);
    cuda_launched(c, backward ? "the gradient of queries" : "attention");
}

template <int D, unsigned M>
static void launch_keys(struct cuda *c, const struct problem &p, const struct operands &r, const struct cut &cut)
{
    const size_t units = p.s.sequences * r.kv_heads * cut.tiles[0];
    const size_t longest = p.s.n_context > p.s.n_query ? p.s.n_context : p.s.n_query;
    const bool single = longest <= TILE && r.kv_heads == p.s.heads && (p.s.n_context == 0 || p.s.n_query == 0);
    const size_t shared = sizeof(struct keys_room) + buffers_of<D>(longest, single);
    if (!allow_shared(c, p, keys_back_bf16<D, M>, shared)) return;
    LAUNCH((keys_back_bf16<D, M>), grid_of(units, 1), cut.warps * WARP, shared, c->stream, p, r, cut,
           tile_rows_of(longest), units);
    cuda_launched(c, "the gradient of keys and values");
}

template <int D>
static void launch(struct cuda *c, const struct problem &p, const struct operands &r, const struct way &way,
                   bool backward)
{
    static constexpr unsigned WIDE = D == 32 || D == 64 ? 2 : 1;
    if (backward) launch_pairs<D>(c, p, r);
    if (D == 64 && c->wgmma && p.s.n_keys >= WGMMA_KEYS) {
        attention_wgmma(c, p, r, backward);
        return;
    }
    if (!backward || p.dq != NULL)
        way.wide ? launch_rows<D, WIDE>(c, p, r, way.rows, backward) : launch_rows<D, 1>(c, p, r, way.rows, backward);
    if (backward) way.wide_keys ? launch_keys<D, WIDE>(c, p, r, way.keys) : launch_keys<D, 1>(c, p, r, way.keys);
}

size_t attention_bf16_scratch(const struct op *op, bool backward)
{
    return way_of(&op->attention, &op->bf16, backward).bytes;
}

void attention_bf16(struct cuda *c, struct problem p, void *scratch, bool backward)
{
    const struct way way = way_of(&p.s, &p.bf16, backward);
    p.aligned = is_aligned(p);
    for (size_t first = 0; first < p.s.sequences; first += way.sequences) {
        const struct problem some = sequences_of(p, first, smaller(way.sequences, p.s.sequences - first));
        const struct operands r = operands_of(c, some, way, backward, scratch);
        if (way.width == 16) launch<16>(c, some, r, way, backward);
        else if (way.width == 32) launch<32>(c, some, r, way, backward);
        else if (way.width == 64) launch<64>(c, some, r, way, backward);
        else launch<128>(c, some, r, way, backward);
    }
}
