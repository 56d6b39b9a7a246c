/* What the unit tests compute networks with: the CPU, or, in programs compiled with TABFT_TEST_CUDA, GPUs under the
 * emulation, which are late with everything and whose memory is closed to the host. */
#ifndef TABFT_TESTS_UNIT_BACKEND_H
#define TABFT_TESTS_UNIT_BACKEND_H

#include "model/model.h"
#include "tensor/cpu/cpu.h"
#include "tensor/ops.h"
#include "unit.h"

/* The CPU's backend on the threads of `pool` (NULL: one), for calls that borrow it. It stays open until the test ends.
 */
static inline const struct tensor_backend *unit_cpu(struct threads *pool)
{
    struct opened {
        struct tensor_backend backend;
        struct opened *before;
    };
    static struct opened *last;
    struct tabft_failure f = {0};
    struct opened *o = malloc(sizeof *o);
    ck_assert_ptr_nonnull(o);
    MUST(cpu_backend_open(&o->backend, pool, &f));
    o->before = last;
    last = o;
    return &o->backend;
}

#ifdef TABFT_TEST_CUDA
#include "tensor/cuda/cuda.h"
static inline void unit_gpu_open(struct tensor_backend *b, enum tensor_precision precision)
{
    struct tabft_failure f = {0};
    ck_assert(setenv("CUDA_EMULATION_LATE", "1", 1) == 0 && setenv("CUDA_EMULATION_PROTECT", "1", 1) == 0);
    MUST(cuda_backend_open(b, 0, precision, &f));
}
#endif

/* n floats in a backend's memory, from `values` or (NULL) anything; given back with unit_floats_free. */
static inline float *unit_floats(const struct tensor_backend *b, const float *values, size_t n)
{
    struct tabft_failure f = {0};
    void *memory;
    MUST(b->vectors.memory_new(b->vectors.state, &memory, n * sizeof(float), "a test", &f));
    if (values != NULL) b->vectors.copy_in(b->vectors.state, memory, values, n * sizeof(float));
    return memory;
}
static inline void unit_floats_out(const struct tensor_backend *b, float *to, const float *from, size_t n)
{
    struct tabft_failure f = {0};
    b->vectors.copy_out(b->vectors.state, to, from, n * sizeof(float));
    MUST(b->vectors.finish(b->vectors.state, &f));
}
static inline void unit_floats_free(const struct tensor_backend *b, float *memory)
{
    b->vectors.memory_free(b->vectors.state, memory);
}

#endif
