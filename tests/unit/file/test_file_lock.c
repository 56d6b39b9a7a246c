/* A folder has one user at a time: a living one keeps it, a dead one's lock is taken over by one process alone, and who
 * was taken over finds out. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file/file.h"
#include "file/file_lock.h"
#include "unit.h"

static char folder[] = "/tmp/tabft-lock-XXXXXX", said[512];

static void remember(void *context, const char *line)
{
    (void)context;
    (void)snprintf(said, sizeof said, "%s", line);
}

/* Short times: what is tested is not how long they are. */
static const struct file_lock_rules rules = {.beat_ms = 20, .stale_ms = 1500, .say = remember};

static void start(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    said[0] = '\0';
}

/* Files in the folder. */
static size_t count(void)
{
    size_t n = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(list);
    return n;
}

static void finish(void)
{
    ck_assert_uint_eq(count(), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}

static char *read_lock(unsigned number)
{
    struct tabft_failure f = {0};
    char path[64];
    void *text;
    size_t size;
    (void)snprintf(path, sizeof path, "%s/.lock-%u", folder, number);
    MUST(file_read_all(path, 4096, &text, &size, &f));
    char *copy = calloc(size + 1, 1);
    memcpy(copy, text, size);
    free(text);
    return copy;
}

/* A lock whose holder runs under another kernel. */
static void write_foreign(unsigned number, const char *job, unsigned attempt, uint64_t beat)
{
    struct tabft_failure f = {0};
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "%s/.lock-%u", folder, number);
    int size = snprintf(text, sizeof text,
                        "TabFT lock 1\nnonce 00000000000000000000000000000000\nhost far\nboot other\nspace pid:[1]\n"
                        "pid 12\nstarted 34\njob %s\nattempt %u\nbeat %020" PRIu64 "\n",
                        job, attempt, beat);
    MUST(file_write_all(path, true, text, (size_t)size, &f));
}

START_TEST(the_living_keeps_it)
{
    struct tabft_failure f = {0};
    struct file_lock *l, *other;
    char pid[64];
    start();
    MUST(file_lock_take(&l, folder, &rules, &f));
    (void)snprintf(pid, sizeof pid, "is used by process %d on ", (int)getpid());
    MUST_FAIL(file_lock_take(&other, folder, &rules, &f), TABFT_USE, pid);
    MUST(file_lock_check(l, &f));
    ck_assert_uint_eq(count(), 1);
    file_lock_release(l);
    ck_assert_uint_eq(count(), 0);
    MUST(file_lock_take(&l, folder, &rules, &f));
    file_lock_release(l);
    file_lock_release(NULL);
    finish();
}
END_TEST

START_TEST(it_beats)
{
    struct tabft_failure f = {0};
    struct file_lock *l;
    start();
    MUST(file_lock_take(&l, folder, &rules, &f));
    char *first = read_lock(1), *later = NULL;
    for (int i = 0; i < 1000; i++) {
        free(later);
        later = read_lock(1);
        if (strcmp(first, later) != 0) break;
        usleep(10000);
    }
    ck_assert_str_ne(first, later);
    ck_assert_uint_eq(strlen(first), strlen(later));
    free(first);
    free(later);
    file_lock_release(l);
    finish();
}
END_TEST

/* A child that takes the lock and ends without giving it back, in one of the ways of dying. */
static void die_with_lock(bool reap)
{
    int ends[2];
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct tabft_failure f = {0};
        struct file_lock *l;
        bool taken = file_lock_take(&l, folder, &rules, &f) == 0;
        if (write(ends[1], taken ? "t" : "f", 1) == 1) raise(SIGKILL);
        _exit(1);
    }
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    ck_assert_int_eq(byte, 't');
    close(ends[0]);
    close(ends[1]);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | (reap ? 0 : WNOWAIT)), 0);
}

START_TEST(the_dead_lose_it)
{
    struct tabft_failure f = {0};
    struct file_lock *l;
    start();
    for (int reap = 0; reap < 2; reap++) {
        die_with_lock(reap == 1);
        ck_assert_uint_eq(count(), 1);
        MUST(file_lock_take(&l, folder, &rules, &f));
        ck_assert_ptr_nonnull(strstr(said, "takes over the lock of process "));
        ck_assert_uint_eq(count(), 1);
        MUST(file_lock_check(l, &f));
        file_lock_release(l);
    }
    finish();
}
END_TEST

START_TEST(a_foreign_one_is_watched)
{
    struct tabft_failure f = {0};
    struct file_lock *l;
    start();
    write_foreign(7, "tabft/5", 1, 3);
    MUST(file_lock_take(&l, folder, &rules, &f));
    ck_assert_ptr_nonnull(strstr(said, "takes over the lock of process 12 on far (job tabft/5), which is gone"));
    ck_assert_uint_eq(count(), 1);
    file_lock_release(l);
    ck_assert_uint_eq(count(), 0);

    write_foreign(1, "-", 0, 3);
    pid_t child = fork();
    if (child == 0)
        for (uint64_t beat = 4;; beat++) {
            write_foreign(1, "-", 0, beat);
            usleep(5000);
        }
    MUST_FAIL(file_lock_take(&l, folder, &rules, &f), TABFT_USE, "is used by process 12 on far; wait");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    ck_assert_ptr_nonnull(strstr(said, "is locked by process 12 on far; waits up to 2 s"));
    /* Killed while it wrote it may have left a temporary file. */
    MUST(file_lock_take(&l, folder, &rules, &f));
    file_lock_release(l);
    DIR *list = opendir(folder);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (strstr(entry->d_name, ".tmp") != NULL) unlinkat(dirfd(list), entry->d_name, 0);
    closedir(list);
    finish();
}
END_TEST

START_TEST(a_requeued_job_does_not_wait_for_itself)
{
    struct tabft_failure f = {0};
    struct file_lock *l;
    struct file_lock_rules requeued = {.job = "tabft/5", .attempt = 2, .stale_ms = 3600000, .say = remember};
    start();
    write_foreign(1, "tabft/5", 1, 3);
    MUST(file_lock_take(&l, folder, &requeued, &f));
    ck_assert_ptr_nonnull(strstr(said, "takes over"));
    file_lock_release(l);
    finish();
}
END_TEST

START_TEST(who_was_taken_over_finds_out)
{
    struct tabft_failure f = {0};
    struct file_lock *l;
    start();
    MUST(file_lock_take(&l, folder, &rules, &f));
    write_foreign(2, "tabft/9", 0, 1);
    MUST_FAIL(file_lock_check(l, &f), TABFT_USE, "taken over by process 12 on far (job tabft/9)");
    file_lock_release(l);
    ck_assert_uint_eq(count(), 1);
    char path[64];
    (void)snprintf(path, sizeof path, "%s/.lock-2", folder);
    ck_assert_int_eq(unlink(path), 0);
    /* Its name is used again: the lock is another's and stays. */
    MUST(file_lock_take(&l, folder, &rules, &f));
    write_foreign(1, "-", 0, 1);
    MUST_FAIL(file_lock_check(l, &f), TABFT_USE, "taken over by process 12 on far while");
    file_lock_release(l);
    ck_assert_uint_eq(count(), 1);
    (void)snprintf(path, sizeof path, "%s/.lock-1", folder);
    ck_assert_int_eq(unlink(path), 0);
    finish();
}
END_TEST

START_TEST(what_is_no_lock_is_refused)
{
    struct tabft_failure f = {0};
    struct file_lock *l;
    char path[64];
    start();
    (void)snprintf(path, sizeof path, "%s/.lock-1", folder);
    MUST(file_write_all(path, false, "hello\n", 6, &f));
    MUST_FAIL(file_lock_take(&l, folder, &rules, &f), TABFT_INPUT, ".lock-1: is no lock of TabFT; remove it");
    ck_assert_ptr_null(l);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    MUST_FAIL(file_lock_take(&l, folder, &rules, &f), TABFT_SYSTEM, ".lock-1: cannot read the lock");
    ck_assert_int_eq(unlink(path), 0);
    /* Names that only look like one. */
    (void)snprintf(path, sizeof path, "%s/.lock-01", folder);
    MUST(file_write_all(path, false, "hello\n", 6, &f));
    MUST(file_lock_take(&l, folder, &rules, &f));
    file_lock_release(l);
    ck_assert_int_eq(unlink(path), 0);
    MUST_FAIL(file_lock_take(&l, "/nonexistent/run", &rules, &f), TABFT_SYSTEM, "/nonexistent/run: cannot open");
    finish();
}
END_TEST

/* Eight processes want a lock that is free or a dead one's: never two have it. */
START_TEST(one_of_many_gets_it)
{
    enum { RIVALS = 8, ROUNDS = 40 };
    start();
    for (int round = 0; round < ROUNDS; round++) {
        int go[2], got[2];
        char result[RIVALS];
        pid_t child[RIVALS];
        if (round % 2 == 1) die_with_lock(true);
        ck_assert_int_eq(pipe(go), 0);
        ck_assert_int_eq(pipe(got), 0);
        for (int i = 0; i < RIVALS; i++) {
            child[i] = fork();
            if (child[i] != 0) continue;
            struct tabft_failure f = {0};
            struct file_lock *l;
            char byte;
            close(go[1]);
            if (read(go[0], &byte, 1) != 0) _exit(1);
            bool taken = file_lock_take(&l, folder, &rules, &f) == 0;
            if (write(got[1], taken ? "t" : "f", 1) != 1) _exit(1);
            pause(); /* holds it until all have tried */
            _exit(0);
        }
        close(go[0]);
        close(go[1]);
        int taken = 0;
        for (int i = 0; i < RIVALS; i++) {
            ck_assert_int_eq(read(got[0], &result[i], 1), 1);
            taken += result[i] == 't';
        }
        for (int i = 0; i < RIVALS; i++) {
            kill(child[i], SIGKILL);
            waitpid(child[i], NULL, 0);
        }
        close(got[0]);
        close(got[1]);
        ck_assert_int_le(taken, 1);
        struct tabft_failure f = {0};
        struct file_lock *l;
        MUST(file_lock_take(&l, folder, &rules, &f));
        file_lock_release(l);
    }
    finish();
}
END_TEST

UNIT_MAIN("file_lock", the_living_keeps_it, it_beats, the_dead_lose_it, a_foreign_one_is_watched,
          a_requeued_job_does_not_wait_for_itself, who_was_taken_over_finds_out, what_is_no_lock_is_refused,
          one_of_many_gets_it)
