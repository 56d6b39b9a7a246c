/* Runs a command and prints what it took: "peak in bytes, processor seconds". A small program, because what starts another counts
 * as a part of it until then. Ends with the command's status. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int status;
    struct rusage used;
    const pid_t child = argc > 1 ? fork() : -1;
    if (child == 0) {
        (void)execvp(argv[1], argv + 1);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        (void)fputs("used: cannot run the command\n", stderr);
        return 127;
    }
    const struct timeval *u = &used.ru_utime, *s = &used.ru_stime;
    printf("%lld %.2f\n", (long long)used.ru_maxrss << 10,
           (double)(u->tv_sec + s->tv_sec) + 1e-6 * (double)(u->tv_usec + s->tv_usec));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}
