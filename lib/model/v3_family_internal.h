/* What the files of the v3 family share: how a config is read (v3_family_config.c), what a network is made of
 * (v3_family_parameters.c), what it is given (v3_family_inputs.c), and what it computes (v3_family.c), which takes the
 * parameters in the order of their declaration. Each member is a file that says what it alone has. */
#ifndef TABFT_MODEL_V3_FAMILY_INTERNAL_H
#define TABFT_MODEL_V3_FAMILY_INTERNAL_H

#include "model/model_internal.h"

/* A constant: turns of a row's columns, in radians a place [half a head's width]. */
#define V3_FREQS "column_aggregator.rope.freqs"

enum { V3_OUTPUTS_MAX = 100000 }; /* classes or buckets */

/* Reads the sizes that all members have from `config` laid over `published` (JSON; config NULL: that alone), which
 * becomes *whole. All else of *out is 0. Errors: TABFT_INPUT. */
int v3_family_configure(struct model_config *out, const char *published, const json_t *config, json_t **whole,
                        struct tabft_failure *f) TABFT_MUST_CHECK;
int v3_family_flag(const json_t *all, const char *key, bool *out, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Columns that know their places need heads of even width. */
int v3_family_check_turns(const struct model_config *c, const char *remedy, struct tabft_failure *f) TABFT_MUST_CHECK;

/* How many numbers a cell is given by: those of its columns, what they miss, and their ranks. */
size_t v3_family_numbers(const struct model_config *c);
/* How many the room has that filling the inputs takes. */
size_t v3_family_room(const struct model_config *c, size_t n_context, size_t n_rows);

/* For struct model_architecture. */
int v3_family_declare(struct model *m, struct tabft_failure *f) TABFT_MUST_CHECK;
int v3_family_declare_idle(struct model *m, struct tabft_failure *f) TABFT_MUST_CHECK;
void v3_family_record(const struct model *m, const struct model_call_shape *shape, struct tape *t,
                      struct model_tape *io);
void v3_family_fill(const struct model *m, const struct tape_plan *p, const struct tape_memory *memory,
                    const struct model_tape *io, const struct model_input *input, const bool *used);

#endif
