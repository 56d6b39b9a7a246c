#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file/file.h"
#include "unit.h"

/* Every test works in a folder of its own, as its current folder. */
static char folder[64];

static void enter_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/tabft-test-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static int entries(void)
{
    int n = 0;
    DIR *d = opendir(".");
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) n++;
    closedir(d);
    return n;
}

static void leave_folder(void)
{
    char command[128];
    ck_assert_int_eq(chdir("/"), 0);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void must_hold(const char *path, const void *data, size_t size)
{
    struct tabft_failure f = {0};
    void *got;
    size_t n;
    MUST(file_read_all(path, 1 << 24, &got, &n, &f));
    ck_assert_uint_eq(n, size);
    ck_assert(memcmp(got, data, size) == 0);
    free(got);
}

START_TEST(writes_whole_files)
{
    static unsigned char data[300000];
    static const size_t pieces[] = {1, 7, 4096, 65535, 65536, 65537, 300000};
    struct tabft_failure f = {0};
    struct file_writer *w;
    enter_folder();
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++)
        for (uint64_t expected = 0; expected <= 600000; expected += 300000) {
            MUST(file_writer_open(&w, "out", k > 0 || expected > 0, true, expected, &f));
            for (size_t at = 0; at < sizeof data; at += pieces[k])
                MUST(file_writer_put(w, data + at, sizeof data - at < pieces[k] ? sizeof data - at : pieces[k], &f));
            ck_assert_uint_eq(file_writer_position(w), sizeof data);
            ck_assert_int_eq(entries(), k == 0 && expected == 0 ? 1 : 2); /* nothing under the final name yet */
            MUST(file_writer_close(w, &f));
            ck_assert_int_eq(entries(), 1);
            must_hold("out", data, sizeof data);
            struct stat status;
            ck_assert_int_eq(stat("out", &status), 0);
            ck_assert_int_le(status.st_blocks * 512, 330000); /* reserved space is given back */
        }
    leave_folder();
}
END_TEST

START_TEST(rewrites_what_was_put)
{
    struct tabft_failure f = {0};
    struct file_writer *w;
    enter_folder();
    MUST(file_writer_open(&w, "./out", false, true, 0, &f));
    MUST(file_writer_put(w, "0123456789", 10, &f));
    MUST(file_writer_put_at(w, 2, "xy", 2, &f));
    MUST_FAIL(file_writer_put_at(w, 9, "xy", 2, &f), TABFT_USE, "rewrite beyond the 10 bytes");
    MUST_FAIL(file_writer_put_at(w, UINT64_MAX, "xy", 2, &f), TABFT_USE, "rewrite beyond");
    MUST(file_writer_put(w, "ab", 2, &f));
    MUST(file_writer_close(w, &f));
    must_hold("out", "01xy456789ab", 12);
    leave_folder();
}
END_TEST

START_TEST(abandoned_leaves_nothing)
{
    struct tabft_failure f = {0};
    struct file_writer *w;
    enter_folder();
    MUST(file_writer_open(&w, "out", false, true, 1 << 20, &f));
    MUST(file_writer_put(w, "x", 1, &f));
    file_writer_abandon(w);
    file_writer_abandon(NULL);
    ck_assert_int_eq(entries(), 0);
    leave_folder();
}
END_TEST

START_TEST(existing_targets_are_refused)
{
    struct tabft_failure f = {0};
    struct file_writer *w;
    enter_folder();
    MUST(file_write_all("out", false, "old", 3, &f));
    MUST_FAIL(file_write_all("out", false, "new", 3, &f), TABFT_USE, "out: exists already");
    must_hold("out", "old", 3);
    MUST(file_write_all("out", true, "new", 3, &f));
    must_hold("out", "new", 3);
    /* one that appears in between wins */
    MUST(file_writer_open(&w, "race", false, true, 0, &f));
    MUST(file_writer_put(w, "late", 4, &f));
    MUST(file_write_all("race", false, "early", 5, &f));
    MUST_FAIL(file_writer_close(w, &f), TABFT_USE, "race: appeared while it was being written");
    must_hold("race", "early", 5);
    ck_assert_int_eq(entries(), 2);
    leave_folder();
}
END_TEST

START_TEST(only_regular_files_are_targets)
{
    struct tabft_failure f = {0};
    char name[400];
    enter_folder();
    ck_assert_int_eq(mkdir("folder", 0777), 0);
    ck_assert_int_eq(mkfifo("fifo", 0666), 0);
    ck_assert_int_eq(symlink("victim", "link"), 0);
    MUST(file_write_all("victim", false, "v", 1, &f));
    for (int force = 0; force < 2; force++) {
        MUST_FAIL(file_write_all("folder", force, "x", 1, &f), TABFT_USE, "folder: is a folder");
        MUST_FAIL(file_write_all("fifo", force, "x", 1, &f), TABFT_USE, "fifo: is a FIFO");
        MUST_FAIL(file_write_all("link", force, "x", 1, &f), TABFT_USE, "link: is a symbolic link");
        MUST_FAIL(file_write_all("/dev/null", force, "x", 1, &f), TABFT_USE, "/dev/null: is a device");
        MUST_FAIL(file_write_all("folder/", force, "x", 1, &f), TABFT_USE, "no file name");
        MUST_FAIL(file_write_all("", force, "x", 1, &f), TABFT_USE, "no file name");
        MUST_FAIL(file_write_all("..", force, "x", 1, &f), TABFT_USE, "no file name");
        MUST_FAIL(file_write_all("no/such", force, "x", 1, &f), TABFT_SYSTEM, "no/such: cannot open its folder: No such");
        MUST_FAIL(file_write_all("victim/x", force, "x", 1, &f), TABFT_SYSTEM, "victim/x: cannot open its folder: Not a dir");
    }
    must_hold("victim", "v", 1);
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    MUST(file_write_all(name, false, "x", 1, &f)); /* the temporary name is cut to fit */
    must_hold(name, "x", 1);
    name[255] = 'n';
    name[256] = '\0';
    MUST_FAIL(file_write_all(name, false, "x", 1, &f), TABFT_USE, "longer than 255");
    ck_assert_int_eq(entries(), 5);
    leave_folder();
}
END_TEST

START_TEST(modes_follow_the_umask)
{
    static const mode_t masks[] = {0002, 0022, 0027, 0077};
    struct tabft_failure f = {0};
    struct stat status;
    enter_folder();
    for (size_t i = 0; i < 4; i++) {
        umask(masks[i]);
        MUST(file_write_all("out", true, "x", 1, &f));
        ck_assert_int_eq(stat("out", &status), 0);
        ck_assert_uint_eq(status.st_mode & 0777, 0666 & ~masks[i]);
    }
    leave_folder();
}
END_TEST

START_TEST(file_size_limit_is_a_failure)
{
    struct tabft_failure f = {0};
    static char data[200000];
    struct rlimit limit = {100000, 100000};
    enter_folder();
    file_signals_install();
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    MUST_FAIL(file_write_all("out", false, data, sizeof data, &f), TABFT_SYSTEM, "out: cannot write: File too large; the file size limit");
    ck_assert_int_eq(entries(), 0);
    leave_folder();
}
END_TEST

START_TEST(reads_at_positions)
{
    struct tabft_failure f = {0};
    struct file_reader *r;
    char got[8] = "";
    enter_folder();
    MUST(file_write_all("in", false, "0123456789", 10, &f));
    MUST(file_reader_open(&r, "in", &f));
    ck_assert_uint_eq(file_reader_size(r), 10);
    ck_assert_str_eq(file_reader_path(r), "in");
    MUST(file_reader_get(r, 7, got, 3, &f));
    ck_assert_str_eq(got, "789");
    MUST(file_reader_get(r, 99, got, 0, &f));
    MUST_FAIL(file_reader_get(r, 8, got, 5, &f), TABFT_INPUT, "in: 5 bytes are needed at byte 8, 2 were found");
    MUST_FAIL(file_reader_get(r, UINT64_MAX, got, 5, &f), TABFT_INPUT, "beyond any file");
    MUST(file_reader_unchanged(r, &f));
    ck_assert_int_eq(truncate("in", 5), 0);
    MUST_FAIL(file_reader_get(r, 0, got, 8, &f), TABFT_INPUT, "5 were found; the file was cut short");
    MUST_FAIL(file_reader_unchanged(r, &f), TABFT_INPUT, "in: changed while it was read");
    file_reader_close(r);
    MUST(file_reader_open(&r, "in", &f));
    MUST(file_write_all("in", true, "01234", 5, &f)); /* another inode under the same name */
    MUST_FAIL(file_reader_unchanged(r, &f), TABFT_INPUT, "in: changed while it was read");
    file_reader_close(r);
    file_reader_close(NULL);
    leave_folder();
}
END_TEST

START_TEST(only_regular_files_are_read_at_positions)
{
    struct tabft_failure f = {0};
    struct file_reader *r;
    void *data;
    size_t n;
    enter_folder();
    ck_assert_int_eq(mkfifo("fifo", 0666), 0);
    MUST_FAIL(file_reader_open(&r, "fifo", &f), TABFT_INPUT, "fifo: is a FIFO");
    MUST_FAIL(file_reader_open(&r, ".", &f), TABFT_INPUT, ".: is a folder");
    MUST_FAIL(file_reader_open(&r, "none", &f), TABFT_INPUT, "none: cannot open: No such file");
    MUST(file_write_all("in", false, "0123456789", 10, &f));
    MUST_FAIL(file_read_all("in", 9, &data, &n, &f), TABFT_INPUT, "in: 10 bytes; at most 9");
    leave_folder();
}
END_TEST

static void *feed(void *argument)
{
    int fd = *(const int *)argument;
    for (int i = 0; i < 1000; i++) {
        char bytes[10];
        (void)snprintf(bytes, sizeof bytes, "%09d", i);
        if (write(fd, bytes, 9) != 9) break;
    }
    close(fd);
    return NULL;
}

START_TEST(streams_hide_short_reads)
{
    struct tabft_failure f = {0};
    struct file_stream *s;
    int ends[2];
    char path[32];
    static char got[10000];
    size_t n;
    pthread_t thread;
    enter_folder();
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, feed, &ends[1]), 0);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    MUST(file_stream_open(&s, path, &f));
    MUST(file_stream_read(s, got, 8000, &n, &f));
    ck_assert_uint_eq(n, 8000);
    MUST(file_stream_read(s, got + 8000, 2000, &n, &f));
    ck_assert_uint_eq(n, 1000);
    MUST(file_stream_read(s, got, 1, &n, &f));
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(memcmp(got + 8991, "000000999", 9), 0);
    file_stream_close(s);
    pthread_join(thread, NULL);
    MUST_FAIL(file_stream_open(&s, ".", &f), TABFT_INPUT, ".: is a folder");
    MUST_FAIL(file_stream_open(&s, "none", &f), TABFT_INPUT, "none: cannot open");
    leave_folder();
}
END_TEST

START_TEST(streams_see_a_changed_file)
{
    struct tabft_failure f = {0};
    struct file_stream *s;
    char got[20];
    size_t n;
    enter_folder();
    for (int longer = 0; longer < 2; longer++) {
        MUST(file_write_all("in", true, "0123456789", 10, &f));
        MUST(file_stream_open(&s, "in", &f));
        MUST(file_stream_read(s, got, 4, &n, &f));
        ck_assert_int_eq(truncate("in", longer ? 12 : 8), 0);
        MUST_FAIL(file_stream_read(s, got, 20, &n, &f), TABFT_INPUT, "in: changed while it was read");
        file_stream_close(s);
    }
    MUST(file_write_all("in", true, "", 0, &f));
    MUST(file_stream_open(&s, "in", &f));
    MUST(file_stream_read(s, got, 4, &n, &f));
    ck_assert_uint_eq(n, 0);
    file_stream_close(s);
    leave_folder();
}
END_TEST

/* A child that has a file open is sent `number`: it must die of it, and leave nothing. */
static int child_ended_by(int number, bool ignored)
{
    int ready[2], sent[2];
    ck_assert_int_eq(pipe(ready), 0);
    ck_assert_int_eq(pipe(sent), 0);
    pid_t child = fork();
    if (child == 0) {
        char s;
        struct tabft_failure f = {0};
        struct file_writer *w;
        if (ignored) signal(number, SIG_IGN);
        file_signals_install();
        if (file_writer_open(&w, "out", false, true, 0, &f) < 0 || file_writer_put(w, "x", 1, &f) < 0) _exit(99);
        if (write(ready[1], "r", 1) != 1) _exit(98);
        if (read(sent[0], &s, 1) != 1) _exit(96);
        _exit(file_writer_close(w, &f) == 0 ? 0 : 97);
    }
    char r;
    int status;
    ck_assert_int_eq(read(ready[0], &r, 1), 1);
    ck_assert_int_eq(kill(child, number), 0);
    ck_assert_int_eq(write(sent[1], "s", 1), 1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    for (size_t end = 0; end < 2; end++) {
        close(ready[end]);
        close(sent[end]);
    }
    return status;
}

START_TEST(signals_remove_temporary_files)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1, SIGXCPU};
    enter_folder();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int status = child_ended_by(numbers[i], false);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
        ck_assert_int_eq(entries(), 0);
    }
    int status = child_ended_by(SIGHUP, true); /* nohup */
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must_hold("out", "x", 1);
    leave_folder();
}
END_TEST

/* Whatever opens something next, a library say, must not get the number of a closed standard descriptor. */
START_TEST(closed_standard_descriptors_are_taken)
{
    pid_t child = fork();
    if (child == 0) {
        char byte;
        for (int fd = 0; fd <= 2; fd++) close(fd);
        file_signals_install();
        if (open("/dev/null", O_RDWR) <= 2) _exit(1);
        _exit(read(0, &byte, 1) == -1 && write(1, "x", 1) == -1 && write(2, "x", 1) == -1 ? 0 : 2);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

START_TEST(many_writers_at_once)
{
    struct tabft_failure f = {0};
    struct file_writer *w[65];
    char name[16];
    enter_folder();
    for (int i = 0; i < 64; i++) {
        (void)snprintf(name, sizeof name, "out%d", i);
        MUST(file_writer_open(&w[i], name, false, true, 0, &f));
    }
    MUST_FAIL(file_writer_open(&w[64], "out64", false, true, 0, &f), TABFT_SYSTEM, "too many files");
    for (int i = 0; i < 64; i++) MUST(file_writer_close(w[i], &f));
    ck_assert_int_eq(entries(), 64);
    leave_folder();
}
END_TEST

START_TEST(scratch_has_no_name)
{
    struct tabft_failure f = {0};
    struct file_scratch *s;
    static char data[100000], got[100000];
    enter_folder();
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7 >> 3);
    for (int k = 0; k < 2; k++) {
        MUST(file_scratch_open(&s, k == 0 ? "out" : "./out", &f));
        MUST(file_scratch_put(s, data, 60000, &f));
        MUST(file_scratch_put(s, data + 60000, sizeof data - 60000, &f));
        ck_assert_int_eq(entries(), 0);
        ck_assert_uint_eq(file_scratch_size(s), sizeof data);
        MUST(file_scratch_get(s, 0, got, sizeof got, &f));
        ck_assert(memcmp(got, data, sizeof data) == 0);
        MUST(file_scratch_get(s, 59999, got, 2, &f));
        ck_assert(memcmp(got, data + 59999, 2) == 0);
        ck_assert_int_lt(file_scratch_get(s, sizeof data - 1, got, 2, &f), 0);
        f = (struct tabft_failure){0};
        file_scratch_close(s);
    }
    MUST_FAIL(file_scratch_open(&s, "none/out", &f), TABFT_SYSTEM, "none: cannot make a scratch file");
    leave_folder();
}
END_TEST

/* Makes a folder and a file in it, after a moment. */
static void *make_late(void *unused)
{
    (void)usleep(100000);
    ck_assert_int_eq(mkdir("late", 0777), 0);
    (void)usleep(100000);
    const int fd = open("late/file", O_CREAT | O_WRONLY, 0666);
    ck_assert_int_ge(fd, 0);
    close(fd);
    return unused;
}

START_TEST(late_names_are_awaited)
{
    struct tabft_failure f = {0};
    pthread_t thread;
    enter_folder();
    ck_assert_int_eq(mkdir("folder", 0777), 0);
    MUST(file_await("folder", 0, &f));
    MUST(file_await("folder/..", 0, &f));
    MUST(file_await("/", 0, &f));
    MUST_FAIL(file_await("none", 0, &f), TABFT_SYSTEM,
              "none: was made by another rank and is not seen on this node after 0 s: No such file or directory");
    MUST_FAIL(file_await("none/file", 0, &f), TABFT_SYSTEM, "none/file: was made by another rank");
    ck_assert_int_eq(pthread_create(&thread, NULL, make_late, NULL), 0);
    MUST(file_await("late/file", 600, &f));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    /* What is wrong in another way is not waited for. */
    MUST(file_await("late/file/below", 600, &f));
    leave_folder();
}
END_TEST

UNIT_MAIN("file", writes_whole_files, rewrites_what_was_put, abandoned_leaves_nothing, existing_targets_are_refused,
          only_regular_files_are_targets, modes_follow_the_umask, file_size_limit_is_a_failure, reads_at_positions,
          only_regular_files_are_read_at_positions, streams_hide_short_reads, streams_see_a_changed_file,
          signals_remove_temporary_files, many_writers_at_once,
          closed_standard_descriptors_are_taken, scratch_has_no_name, late_names_are_awaited)
