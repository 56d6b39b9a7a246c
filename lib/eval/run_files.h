/* The two texts in a run's folder, as they are read by whatever looks at runs: run.json and the log. */
#ifndef TABFT_EVAL_RUN_FILES_H
#define TABFT_EVAL_RUN_FILES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"

/* FOLDER/NAME; the caller frees it. */
int run_file_name(char **out, const char *folder, const char *name, struct tabft_failure *f) TABFT_MUST_CHECK;

/* run.json at `path`: an object of schema 1 with objects "train" and "options"; the caller has it. Errors: TABFT_INPUT
 * by file and place. */
int run_json_read(json_t **out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;

/* What is done with a line of a log: an object with the text "kind". `number` is the line's, from 1. */
typedef int run_log_take(void *context, const char *path, size_t number, const char *kind, const json_t *line,
                         struct tabft_failure *f);

/* Every line of the log at `path`, in order. Of a log that `grows` the last may be half there, and is left out.
 * Errors: TABFT_INPUT by file and line; what `take` returns. */
int run_log_read(const char *path, bool grows, run_log_take *take, void *context,
                 struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
