/* The GPU's memory: one allocation, made when it is known how much a run takes, which vectors are cut from; memory of the
 * host for copies. Where nothing was reserved, or what was is full, a vector is an allocation of its own. */
#define TABFT_TENSOR_ROOM
#include "tensor/cuda/device_internal.h"

/* What CUDA aligns its own to; cuBLAS asks for it. */
static constexpr size_t ALIGN = 256;

static size_t aligned(size_t bytes) { return blocks_of(bytes == 0 ? 1 : bytes, ALIGN) * ALIGN; }

static int allocate(struct cuda *c, void **out, size_t bytes, const char *what, struct tabft_failure *f)
{
    *out = NULL;
    const cudaError_t code = cudaMalloc(out, bytes == 0 ? 1 : bytes);
    if (code == cudaSuccess) return 0;
    return tabft_fail(f, TABFT_SYSTEM, "GPU %d: no memory for %s (%zu bytes: %s); see --plan for what would fit",
                      c->device, what, bytes, cudaGetErrorString(code));
}

/* cuBLAS works in `memory` from now on. */
static int give_workspace(struct cuda *c, void *memory, struct tabft_failure *f)
{
    c->workspace = memory;
    if (cublasSetWorkspace(c->blas, memory, CUDA_WORKSPACE) == CUBLAS_STATUS_SUCCESS) return 0;
    return tabft_fail(f, TABFT_SYSTEM, "GPU %d: cuBLAS does not take its workspace", c->device);
}

int cuda_workspace(struct cuda *c, struct tabft_failure *f)
{
    void *memory = NULL;
    if (c->workspace != NULL) return 0;
    const int error = allocate(c, &memory, CUDA_WORKSPACE, "cuBLAS's workspace", f);
    if (error < 0) return error;
    c->alone = memory;
    return give_workspace(c, memory, f);
}

static int gpu_reserve(void *state, size_t bytes, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)state;
    void *memory = NULL;
    if (c->reserve.n > 0) return tabft_fail(f, TABFT_SYSTEM, "GPU %d: the memory that is reserved is in use", c->device);
    if (bytes > SIZE_MAX - CUDA_WORKSPACE - PIECES_MOST * ALIGN)
        return tabft_fail(f, TABFT_SYSTEM, "GPU %d: no memory for %zu bytes; see --plan for what would fit", c->device, bytes);
    bytes = aligned(bytes) + PIECES_MOST * ALIGN;
    cuda_memory_close(c);
    const int error = allocate(c, &memory, CUDA_WORKSPACE + bytes, "the run", f);
    if (error < 0) return error;
    c->reserve.memory = (char *)memory;
    c->reserve.begin = CUDA_WORKSPACE;
    c->reserve.end = CUDA_WORKSPACE + bytes;
    return give_workspace(c, memory, f);
}

/* The first gap between pieces that has room. */
static void *take_piece(struct reserve *r, size_t bytes)
{
    size_t begin = r->begin, i = 0;
    if (r->memory == NULL || r->n == PIECES_MOST) return NULL;
    while (i < r->n && r->piece[i].begin - begin < bytes) begin = r->piece[i++].end;
    if (i == r->n && r->end - begin < bytes) return NULL;
    for (size_t j = r->n++; j > i; j--) r->piece[j] = r->piece[j - 1];
    r->piece[i] = {begin, begin + bytes};
    return r->memory + begin;
}

/* Whether it was a piece. */
static bool give_back_piece(struct reserve *r, const void *memory)
{
    size_t i = 0;
    while (i < r->n && r->memory + r->piece[i].begin != memory) i++;
    if (i == r->n) return false;
    r->n--;
    for (; i < r->n; i++) r->piece[i] = r->piece[i + 1];
    return true;
}

static int gpu_memory_new(void *state, void **out, size_t bytes, const char *what, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)state;
    *out = bytes < SIZE_MAX - ALIGN ? take_piece(&c->reserve, aligned(bytes)) : NULL;
    return *out != NULL ? 0 : allocate(c, out, bytes, what, f);
}

static void gpu_memory_free(void *state, void *memory)
{
    struct cuda *c = (struct cuda *)state;
    if (memory == NULL || give_back_piece(&c->reserve, memory)) return;
    cuda_check(c, cudaFree(memory), "giving memory back");
}

static int gpu_staging_new(void *state, void **out, size_t bytes, struct tabft_failure *f)
{
    struct cuda *c = (struct cuda *)state;
    *out = NULL;
    const cudaError_t code = cudaMallocHost(out, bytes == 0 ? 1 : bytes);
    if (code == cudaSuccess) return 0;
    return tabft_fail(f, TABFT_SYSTEM, "GPU %d: the host has no memory for copies (%zu bytes: %s); give the job more memory",
                      c->device, bytes, cudaGetErrorString(code));
}

static void gpu_staging_free(void *state, void *memory)
{
    struct cuda *c = (struct cuda *)state;
    if (memory != NULL) cuda_check(c, cudaFreeHost(memory), "giving the host's memory back");
}

void cuda_memory_close(struct cuda *c)
{
    if (c->alone != NULL) (void)cudaFree(c->alone);
    if (c->reserve.memory != NULL) (void)cudaFree(c->reserve.memory);
    c->alone = c->workspace = NULL;
    c->reserve = {};
}

void cuda_memory(struct tensor_backend *out)
{
    out->vectors.memory_new = gpu_memory_new;
    out->vectors.memory_free = gpu_memory_free;
    out->reserve = gpu_reserve;
    out->workspace = CUDA_WORKSPACE + PIECES_MOST * ALIGN;
    out->staging_new = gpu_staging_new;
    out->staging_free = gpu_staging_free;
}
