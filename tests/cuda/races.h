/* Between the emulation's blocks (blocks.cc) and what watches the memory that threads share (races.cc), which only programs for
 * that have (EMULATION_WATCHES). */
#ifndef TABFT_TESTS_CUDA_RACES_H
#define TABFT_TESTS_CUDA_RACES_H

#include <stddef.h>
#include <stdint.h>

/* The thread that runs: of blocks.cc. */
struct races_now {
    const char *kernel;
    const void *stack, *stack_end; /* its own, which nobody else touches */
    unsigned block, thread;
    unsigned barriers, warp_barriers; /* that it has passed, of its block and of its warp (__syncwarp) */
};
/* NULL: the host runs. */
const struct races_now *races_thread(void);
/* Shared memory of the block that runs; else it is the GPU's. */
bool races_is_shared(const void *at);

#ifdef EMULATION_WATCHES
/* A launch and a block begin. */
void races_launch(void);
void races_block(void);
/* What the thread touches by an instruction that the emulation carries out; a race ends the program, with both its sides on
 * stderr. */
void races_touched(const void *memory, size_t bytes, bool writes);
#else
static inline void races_launch(void) {}
static inline void races_block(void) {}
static inline void races_touched(const void *memory, size_t bytes, bool writes) { (void)memory, (void)bytes, (void)writes; }
#endif

#endif
