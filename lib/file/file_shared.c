/* Memory that the processes of a node share: a file in /dev/shm whose name is gone before it takes any memory, so that
 * processes that are killed leave nothing behind. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_internal.h"
#include "file/file_shared.h"

static const char folder_path[] = "/dev/shm";

struct file_shared {
    int folder, fd;
    char name[FILE_SHARED_NAME];
    struct file_temporary *temporary; /* while the name exists, on the process that made it */
    void *data;
    size_t size; /* mapped bytes */
};

static int fail_shared(struct tabft_failure *f, const char *action, int cause)
{
    return file_fail(f, folder_path, action, cause, false);
}

static int shared_new(struct file_shared **out, struct tabft_failure *f)
{
    int error = 0;
    struct file_shared *s = NULL;
    TRY(memory_new(&s, 1, sizeof *s, "shared memory", f));
    s->fd = -1;
    s->folder = file_descriptor_above_stdio(open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (s->folder < 0) {
        error = fail_shared(f, "is needed for the memory that ranks share", errno);
        goto fail;
    }
    *out = s;
    return 0;
fail:
    file_shared_close(s);
    return error;
}

int file_shared_create(struct file_shared **out, char name[FILE_SHARED_NAME], struct tabft_failure *f)
{
    int error = 0;
    uint64_t word[2];
    struct file_shared *s = NULL;
    TRY(shared_new(&s, f));
    if (getrandom(word, sizeof word, 0) != (ssize_t)sizeof word)
        FAIL(f, TABFT_SYSTEM, "no random numbers from the system: %s", strerror(errno));
    (void)snprintf(s->name, sizeof s->name, "tabft-%016" PRIx64 "%016" PRIx64, word[0], word[1]);
    s->temporary = file_temporary_add(s->folder, s->name);
    s->fd = file_descriptor_above_stdio(
        openat(s->folder, s->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (s->fd < 0) {
        error = fail_shared(f, "cannot make shared memory there", errno);
        goto fail;
    }
    memcpy(name, s->name, sizeof s->name);
    *out = s;
    return 0;
fail:
    file_shared_close(s);
    return error;
}

int file_shared_join(struct file_shared **out, const char *name, struct tabft_failure *f)
{
    int error = 0;
    struct stat state;
    struct file_shared *s = NULL;
    TRY(shared_new(&s, f));
    s->fd = file_descriptor_above_stdio(openat(s->folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (s->fd < 0 || fstat(s->fd, &state) != 0) {
        error = fail_shared(f, "cannot join the memory that the ranks of this node share", errno);
        goto fail;
    }
    if (!S_ISREG(state.st_mode) || state.st_uid != geteuid() || (state.st_mode & 0777) != 0600 || state.st_size != 0)
        FAIL(f, TABFT_SYSTEM, "%s/%s: is not what a rank of this run made; somebody else put it there", folder_path,
             name);
    *out = s;
    return 0;
fail:
    file_shared_close(s);
    return error;
}

int file_shared_unlink(struct file_shared *s, struct tabft_failure *f)
{
    if (unlinkat(s->folder, s->name, 0) != 0) return fail_shared(f, "cannot unlink shared memory", errno);
    file_temporary_remove(s->temporary);
    s->temporary = NULL;
    s->name[0] = '\0';
    return 0;
}

int file_shared_resize(struct file_shared *s, size_t size, struct tabft_failure *f)
{
    if (size > INT64_MAX || ftruncate(s->fd, (off_t)size) != 0)
        return fail_shared(f, "cannot size shared memory", size > INT64_MAX ? EFBIG : errno);
    return 0;
}

int file_shared_map(struct file_shared *s, size_t size, struct tabft_failure *f)
{
    struct stat state;
    if (fstat(s->fd, &state) != 0) return fail_shared(f, "cannot look at shared memory", errno);
    if ((uint64_t)state.st_size != size)
        return tabft_fail(f, TABFT_SYSTEM, "%s: the ranks' shared memory has %" PRIu64 " bytes, not %zu", folder_path,
                          (uint64_t)state.st_size, size);
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (data == MAP_FAILED) return fail_shared(f, "cannot map shared memory", errno);
    s->data = data;
    s->size = size;
    return 0;
}

int file_shared_reserve(struct file_shared *s, size_t begin, size_t end, struct tabft_failure *f)
{
    int cause;
    do cause = begin < end ? posix_fallocate(s->fd, (off_t)begin, (off_t)(end - begin)) : 0;
    while (cause == EINTR);
    if (cause != 0) return fail_shared(f, "cannot take shared memory", cause);
    return 0;
}

int file_shared_finish(struct file_shared *s, struct tabft_failure *f)
{
    if (mprotect(s->data, s->size, PROT_READ) != 0) return fail_shared(f, "cannot protect shared memory", errno);
    /* Every page now: then what this process holds of it does not grow later. */
    const volatile char *at = s->data;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < s->size; i += page) (void)at[i];
    return 0;
}

void *file_shared_data(const struct file_shared *s) { return s->data; }

uint64_t file_shared_room(void)
{
    struct statvfs v;
    if (statvfs(folder_path, &v) != 0) return 0;
    /* A file system without a limit says 0 blocks. */
    return v.f_blocks == 0 ? UINT64_MAX : (uint64_t)v.f_bavail * v.f_frsize;
}

void file_shared_close(struct file_shared *s)
{
    if (s == NULL) return;
    if (s->data != NULL) (void)munmap(s->data, s->size);
    if (s->temporary != NULL) (void)unlinkat(s->folder, s->name, 0);
    file_temporary_remove(s->temporary);
    if (s->fd >= 0) (void)close(s->fd);
    if (s->folder >= 0) (void)close(s->folder);
    free(s);
}
