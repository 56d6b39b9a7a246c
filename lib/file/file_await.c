/* Names that another node made and this one does not see yet. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_internal.h"

enum { PAUSE_FIRST_MS = 10, PAUSE_MOST_MS = 500 };

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 0, or why the name cannot be opened. Opening the folder it lies in has NFS ask the server whether that has changed, which
 * ends the memory of a name that was not there. */
static int look(const char *path, const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) (void)close(fd);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return errno;
    (void)close(fd);
    return 0;
}

int file_await(const char *path, unsigned seconds, struct tabft_failure *f)
{
    int error = 0, cause;
    char *folder = NULL;
    long pause_ms = PAUSE_FIRST_MS;
    const double until = now() + seconds;
    TRY(memory_copy_string(&folder, path, f));
    char *slash = strrchr(folder, '/');
    if (slash != NULL) *(slash == folder ? slash + 1 : slash) = '\0';
    while ((cause = look(path, slash == NULL ? "." : folder)) == ENOENT || cause == ESTALE) {
        if (now() >= until)
            FAIL(f, TABFT_SYSTEM,
                 "%s: was made by another rank and is not seen on this node after %u s: %s; all nodes must have the same "
                 "storage there, check its mounts",
                 path, seconds, strerror(cause));
        const struct timespec t = {pause_ms / 1000, pause_ms % 1000 * 1000000};
        (void)nanosleep(&t, NULL);
        pause_ms = pause_ms * 2 < PAUSE_MOST_MS ? pause_ms * 2 : PAUSE_MOST_MS;
    }
fail:
    free(folder);
    return error;
}
