#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file/file_shared.h"
#include "unit.h"

static int names_in_shm(void)
{
    int n = 0;
    DIR *folder = opendir("/dev/shm");
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;) n += strncmp(e->d_name, "tabft-", 6) == 0;
    (void)closedir(folder);
    return n;
}

static void in_folder(char path[128], const char *name) { (void)snprintf(path, 128, "/dev/shm/%s", name); }

START_TEST(two_processes_share_memory_without_a_name)
{
    struct tabft_failure f = {0};
    struct file_shared *first, *second;
    char name[FILE_SHARED_NAME], path[128];
    struct stat state;
    const size_t size = 3 * 4096 + 5;
    MUST(file_shared_create(&first, name, &f));
    in_folder(path, name);
    ck_assert_int_eq(stat(path, &state), 0);
    ck_assert_uint_eq(state.st_mode & 0777, 0600);
    ck_assert(state.st_size == 0); /* no memory while there is a name */
    MUST(file_shared_join(&second, name, &f));
    MUST(file_shared_unlink(first, &f));
    ck_assert_int_ne(stat(path, &state), 0);
    MUST(file_shared_resize(first, size, &f));
    MUST(file_shared_map(first, size, &f));
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) { /* the other process writes */
        if (file_shared_map(second, size, &f) < 0 || file_shared_reserve(second, 4096, size, &f) < 0) _exit(1);
        memset((char *)file_shared_data(second) + 4096, 7, size - 4096);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    MUST(file_shared_reserve(first, 0, 4096, &f));
    MUST(file_shared_finish(first, &f));
    const char *data = file_shared_data(first);
    ck_assert(data[0] == 0 && data[4095] == 0 && data[4096] == 7 && data[size - 1] == 7);
    file_shared_close(first);
    file_shared_close(second);
}
END_TEST

START_TEST(what_is_finished_cannot_be_written)
{
    struct tabft_failure f = {0};
    struct file_shared *s;
    char name[FILE_SHARED_NAME];
    MUST(file_shared_create(&s, name, &f));
    MUST(file_shared_unlink(s, &f));
    MUST(file_shared_resize(s, 4096, &f));
    MUST(file_shared_map(s, 4096, &f));
    MUST(file_shared_finish(s, &f));
    pid_t child = fork();
    if (child == 0) {
        *(volatile char *)file_shared_data(s) = 1;
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(status != 0);
    file_shared_close(s);
}
END_TEST

/* Another user's rank, or anybody, could have put something under the name. */
START_TEST(only_what_a_rank_made_is_joined)
{
    struct tabft_failure f = {0};
    struct file_shared *s, *joined;
    char name[FILE_SHARED_NAME], path[128], link_path[160];
    int before = names_in_shm();
    MUST(file_shared_create(&s, name, &f));
    in_folder(path, name);
    ck_assert_int_eq(chmod(path, 0644), 0);
    MUST_FAIL(file_shared_join(&joined, name, &f), TABFT_SYSTEM, "is not what a rank of this run made");
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_int_eq(truncate(path, 10), 0);
    MUST_FAIL(file_shared_join(&joined, name, &f), TABFT_SYSTEM, "is not what a rank of this run made");
    (void)snprintf(link_path, sizeof link_path, "%s-link", path);
    ck_assert_int_eq(symlink(path, link_path), 0);
    MUST_FAIL(file_shared_join(&joined, strrchr(link_path, '/') + 1, &f), TABFT_SYSTEM, "cannot join");
    unlink(link_path);
    MUST_FAIL(file_shared_join(&joined, "tabft-nobody", &f), TABFT_SYSTEM, "No such file");
    file_shared_close(s); /* a failure before unlink: the name goes too */
    ck_assert_int_eq(names_in_shm(), before);
}
END_TEST

START_TEST(sizes_that_differ_are_noticed)
{
    struct tabft_failure f = {0};
    struct file_shared *s;
    char name[FILE_SHARED_NAME];
    ck_assert(file_shared_room() > 0);
    MUST(file_shared_create(&s, name, &f));
    MUST(file_shared_unlink(s, &f));
    MUST(file_shared_resize(s, 8192, &f));
    MUST_FAIL(file_shared_map(s, 4096, &f), TABFT_SYSTEM, "has 8192 bytes, not 4096");
    file_shared_close(s);
}
END_TEST

UNIT_MAIN("file/shared", two_processes_share_memory_without_a_name, what_is_finished_cannot_be_written,
          only_what_a_rank_made_is_joined, sizes_that_differ_are_noticed)
