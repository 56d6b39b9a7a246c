/* Which GPU is a process's own, the same for the backend that computes on it and the engine that sends from it. */
#ifndef TABFT_BASE_GPU_INDEX_H
#define TABFT_BASE_GPU_INDEX_H

/* The index among the `n_visible` GPUs (at least 1) that CUDA shows to this process, whose place among its node's ranks is
 * local_rank. Where the launcher binds each rank to a GPU (Slurm's --gpus-per-task, CUDA_VISIBLE_DEVICES) a process sees
 * its own alone, as number 0; where all ranks see all GPUs they take them in order. More ranks than GPUs come to share
 * them; that two ranks have one GPU shows in its address on the bus and is refused by who opens it. */
static inline int gpu_index(int local_rank, int n_visible) { return local_rank % n_visible; }

#endif
