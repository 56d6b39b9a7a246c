/* The folders of checkpoints: their names, making, listing and removing them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "file/file.h"
#include "train/state_internal.h"

static const char manifest_name[] = "manifest.tbf";
enum { AWAIT_S = 60 };

int state_path(char path[STATE_PATH_MAX], const char *run, const char *name, const char *file, struct tabft_failure *f)
{
    int size = snprintf(path, STATE_PATH_MAX, "%s/%s%s%s", run, name, file != NULL ? "/" : "", file != NULL ? file : "");
    if (size > 0 && size < STATE_PATH_MAX) return 0;
    return tabft_fail(f, TABFT_USE, "%.200s...: the path is longer than %d bytes; give the run a shorter one", run,
                      STATE_PATH_MAX - 1);
}

void state_slice_name(char name[STATE_NAME_MAX], size_t slice, size_t n_slices)
{
    (void)snprintf(name, STATE_NAME_MAX, "slice-%04zu-of-%04zu.tbf", slice, n_slices);
}

int state_await(const struct trainer *t, const char *path, struct tabft_failure *f)
{
    /* The others wait for this rank meanwhile: it shall speak first. */
    const uint64_t patience = t->o->comm_timeout / 2;
    if (comm_rank(t->c) == 0) return 0;
    return file_await(path, patience < AWAIT_S ? (unsigned)patience : AWAIT_S, f);
}

/* "state-<step>-<8 hex digits>" */
static bool parse_name(const char *name, uint64_t *step)
{
    char again[STATE_NAME_MAX];
    unsigned random;
    if (sscanf(name, "state-%" SCNu64 "-%x", step, &random) != 2) return false;
    (void)snprintf(again, sizeof again, "state-%012" PRIu64 "-%08x", *step, random);
    return strcmp(name, again) == 0;
}

static int newer_first(const void *a, const void *b)
{
    const struct state_name *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return strcmp(y->name, x->name);
}

int state_folder_list(const char *run, bool complete, struct state_name **list, size_t *n, struct tabft_failure *f)
{
    int error = 0;
    DIR *folder = opendir(run);
    *list = NULL;
    *n = 0;
    if (folder == NULL) FAIL(f, TABFT_SYSTEM, "%s: cannot read the folder: %s", run, strerror(errno));
    for (const char *entry; (entry = file_folder_next(folder)) != NULL;) {
        uint64_t step;
        char path[STATE_PATH_MAX];
        struct stat status;
        if (!parse_name(entry, &step)) continue;
        /* A link in its place is somebody else's. */
        if (fstatat(dirfd(folder), entry, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(status.st_mode)) continue;
        TRY(state_path(path, run, entry, manifest_name, f));
        if (complete && lstat(path, &status) != 0 && errno == ENOENT) continue;
        TRY(memory_grow(list, *n + 1, sizeof **list, "the list of checkpoints", f));
        (*list)[*n].step = step;
        (void)snprintf((*list)[*n].name, STATE_NAME_MAX, "%.63s", entry);
        ++*n;
    }
    if (errno != 0) FAIL(f, TABFT_SYSTEM, "%s: cannot read the folder: %s", run, strerror(errno));
    if (*n > 1) qsort(*list, *n, sizeof **list, newer_first);
fail:
    if (folder != NULL) (void)closedir(folder);
    if (error < 0) {
        free(*list);
        *list = NULL;
        *n = 0;
    }
    return error;
}

int state_folder_make(const char *run, uint64_t step, char name[STATE_NAME_MAX], struct tabft_failure *f)
{
    int error = 0;
    uint32_t random;
    char path[STATE_PATH_MAX];
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        FAIL(f, TABFT_SYSTEM, "%s: no random number for a checkpoint's name: %s", run, strerror(errno));
    (void)snprintf(name, STATE_NAME_MAX, "state-%012" PRIu64 "-%08" PRIx32, step, random);
    TRY(state_path(path, run, name, NULL, f));
    if (mkdir(path, 0777) != 0)
        FAIL(f, TABFT_SYSTEM, "%s: cannot make the checkpoint's folder: %s", path, strerror(errno));
    TRY(file_folder_sync(run, f));
fail:
    return error;
}

int state_folder_remove(const char *run, const char *name)
{
    struct tabft_failure ignored = {0};
    char path[STATE_PATH_MAX];
    int cause = 0;
    if (state_path(path, run, name, NULL, &ignored) < 0) return ENAMETOOLONG;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : errno;
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        cause = errno;
        (void)close(fd);
        return cause;
    }
    if (unlinkat(fd, manifest_name, 0) != 0 && errno != ENOENT) cause = errno;
    for (const char *entry; cause == 0 && (entry = file_folder_next(folder)) != NULL;)
        if (unlinkat(fd, entry, 0) != 0 && errno != ENOENT) cause = errno;
    (void)closedir(folder);
    if (cause == 0 && rmdir(path) != 0 && errno != ENOENT) cause = errno;
    return cause;
}

/* ".NAME.tmp": what a writer that was killed left. The lock keeps other writers away. */
static void remove_temporaries(const char *run)
{
    DIR *folder = opendir(run);
    if (folder == NULL) return;
    for (const char *entry; (entry = file_folder_next(folder)) != NULL;) {
        size_t size = strlen(entry);
        if (entry[0] == '.' && size > 5 && strcmp(entry + size - 4, ".tmp") == 0)
            (void)unlinkat(dirfd(folder), entry, 0);
    }
    (void)closedir(folder);
}

void state_folder_clear(const struct trainer *t, const char *keep1, const char *keep2)
{
    struct tabft_failure f = {0};
    struct state_name *list = NULL;
    size_t n = 0;
    if (state_folder_list(t->run_path, false, &list, &n, &f) < 0) {
        trainer_say(t, "old checkpoints stay: %s", f.message);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if ((keep1 != NULL && strcmp(list[i].name, keep1) == 0) || (keep2 != NULL && strcmp(list[i].name, keep2) == 0))
            continue;
        int cause = state_folder_remove(t->run_path, list[i].name);
        if (cause != 0)
            trainer_say(t, "%s/%s: the old checkpoint stays: %s", t->run_path, list[i].name, strerror(cause));
    }
    free(list);
    remove_temporaries(t->run_path);
}

void state_clear(struct trainer *t)
{
    if (comm_rank(t->c) == 0) state_folder_clear(t, NULL, NULL);
}
