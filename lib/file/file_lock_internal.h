/* What the two sources of file_lock.h share: a lock file, and who holds it. */
#ifndef TABFT_FILE_LOCK_INTERNAL_H
#define TABFT_FILE_LOCK_INTERNAL_H

#include "file/file_internal.h"
#include "file/file_lock.h"

enum { LOCK_TEXT_MAX = 2048, LOCK_WORD = 96, LOCK_NAME_MAX = 32 };
/* The beat stands last with all its digits, so that it changes in place. */
enum { LOCK_BEAT_DIGITS = 20, LOCK_BEAT_TAIL = LOCK_BEAT_DIGITS + 1 };

/* What a lock file says. */
struct lock_holder {
    char nonce[33];
    char host[LOCK_WORD], boot[LOCK_WORD], space[LOCK_WORD]; /* boot: this boot of the kernel; space: the process namespace */
    uint64_t pid, started;                    /* started: in the kernel's ticks, so that a pid used again is seen */
    char job[LOCK_WORD];                           /* "-": none */
    uint64_t attempt, beat;
};

void lock_name(uint64_t number, char name[LOCK_NAME_MAX]);
/* 0 for a name that is no lock's. */
uint64_t lock_number(const char *name);
/* The text of a lock file; returns its length. */
int lock_format(const struct lock_holder *h, char text[LOCK_TEXT_MAX]);
/* Reads lock `number`; `path` is the folder's, for messages. *gone: it is no longer there. A fresh open each time: on
 * network file systems that is what brings another node's writes. */
int lock_read(int folder, const char *path, uint64_t number, struct lock_holder *h, bool *gone,
              struct tabft_failure *f) TABFT_MUST_CHECK;

/* This process, with a nonce of its own. */
int lock_describe_self(struct lock_holder *h, const char *folder, const struct file_lock_rules *rules,
                       struct tabft_failure *f) TABFT_MUST_CHECK;
/* "process P on HOST (job J)" */
void lock_describe(const struct lock_holder *h, char *text, size_t size);
enum lock_verdict { LOCK_LIVES, LOCK_DEAD, LOCK_UNKNOWN };
enum lock_verdict lock_judge(const struct lock_holder *self, const struct lock_holder *h);

#endif
