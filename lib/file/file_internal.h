/* What the sources of lib/file share: full writes and reads, how system errors become failures, and the list of
 * temporary files that a signal handler removes. */
#ifndef TABFT_FILE_INTERNAL_H
#define TABFT_FILE_INTERNAL_H

#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "file/file.h"

enum { FILE_NAME_MAX = 255 };

/* One temporary file that must not outlive the process. */
struct file_temporary {
    atomic_int state; /* see file_signals.c */
    pid_t owner;      /* a forked child leaves its parent's files alone */
    int folder;       /* descriptor of the folder it lies in */
    char name[FILE_NAME_MAX + 1];
};
/* Takes a free slot for `name` in `folder`, to be called before the file is created; NULL when all slots are taken. */
struct file_temporary *file_temporary_add(int folder, const char *name);
void file_temporary_remove(struct file_temporary *t); /* NULL is fine */
bool file_temporary_dying(void); /* a signal has removed what was listed; whoever created a file since removes it itself */

/* Records "path: action: cause" with what would do about disk space, quotas and limits. `cause` is an errno.
 * TABFT_INPUT where the user named a path that cannot be read and TABFT_SYSTEM else, if `reading`; TABFT_SYSTEM if not. */
int file_fail(struct tabft_failure *f, const char *path, const char *action, int cause, bool reading);
/* "a folder", "a FIFO", ...: what a path is instead of a regular file. */
const char *file_kind(mode_t mode);
/* Size and time of last change are the same. */
bool file_same_state(const struct stat *a, const struct stat *b);
/* Makes sure a descriptor is none of 0, 1, 2, which a caller may have closed. -1 and errno on failure; fd is then closed. */
int file_descriptor_above_stdio(int fd);

/* Gives the finished file `temporary` its `name` in the same folder, replacing another only under `force`. `path` is for
 * messages. On failure nothing lies under `name` that did not before. */
int file_publish(int folder, const char *temporary, const char *name, bool force, const char *path,
                 struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
