#include "base/failure.h"

#include <stdio.h>
#include <string.h>

/* Text may hold names from files: a terminal must never get a control byte. UTF-8 above 0x7f passes. */
static void mask_controls(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f) *p = '?';
}

int tabft_fail(struct tabft_failure *f, int code, const char *format, ...)
{
    if (f == NULL || f->code != 0) return code;
    f->code = code;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(f->message, sizeof f->message, format, args);
    va_end(args);
    mask_controls(f->message);
    return code;
}

int tabft_fail_prefix(struct tabft_failure *f, const char *format, ...)
{
    if (f == NULL || f->code == 0) return f == NULL ? 0 : f->code;
    char old[TABFT_MESSAGE_SIZE];
    memcpy(old, f->message, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(f->message, sizeof f->message, format, args);
    va_end(args);
    mask_controls(f->message);
    if (n >= 0 && (size_t)n < sizeof f->message)
        (void)snprintf(f->message + n, sizeof f->message - (size_t)n, ": %s", old);
    return f->code;
}

int tabft_exit_status(int code)
{
    switch (code) {
    case TABFT_OK: return 0;
    case TABFT_NOT_HELD: return 1;
    case TABFT_USE: return 2;
    case TABFT_INPUT: return 3;
    case TABFT_PEER: return 5;
    case TABFT_STOPPED: return 75;
    default: return 4;
    }
}
