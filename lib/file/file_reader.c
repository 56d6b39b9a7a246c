/* Regular files read at positions. pread, not mmap: a file that another job cuts must give an error, not SIGBUS. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_internal.h"

static const size_t read_most = (size_t)1 << 30;

struct file_reader {
    int fd;
    char *path;
    struct stat at_open;
};

int file_reader_open(struct file_reader **out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct file_reader *r = NULL;
    TRY(memory_new(&r, 1, sizeof *r, "a file reader", f));
    r->fd = -1;
    TRY(memory_copy_string(&r->path, path, f));
    /* O_NONBLOCK: opening a FIFO must not wait for somebody to write to it. */
    r->fd = file_descriptor_above_stdio(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (r->fd < 0 || fstat(r->fd, &r->at_open) != 0) {
        error = file_fail(f, path, "cannot open", errno, true);
        goto fail;
    }
    if (!S_ISREG(r->at_open.st_mode)) FAIL(f, TABFT_INPUT, "%s: is %s; a regular file is needed here", path, file_kind(r->at_open.st_mode));
    *out = r;
    return 0;
fail:
    file_reader_close(r);
    return error;
}

uint64_t file_reader_size(const struct file_reader *r) { return (uint64_t)r->at_open.st_size; }
const char *file_reader_path(const struct file_reader *r) { return r->path; }

int file_reader_get(const struct file_reader *r, uint64_t offset, void *data, size_t size, struct tabft_failure *f)
{
    unsigned char *p = data;
    size_t done = 0;
    if (offset > INT64_MAX || size > INT64_MAX - offset)
        return tabft_fail(f, TABFT_INPUT, "%s: %zu bytes at %llu lie beyond any file", r->path, size, (unsigned long long)offset);
    while (done < size) {
        size_t most = size - done < read_most ? size - done : read_most;
        ssize_t n = pread(r->fd, p + done, most, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_fail(f, r->path, "cannot read", errno, false);
        if (n == 0)
            return tabft_fail(f, TABFT_INPUT, "%s: %zu bytes are needed at byte %llu, %zu were found; the file was cut short: copy or make it again",
                              r->path, size, (unsigned long long)offset, done);
        done += (size_t)n;
    }
    return 0;
}

int file_reader_unchanged(const struct file_reader *r, struct tabft_failure *f)
{
    struct stat now, named;
    if (fstat(r->fd, &now) != 0) return file_fail(f, r->path, "cannot look it up", errno, true);
    if (stat(r->path, &named) != 0) return file_fail(f, r->path, "cannot look it up again after reading", errno, true);
    if (!file_same_state(&now, &r->at_open) || named.st_ino != r->at_open.st_ino || named.st_dev != r->at_open.st_dev)
        return tabft_fail(f, TABFT_INPUT, "%s: changed while it was read; run again when nothing writes to it", r->path);
    return 0;
}

void file_reader_close(struct file_reader *r)
{
    if (r == NULL) return;
    if (r->fd >= 0) close(r->fd);
    free(r->path);
    free(r);
}

int file_read_all(const char *path, size_t limit, void **out, size_t *size, struct tabft_failure *f)
{
    int error = 0;
    struct file_reader *r = NULL;
    unsigned char *data = NULL;
    TRY(file_reader_open(&r, path, f));
    uint64_t bytes = file_reader_size(r);
    if (bytes > limit) FAIL(f, TABFT_INPUT, "%s: %llu bytes; at most %zu are read here", path, (unsigned long long)bytes, limit);
    TRY(memory_new(&data, (size_t)bytes, 1, path, f));
    TRY(file_reader_get(r, 0, data, (size_t)bytes, f));
    TRY(file_reader_unchanged(r, f));
    file_reader_close(r);
    *out = data;
    *size = (size_t)bytes;
    return 0;
fail:
    free(data);
    file_reader_close(r);
    return error;
}
