/* A file that appears whole or not at all: temporary file in the same folder, preallocate, write, sync, check length, close,
 * rename without replacing, sync the folder. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_internal.h"

enum {
    BUFFER_SIZE = 64 << 10,
    STRETCH = 8 << 20,    /* what is sent to storage at once while the file grows */
    N_CACHED = 8          /* stretches that stay in the page cache behind the file's end */
};
static const size_t write_most = (size_t)1 << 30; /* one call; Linux itself stops just below 2 GiB */

struct file_writer {
    char *path;           /* as the user gave it, for messages */
    const char *name;     /* last part of path */
    int fd, folder;       /* folder -1: stdout */
    bool force;
    bool preallocated;
    uint64_t position;    /* bytes put */
    uint64_t sent;        /* bytes that are on their way to storage */
    struct file_temporary *temporary;
    char temporary_name[FILE_NAME_MAX + 1];
    size_t buffered;
    unsigned char *buffer; /* [BUFFER_SIZE]: small puts are gathered */
};

static bool is_stdout(const struct file_writer *w) { return w->folder < 0; }

/* The name without ".", host, pid, random part and ".tmp", cut so that the whole fits a directory entry. Pids repeat across
 * nodes, so host and 64 random bits are in it. */
static int name_temporary(struct file_writer *w, struct tabft_failure *f)
{
    char host[65] = "unknown";
    uint64_t random;
    char tail[128];
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') (void)snprintf(host, sizeof host, "unknown");
    host[sizeof host - 1] = '\0';
    for (char *p = host; *p; p++)
        if (*p == '/') *p = '_';
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return file_fail(f, w->path, "cannot draw a name for the temporary file", errno, false);
    int n = snprintf(tail, sizeof tail, ".%s.%ld.%016llx.tmp", host, (long)getpid(), (unsigned long long)random);
    size_t tail_size = (size_t)n + 1, name_size = strlen(w->name), room = sizeof w->temporary_name - 1 - tail_size;
    if (name_size > room) name_size = room;
    w->temporary_name[0] = '.';
    memcpy(w->temporary_name + 1, w->name, name_size);
    memcpy(w->temporary_name + 1 + name_size, tail, tail_size);
    return 0;
}

/* Opens the folder of path. Reading it is needed for the fsync alone, so a folder that may be written but not read still
 * does (O_PATH). */
static int open_folder(struct file_writer *w, struct tabft_failure *f)
{
    int error = 0;
    char *folder = NULL;
    TRY(memory_copy_string(&folder, w->path, f));
    char *slash = strrchr(folder, '/');
    w->name = slash == NULL ? w->path : w->path + (slash - folder) + 1;
    if (*w->name == '\0' || strcmp(w->name, ".") == 0 || strcmp(w->name, "..") == 0)
        FAIL(f, TABFT_USE, "%s: no file name; give the name of the file to write", w->path);
    if (strlen(w->name) > FILE_NAME_MAX) FAIL(f, TABFT_USE, "%s: file name longer than %d bytes", w->path, FILE_NAME_MAX);
    if (slash != NULL) *(slash == folder ? slash + 1 : slash) = '\0';
    const char *name = slash == NULL ? "." : folder;
    int fd = file_descriptor_above_stdio(open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0 && errno == EACCES) fd = file_descriptor_above_stdio(open(name, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0) {
        error = file_fail(f, w->path, "cannot open its folder", errno, false);
        goto fail;
    }
    w->folder = fd;
fail:
    free(folder);
    return error;
}

static int refuse_existing(struct file_writer *w, struct tabft_failure *f)
{
    struct stat status;
    if (fstatat(w->folder, w->name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : file_fail(f, w->path, "cannot look it up", errno, false);
    if (!S_ISREG(status.st_mode))
        return tabft_fail(f, TABFT_USE, "%s: is %s, not a regular file; name a file to create, or - for stdout", w->path,
                          file_kind(status.st_mode));
    if (w->force) return 0;
    return tabft_fail(f, TABFT_USE, "%s: exists already; remove it, choose another name or use --force", w->path);
}

static int create_temporary(struct file_writer *w, uint64_t expected_size, struct tabft_failure *f)
{
    int error = name_temporary(w, f);
    if (error < 0) return error;
    /* Listed first: a signal between the two calls finds nothing to remove, the other way round it would leave the file. */
    w->temporary = file_temporary_add(w->folder, w->temporary_name);
    if (w->temporary == NULL) return tabft_fail(f, TABFT_SYSTEM, "%s: too many files are being written at once", w->path);
    w->fd = file_descriptor_above_stdio(
        openat(w->folder, w->temporary_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (w->fd < 0) return file_fail(f, w->path, "cannot create a file in its folder", errno, false);
    if (file_temporary_dying()) (void)unlinkat(w->folder, w->temporary_name, 0);
    if (expected_size == 0) return 0;
    /* fallocate itself: the C library's posix_fallocate would write zeros where the file system cannot. */
    int got;
    do got = fallocate(w->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)expected_size);
    while (got != 0 && errno == EINTR);
    w->preallocated = got == 0;
    if (got != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)) {
        int cause = errno;
        return file_fail(f, w->path, "cannot reserve its space", cause, false);
    }
    return 0;
}

static int open_stdout(struct file_writer *w, bool binary, struct tabft_failure *f)
{
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (flags == -1 || (flags & O_ACCMODE) == O_RDONLY) return file_fail(f, "stdout", "cannot write", EBADF, false);
    if (binary && isatty(STDOUT_FILENO))
        return tabft_fail(f, TABFT_USE, "stdout: is a terminal, the output is binary; redirect it or give a file name");
    w->fd = STDOUT_FILENO;
    return 0;
}

int file_writer_open(struct file_writer **out, const char *path, bool force, bool binary, uint64_t expected_size, struct tabft_failure *f)
{
    int error = 0;
    struct file_writer *w = NULL;
    bool to_stdout = strcmp(path, "-") == 0;
    TRY(memory_new(&w, 1, sizeof *w, "a file writer", f));
    w->fd = w->folder = -1;
    w->force = force;
    TRY(memory_new(&w->buffer, BUFFER_SIZE, 1, "a file writer", f));
    TRY(memory_copy_string(&w->path, to_stdout ? "stdout" : path, f));
    if (to_stdout) {
        TRY(open_stdout(w, binary, f));
    } else {
        if (expected_size > INT64_MAX) FAIL(f, TABFT_USE, "%s: a file of %llu bytes", path, (unsigned long long)expected_size);
        TRY(open_folder(w, f));
        TRY(refuse_existing(w, f));
        TRY(create_temporary(w, expected_size, f));
    }
    *out = w;
    return 0;
fail:
    file_writer_abandon(w);
    return error;
}

/* write or pwrite (offset >= 0) until all is out. */
static int write_fully(const struct file_writer *w, const unsigned char *data, size_t size, off_t offset, struct tabft_failure *f)
{
    while (size > 0) {
        size_t most = size < write_most ? size : write_most;
        ssize_t n = offset < 0 ? write(w->fd, data, most) : pwrite(w->fd, data, most, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) { /* a stdout that somebody made non-blocking */
            struct pollfd wait = {.fd = w->fd, .events = POLLOUT};
            (void)poll(&wait, 1, -1);
            continue;
        }
        if (n <= 0) return file_fail(f, w->path, "cannot write", n < 0 ? errno : ENOSPC, false);
        data += n;
        size -= (size_t)n;
        if (offset >= 0) offset += n;
    }
    return 0;
}

/* One stretch towards storage. Where a file system cannot do that, the fsync at the end does it all. */
static int sync_stretch(const struct file_writer *w, uint64_t offset, unsigned how, struct tabft_failure *f)
{
    while (sync_file_range(w->fd, (off_t)offset, STRETCH, how) != 0) {
        if (errno == EINTR) continue;
        if (errno != EIO && errno != ENOSPC && errno != EDQUOT) return 0;
        return file_fail(f, w->path, "cannot write to storage", errno, false); /* fsync need not say it again */
    }
    return 0;
}

/* Sends what has been written to storage while more is made, so that fsync finds little left, and takes what has arrived there
 * out of the page cache: a large file would push out what is read for it (and new pages are dear on virtual machines). */
static int write_behind(struct file_writer *w, struct tabft_failure *f)
{
    const unsigned arrive = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    int error = 0;
    for (; !is_stdout(w) && w->position - w->buffered - w->sent >= STRETCH; w->sent += STRETCH) {
        TRY(sync_stretch(w, w->sent, SYNC_FILE_RANGE_WRITE, f));
        if (w->sent < N_CACHED * STRETCH) continue;
        const uint64_t old = w->sent - N_CACHED * STRETCH;
        TRY(sync_stretch(w, old, arrive, f));
        (void)posix_fadvise(w->fd, (off_t)old, STRETCH, POSIX_FADV_DONTNEED);
    }
fail:
    return error;
}

static int flush(struct file_writer *w, struct tabft_failure *f)
{
    size_t n = w->buffered;
    w->buffered = 0;
    return write_fully(w, w->buffer, n, -1, f);
}

int file_writer_put(struct file_writer *w, const void *data, size_t size, struct tabft_failure *f)
{
    int error = 0;
    if (size == 0) return 0;
    if (size > BUFFER_SIZE - w->buffered) TRY(flush(w, f));
    if (size >= BUFFER_SIZE) {
        TRY(write_fully(w, data, size, -1, f));
    } else {
        memcpy(w->buffer + w->buffered, data, size);
        w->buffered += size;
    }
    w->position += size;
    TRY(write_behind(w, f));
fail:
    return error;
}

uint64_t file_writer_position(const struct file_writer *w) { return w->position; }

int file_writer_put_at(struct file_writer *w, uint64_t offset, const void *data, size_t size, struct tabft_failure *f)
{
    int error = 0;
    uint64_t end;
    if (is_stdout(w)) FAIL(f, TABFT_USE, "stdout: this output is written out of order; give a file name");
    if (__builtin_add_overflow(offset, size, &end) || end > w->position)
        FAIL(f, TABFT_USE, "%s: rewrite beyond the %llu bytes put", w->path, (unsigned long long)w->position);
    TRY(flush(w, f));
    TRY(write_fully(w, data, size, (off_t)offset, f));
fail:
    return error;
}

/* Everything out, on storage and of the right length. No retry after a failed fsync: the kernel may have dropped the pages. */
static int settle(struct file_writer *w, struct tabft_failure *f)
{
    int error = 0;
    struct stat status;
    TRY(flush(w, f));
    if (fstat(w->fd, &status) != 0) FAIL(f, TABFT_SYSTEM, "%s: cannot look it up: %s", w->path, strerror(errno));
    if (!is_stdout(w)) {
        if (w->preallocated && ftruncate(w->fd, (off_t)w->position) != 0) {
            error = file_fail(f, w->path, "cannot give back reserved space", errno, false);
            goto fail;
        }
        if ((uint64_t)status.st_size != w->position)
            FAIL(f, TABFT_SYSTEM, "%s: holds %lld bytes after %llu were written; check the storage", w->path,
                 (long long)status.st_size, (unsigned long long)w->position);
    }
    if (S_ISREG(status.st_mode) && fsync(w->fd) != 0 && errno != EINVAL && errno != ENOSYS) {
        error = file_fail(f, w->path, "cannot write to storage", errno, false);
        goto fail;
    }
fail:
    return error;
}

static int exists_now(const char *path, struct tabft_failure *f)
{
    return tabft_fail(f, TABFT_USE, "%s: appeared while it was being written; that file was left, this one dropped", path);
}

int file_publish(int folder, const char *temporary, const char *name, bool force, const char *path, struct tabft_failure *f)
{
    if (force) {
        if (renameat(folder, temporary, folder, name) == 0) return 0;
        return file_fail(f, path, "cannot rename the finished file", errno, false);
    }
    if (renameat2(folder, temporary, folder, name, RENAME_NOREPLACE) == 0) return 0;
    if (errno == EEXIST) return exists_now(path, f);
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return file_fail(f, path, "cannot rename the finished file", errno, false);
    /* The file system does not know the flag: link has the same promise. */
    if (linkat(folder, temporary, folder, name, 0) != 0) {
        if (errno == EEXIST) return exists_now(path, f);
        if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)
            return tabft_fail(f, TABFT_SYSTEM, "%s: this file system can neither rename without replacing nor link; write to another one, or use --force",
                              path);
        return file_fail(f, path, "cannot link the finished file", errno, false);
    }
    if (unlinkat(folder, temporary, 0) != 0) {
        int error = file_fail(f, path, "cannot remove the temporary file", errno, false);
        (void)unlinkat(folder, name, 0);
        return error;
    }
    return 0;
}

/* The name itself onto storage. Where folders cannot be synced (or only written, not read) the rename has to do. */
static int sync_folder(struct file_writer *w, struct tabft_failure *f)
{
    if (fsync(w->folder) == 0 || errno == EINVAL || errno == EBADF || errno == ENOSYS || errno == EOPNOTSUPP) return 0;
    int error = file_fail(f, w->path, "cannot write its folder to storage", errno, false);
    /* Under force the old file is gone already, and the new one is whole: it stays. */
    if (!w->force) (void)unlinkat(w->folder, w->name, 0);
    return error;
}

const char *file_folder_next(DIR *folder)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) return NULL;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) return entry->d_name;
    }
}

int file_folder_sync(const char *path, struct tabft_failure *f)
{
    int error = 0;
    int fd = file_descriptor_above_stdio(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0 && errno == EACCES) return 0;
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP))
        error = file_fail(f, path, "cannot write the folder to storage", errno, false);
    if (fd >= 0) (void)close(fd);
    return error;
}

static int close_descriptor(struct file_writer *w, struct tabft_failure *f)
{
    int fd = w->fd;
    if (is_stdout(w)) return 0; /* file_stdout_close does */
    w->fd = -1;
    /* After EINTR Linux has closed it, and its bytes are on storage since fsync. */
    if (close(fd) != 0 && errno != EINTR) return file_fail(f, w->path, "cannot close", errno, false);
    return 0;
}

int file_writer_close(struct file_writer *w, struct tabft_failure *f)
{
    int error = 0;
    TRY(settle(w, f));
    TRY(close_descriptor(w, f));
    if (!is_stdout(w)) {
        TRY(file_publish(w->folder, w->temporary_name, w->name, w->force, w->path, f));
        file_temporary_remove(w->temporary);
        w->temporary = NULL; /* the temporary name is gone */
        TRY(sync_folder(w, f));
    }
fail:
    file_writer_abandon(w);
    return error;
}

void file_writer_abandon(struct file_writer *w)
{
    if (w == NULL) return;
    if (!is_stdout(w)) {
        if (w->temporary != NULL) (void)unlinkat(w->folder, w->temporary_name, 0);
        file_temporary_remove(w->temporary);
        if (w->fd >= 0) close(w->fd);
        close(w->folder);
    }
    free(w->path);
    free(w->buffer);
    free(w);
}

int file_write_all(const char *path, bool force, const void *data, size_t size, struct tabft_failure *f)
{
    int error = 0;
    struct file_writer *w = NULL;
    TRY(file_writer_open(&w, path, force, false, 0, f));
    TRY(file_writer_put(w, data, size, f));
    return file_writer_close(w, f);
fail:
    file_writer_abandon(w);
    return error;
}
