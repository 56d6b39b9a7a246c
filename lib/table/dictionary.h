/* A set of texts with numbers in order of first sight, and its order by code point. Private to lib/table. */
#ifndef TABFT_TABLE_DICTIONARY_H
#define TABFT_TABLE_DICTIONARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "table/packed.h"

/* All zero is empty. Not thread safe while texts are added. */
struct dictionary {
    size_t n;
    char *bytes; /* the texts one after the other, each with a NUL */
    size_t used, room;
    size_t *offset; /* [n] into bytes */
    uint32_t *length;
    uint32_t *rank; /* [n] place in the order, after dictionary_sort */
    size_t room_texts;
    uint32_t *slot; /* [n_slots] number + 1, or 0 */
    size_t n_slots;
};

int dictionary_add(struct dictionary *d, const char *text, size_t length, struct tabft_failure *f) TABFT_MUST_CHECK;
/* All texts of `more`. */
int dictionary_add_all(struct dictionary *d, const struct dictionary *more, struct tabft_failure *f) TABFT_MUST_CHECK;
size_t dictionary_find(const struct dictionary *d, const char *text, size_t length); /* SIZE_MAX where it is not in */
/* Orders by bytes, which for UTF-8 is by code point; fills rank and *sorted (texts_clear frees it). */
int dictionary_sort(struct dictionary *d, struct texts *sorted, struct tabft_failure *f) TABFT_MUST_CHECK;
void dictionary_clear(struct dictionary *d);

#endif
