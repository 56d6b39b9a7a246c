/* How much memory this process may still take: what a plan is held against before anything is allocated. */
#ifndef TABFT_BASE_AVAILABLE_H
#define TABFT_BASE_AVAILABLE_H

#include <stdint.h>

/* Bytes: the least of the machine's MemAvailable and, for the process's cgroup (v1 or v2: what Slurm's --mem sets) and
 * each above it, its limit less what is in use and cannot be reclaimed. UINT64_MAX where nothing tells. */
uint64_t memory_available(void);

/* The same from other roots than /proc and /sys/fs/cgroup, for tests. */
uint64_t memory_available_at(const char *proc, const char *cgroup);

#endif
