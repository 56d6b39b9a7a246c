/* Temporary files and signals: a fixed list that a handler can walk at any moment. A slot goes FREE -> FILLING -> LISTED ->
 * FREE; only the thread that took it writes to it, and the handler reads LISTED slots only. This list is the one piece of
 * state that cannot live in a caller's object: a signal handler is given nothing. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/file_internal.h"

enum { SLOTS = 64 };
enum { FREE, FILLING, LISTED };

static struct file_temporary slots[SLOTS];
static atomic_bool dying;

struct file_temporary *file_temporary_add(int folder, const char *name)
{
    for (int i = 0; i < SLOTS; i++) {
        int expected = FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &expected, FILLING)) continue;
        slots[i].owner = getpid();
        slots[i].folder = folder;
        (void)snprintf(slots[i].name, sizeof slots[i].name, "%s", name);
        atomic_store(&slots[i].state, LISTED);
        return &slots[i];
    }
    return NULL;
}

void file_temporary_remove(struct file_temporary *t)
{
    if (t != NULL) atomic_store(&t->state, FREE);
}

bool file_temporary_dying(void) { return atomic_load(&dying); }

/* Only async-signal-safe calls. */
void file_temporaries_remove(void)
{
    atomic_store(&dying, true);
    pid_t self = getpid();
    for (int i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].state) == LISTED && slots[i].owner == self) (void)unlinkat(slots[i].folder, slots[i].name, 0);
}

/* The default action, which ends the process, follows when the handler returns. */
static void remove_and_raise(int signal_number)
{
    file_temporaries_remove();
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    (void)sigaction(signal_number, &action, NULL);
    (void)raise(signal_number);
}

/* A closed 0, 1 or 2 would be given to the next file opened, and output meant for the user would land in it. Each gets a
 * descriptor on which the use it is meant for fails. */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
        int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (opened > STDERR_FILENO) close(opened);
    }
}

void file_signals_install(void)
{
    static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
    fill_standard_descriptors();
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&ignore.sa_mask);
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        struct sigaction old;
        if (sigaction(ending[i], NULL, &old) != 0 || old.sa_handler == SIG_IGN) continue; /* nohup stays nohup */
        struct sigaction action = {.sa_handler = remove_and_raise};
        sigfillset(&action.sa_mask);
        (void)sigaction(ending[i], &action, NULL);
    }
}

int file_stdout_close(struct tabft_failure *f)
{
    int error = 0;
    struct stat status;
    if (fflush(stdout) != 0 || ferror(stdout)) FAIL(f, TABFT_SYSTEM, "stdout: cannot write: %s", strerror(errno));
    /* Network file systems and quotas report a full disk only here. */
    if (fstat(STDOUT_FILENO, &status) == 0 && S_ISREG(status.st_mode) && fsync(STDOUT_FILENO) != 0 && errno != EINVAL && errno != EROFS && errno != EBADF)
        error = file_fail(f, "stdout", "cannot write to storage", errno, false);
fail:
    if (fclose(stdout) != 0 && error == 0) error = file_fail(f, "stdout", "cannot write", errno, false);
    return error;
}
