/* Checkpoints: all that a run needs to go on at a step with the bits it would have had, in folders of RUN/ named
 * state-<step>-<random>. Every rank writes its own slice of the parameters (weights, AdamW's moments, best weights) to
 * slice-RRRR-of-NNNN.tbf, rank 0 the lines of metrics.jsonl too; then rank 0 writes manifest.tbf, which makes the
 * folder a checkpoint: it names options, digests of model and data, the place in the loop and the digest of every
 * slice. A folder without it is the rest of one that was not finished. The last two checkpoints are kept.
 *
 * Random draws need no state: each starts from the seed, the epoch, the chunk and the estimator.
 *
 * All functions are collectives unless they say otherwise. */
#ifndef TABFT_TRAIN_STATE_H
#define TABFT_TRAIN_STATE_H

#include "train/train_internal.h"

/* Writes a checkpoint of where the loop is, between two steps. On failure the checkpoints before it are untouched. */
int state_save(struct trainer *t, const struct progress *p, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Goes on from the newest checkpoint that is whole: fills weights, moments, best weights, *p and metrics.jsonl.partial,
 * and tells of damaged ones. *found false: there is none, nothing was changed. Errors: TABFT_INPUT where there are
 * checkpoints and none is whole, TABFT_USE where the options, the model, the data, the version or the instruction set
 * differ from the recorded ones. */
int state_resume(struct trainer *t, struct progress *p, bool *found, struct tabft_failure *f) TABFT_MUST_CHECK;

/* Removes all checkpoints and what unfinished ones and killed writers left: before a run starts anew, and after its
 * end. What cannot be removed is told. Rank 0; nothing on others. */
void state_clear(struct trainer *t);

/* What state_save takes beside the run's own memory, for --plan. */
size_t state_bytes(int n_threads);

#endif
