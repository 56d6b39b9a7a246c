/* A log is followed under PATH.partial while it grows, named PATH at the end, and never two runs' at once. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/file.h"
#include "unit.h"

static char folder[] = "/tmp/tabft-log-XXXXXX", path[64], partial[80];

static void start(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    (void)snprintf(partial, sizeof partial, "%s.partial", path);
}

static void finish(void)
{
    (void)unlink(path);
    (void)unlink(partial);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void must_hold(const char *name, const char *text)
{
    struct tabft_failure f = {0};
    void *data;
    size_t size;
    MUST(file_read_all(name, 100, &data, &size, &f));
    ck_assert_uint_eq(size, strlen(text));
    ck_assert_mem_eq(data, text, size);
    free(data);
}

START_TEST(lines_show_at_once_and_the_name_at_the_end)
{
    struct tabft_failure f = {0};
    struct file_log *l, *other;
    start();
    MUST(file_log_open(&l, path, false, &f));
    MUST(file_log_put(l, "{\"step\":1}", &f));
    must_hold(partial, "{\"step\":1}\n");
    ck_assert_int_ne(access(path, F_OK), 0);
    MUST_FAIL(file_log_open(&other, path, false, &f), TABFT_USE, "exists already");
    MUST(file_log_put(l, "{}", &f));
    MUST(file_log_close(l, &f));
    must_hold(path, "{\"step\":1}\n{}\n");
    ck_assert_int_ne(access(partial, F_OK), 0);
    MUST_FAIL(file_log_open(&l, path, false, &f), TABFT_USE, "--force");
    finish();
}
END_TEST

START_TEST(what_is_left_of_a_run_stays_until_force)
{
    struct tabft_failure f = {0};
    struct file_log *l;
    start();
    MUST(file_log_open(&l, path, false, &f));
    file_log_abandon(l); /* no line: nothing to keep */
    ck_assert_int_ne(access(partial, F_OK), 0);
    MUST(file_log_open(&l, path, false, &f));
    MUST(file_log_put(l, "old", &f));
    file_log_abandon(l);
    must_hold(partial, "old\n");
    MUST_FAIL(file_log_open(&l, path, false, &f), TABFT_USE, "partial");
    MUST(file_log_open(&l, path, true, &f));
    MUST(file_log_put(l, "new", &f));
    MUST(file_log_close(l, &f));
    must_hold(path, "new\n");
    MUST(file_log_open(&l, path, true, &f));
    must_hold(path, "new\n"); /* the old one is whole until the new one is */
    MUST(file_log_close(l, &f));
    must_hold(path, "");
    finish();
}
END_TEST

START_TEST(links_and_folders_are_left_alone)
{
    struct tabft_failure f = {0};
    struct file_log *l;
    start();
    ck_assert_int_eq(symlink("/etc/hostname", partial), 0);
    MUST_FAIL(file_log_open(&l, path, true, &f), TABFT_USE, "symbolic link");
    ck_assert_int_eq(unlink(partial), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    MUST_FAIL(file_log_open(&l, path, true, &f), TABFT_USE, "folder");
    ck_assert_int_eq(rmdir(path), 0);
    MUST_FAIL(file_log_open(&l, "/nonexistent/metrics", false, &f), TABFT_SYSTEM, "folder");
    finish();
}
END_TEST

UNIT_MAIN("file log", lines_show_at_once_and_the_name_at_the_end, what_is_left_of_a_run_stays_until_force,
          links_and_folders_are_left_alone)
