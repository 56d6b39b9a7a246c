/* A file without a name: space on disk for what must be read twice and comes from a pipe. It ends with the process, however
 * that ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_internal.h"

struct file_scratch {
    int fd;
    char *folder; /* for messages */
    uint64_t size;
};

/* O_TMPFILE where the file system has it; a name that lives for a moment where not. */
static int open_nameless(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    char name[4096];
    int n = snprintf(name, sizeof name, "%s/.tabft-scratch.XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0) (void)unlink(name);
    return fd;
}

int file_scratch_open(struct file_scratch **out, const char *near, struct tabft_failure *f)
{
    int error = 0;
    struct file_scratch *s = NULL;
    const char *temporary = getenv("TMPDIR");
    TRY(memory_new(&s, 1, sizeof *s, "a scratch file", f));
    s->fd = -1;
    if (strcmp(near, "-") == 0) {
        TRY(memory_copy_string(&s->folder, temporary != NULL && *temporary != '\0' ? temporary : "/tmp", f));
    } else {
        TRY(memory_copy_string(&s->folder, near, f));
        char *slash = strrchr(s->folder, '/');
        if (slash == NULL) {
            free(s->folder);
            s->folder = NULL;
            TRY(memory_copy_string(&s->folder, ".", f));
        } else {
            *(slash == s->folder ? slash + 1 : slash) = '\0';
        }
    }
    s->fd = file_descriptor_above_stdio(open_nameless(s->folder));
    if (s->fd < 0) {
        error = file_fail(f, s->folder, "cannot make a scratch file there", errno, false);
        goto fail;
    }
    *out = s;
    return 0;
fail:
    file_scratch_close(s);
    return error;
}

int file_scratch_put(struct file_scratch *s, const void *data, size_t size, struct tabft_failure *f)
{
    const unsigned char *p = data;
    while (size > 0) {
        ssize_t n = pwrite(s->fd, p, size < (size_t)1 << 30 ? size : (size_t)1 << 30, (off_t)s->size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return file_fail(f, s->folder, "cannot write a scratch file there", n < 0 ? errno : EIO, false);
        p += n;
        size -= (size_t)n;
        s->size += (uint64_t)n;
    }
    return 0;
}

uint64_t file_scratch_size(const struct file_scratch *s) { return s->size; }

int file_scratch_get(const struct file_scratch *s, uint64_t offset, void *data, size_t size, struct tabft_failure *f)
{
    unsigned char *p = data;
    while (size > 0) {
        ssize_t n = pread(s->fd, p, size < (size_t)1 << 30 ? size : (size_t)1 << 30, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return file_fail(f, s->folder, "cannot read a scratch file there", n < 0 ? errno : EIO, false);
        p += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

void file_scratch_close(struct file_scratch *s)
{
    if (s == NULL) return;
    if (s->fd >= 0) close(s->fd);
    free(s->folder);
    free(s);
}
