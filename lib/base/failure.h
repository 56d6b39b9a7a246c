/* How anything in TabFT fails. A function that can fail returns 0 or one of the negative codes below,
 * is marked TABFT_MUST_CHECK, and takes a `struct tabft_failure *` as its last parameter, in which it
 * leaves one line for the user. The first failure wins: what cleanup meets later does not overwrite it.
 * Only bin/ prints and exits. */
#ifndef TABFT_BASE_FAILURE_H
#define TABFT_BASE_FAILURE_H

#include <stdarg.h>
#include <stddef.h>

#define TABFT_MUST_CHECK __attribute__((warn_unused_result))
#define TABFT_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* Pinned: a code is the negated exit status of the tool that meets it, and never gets another meaning. */
enum tabft_error {
    TABFT_OK = 0,
    TABFT_NOT_HELD = -1, /* a check did not hold (parity, verify of a value); all was read, go on if you like */
    TABFT_USE = -2,      /* wrong use: options, a launch that cannot work; nothing was done */
    TABFT_INPUT = -3,    /* a file, table or checkpoint is not what it must be; that input is unusable */
    TABFT_SYSTEM = -4,   /* disk, memory, descriptors, libraries; the same call may work elsewhere */
    TABFT_PEER = -5,     /* another rank failed; this one only follows */
    TABFT_STOPPED = -75  /* stopped on request with a complete checkpoint; a job script requeues on it */
};

enum { TABFT_MESSAGE_SIZE = 2048 };

/* One failure: `code` 0 means none yet. `message` is one line without newline, in the form
 * "place: what is wrong; what would do"; bytes from files are in it only masked (escape.h). */
struct tabft_failure {
    int code;
    char message[TABFT_MESSAGE_SIZE];
};

/* Records a failure unless one is recorded already. Returns `code`, so that callers can return it.
 * Control characters in the formatted text are replaced by '?'. Not thread safe on one `f`. */
int tabft_fail(struct tabft_failure *f, int code, const char *format, ...) TABFT_PRINTF(3, 4);

/* Puts `format…` and ": " in front of a recorded message (file or rank names added on the way up).
 * Does nothing where none is recorded. Returns f->code. */
int tabft_fail_prefix(struct tabft_failure *f, const char *format, ...) TABFT_PRINTF(2, 3);

/* The exit status that belongs to a code: 0, 1, 2, 3, 4, 5 or 75. */
int tabft_exit_status(int code);

/* The two macros, no more. Both need a local `int error` and a label `fail:`. */
#define FAIL(f, code, ...)                                                                                             \
    do {                                                                                                               \
        error = tabft_fail((f), (code), __VA_ARGS__);                                                                  \
        goto fail;                                                                                                     \
    } while (0)
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        error = (call);                                                                                                \
        if (error < 0) goto fail;                                                                                      \
    } while (0)

#endif
