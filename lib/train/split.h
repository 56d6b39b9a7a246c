/* One set of rows cut in two, as scikit-learn's train_test_split cuts it with an integer random_state: plain, or with
 * the shares of the labels kept. Used for the validation rows and for context and query of a chunk. Thread safe. */
#ifndef TABFT_TRAIN_SPLIT_H
#define TABFT_TRAIN_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

/* Positions of 0..n-1, in the order the split leaves them (shuffled, not sorted). Owned; freed by split_clear. */
struct split {
    size_t n_train, n_test;
    size_t *train, *test; /* one allocation: test lies behind train */
};

/* Whether a stratified split can be made: no label with a single row, and as many rows as labels on both sides.
 * label [n]: codes 0..n_labels-1, of which some may have no row. On false *reason says why in a few words. */
bool split_can_stratify(const int32_t *label, size_t n, size_t n_labels, size_t n_test, const char **reason);

/* Cuts 0..n-1 into n - n_test and n_test positions. label NULL: plain. Otherwise split_can_stratify must hold.
 * Errors: TABFT_INPUT when a side would be empty. */
int split_rows(struct split *out, const int32_t *label, size_t n, size_t n_labels, size_t n_test, uint32_t seed,
               struct tabft_failure *f) TABFT_MUST_CHECK;
void split_clear(struct split *s); /* NULL members are fine */

#endif
