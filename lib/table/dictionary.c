#include "table/dictionary.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

static size_t find_slot(const struct dictionary *d, const char *text, size_t length)
{
    size_t at = (size_t)XXH3_64bits(text, length) & (d->n_slots - 1);
    for (;; at = (at + 1) & (d->n_slots - 1)) {
        if (d->slot[at] == 0) return at;
        size_t i = d->slot[at] - 1;
        if (d->length[i] == length && memcmp(d->bytes + d->offset[i], text, length) == 0) return at;
    }
}

/* Twice the slots; at most half of them are in use. */
static int grow_slots(struct dictionary *d, struct tabft_failure *f)
{
    int error = 0;
    uint32_t *before = d->slot;
    size_t n_slots = d->n_slots == 0 ? 64 : 2 * d->n_slots;
    TRY(memory_new(&d->slot, n_slots, sizeof *d->slot, "a dictionary", f));
    free(before);
    d->n_slots = n_slots;
    for (size_t i = 0; i < d->n; i++) d->slot[find_slot(d, d->bytes + d->offset[i], d->length[i])] = (uint32_t)i + 1;
    return 0;
fail:
    d->slot = before;
    return error;
}

static int grow_texts(struct dictionary *d, size_t length, struct tabft_failure *f)
{
    int error = 0;
    if (d->n == d->room_texts) {
        size_t room = d->room_texts == 0 ? 16 : 2 * d->room_texts;
        TRY(memory_grow(&d->offset, room, sizeof *d->offset, "a dictionary", f));
        TRY(memory_grow(&d->length, room, sizeof *d->length, "a dictionary", f));
        d->room_texts = room;
    }
    if (d->room - d->used < length + 1) {
        size_t room = 2 * d->room > d->used + length + 1 ? 2 * d->room : d->used + length + 256;
        TRY(memory_grow(&d->bytes, room, 1, "a dictionary", f));
        d->room = room;
    }
fail:
    return error;
}

int dictionary_add(struct dictionary *d, const char *text, size_t length, struct tabft_failure *f)
{
    int error = 0;
    if (2 * d->n >= d->n_slots) TRY(grow_slots(d, f));
    size_t at = find_slot(d, text, length);
    if (d->slot[at] != 0) return 0;
    if (d->n >= INT32_MAX)
        FAIL(f, TABFT_INPUT, "more than %d different texts in a column; leave the column out", INT32_MAX);
    TRY(grow_texts(d, length, f));
    memcpy(d->bytes + d->used, text, length);
    d->bytes[d->used + length] = '\0';
    d->offset[d->n] = d->used;
    d->length[d->n] = (uint32_t)length;
    d->used += length + 1;
    d->slot[at] = (uint32_t)++d->n;
fail:
    return error;
}

int dictionary_add_all(struct dictionary *d, const struct dictionary *more, struct tabft_failure *f)
{
    int error = 0;
    for (size_t i = 0; i < more->n; i++) TRY(dictionary_add(d, more->bytes + more->offset[i], more->length[i], f));
fail:
    return error;
}

size_t dictionary_find(const struct dictionary *d, const char *text, size_t length)
{
    if (d->n_slots == 0) return SIZE_MAX;
    size_t at = find_slot(d, text, length);
    return d->slot[at] == 0 ? SIZE_MAX : d->slot[at] - 1;
}

static int compare_texts(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

int dictionary_sort(struct dictionary *d, struct texts *sorted, struct tabft_failure *f)
{
    int error = 0;
    *sorted = (struct texts){.n = d->n, .bytes = d->used};
    TRY(memory_new(&sorted->block, d->used, 1, "a dictionary", f));
    TRY(memory_new(&sorted->text, d->n, sizeof *sorted->text, "a dictionary", f));
    TRY(memory_grow(&d->rank, d->n, sizeof *d->rank, "a dictionary", f));
    if (d->used > 0) memcpy(sorted->block, d->bytes, d->used);
    for (size_t i = 0; i < d->n; i++) sorted->text[i] = sorted->block + d->offset[i];
    if (d->n > 0) qsort(sorted->text, d->n, sizeof *sorted->text, compare_texts);
    for (size_t i = 0; i < d->n; i++)
        d->rank[dictionary_find(d, sorted->text[i], strlen(sorted->text[i]))] = (uint32_t)i;
    return 0;
fail:
    texts_clear(sorted);
    return error;
}

void dictionary_clear(struct dictionary *d)
{
    free(d->bytes);
    free(d->offset);
    free(d->length);
    free(d->rank);
    free(d->slot);
    *d = (struct dictionary){0};
}
