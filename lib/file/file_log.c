/* A log that grows under PATH.partial and gets the name PATH at a clean end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_internal.h"

struct file_log {
    char *path, *partial_path; /* partial_path: PATH.partial, for messages */
    const char *name;          /* last parts of both */
    const char *partial;
    int fd, folder;
    bool force;
    uint64_t size; /* bytes of the lines */
    char *line; /* the line being written with its newline */
    size_t line_size;
};

static int refuse(const struct file_log *l, const char *name, const char *path, struct tabft_failure *f)
{
    struct stat status;
    if (fstatat(l->folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : file_fail(f, path, "cannot look it up", errno, false);
    if (!S_ISREG(status.st_mode))
        return tabft_fail(f, TABFT_USE, "%s: is %s, not a regular file; choose another folder", path,
                          file_kind(status.st_mode));
    if (l->force) return 0;
    return tabft_fail(f, TABFT_USE, "%s: exists already; choose another folder or use --force", path);
}

/* Names, folder and the refusals. */
static int prepare(struct file_log *l, const char *path, struct tabft_failure *f)
{
    int error = 0;
    char *folder = NULL;
    size_t size = strlen(path);
    TRY(memory_copy_string(&l->path, path, f));
    TRY(memory_copy_string(&folder, path, f));
    TRY(memory_new(&l->partial_path, size + sizeof ".partial", 1, "a log's name", f));
    (void)snprintf(l->partial_path, size + sizeof ".partial", "%s.partial", path);
    char *slash = strrchr(folder, '/');
    size_t at = slash == NULL ? 0 : (size_t)(slash - folder) + 1;
    l->name = l->path + at;
    l->partial = l->partial_path + at;
    if (slash != NULL) *(slash == folder ? slash + 1 : slash) = '\0';
    l->folder = file_descriptor_above_stdio(open(slash == NULL ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (l->folder < 0) {
        error = file_fail(f, path, "cannot open its folder", errno, false);
        goto fail;
    }
    TRY(refuse(l, l->name, l->path, f));
    TRY(refuse(l, l->partial, l->partial_path, f));
fail:
    free(folder);
    return error;
}

/* Opens the partial log with these flags on top of those for adding lines. */
static int open_partial(struct file_log *l, int flags)
{
    const int always = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_APPEND;
    l->fd = file_descriptor_above_stdio(openat(l->folder, l->partial, always | flags, 0666));
    return l->fd;
}

static int log_new(struct file_log **out, const char *path, bool force, struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(out, 1, sizeof **out, "a log", f));
    (*out)->fd = (*out)->folder = -1;
    (*out)->force = force;
    TRY(prepare(*out, path, f));
fail:
    return error;
}

int file_log_open(struct file_log **out, const char *path, bool force, struct tabft_failure *f)
{
    int error = 0;
    struct file_log *l = NULL;
    *out = NULL;
    TRY(log_new(&l, path, force, f));
    if (force && unlinkat(l->folder, l->partial, 0) != 0 && errno != ENOENT) {
        error = file_fail(f, l->partial_path, "cannot remove the rest of an earlier run", errno, false);
        goto fail;
    }
    if (open_partial(l, O_CREAT | O_EXCL) < 0) {
        if (errno == EEXIST)
            FAIL(f, TABFT_USE, "%s: another run has just started it; choose another folder", l->partial_path);
        error = file_fail(f, l->partial_path, "cannot create", errno, false);
        goto fail;
    }
    *out = l;
    return 0;
fail:
    file_log_abandon(l);
    return error;
}

int file_log_continue(struct file_log **out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct file_log *l = NULL;
    *out = NULL;
    TRY(log_new(&l, path, true, f));
    if (open_partial(l, 0) < 0) {
        error = file_fail(f, l->partial_path, "cannot open", errno, false);
        goto fail;
    }
    struct stat status;
    if (fstat(l->fd, &status) != 0) {
        error = file_fail(f, l->partial_path, "cannot look it up", errno, false);
        goto fail;
    }
    l->size = (uint64_t)status.st_size;
    *out = l;
    return 0;
fail:
    file_log_abandon(l);
    return error;
}

int file_log_put(struct file_log *l, const char *line, struct tabft_failure *f)
{
    int error = 0;
    size_t size = strlen(line) + 1;
    if (size > l->line_size) {
        TRY(memory_grow(&l->line, size, 1, "a line of a log", f));
        l->line_size = size;
    }
    memcpy(l->line, line, size - 1);
    l->line[size - 1] = '\n';
    for (size_t at = 0; at < size;) {
        ssize_t n = write(l->fd, l->line + at, size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            error = file_fail(f, l->partial_path, "cannot write", n < 0 ? errno : ENOSPC, false);
            goto fail;
        }
        at += (size_t)n;
    }
    l->size += size;
fail:
    return error;
}

uint64_t file_log_size(const struct file_log *l) { return l->size; }

int file_log_close(struct file_log *l, struct tabft_failure *f)
{
    int error = 0, fd = l->fd;
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOSYS) {
        error = file_fail(f, l->partial_path, "cannot write to storage", errno, false);
        goto fail;
    }
    l->fd = -1;
    if (close(fd) != 0 && errno != EINTR) {
        error = file_fail(f, l->partial_path, "cannot close", errno, false);
        goto fail;
    }
    TRY(file_publish(l->folder, l->partial, l->name, l->force, l->path, f));
    if (fsync(l->folder) != 0 && errno != EINVAL && errno != EBADF && errno != ENOSYS && errno != EOPNOTSUPP)
        error = file_fail(f, l->path, "cannot write its folder to storage", errno, false);
fail:
    file_log_abandon(l);
    return error;
}

void file_log_abandon(struct file_log *l)
{
    if (l == NULL) return;
    if (l->fd >= 0) {
        if (l->size == 0) (void)unlinkat(l->folder, l->partial, 0);
        close(l->fd);
    }
    if (l->folder >= 0) close(l->folder);
    free(l->path);
    free(l->partial_path);
    free(l->line);
    free(l);
}
