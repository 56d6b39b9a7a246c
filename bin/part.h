/* --part: which share of the work this process does. */
#ifndef TABFT_BIN_PART_H
#define TABFT_BIN_PART_H

#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct tool_part {
    size_t index, of;
    size_t first_task, task_step; /* "array": task first_task + i * task_step does part i; I/N: 0 and 0 */
};

/* "I/N", I from 0, or "array": what Slurm says of this task of a job array, which may begin anywhere and have a step.
 * Errors: TABFT_USE. */
int tool_part_read(const char *text, struct tool_part *out, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
