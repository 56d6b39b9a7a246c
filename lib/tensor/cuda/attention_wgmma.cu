/* Attention in bf16 by the products of Hopper's warpgroups, for long sequences and heads of 33 to 64 numbers: what
 * attention_bf16.cu does otherwise, with the same operands, owners of sums and results. A block is three warpgroups of
 * 64 rows (of queries, or of keys and values), whose operands stay in shared memory while tiles of 64 of the other side
 * stream past, by way of three places: one is multiplied, one is filled, and the last products of one may still be
 * under way. While one warpgroup weighs, tensor cores have the products of the others. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/attention_bf16_internal.h"

#ifdef TABFT_CUDA_90A
/* Groups of a block: of rows, and of keys, whose sums take more registers. */
static constexpr unsigned D = TILE_WIDTH, PLACES = 3, ROW_GROUPS = 3, KEY_GROUPS = 2;
#define BOUNDS(groups) __launch_bounds__((groups)*GROUP_THREADS, 1)
static_assert(TILE == GROUP_ROWS, "a tile of the other side is as long as a group's own");

/* ---- tiles ---- */

/* 64 rows, `stride` apart, of which there are `rows`; zeros for the others, and behind `width`. Whole after tiles_wait.
 */
__device__ static void load_tile(struct shared_tile *to, const uint16_t *from, size_t stride, unsigned rows,
                                 unsigned width)
{
    for (unsigned i = threadIdx.x; i < TILE * (D / 8); i += blockDim.x) {
        const unsigned row = i / (D / 8), j = i % (D / 8);
        const bool there = row < rows && 8 * j < width;
        copy_16(to->x + place_in_tile(row, j), there ? from + row * stride + 8 * j : from, there);
    }
}

/* A block's own rows, a tile for each group. */
__device__ static void load_own(struct shared_tile *to, const uint16_t *from, size_t stride, unsigned rows,
                                unsigned width)
{
    for (unsigned g = 0; g * TILE < rows; g++)
        load_tile(to + g, from + g * TILE * stride, stride, (unsigned)smaller(TILE, rows - g * TILE), width);
}

/* What was asked for is there, for products too, and nobody reads the place that is filled next any more. */
__device__ static void tiles_wait(void)
{
    copies_wait();
    fence_shared();
    __syncthreads();
}

/* ---- a group's products ---- */

/* c = own rows times those of the tile. */
__device__ static void begin_scores(struct tile_c *c, const struct shared_tile *own, const struct shared_tile *tile)
{
    hold(c);
    begin_products();
#pragma unroll
    for (unsigned step = 0; step < D / 16; step++)
        multiply_columns(c, step > 0, columns_of(own->x, step), columns_of(tile->x, step));
    end_products();
}

/* What backward begins a tile with: scores in c, and behind them the products that slopes are made of, which go on
 * beside the weighing. The scores are there, and the sums of the tile before, which a was for. */
__device__ static void begin_slopes(struct tile_c *c, struct tile_c *slope, const struct shared_tile *own,
                                    const struct shared_tile *own_other, const struct shared_tile *tile,
                                    struct tile_c *sum, uint32_t (*a)[4])
{
    begin_scores(c, own, tile);
    begin_scores(slope, own_other, tile + 1);
    products_wait<1>();
    hold(c);
    hold(sum);
    hold(a);
}

/* sum += what was rounded times the rows of the tile. */
__device__ static void begin_sums(struct tile_c *sum, uint32_t (*a)[4], const struct shared_tile *tile)
{
    hold(sum);
    hold(a);
    begin_products();
#pragma unroll
    for (unsigned n = 0; n < TILE / 16; n++) multiply_rows(sum, a[n], rows_of(tile->x, n));
    end_products();
}

__device__ static void round_all(uint32_t (*a)[4], const struct tile_c *c)
{
#pragma unroll
    for (unsigned n = 0; n < TILE / 16; n++) round_tiles(a[n], &c[2 * n]);
}

/* ---- rows: forward, and the gradient of queries ---- */

/* Keys and values of a sequence from `key` on, into the place of that tile. */
__device__ static void load_keys(struct shared_tile *places, const struct problem &p, const struct operands &r,
                                 const struct unit &u, unsigned key)
{
    struct shared_tile *to = places + key / TILE % PLACES * 2;
    const unsigned keys = (unsigned)smaller(TILE, p.s.n_keys - key), width = (unsigned)p.s.width;
    load_tile(to, row_of(r.k, u.sequence, key, u.kv_head), r.k.token, keys, width);
    load_tile(to + 1, row_of(r.v, u.sequence, key, u.kv_head), r.v.token, keys, width);
}

/* Waits for the tile of keys from `key` on and asks for the one behind it. Gives how many keys it has. */
__device__ static unsigned next_keys(struct shared_tile *places, const struct problem &p, const struct operands &r,
                                     const struct unit &u, unsigned key)
{
    const unsigned left = (unsigned)p.s.n_keys - key;
    tiles_wait();
    if (left > TILE) load_keys(places, p, r, u, key + TILE);
    return left < TILE ? left : TILE;
}

/* Weights of a tile's scores, and what was summed shrunk to them. */
template <bool whole>
__device__ static void weigh_tile(float scale2, struct tile_c *c, unsigned keys, struct running *r, struct tile_c *o)
{
    float factor[2];
    weigh<whole>(scale2, c, keys, r, factor);
#pragma unroll
    for (unsigned n = 0; n < TILE / 8; n++)
        if (!whole && n / 2 * 16 >= keys) c[n] = {};
    if (!__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) return; /* soon always */
#pragma unroll
    for (unsigned j = 0; j < D / 8; j++)
#pragma unroll
        for (unsigned i = 0; i < 4; i++) o[j].x[i] *= factor[i / 2];
}

__global__ static void BOUNDS(ROW_GROUPS)
    attend_wgmma(const struct problem p, const struct operands operands, const struct cut cut, size_t units)
{
    SHARED_TILES(room);
    const unsigned group = threadIdx.x / GROUP_THREADS, first = threadIdx.x / WARP * TILE_ROWS,
                   n_keys = (unsigned)p.s.n_keys;
    struct shared_tile *const own = room + group, *const places = room + cut.warps;
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        const struct unit u = unit_of(p, cut, number);
        struct tile_c c[D / 8], o[D / 8] = {};
        uint32_t a[TILE / 16][4] = {};
        struct running r[2] = {running{-INFINITY, 0.0f}, running{-INFINITY, 0.0f}};
        load_own(room, row_of(operands.q, u.sequence, u.token, u.head), operands.q.token, u.rows, (unsigned)p.s.width);
        load_keys(places, p, operands, u, 0);
        for (unsigned key = 0; key < n_keys; key += TILE) {
            const struct shared_tile *tile = places + key / TILE % PLACES * 2;
            const unsigned keys = next_keys(places, p, operands, u, key);
            begin_scores(c, own, tile);
            products_wait<0>(); /* and the sums of the tile before */
            hold(c);
            hold(o);
            hold(a);
            if (keys == TILE) weigh_tile<true>(p.scale2, c, keys, r, o);
            else weigh_tile<false>(p.scale2, c, keys, r, o);
            round_all(a, c);
            begin_sums(o, a, tile + 1);
        }
        products_wait<0>();
        hold(o);
        end_rows<D>(p, u, first, o, r);
        __syncthreads(); /* before the next unit's rows */
    }
}

__global__ static void BOUNDS(ROW_GROUPS)
    queries_back_wgmma(const struct problem p, const struct operands operands, const struct cut cut, size_t units)
{
    SHARED_TILES(room);
    const unsigned group = threadIdx.x / GROUP_THREADS, first = threadIdx.x / WARP * TILE_ROWS,
                   n_keys = (unsigned)p.s.n_keys, width = (unsigned)p.s.width;
    struct shared_tile *const own = room + group, *const own_d = own + cut.warps, *const places = room + 2 * cut.warps;
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        const struct unit u = unit_of(p, cut, number);
        const struct row_pair *pairs = pairs_of_unit(p, operands, u);
        struct tile_c c[D / 8], slope[D / 8], dq[D / 8] = {};
        uint32_t a[TILE / 16][4] = {};
        struct row_pair rows[2];
        load_own(room, row_of(operands.q, u.sequence, u.token, u.head), operands.q.token, u.rows, width);
        load_own(room + cut.warps, row_of(operands.d, u.sequence, u.token, u.head), operands.d.token, u.rows, width);
        load_keys(places, p, operands, u, 0);
        for (unsigned i = 0; i < 2; i++) {
            const unsigned row = first + lane_group() + 8 * i;
            rows[i] = row < u.rows ? pairs[row] : row_pair{INFINITY, 0.0f};
        }
        for (unsigned key = 0; key < n_keys; key += TILE) {
            const struct shared_tile *tile = places + key / TILE % PLACES * 2;
            const unsigned keys = next_keys(places, p, operands, u, key);
            begin_slopes(c, slope, own, own_d, tile, dq, a);
#pragma unroll
            for (unsigned i = 0; i < 32; i++)
                c[i / 4].x[i % 4] = weight_of(c[i / 4].x[i % 4], p.scale2, rows[i % 4 / 2]);
            products_wait<0>();
            hold(slope);
#pragma unroll
            for (unsigned i = 0; i < 32; i++) {
                c[i / 4].x[i % 4] *= slope[i / 4].x[i % 4] - rows[i % 4 / 2].mean;
                if (keys < TILE && i / 4 * 8 + 2 * lane_in_group() + i % 2 >= keys) c[i / 4].x[i % 4] = 0.0f;
            }
            round_all(a, c);
            begin_sums(dq, a, tile);
        }
        products_wait<0>();
        hold(dq);
        end_queries<D>(p, u, first, dq);
        __syncthreads(); /* before the next unit's rows */
    }
}

/* ---- the gradient of keys and values ---- */

/* What lies in shared memory behind the tiles. */
struct group_keys_room {
    alignas(16) struct row_pair pairs[PLACES][TILE];
    struct keys_work work;
};

/* A tile of the stream: queries, and the gradients of their outputs. */
__device__ static void load_stream(struct shared_tile *places, struct group_keys_room *own, const struct problem &p,
                                   const struct operands &r, unsigned number)
{
    const struct stream &s = own->work.stream[number % 3];
    const unsigned sequence = own->work.unit.sequence, at = number % PLACES, width = (unsigned)p.s.width;
    if (s.rows == 0) return;
    const size_t token = token_of_tile(p, s);
    const struct row_pair *pairs = pairs_of_tile(p, r, sequence, s);
    load_tile(places + 2 * at, row_of(r.q, sequence, token, s.head), r.q.token, s.rows, width);
    load_tile(places + 2 * at + 1, row_of(r.d, sequence, token, s.head), r.d.token, s.rows, width);
    for (unsigned i = threadIdx.x; i < TILE / 2; i += blockDim.x) copy_16(&own->pairs[at][2 * i], pairs + 2 * i, true);
}

/* Weights and slopes are turned: a row is a key, a column a query. */
__global__ static void BOUNDS(KEY_GROUPS)
    keys_back_wgmma(const struct problem p, const struct operands operands, const struct cut cut, size_t units)
{
    SHARED_TILES(room);
    const unsigned group = threadIdx.x / GROUP_THREADS, first = threadIdx.x / WARP * TILE_ROWS,
                   width = (unsigned)p.s.width;
    struct shared_tile *const own_k = room + group, *const own_v = own_k + cut.warps,
                              *const places = room + 2 * cut.warps;
    struct group_keys_room *const own = (struct group_keys_room *)(void *)(places + 2 * PLACES);
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        if (threadIdx.x == 0) begin_keys(&own->work, p, cut, operands.kv_heads, number);
        __syncthreads();
        const struct keys_unit u = own->work.unit;
        struct tile_c c[D / 8], slope[D / 8], dk[D / 8] = {}, dv[D / 8] = {};
        uint32_t a[TILE / 16][4] = {};
        load_own(room, row_of(operands.k, u.sequence, u.key, u.kv_head), operands.k.token, u.keys, width);
        load_own(room + cut.warps, row_of(operands.v, u.sequence, u.key, u.kv_head), operands.v.token, u.keys, width);
        load_stream(places, own, p, operands, 0);
        for (unsigned i = 0; own->work.stream[i % 3].rows > 0; i++) {
            const struct shared_tile *tile = places + i % PLACES * 2;
            const struct row_pair *pairs = own->pairs[i % PLACES] + 2 * lane_in_group();
            tiles_wait();
            if (threadIdx.x == 0) look_ahead(&own->work, p, i);
            load_stream(places, own, p, operands, i + 1);
            begin_slopes(c, slope, own_k, own_v, tile, dk, a);
#pragma unroll
            for (unsigned j = 0; j < 32; j++)
                c[j / 4].x[j % 4] = weight_of(c[j / 4].x[j % 4], p.scale2, pairs[j / 4 * 8 + j % 2]);
            round_all(a, c);
            begin_sums(dv, a, tile + 1);
            products_wait<0>();
            hold(slope);
            hold(dv);
            hold(a);
#pragma unroll
            for (unsigned j = 0; j < 32; j++)
                c[j / 4].x[j % 4] *= slope[j / 4].x[j % 4] - pairs[j / 4 * 8 + j % 2].mean;
            round_all(a, c);
            begin_sums(dk, a, tile);
        }
        products_wait<0>();
        hold(dk);
        end_keys<D>(p, u, first, dk, dv);
        __syncthreads(); /* before the next unit */
    }
}

/* ---- launches ---- */

/* Bytes of a block's tiles: `own` for each group, and those that stream. */
static size_t tiles_of(const struct cut &cut, size_t own)
{
    return (own * cut.warps + 2 * PLACES) * sizeof(struct shared_tile);
}

static void launch_rows(struct cuda *c, const struct problem &p, const struct operands &r, bool backward)
{
    const struct cut cut = cut_of(p.s.n_context, p.s.n_query, GROUP_ROWS, ROW_GROUPS);
    const size_t units = p.s.sequences * p.s.heads * (cut.tiles[0] + cut.tiles[1]),
                 shared = tiles_of(cut, backward ? 2 : 1);
    const auto kernel = backward ? queries_back_wgmma : attend_wgmma;
    if (!allow_shared(c, p, kernel, shared)) return;
    LAUNCH(kernel, grid_of(units, 1), cut.warps * GROUP_THREADS, shared, c->stream, p, r, cut, units);
    cuda_launched(c, backward ? "the gradient of queries" : "attention");
}

static void launch_keys(struct cuda *c, const struct problem &p, const struct operands &r)
{
    const struct cut cut = cut_of(p.s.n_keys, 0, GROUP_ROWS, KEY_GROUPS);
    const size_t units = p.s.sequences * r.kv_heads * cut.tiles[0],
                 shared = tiles_of(cut, 2) + sizeof(struct group_keys_room);
    if (!allow_shared(c, p, keys_back_wgmma, shared)) return;
    LAUNCH(keys_back_wgmma, grid_of(units, 1), cut.warps * GROUP_THREADS, shared, c->stream, p, r, cut, units);
    cuda_launched(c, "the gradient of keys and values");
}

bool attention_wgmma_there(void) { return true; }

void attention_wgmma(struct cuda *c, const struct problem &p, const struct operands &r, bool backward)
{
    if (!backward || p.dq != NULL) launch_rows(c, p, r, backward);
    if (backward) launch_keys(c, p, r);
}

#else
bool attention_wgmma_there(void) { return false; }

void attention_wgmma(struct cuda *c, const struct problem &p, const struct operands &r, bool backward)
{
    (void)c, (void)p, (void)r, (void)backward;
}
#endif
