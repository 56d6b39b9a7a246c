/* A text that grows. Not for other rooms. */
#ifndef TABFT_CKPT_TEXT_INTERNAL_H
#define TABFT_CKPT_TEXT_INTERNAL_H

#include <stddef.h>

#include "base/failure.h"

#ifndef TABFT_IN_CKPT
#error "text_internal.h belongs to lib/ckpt"
#endif

/* Begins as {0}; the owner frees bytes. It has no NUL at its end but where one was put. */
struct text {
    char *bytes;
    size_t size, room;
};

int text_put(struct text *t, const char *bytes, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
int text_put_string(struct text *t, const char *string, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
