/* The order of labels. Private to lib/table. */
#ifndef TABFT_TABLE_LABELS_H
#define TABFT_TABLE_LABELS_H

#include <locale.h>
#include <stddef.h>

#include "base/failure.h"

/* Sorts label texts: by value where all of them are numbers (or inf), then by code point; else by code point. */
int labels_sort(const char **label, size_t n, locale_t c, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
