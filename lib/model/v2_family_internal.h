/* What the members of the v2 family share: each is a file that says how its config is read, the rest is here. */
#ifndef TABFT_MODEL_V2_FAMILY_INTERNAL_H
#define TABFT_MODEL_V2_FAMILY_INTERNAL_H

#include "model/model_internal.h"

/* Reads the sizes that all members have from `config` laid over `published` (JSON; config NULL: that alone), which
 * becomes *whole. All else of *out is 0. Errors: TABFT_INPUT. */
int v2_family_configure(struct model_config *out, const char *published, const json_t *config, json_t **whole,
                        struct tabft_failure *f) TABFT_MUST_CHECK;
/* What came with v2.5: thinking rows, kinds of encoder, column embeddings from a table, smaller hidden layers. */
int v2_family_configure_later(struct model_config *out, const json_t *whole, struct tabft_failure *f) TABFT_MUST_CHECK;

/* For struct model_architecture. */
int v2_family_declare(struct model *m, struct tabft_failure *f) TABFT_MUST_CHECK;
void v2_family_record(const struct model *m, const struct model_call_shape *shape, struct tape *t,
                      struct model_tape *io);
void v2_family_fill(const struct model *m, const struct tape_plan *p, const struct tape_memory *memory,
                    const struct model_tape *io, const struct model_input *input, const bool *used);
/* base_layout.c: for v2 and v2.5. */
int v2_family_base_source(const struct model *m, const struct model_parameter *p, const struct ckpt *c,
                          struct model_source *out, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
