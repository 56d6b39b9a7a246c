/* How much memory this process has taken and may still take: what a plan is held against before anything is allocated.
 */
#ifndef TABFT_BASE_AVAILABLE_H
#define TABFT_BASE_AVAILABLE_H

#include <stdint.h>

/* Bytes: the least of the machine's MemAvailable and, for the process's cgroup (v1 or v2: what Slurm's --mem sets) and
 * each above it, its limit less what is in use and cannot be reclaimed. UINT64_MAX where nothing tells. */
uint64_t memory_available(void);

/* Bytes that this process may have in all, what it has included, where so many like it share the machine: its share of
 * memory_available, or of Slurm's SLURM_MEM_PER_NODE or SLURM_MEM_PER_CPU, if that is less. */
uint64_t memory_budget(int processes);

/* Peak resident bytes of this process so far (VmHWM), and now (VmRSS); 0 where the system does not tell. */
uint64_t memory_peak(void);
uint64_t memory_now(void);

/* memory_available from other roots than /proc and /sys/fs/cgroup, for tests. */
uint64_t memory_available_at(const char *proc, const char *cgroup);

#endif
