/* The operations on CPUs: the table of ops.h filled with kernels for the instruction sets AVX-512, AVX2 (with FMA)
 * and the compiler's baseline, chosen at run time. Every sum has a fixed order: results do not depend on the number
 * of threads, nor on which rows share a call; matrix products are cut by rows and columns only, so that AVX2 and
 * AVX-512 agree bit for bit where they only multiply and add. */
#ifndef TABFT_TENSOR_CPU_H
#define TABFT_TENSOR_CPU_H

#include "base/failure.h"
#include "tensor/ops.h"

struct threads;

/* The instruction set in use: "avx512", "avx2" or "baseline"; the best this processor has, or what the environment
 * variable TABFT_ISA names. Errors: TABFT_USE when it names an unknown set or one that this processor lacks. Thread
 * safe. */
int tensor_isa(const char **isa, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Opens the backend; `pool` outlives it and may be NULL (one thread). Closed with backend->close. */
int cpu_backend_open(struct tensor_backend *out, struct threads *pool, struct tabft_failure *f) TABFT_MUST_CHECK;

/* The same table for planning alone: `n_threads` are counted in scratch memory, none is started; calls must not be
 * run. */
int cpu_backend_open_planning(struct tensor_backend *out, int n_threads, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
