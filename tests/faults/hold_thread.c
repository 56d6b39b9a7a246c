/* hold_thread PID: stops the first thread of a process alone, its others go on; says "held" when it stands, and ends when the
 * process does. A stopped process (SIGSTOP) would have all its threads stand. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int count, char **arguments)
{
    int status;
    const pid_t pid = count == 2 ? (pid_t)atol(arguments[1]) : 0;
    if (pid <= 0) {
        fprintf(stderr, "usage: hold_thread PID\n");
        return 2;
    }
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0) {
        fprintf(stderr, "hold_thread: %ld cannot be traced: %s\n", (long)pid, strerror(errno));
        return 77;
    }
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
        printf("held\n");
        fflush(stdout);
    }
    return 0;
}
