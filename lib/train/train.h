/* Fine-tuning: the loop of TabPFN over chunks of a table, with its estimators as work items that any number of ranks
 * share, and the same bits from every number of ranks and threads. The rooms below do the work: chunks.h says which
 * rows, ensemble/ what an estimator makes of them, model/ the gradient, comm/reduce.h the sum, optimiser.h the step. */
#ifndef TABFT_TRAIN_TRAIN_H
#define TABFT_TRAIN_TRAIN_H

#include <stdbool.h>

#include "base/failure.h"
#include "train/options.h"

struct comm;
struct tensor_device;

/* Where a run tells what it does. Lines have no newline; both may be NULL. Called on rank 0 only, from the calling
 * thread. */
struct train_report {
    void (*say)(void *context, const char *line);      /* worth keeping: plan, columns left out, validations */
    void (*progress)(void *context, const char *line); /* replaces the one before; for terminals */
    void *context;
};

/* How a run ended, beside the code. */
struct train_result {
    bool agreed; /* all ranks know of the failure and none waits for another: end with comm_close, else with comm_abort
                  */
    int speaker; /* the rank whose failure it is, which prints the message; -1: this one */
};

/* The whole run: loads, plans, trains, validates, leaves RUN/. Collective: every rank calls it with the same options
 * but those that say where things run. A failure that one rank meets becomes all ranks' wherever they can still agree.
 * Errors: TABFT_USE, TABFT_INPUT, TABFT_SYSTEM (also: does not fit memory), TABFT_PEER. */
int train_run(const struct train_options *o, const struct tensor_device *device, struct comm *c,
              const struct train_report *report, struct train_result *result, struct tabft_failure *f) TABFT_MUST_CHECK;

/* --plan: *text says what a rank takes (the caller frees it), from the table's schema alone. Returns 0 where it fits,
 * TABFT_SYSTEM with *text set and no failure recorded where it does not. */
int train_plan(const struct train_options *o, const struct tensor_device *device, char **text,
               struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
