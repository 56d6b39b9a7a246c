/* Results for people: the page that tabft-eval report writes of training runs. */
#ifndef TABFT_REPORT_REPORT_H
#define TABFT_REPORT_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"

enum { REPORT_RUNS_MAX = 1000 };

/* Writes a page of HTML about `runs` [n_runs, at least 1], folders that tabft-train made: results, losses, validations,
 * where the time of a step went, in what the runs differ, what they were made of. The page is one file, without
 * scripts, and fetches nothing; the same runs give the same bytes. A run that goes on, or did not come to its end, has
 * metrics.jsonl.partial: it is shown as far as it came. `output` and `force` as in file_writer_open.
 * Errors: TABFT_INPUT for what is no run, or a damaged one, by file and line; those of file_writer. */
int report_write(const char *const *runs, size_t n_runs, const char *output, bool force,
                 struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
