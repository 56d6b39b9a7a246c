/* Files, pipes and stdin read front to back. A regular file that changes meanwhile is refused at its end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_internal.h"

struct file_stream {
    int fd;
    char *path;
    bool ended;
    uint64_t position; /* in the file, so that a stdin that starts in the middle is told apart from one that was cut */
    struct stat at_open;
};

int file_stream_open(struct file_stream **out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct file_stream *s = NULL;
    bool from_stdin = strcmp(path, "-") == 0;
    TRY(memory_new(&s, 1, sizeof *s, "a stream", f));
    s->fd = -1;
    TRY(memory_copy_string(&s->path, from_stdin ? "stdin" : path, f));
    s->fd = from_stdin ? STDIN_FILENO : file_descriptor_above_stdio(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (s->fd < 0 || fstat(s->fd, &s->at_open) != 0) {
        error = file_fail(f, s->path, "cannot open", errno, true);
        goto fail;
    }
    if (S_ISDIR(s->at_open.st_mode)) FAIL(f, TABFT_INPUT, "%s: is a folder; name a file", s->path);
    if (S_ISREG(s->at_open.st_mode)) {
        off_t at = lseek(s->fd, 0, SEEK_CUR);
        s->position = at < 0 ? 0 : (uint64_t)at;
        (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    *out = s;
    return 0;
fail:
    file_stream_close(s);
    return error;
}

static int check_end(const struct file_stream *s, struct tabft_failure *f)
{
    struct stat now;
    if (!S_ISREG(s->at_open.st_mode)) return 0;
    if (fstat(s->fd, &now) != 0) return file_fail(f, s->path, "cannot look it up", errno, true);
    if (file_same_state(&now, &s->at_open) && s->position >= (uint64_t)now.st_size) return 0;
    return tabft_fail(f, TABFT_INPUT, "%s: changed while it was read; run again when nothing writes to it", s->path);
}

int file_stream_read(struct file_stream *s, void *data, size_t size, size_t *got, struct tabft_failure *f)
{
    unsigned char *p = data;
    size_t done = 0;
    *got = 0;
    while (done < size && !s->ended) {
        size_t most = size - done < ((size_t)1 << 30) ? size - done : (size_t)1 << 30;
        ssize_t n = read(s->fd, p + done, most);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = s->fd, .events = POLLIN};
            (void)poll(&wait, 1, -1);
            continue;
        }
        if (n < 0) return file_fail(f, s->path, "cannot read", errno, true);
        if (n == 0) {
            int error = check_end(s, f);
            if (error < 0) return error;
            s->ended = true;
        }
        done += (size_t)n;
        s->position += (uint64_t)n;
    }
    *got = done;
    return 0;
}

void file_stream_close(struct file_stream *s)
{
    if (s == NULL) return;
    if (s->fd >= 0 && s->fd != STDIN_FILENO) close(s->fd);
    free(s->path);
    free(s);
}
