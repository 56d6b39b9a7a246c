/* What the survey of a segment finds, and how it is added to the whole. Between survey.c and batches.c alone. */
#ifndef TABFT_TABLE_SURVEY_H
#define TABFT_TABLE_SURVEY_H

#include "table/pack_internal.h"

enum { BLOCKS_A_THREAD = 4 };

/* What a segment's survey fills. */
struct found {
    struct survey *survey;       /* [n_columns] */
    bool *counted;               /* [n_columns] numbers are counted and that is all */
    uint64_t *na, *text_na;      /* [n_columns][n_na], [n_columns][n_text_na] */
    struct collected *collected; /* [n_columns] */
    const struct segment *segment;
    struct records records;
    struct tabft_failure failure;
};

int found_new(struct found *to, const struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK;
void found_reset(struct found *to, const struct pack *p);
void found_free(struct found *to, const struct pack *p);
/* Surveys found->segment, whose bytes are at `begin` (and RECORDS_PADDING more). Any thread; failures stay in *found.
 */
void found_survey(struct found *found, const struct pack *p, const char *begin);
/* Adds a segment's finds to the whole, or passes its failure on with the place. In the order of segments. */
int found_merge(struct pack *p, const struct found *from, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
