/* A text that grows. */
#define TABFT_IN_CKPT
#include <string.h>

#include "base/memory.h"
#include "ckpt/text_internal.h"

int text_put(struct text *t, const char *bytes, size_t size, struct tabft_failure *f)
{
    int error = 0;
    if (t->room - t->size < size) {
        size_t room = 2 * (t->size + size) + 256;
        TRY(memory_grow(&t->bytes, room, 1, "a header's text", f));
        t->room = room;
    }
    if (size > 0) memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
fail:
    return error;
}

int text_put_string(struct text *t, const char *string, struct tabft_failure *f)
{
    return text_put(t, string, strlen(string), f);
}
