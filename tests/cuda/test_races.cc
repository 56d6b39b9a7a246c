/* What the emulation must find of how threads work together: kernels with one fault each, and the same without, which must pass. */
#include <unistd.h>

#include <sys/wait.h>

#include <cuda_runtime.h>

extern "C" {
#include "unit.h"
}
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/tensor_core_internal.h"

static constexpr unsigned THREADS = 128;

typedef void numbers(bool right, float *x);

/* ---- through shared memory ---- */

/* Each thread reads what the one 32 behind it has written. */
static void warps_meet(bool right, float *x)
{
    __shared__ float room[THREADS];
    room[threadIdx.x] = 1.0f;
    if (right) __syncthreads();
    x[blockIdx.x * THREADS + threadIdx.x] = room[(threadIdx.x + WARP) % THREADS];
}

/* What shared memory is used for next, before all have read it. */
static void warps_part(bool right, float *x)
{
    SHARED_FLOATS(room);
    float sum = 0.0f;
    for (unsigned turn = 0; turn < 2; turn++) {
        room[threadIdx.x] = 1.0f;
        __syncthreads();
        sum += room[(threadIdx.x + WARP) % THREADS];
        if (right) __syncthreads();
    }
    x[blockIdx.x * THREADS + threadIdx.x] = sum;
}

/* An exchange of a warp's lanes orders no memory. */
static void lanes_meet(bool right, float *x)
{
    SHARED_FLOATS(room);
    room[threadIdx.x] = warp_sum(1.0f);
    if (right) __syncwarp();
    else (void)warp_sum(1.0f);
    x[blockIdx.x * THREADS + threadIdx.x] = room[threadIdx.x ^ 1];
}

/* A warp's barrier is none for the others. */
static void warps_meet_by_warp(bool right, float *x)
{
    SHARED_FLOATS(room);
    room[threadIdx.x] = 1.0f;
    __syncwarp();
    x[blockIdx.x * THREADS + threadIdx.x] = room[right ? threadIdx.x ^ 1 : threadIdx.x ^ WARP];
}

/* Copies are there for those who have waited for them and then for each other. */
static void copies_meet(bool right, float *x)
{
    SHARED_FLOATS(room);
    copy_16(room + 4 * threadIdx.x, x + 4 * threadIdx.x, true);
    if (right) copies_wait();
    __syncthreads();
    if (!right) copies_wait();
    const float read = room[4 * (threadIdx.x ^ WARP)];
    __syncthreads();
    if (blockIdx.x == 0) x[4 * THREADS + threadIdx.x] = read;
}

/* Tiles may be written to again when the products that read them have been waited for. */
static void products_part(bool right, float *x)
{
    SHARED_TILES(tiles);
    struct tile_c c[8] = {};
    for (unsigned i = threadIdx.x; i < 64 * TILE_WIDTH; i += THREADS) tiles[0].x[i] = tiles[1].x[i] = 0;
    fence_shared();
    __syncthreads();
    begin_products();
    multiply_columns(c, false, columns_of(tiles[0].x, 0), columns_of(tiles[1].x, 0));
    end_products();
    if (right) products_wait<0>();
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 64 * TILE_WIDTH; i += THREADS) tiles[1].x[i] = 1;
    if (!right) products_wait<0>();
    x[blockIdx.x * THREADS + threadIdx.x] = c[0].x[0];
}

/* ---- through the GPU's memory ---- */

static void blocks_write(bool right, float *x) { x[(right ? blockIdx.x * THREADS : 0) + threadIdx.x] = 1.0f; }

static void blocks_read(bool right, float *x)
{
    const float before = right ? 0.0f : x[(blockIdx.x + 1) % gridDim.x * THREADS + threadIdx.x];
    x[blockIdx.x * THREADS + threadIdx.x] = before + 1.0f;
}

/* Halves of a word are two numbers. */
static void halves_meet(bool right, float *x)
{
    uint16_t *halves = (uint16_t *)(void *)(x + blockIdx.x * THREADS);
    halves[right ? threadIdx.x : threadIdx.x / 2] = 1;
}

/* ---- without memory ---- */

static void lanes_part(bool right, float *x)
{
    float sum;
    if (right || threadIdx.x % 2 == 0) sum = warp_sum(1.0f);
    else sum = warp_most(2.0f);
    x[blockIdx.x * THREADS + threadIdx.x] = sum;
}

static void lanes_part_at_barriers(bool right, float *x)
{
    float *own = x + blockIdx.x * THREADS + threadIdx.x;
    if (right || threadIdx.x % 2 == 0) {
        *own = 1.0f;
        __syncthreads();
        *own += 1.0f;
    } else {
        *own = 2.0f;
        __syncthreads();
        *own *= 2.0f;
    }
}

static const char in_shared[] = "a race: threads that did not wait for each other touch shared memory",
                  in_gpus[] = "a race: threads that did not wait for each other touch the GPU's memory",
                  parted[] = "lanes of a warp that meet at different places of the source";
static const struct fault {
    const char *name, *says;
    numbers *kernel;
} faults[] = {
    {"warps_meet", in_shared, warps_meet},
    {"warps_part", in_shared, warps_part},
    {"lanes_meet", in_shared, lanes_meet},
    {"warps_meet_by_warp", in_shared, warps_meet_by_warp},
    {"copies_meet", in_shared, copies_meet},
    {"products_part", in_shared, products_part},
    {"blocks_write", in_gpus, blocks_write},
    {"blocks_read", in_gpus, blocks_read},
    {"halves_meet", in_gpus, halves_meet},
    {"lanes_part", parted, lanes_part},
    {"lanes_part_at_barriers", parted, lanes_part_at_barriers},
};

static void launch(const struct fault *f, bool right)
{
    cudaStream_t stream;
    void *x;
    const size_t bytes = 8 * THREADS * sizeof(float), shared = 3 * sizeof(struct shared_tile);
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaMalloc(&x, bytes), cudaSuccess);
    /* Twice, as nothing of a launch is left for the next one. */
    for (unsigned turn = 0; turn < 2; turn++) LAUNCH(f->kernel, 3, THREADS, shared, stream, right, (float *)x);
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    ck_assert_int_eq(cudaFree(x), cudaSuccess);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
}

START_TEST(faults_are_found)
{
    for (const struct fault &f : faults) {
        int ends[2], status;
        char said[4096] = "";
        size_t n = 0;
        ck_assert_int_eq(pipe(ends), 0);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            (void)dup2(ends[1], STDERR_FILENO);
            launch(&f, false);
            _exit(0);
        }
        (void)close(ends[1]);
        for (ssize_t got; n < sizeof said - 1 && (got = read(ends[0], said + n, sizeof said - 1 - n)) > 0;) n += (size_t)got;
        (void)close(ends[0]);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: ends with %d: %s", f.name, status, said);
        ck_assert_msg(strstr(said, f.says) != NULL, "%s: %s", f.name, said);
    }
}
END_TEST

START_TEST(what_is_right_passes)
{
    for (const struct fault &f : faults) launch(&f, true);
}
END_TEST

UNIT_MAIN("races", faults_are_found, what_is_right_passes)
