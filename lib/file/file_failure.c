#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "file/file_internal.h"

static const char *remedy(int cause)
{
    switch (cause) {
    case ENOSPC: return "; free space there or write elsewhere (df shows it)";
    case EDQUOT: return "; the disk quota is used up: free space or ask for more (quota shows it)";
    case EFBIG: return "; the file size limit is reached: raise it (ulimit -f)";
    case EIO: return "; the storage reported an error: check it, then run again";
    case EMFILE: return "; raise the limit of open files (ulimit -n)";
    case EROFS: return "; write elsewhere";
    case EACCES:
    case EPERM: return "; check the permissions of file and folder";
    case EPIPE: return "; the reader of the pipe has gone";
    case ESTALE: return "; the file was replaced on the server: run again";
    default: return "";
    }
}

int file_fail(struct tabft_failure *f, const char *path, const char *action, int cause, bool reading)
{
    int code = TABFT_SYSTEM;
    if (reading && (cause == ENOENT || cause == ENOTDIR || cause == EACCES || cause == EPERM || cause == ELOOP ||
                    cause == ENAMETOOLONG || cause == EISDIR || cause == ENXIO || cause == EBADF))
        code = TABFT_INPUT;
    return tabft_fail(f, code, "%s: %s: %s%s", path, action, strerror(cause), remedy(cause));
}

const char *file_kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a FIFO";
    case S_IFLNK: return "a symbolic link";
    case S_IFSOCK: return "a socket";
    case S_IFCHR:
    case S_IFBLK: return "a device";
    default: return "a regular file";
    }
}

bool file_same_state(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int file_descriptor_above_stdio(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int cause = errno;
    close(fd);
    errno = cause;
    return above;
}
