/* Attention in float32 and TF32 (bf16: attention_bf16.cu), and the votes of attention, without ever storing rows x rows: tiles
 * of keys pass through shared memory, a warp has 16 rows. Backward has two kernels, each of which owns what it writes, so that
 * no sum needs atomics: one over tiles of rows makes the queries' gradient, one over tiles of keys that of keys and values;
 * both compute the scores again. Scores are kept as log2 of what they weigh. D is the width of a head, rounded up; `exact`
 * is float32's precision. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/attention_internal.h"

static constexpr unsigned MOST_WARPS = 8;

/* Rows of `width` numbers, `stride` apart, into shared memory of D + 4 numbers a row: zeros behind the last row and number.
 * The stride keeps the lanes of a warp on different banks, by rows as by columns. */
template <int D>
__device__ static void load_tile(float *to, size_t tile_rows, const float *from, size_t stride, size_t rows, size_t width)
{
    for (size_t i = threadIdx.x; i < tile_rows * D; i += blockDim.x) {
        const size_t row = i / D, j = i % D;
        to[row * (D + 4) + j] = row < rows && j < width ? from[row * stride + j] : 0.0f;
    }
}

/* A tile of keys of a sequence, from `key` on, and without votes their values. Gives how many keys there are. */
template <int D, bool votes>
__device__ static size_t load_keys(const struct problem &p, size_t sequence, size_t kv_head, size_t key, float *k, float *v)
{
    const size_t keys = p.s.n_keys - key < TILE ? p.s.n_keys - key : TILE, column = kv_head * p.s.width;
    load_tile<D>(k, TILE, p.k + place(p.s.k, sequence, key) + column, p.s.k.token, keys, p.s.width);
    if (!votes) load_tile<D>(v, TILE, p.v + place(p.s.v, sequence, key) + column, p.s.v.token, keys, p.s.width);
    return keys;
}

/* a [16][8] of numbers: rows `row`.. and columns `column`.. of a tile in shared memory. */
template <int D> __device__ static struct tile_a rows_of(const float *tile, unsigned row, unsigned column)
{
    const float *at = tile + (row + lane_group()) * (D + 4) + column + lane_in_group();
    return tile_a{{at[0], at[8 * (D + 4)], at[4], at[8 * (D + 4) + 4]}};
}
/* b [8 numbers of a head][8 rows of the tile]: the tile turned. */
template <int D> __device__ static struct tile_b turned_of(const float *tile, unsigned row, unsigned column)
{
    const float *at = tile + (row + lane_group()) * (D + 4) + column + lane_in_group();
    return tile_b{{at[0], at[4]}};
}
/* b [8 rows of the tile][8 numbers], the rows in the order that c's registers give as an a. */
template <int D> __device__ static struct tile_b plain_of(const float *tile, unsigned row, unsigned column)
{
    const float *at = tile + (row + 2 * lane_in_group()) * (D + 4) + column + lane_group();
    return tile_b{{at[0], at[D + 4]}};
}
__device__ static struct tile_a a_of(const struct tile_c &c) { return tile_a{{c.x[0], c.x[2], c.x[1], c.x[3]}}; }

/* c [16 rows of x][8 rows of y] = x y^T, both in shared memory. */
template <int D, bool exact>
__device__ static struct tile_c scores_of(const float *x, unsigned x_row, const float *y, unsigned y_row)
{
    struct tile_c c = {};
#pragma unroll 4 /* all at once, wide heads need more registers than there are */
    for (unsigned j = 0; j < D; j += 8) multiply<exact>(&c, rows_of<D>(x, x_row, j), turned_of<D>(y, y_row, j));
    return c;
}

/* sum [16][D] += c y, c's columns being rows y_row.. of y. */
template <int D, bool exact>
__device__ static void add_product(struct tile_c *sum, const struct tile_c &c, const float *y, unsigned y_row)
{
    const struct tile_a a = a_of(c);
#pragma unroll
    for (unsigned j = 0; j < D / 8; j++) multiply<exact>(&sum[j], a, plain_of<D>(y, y_row, 8 * j));
}

/* ---- forward ---- */

/* A warp's running sums: by lane those of rows g and g + 8. */
struct running {
    float most[2], sum[2];
};

/* Scores of 16 rows and a tile of keys to weights; *factor is what sums before must be shrunk by. */
__device__ static void weigh(const struct problem &p, struct tile_c *c, size_t keys, struct running *r, float *factor)
{
    float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (unsigned n = 0; n < TILE / 8; n++)
        for (unsigned i = 0; i < 4; i++) {
            const bool there = 8 * n + 2 * lane_in_group() + i % 2 < keys;
            c[n].x[i] = there ? c[n].x[i] * p.scale2 : -INFINITY;
            most[i / 2] = fmaxf(most[i / 2], c[n].x[i]);
        }
    for (unsigned i = 0; i < 2; i++) {
        const float before = r->most[i];
        r->most[i] = fmaxf(before, row_most(most[i]));
        factor[i] = exp2f(before - r->most[i]);
    }
#pragma unroll
    for (unsigned n = 0; n < TILE / 8; n++)
        for (unsigned i = 0; i < 4; i++) {
            c[n].x[i] = exp2f(c[n].x[i] - r->most[i / 2]);
            sum[i / 2] += c[n].x[i];
        }
    for (unsigned i = 0; i < 2; i++) r->sum[i] = r->sum[i] * factor[i] + row_sum(sum[i]);
}

/* A warp's votes: [16 rows][4 lanes of a row][n_classes] in shared memory, each lane its own. */
__device__ static void count_votes(const struct problem &p, const struct tile_c *c, size_t key, size_t keys,
                                   const float *factor, float *votes)
{
    for (unsigned half = 0; half < 2; half++) {
        float *own = votes + ((lane_group() + 8 * half) * 4 + lane_in_group()) * p.n_classes;
        for (size_t n = 0; n < p.n_classes; n++) own[n] *= factor[half];
        for (unsigned n = 0; n < TILE / 8; n++)
            for (unsigned i = 0; i < 2; i++) {
                const size_t j = 8 * n + 2 * lane_in_group() + i;
                if (j < keys) own[p.codes[key + j]] += c[n].x[2 * half + i];
            }
    }
}

/* Behind the barrier of the last keys. */
__device__ static void store_votes(const struct problem &p, const struct unit &u, unsigned warp_row, const float *factor,
                                   const float *votes)
{
    for (unsigned half = 0; half < 2; half++) {
        const size_t row = lane_group() + 8 * half;
        if (warp_row + row >= u.rows) continue;
        float *shares = statistics_of(p, 0, u.token + warp_row + row, u.head) + 2;
        for (size_t c = lane_in_group(); c < p.n_classes; c += 4) {
            float sum = 0.0f;
            for (unsigned i = 0; i < 4; i++) sum += votes[(row * 4 + i) * p.n_classes + c];
            shares[c] = sum * factor[half];
        }
    }
    __syncwarp();
}

template <int D, bool exact, bool votes>
__global__ static void attend(const struct problem p, const struct cut cut, size_t units)
{
    SHARED_FLOATS(room);
    float *q = room, *k = q + cut.warps * TILE_ROWS * (D + 4), *v = k + TILE * (D + 4);
    const unsigned warp_row = threadIdx.x / WARP * TILE_ROWS;
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        const struct unit u = unit_of(p, cut, number);
        struct running r = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
        struct tile_c o[D / 8] = {}, c[TILE / 8];
        float factor[2], *own_votes = v + (size_t)warp_row * 4 * p.n_classes;
        if (votes)
            for (size_t i = threadIdx.x % WARP; i < TILE_ROWS * 4 * p.n_classes; i += WARP) own_votes[i] = 0.0f;
        load_tile<D>(q, cut.warps * TILE_ROWS, p.q + place(p.s.q, u.sequence, u.token) + u.head * p.s.width, p.s.q.token,
                     u.rows, p.s.width);
        for (size_t key = 0; key < p.s.n_keys; key += TILE) {
            const size_t keys = load_keys<D, votes>(p, u.sequence, u.kv_head, key, k, v);
            __syncthreads();
#pragma unroll
            for (unsigned n = 0; n < TILE / 8; n++) c[n] = scores_of<D, exact>(q, warp_row, k, 8 * n);
            weigh(p, c, keys, &r, factor);
            if (votes) {
                count_votes(p, c, key, keys, factor, own_votes);
            } else {
#pragma unroll
                for (unsigned j = 0; j < D / 8; j++)
                    for (unsigned i = 0; i < 4; i++) o[j].x[i] *= factor[i / 2];
#pragma unroll
                for (unsigned n = 0; n < TILE / 8; n++) add_product<D, exact>(o, c[n], v, 8 * n);
            }
            __syncthreads();
        }
        for (unsigned i = 0; i < 2; i++) factor[i] = 1.0f / r.sum[i];
        if (votes) store_votes(p, u, warp_row, factor, own_votes);
        else if (warp_row < u.rows)
            store_rows<D>(o, factor, u.rows - warp_row, p.s.width, p.s.o.token, false, p.aligned,
                          p.o + place(p.s.o, u.sequence, u.token + warp_row) + u.head * p.s.width);
        for (unsigned i = 0; i < 2 && lane_in_group() == 0; i++) {
            const size_t row = warp_row + lane_group() + 8 * i;
            if (row >= u.rows) continue;
            float *to = statistics_of(p, u.sequence, u.token + row, u.head);
            to[0] = r.most[i];
            to[1] = factor[i];
        }
    }
}

/* ---- backward ---- */

/* Of each row: the sum over its keys of p dp. That is the product of the output with its gradient. */
__global__ static void find_means(const struct problem p)
{
    const size_t tokens = p.s.n_context + p.s.n_query, count = p.s.sequences * tokens * p.s.heads;
    for (size_t i = thread_in_grid(); i < count; i += threads_in_grid()) {
        const size_t head = i % p.s.heads, token = i / p.s.heads % tokens, sequence = i / p.s.heads / tokens;
        float sum = 0.0f;
        if (p.codes != NULL) {
            const float *shares = statistics_of(p, 0, token, head) + 2, *slopes = p.slopes + token * p.n_classes;
            for (size_t c = 0; c < p.n_classes; c++) sum += slopes[c] * shares[c];
        } else {
            const size_t at = place(p.s.o, sequence, token) + head * p.s.width;
            for (size_t j = 0; j < p.s.width; j++) sum += p.o[at + j] * p.d_out[at + j];
        }
        p.means[i] = sum;
    }
}

__device__ static float *mean_of(const struct problem &p, size_t sequence, size_t token, size_t head)
{
    const size_t tokens = p.s.n_context + p.s.n_query;
    return p.means + (sequence * tokens + token) * p.s.heads + head;
}

/* A row's numbers for backward. */
struct of_row {
    float most, inverse, mean;
};
__device__ static struct of_row row_numbers(const struct problem &p, const struct unit &u, size_t row)
{
    if (row >= u.rows) return of_row{0.0f, 0.0f, 0.0f};
    const float *s = statistics_of(p, u.sequence, u.token + row, u.head);
    return of_row{s[0], s[1], *mean_of(p, u.sequence, u.token + row, u.head)};
}

/* The weight that a score has, and the slope of the loss along the score (before scaling). */
__device__ static float weight_of(const struct problem &p, const struct of_row &r, float score)
{
    return r.inverse == 0.0f ? 0.0f : exp2f(score * p.scale2 - r.most) * r.inverse;
}

/* dp of 8 keys as votes have it: the slope of the key's class, for rows and keys that there are. */
__device__ static float vote_slope(const struct problem &p, const struct unit &u, size_t row, size_t key)
{
    return row < u.rows && key < p.s.n_keys ? p.slopes[(u.token + row) * p.n_classes + (size_t)p.codes[key]] : 0.0f;
}

template <int D, bool exact, bool votes>
__global__ static void queries_back(const struct problem p, const struct cut cut, size_t units)
{
    SHARED_FLOATS(room);
    float *q = room, *d = q + cut.rows * (D + 4), *k = d + (votes ? 0 : cut.rows * (D + 4)), *v = k + TILE * (D + 4);
    const unsigned warp_row = threadIdx.x / WARP * TILE_ROWS;
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        const struct unit u = unit_of(p, cut, number);
        struct tile_c dq[D / 8] = {};
        load_tile<D>(q, cut.rows, p.q + place(p.s.q, u.sequence, u.token) + u.head * p.s.width, p.s.q.token, u.rows,
                     p.s.width);
        if (!votes)
            load_tile<D>(d, cut.rows, p.d_out + place(p.s.o, u.sequence, u.token) + u.head * p.s.width, p.s.o.token,
                         u.rows, p.s.width);
        const struct of_row rows[2] = {row_numbers(p, u, warp_row + lane_group()),
                                       row_numbers(p, u, warp_row + lane_group() + 8)};
        for (size_t key = 0; key < p.s.n_keys; key += TILE) {
            const size_t keys = load_keys<D, votes>(p, u.sequence, u.kv_head, key, k, v);
            __syncthreads();
#pragma unroll 1
            for (unsigned n = 0; n < TILE / 8; n++) {
                struct tile_c c = scores_of<D, exact>(q, warp_row, k, 8 * n), slope = {};
                if (!votes) slope = scores_of<D, exact>(d, warp_row, v, 8 * n);
                for (unsigned i = 0; i < 4; i++) {
                    const struct of_row &r = rows[i / 2];
                    const size_t j = 8 * n + 2 * lane_in_group() + i % 2;
                    if (votes) slope.x[i] = vote_slope(p, u, warp_row + lane_group() + (i < 2 ? 0 : 8), key + j);
                    c.x[i] = j < keys ? weight_of(p, r, c.x[i]) * (slope.x[i] - r.mean) : 0.0f;
                }
                add_product<D, exact>(dq, c, k, 8 * n);
            }
            __syncthreads();
        }
        const float factor[2] = {p.scale, p.scale};
        if (warp_row < u.rows)
            store_rows<D>(dq, factor, u.rows - warp_row, p.s.width, p.s.q.token, p.add_q, p.aligned,
                          p.dq + place(p.s.q, u.sequence, u.token + warp_row) + u.head * p.s.width);
    }
}

/* One tile of rows against a warp's 16 keys. numbers: [TILE][3], a row's. */
template <int D, bool exact, bool votes>
__device__ static void keys_against_rows(const struct problem &p, const struct unit &u, size_t row, const float *k,
                                         const float *v, unsigned warp_key, size_t first_key, const float *q, const float *d,
                                         const float *numbers, struct tile_c *dk, struct tile_c *dv)
{
#pragma unroll 1
    for (unsigned n = 0; n < TILE / 8; n++) {
        struct tile_c c = scores_of<D, exact>(k, warp_key, q, 8 * n), slope = {}, weight;
        if (!votes) slope = scores_of<D, exact>(v, warp_key, d, 8 * n);
        for (unsigned i = 0; i < 4; i++) {
            const unsigned at = 8 * n + 2 * lane_in_group() + i % 2;
            const struct of_row r = {numbers[3 * at], numbers[3 * at + 1], numbers[3 * at + 2]};
            if (votes) slope.x[i] = vote_slope(p, u, row + at, first_key + warp_key + lane_group() + (i < 2 ? 0 : 8));
            weight.x[i] = weight_of(p, r, c.x[i]);
            c.x[i] = weight.x[i] * (slope.x[i] - r.mean);
        }
        if (!votes) add_product<D, exact>(dv, weight, d, 8 * n);
        add_product<D, exact>(dk, c, q, 8 * n);
    }
}

/* A unit: TILE keys of one key-value head of one sequence, TILE / 16 warps; all rows of all heads that use it. */
static constexpr unsigned KEY_WARPS = TILE / TILE_ROWS;

template <int D, bool exact, bool votes>
__global__ static void keys_back(const struct problem p, size_t kv_heads, size_t units)
{
    SHARED_FLOATS(room);
    float *k = room, *v = k + TILE * (D + 4), *q = v + (votes ? 0 : TILE * (D + 4)), *d = q + TILE * (D + 4),
          *numbers = d + (votes ? 0 : TILE * (D + 4));
    const unsigned warp_key = threadIdx.x / WARP * TILE_ROWS;
    const size_t tiles = (p.s.n_keys + TILE - 1) / TILE;
    for (size_t number = blockIdx.x; number < units; number += gridDim.x) {
        const size_t key = number % tiles * TILE, kv_head = number / tiles % kv_heads, sequence = number / tiles / kv_heads;
        const size_t keys = load_keys<D, votes>(p, sequence, kv_head, key, k, v);
        struct tile_c dk[D / 8] = {}, dv[D / 8] = {};
        for (size_t h = 0; h < 2 * p.s.heads; h++) {
            const struct part part = part_of(p.s, h >= p.s.heads);
            const size_t head = h % p.s.heads;
            if (head / part.share != kv_head) continue;
            for (size_t row = 0; row < part.rows; row += TILE) {
                const size_t rows = part.rows - row < TILE ? part.rows - row : TILE;
                const struct unit u = {(unsigned)sequence, (unsigned)head, (unsigned)kv_head, (unsigned)part.first,
                                       (unsigned)part.rows};
                __syncthreads(); /* the tile before is done with */
                load_tile<D>(q, TILE, p.q + place(p.s.q, sequence, part.first + row) + head * p.s.width, p.s.q.token, rows,
                             p.s.width);
                if (!votes)
                    load_tile<D>(d, TILE, p.d_out + place(p.s.o, sequence, part.first + row) + head * p.s.width,
                                 p.s.o.token, rows, p.s.width);
                for (size_t i = threadIdx.x; i < TILE; i += blockDim.x) {
                    const struct of_row r = row_numbers(p, u, row + i);
                    numbers[3 * i] = r.most;
                    numbers[3 * i + 1] = r.inverse;
                    numbers[3 * i + 2] = r.mean;
                }
                __syncthreads();
                keys_against_rows<D, exact, votes>(p, u, row, k, v, warp_key, key, q, d, numbers, dk, dv);
            }
        }
        const float factor[2] = {p.scale, p.scale}, one[2] = {1.0f, 1.0f};
        if (warp_key < keys) {
            store_rows<D>(dk, factor, keys - warp_key, p.s.width, p.s.k.token, p.add_k, p.aligned,
                          p.dk + place(p.s.k, sequence, key + warp_key) + kv_head * p.s.width);
            if (!votes)
                store_rows<D>(dv, one, keys - warp_key, p.s.width, p.s.v.token, p.add_v, p.aligned,
                              p.dv + place(p.s.v, sequence, key + warp_key) + kv_head * p.s.width);
        }
        __syncthreads(); /* before the next unit's keys */
    }
}

/* ---- launches ---- */

/* Warps of a block, of which each takes shared memory beside what all of them share: no more than there is room for, but one. */
static unsigned warps_with_room(const struct cuda *c, unsigned most, size_t of_all, size_t of_warp)
{
    const size_t room = c->shared > of_all ? (c->shared - of_all) / of_warp : 0;
    return room == 0 ? 1 : (unsigned)smaller(most, room);
}

template <int D, bool exact, bool votes> static void launch_forward(struct cuda *c, const struct problem &p)
{
    const size_t tiles = (votes ? 1 : 2) * (size_t)TILE * (D + 4) * sizeof(float);
    const size_t of_warp = TILE_ROWS * ((D + 4) + (votes ? 4 * p.n_classes : 0)) * sizeof(float);
    const struct cut cut =
        cut_of(p.s.n_context, p.s.n_query, TILE_ROWS, warps_with_room(c, MOST_WARPS, tiles, of_warp));
    const size_t units = p.s.sequences * p.s.heads * (cut.tiles[0] + cut.tiles[1]);
    const size_t shared = tiles + cut.warps * of_warp;
    if (!allow_shared(c, p, attend<D, exact, votes>, shared)) return;
    LAUNCH((attend<D, exact, votes>), grid_of(units, 1), cut.warps * WARP, shared, c->stream, p, cut, units);
    cuda_launched(c, "attention");
}

template <int D, bool exact, bool votes> static void launch_backward(struct cuda *c, const struct problem &p)
{
    const size_t tokens = p.s.n_context + p.s.n_query, tile = (size_t)TILE * (D + 4) * sizeof(float), each = votes ? 1 : 2;
    LAUNCH(find_means, grid_of(p.s.sequences * tokens * p.s.heads, BLOCK), BLOCK, 0, c->stream, p);
    cuda_launched(c, "attention's means");
    if (p.dq != NULL) {
        const size_t of_warp = each * TILE_ROWS * (D + 4) * sizeof(float);
        const struct cut cut =
            cut_of(p.s.n_context, p.s.n_query, TILE_ROWS, warps_with_room(c, MOST_WARPS / 2, each * tile, of_warp));
        const size_t units = p.s.sequences * p.s.heads * (cut.tiles[0] + cut.tiles[1]);
        const size_t shared = each * tile + cut.warps * of_warp;
        if (!allow_shared(c, p, queries_back<D, exact, votes>, shared)) return;
        LAUNCH((queries_back<D, exact, votes>), grid_of(units, 1), cut.warps * WARP, shared, c->stream, p, cut, units);
        cuda_launched(c, "the gradient of queries");
    }
    const size_t kv_heads = kv_heads_of(p.s);
    const size_t units = p.s.sequences * kv_heads * blocks_of(p.s.n_keys, TILE);
    const size_t shared = 2 * each * tile + 3 * TILE * sizeof(float);
    if (!allow_shared(c, p, keys_back<D, exact, votes>, shared)) return;
    LAUNCH((keys_back<D, exact, votes>), grid_of(units, 1), KEY_WARPS * WARP, shared, c->stream, p, kv_heads, units);
    cuda_launched(c, "the gradient of keys and values");
}

template <bool exact, bool votes> static void launch(struct cuda *c, const struct problem &p, bool backward)
{
    const size_t width = p.s.width;
    if (width <= 32) backward ? launch_backward<32, exact, votes>(c, p) : launch_forward<32, exact, votes>(c, p);
    else if (width <= 64) backward ? launch_backward<64, exact, votes>(c, p) : launch_forward<64, exact, votes>(c, p);
    else backward ? launch_backward<128, exact, votes>(c, p) : launch_forward<128, exact, votes>(c, p);
}

template <bool votes> static void run(struct cuda *c, struct problem *p, void *scratch, bool backward)
{
    p->scale = 1.0f / sqrtf((float)p->s.width);
    p->scale2 = p->scale * 1.44269504088896341f;
    if (p->s.width > MOST_WIDTH) {
        if (c->failure.code == 0)
            (void)tabft_fail(&c->failure, TABFT_INPUT, "GPU %d: heads of %zu numbers: attention takes %d; use --device cpu",
                             c->device, p->s.width, (int)MOST_WIDTH);
        return;
    }
    if ((p->s.sequences | p->s.heads | p->s.n_keys | (p->s.n_context + p->s.n_query)) >> 31 != 0) {
        if (c->failure.code == 0)
            (void)tabft_fail(&c->failure, TABFT_INPUT,
                             "GPU %d: attention takes fewer than 2^31 sequences, heads and tokens; use --device cpu", c->device);
        return;
    }
    if (!votes && c->precision == TENSOR_BF16) attention_bf16(c, *p, scratch, backward);
    else if (c->precision == TENSOR_FLOAT32) launch<true, votes>(c, *p, backward);
    else launch<false, votes>(c, *p, backward);
}

/* ---- attention ---- */

static struct problem attention_of(const struct op_call *call)
{
    struct problem p = {};
    p.s = call->op->attention;
    p.bf16 = call->op->bf16;
    p.q = (const float *)call->in[0];
    p.k = (const float *)call->in[1];
    p.v = (const float *)call->in[2];
    p.o = (float *)call->out[0];
    p.statistics = (float *)call->out[1];
    return p;
}

static void attention_forward(void *state, const struct op_call *call)
{
    struct problem p = attention_of(call);
    run<false>((struct cuda *)state, &p, call->scratch, false);
}

static void attention_backward(void *state, const struct op_call *call)
{
    struct problem p = attention_of(call);
    p.d_out = call->d_out;
    p.dq = call->d_in[0];
    p.dk = call->d_in[1];
    p.dv = call->d_in[2];
    p.add_q = call->add[0];
    p.add_k = call->add[1];
    p.add_v = call->add[2];
    p.means = (float *)call->scratch;
    run<false>((struct cuda *)state, &p, call->scratch, true);
}

static bool in_bf16(const void *state) { return ((const struct cuda *)state)->precision == TENSOR_BF16; }

static size_t attention_forward_scratch(const void *state, const struct op *op)
{
    return in_bf16(state) ? attention_bf16_scratch(op, false) : 0;
}

static size_t attention_scratch(const void *state, const struct op *op)
{
    const struct op_attention *s = &op->attention;
    if (in_bf16(state)) return attention_bf16_scratch(op, true);
    return s->sequences * (s->n_context + s->n_query) * s->heads * sizeof(float);
}

/* ---- votes ---- */

static struct problem vote_of(const struct op_call *call)
{
    const struct op_vote *s = &call->op->vote;
    const struct op_attention_stride stride = {0, s->heads * s->width, 0};
    struct problem p = {};
    p.s.sequences = 1;
    p.s.n_query = s->rows;
    p.s.n_keys = s->n_keys;
    p.s.heads = p.s.context_kv_heads = p.s.query_kv_heads = s->heads;
    p.s.width = s->width;
    p.s.q = p.s.k = stride;
    p.q = (const float *)call->in[0];
    p.k = (const float *)call->in[1];
    p.codes = (const int32_t *)call->in[2];
    p.n_classes = s->n_classes;
    p.shares = (float *)call->out[1];
    p.kept = 2 + s->n_classes;
    return p;
}

/* The mean over heads of a row's share of a class. */
__device__ static float share_of(const struct problem &p, size_t row, size_t class_)
{
    float sum = 0.0f;
    for (size_t h = 0; h < p.s.heads; h++) sum += statistics_of(p, 0, row, h)[2 + class_];
    return sum / (float)p.s.heads;
}

__device__ static float least_share(void) { return 1e-5f; }
__device__ static float more_share(void) { return 3e-5f; }

__global__ static void vote_logs(const struct problem p, float *out)
{
    for (size_t i = thread_in_grid(); i < p.s.n_query * p.n_classes; i += threads_in_grid()) {
        const float share = share_of(p, i / p.n_classes, i % p.n_classes);
        out[i] = (float)log((double)(share > least_share() ? share : least_share()) + (double)more_share());
    }
}

__global__ static void vote_slopes(const struct problem p, const float *d_out, float *slopes)
{
    for (size_t i = thread_in_grid(); i < p.s.n_query * p.n_classes; i += threads_in_grid()) {
        const float share = share_of(p, i / p.n_classes, i % p.n_classes);
        slopes[i] = share < least_share() ? 0.0f : d_out[i] / ((share + more_share()) * (float)p.s.heads);
    }
}

static void vote_forward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    struct problem p = vote_of(call);
    run<true>(c, &p, NULL, false);
    LAUNCH(vote_logs, grid_of(p.s.n_query * p.n_classes, BLOCK), BLOCK, 0, c->stream, p, (float *)call->out[0]);
    cuda_launched(c, "votes");
}

static void vote_backward(void *state, const struct op_call *call)
{
    struct cuda *c = (struct cuda *)state;
    struct problem p = vote_of(call);
    float *slopes = (float *)call->scratch;
    LAUNCH(vote_slopes, grid_of(p.s.n_query * p.n_classes, BLOCK), BLOCK, 0, c->stream, p, call->d_out, slopes);
    cuda_launched(c, "the slopes of votes");
    p.slopes = slopes;
    p.means = slopes + p.s.n_query * p.n_classes;
    p.dq = call->d_in[0];
    p.dk = call->d_in[1];
    p.add_q = call->add[0];
    p.add_k = call->add[1];
    run<true>(c, &p, NULL, true);
}

static size_t vote_scratch(const void *state, const struct op *op)
{
    const struct op_vote *s = &op->vote;
    (void)state;
    return s->rows * (s->n_classes + s->heads) * sizeof(float);
}

const struct tensor_kernels cuda_attention = {attention_forward_scratch, attention_scratch, attention_forward,
                                              attention_backward};
const struct tensor_kernels cuda_vote = {cuda_no_scratch, vote_scratch, vote_forward, vote_backward};
