/* Sizes and memory: multiplication and addition that cannot wrap, allocation that says what it was for. */
#ifndef TABFT_BASE_MEMORY_H
#define TABFT_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

/* *out = a*b or a+b; true where the result fits in size_t. */
static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

/* Allocates n*size zeroed bytes into *out (never NULL on success, also for 0 bytes). `what` names it in the
 * message. The caller frees with free(). Errors: TABFT_SYSTEM when the product overflows or memory is short. */
int memory_new(void *out, size_t n, size_t size, const char *what, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Grows *out (a pointer from memory_new or NULL) to n*size bytes; new bytes are not zeroed. On failure *out stays. */
int memory_grow(void *out, size_t n, size_t size, const char *what, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Like memory_new, but aligned to 64 bytes and not zeroed: for what kernels read. Freed with free(). */
int memory_new_aligned(void *out, size_t n, size_t size, const char *what, struct tabft_failure *f) TABFT_MUST_CHECK;

/* A copy of a string; the caller frees it. */
int memory_copy_string(char **out, const char *text, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
