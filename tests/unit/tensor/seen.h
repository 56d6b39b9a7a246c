/* Memory that the operations under test see: the host's, or, in programs for a GPU itself (TABFT_TEST_GPU), pinned memory of
 * the host, which has the same address for both. What waits there for the GPU must not be touched before vectors.finish. */
#ifndef TABFT_TESTS_SEEN_H
#define TABFT_TESTS_SEEN_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "unit.h"

#ifdef TABFT_TEST_GPU
int cudaMallocHost(void **out, size_t bytes); /* of CUDA's runtime, whose headers are no C17 */
int cudaFreeHost(void *memory);
static const bool on_gpu = true;
#else
static const bool on_gpu = false;
#endif

/* n x size bytes, all `value`. */
static inline void *seen_new(size_t n, size_t size, int value)
{
    struct tabft_failure f = {0};
    void *x;
#ifdef TABFT_TEST_GPU
    (void)f;
    ck_assert_int_eq(cudaMallocHost(&x, n * size + 1), 0);
#else
    MUST(memory_new_aligned(&x, n, size, "a test", &f));
#endif
    memset(x, value, n * size);
    return x;
}

static inline void seen_free(void *x)
{
#ifdef TABFT_TEST_GPU
    if (x != NULL) ck_assert_int_eq(cudaFreeHost(x), 0);
#else
    free(x);
#endif
}

#endif
