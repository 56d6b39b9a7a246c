#include "base/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* A signal handler is given nothing, so what it needs lies here. */
static atomic_int requested;
static atomic_uint limit;
static atomic_bool limited; /* the alarm is set: a second SIGTERM does not put it off */
static struct sigaction when_late;

static void remember(int signal_number)
{
    int cause = errno;
    atomic_store(&requested, signal_number);
    unsigned seconds = atomic_load(&limit);
    if (signal_number == SIGTERM && seconds > 0 && !atomic_exchange(&limited, true)) (void)alarm(seconds);
    errno = cause;
}

static void end_late(int signal_number)
{
    static const char line[] = ": was asked by SIGTERM to stop and is not done in time; ends now\n";
    const char *name = program_invocation_short_name;
    if (write(STDERR_FILENO, name, strlen(name)) < 0 || write(STDERR_FILENO, line, sizeof line - 1) < 0)
        (void)0; /* nobody listens */
    (void)sigaction(SIGALRM, &when_late, NULL);
    (void)raise(signal_number);
}

static void set_handler(int signal_number, void (*handler)(int), struct sigaction *old)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    if (sigaction(signal_number, NULL, old) != 0 || old->sa_handler == SIG_IGN || old->sa_handler == handler) return;
    (void)sigaction(signal_number, &action, NULL);
}

void stop_catch(unsigned term_seconds)
{
    struct sigaction old;
    atomic_store(&limit, term_seconds);
    set_handler(SIGALRM, end_late, &old);
    if (old.sa_handler != end_late) when_late = old;
    set_handler(SIGUSR1, remember, &old);
    set_handler(SIGTERM, remember, &old);
}

int stop_requested(void) { return atomic_load(&requested); }
