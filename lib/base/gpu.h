/* Which GPU is a process's own, and what it is called: the same for the backend that computes on it and the engine that
 * sends from it, which are plugins and use nothing of libtabft. */
#ifndef TABFT_BASE_GPU_H
#define TABFT_BASE_GPU_H

#include <stddef.h>
#include <stdio.h>

/* The index among the `n_visible` GPUs (at least 1) that CUDA shows to this process, whose place among its node's ranks is
 * local_rank. Where the launcher binds each rank to a GPU (Slurm's --gpus-per-task, CUDA_VISIBLE_DEVICES) a process sees
 * its own alone, as number 0; where all ranks see all GPUs they take them in order. More ranks than GPUs come to share
 * them, which the engine's start refuses. */
static inline int gpu_index(int local_rank, int n_visible) { return local_rank % n_visible; }

/* A GPU's name in the world, of the bytes that CUDA has for it: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", 41 bytes with
 * the 0. */
enum { GPU_UUID_SIZE = 64 };
static inline void gpu_uuid_text(const char bytes[16], char text[GPU_UUID_SIZE])
{
    size_t used = (size_t)snprintf(text, GPU_UUID_SIZE, "GPU");
    for (int i = 0; i < 16; i++)
        used += (size_t)snprintf(text + used, GPU_UUID_SIZE - used, "%s%02x",
                                 i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                 (unsigned)(unsigned char)bytes[i]);
}

#endif
