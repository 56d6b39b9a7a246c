/* merge, where its inputs are the parts of one table (pack --part). Private to lib/table. */
#ifndef TABFT_TABLE_MERGE_PARTS_H
#define TABFT_TABLE_MERGE_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"
#include "table/packed.h"

bool merge_is_part(const struct packed_reader *r);
/* Opens all inputs. Where one is damaged, says which part must be packed again, as far as the others tell. */
int merge_open_inputs(const char *const *path, size_t n, int n_threads, struct packed_reader **part,
                      struct tabft_failure *f) TABFT_MUST_CHECK;
/* Puts parts in order, each there once, all of one table; nothing to do where none is a part. */
int merge_order_parts(struct packed_reader **part, size_t n, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Refuses parts that, seeing their own rows alone, took a column or the target for something that it is not in the
 * whole table, so that something of its cells was lost; names what must be packed again, and how. */
int merge_check_kinds(struct packed_reader *const *part, size_t n, struct tabft_failure *f) TABFT_MUST_CHECK;
/* Did the part see a value of the target? Else its task is a guess. */
bool merge_knows_task(const struct packed_reader *r);
/* The provenance of the whole table: a new reference. Refuses parts that do not meet, of inputs that changed. */
int merge_whole_provenance(struct packed_reader *const *part, size_t n, json_t **whole,
                           struct tabft_failure *f) TABFT_MUST_CHECK;
/* In front of what was found in a part: that it must be packed again. */
void merge_name_part(const struct packed_reader *r, struct tabft_failure *f);

#endif
