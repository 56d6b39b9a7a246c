/* A lock file: what it says, who wrote it, and whether that one lives. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "file/file_lock_internal.h"

/* ---- the file ---- */

void lock_name(uint64_t number, char name[LOCK_NAME_MAX]) { (void)snprintf(name, LOCK_NAME_MAX, ".lock-%" PRIu64, number); }

uint64_t lock_number(const char *name)
{
    uint64_t number = 0;
    if (strncmp(name, ".lock-", 6) != 0 || name[6] < '1' || name[6] > '9') return 0;
    for (const char *p = name + 6; *p != '\0'; p++) {
        if (!isdigit((unsigned char)*p) || number > UINT64_MAX / 100) return 0;
        number = number * 10 + (uint64_t)(*p - '0');
    }
    return number;
}

int lock_format(const struct lock_holder *h, char text[LOCK_TEXT_MAX])
{
    return snprintf(text, LOCK_TEXT_MAX,
                    "TabFT lock 1\nnonce %s\nhost %s\nboot %s\nspace %s\npid %" PRIu64 "\nstarted %" PRIu64
                    "\njob %s\nattempt %" PRIu64 "\nbeat %0*" PRIu64 "\n",
                    h->nonce, h->host, h->boot, h->space, h->pid, h->started, h->job, h->attempt, LOCK_BEAT_DIGITS, h->beat);
}

static bool parse_holder(const char *text, struct lock_holder *h)
{
    int end = 0;
    int n = sscanf(text,
                   "TabFT lock 1\nnonce %32[0-9a-f]\nhost %95[!-~]\nboot %95[!-~]\nspace %95[!-~]\npid %" SCNu64
                   "\nstarted %" SCNu64 "\njob %95[!-~]\nattempt %" SCNu64 "\nbeat %" SCNu64 "%n",
                   h->nonce, h->host, h->boot, h->space, &h->pid, &h->started, h->job, &h->attempt, &h->beat, &end);
    return n == 9 && strcmp(text + end, "\n") == 0;
}

int lock_read(int folder, const char *path, uint64_t number, struct lock_holder *h, bool *gone, struct tabft_failure *f)
{
    int error = 0;
    char name[LOCK_NAME_MAX], text[LOCK_TEXT_MAX];
    lock_name(number, name);
    *gone = false;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    int cause = errno;
    if (fd >= 0) (void)close(fd);
    if (n < 0 && (cause == ENOENT || cause == ESTALE)) {
        *gone = true;
        return 0;
    }
    if (n < 0) FAIL(f, TABFT_SYSTEM, "%s/%s: cannot read the lock: %s", path, name, strerror(cause));
    text[n] = '\0';
    if (!parse_holder(text, h))
        FAIL(f, TABFT_INPUT, "%s/%s: is no lock of TabFT; remove it if nothing uses the folder", path, name);
fail:
    return error;
}

/* ---- who we are, and whether another lives ---- */

static void read_word(const char *path, char word[LOCK_WORD])
{
    FILE *file = fopen(path, "re");
    char *end = file == NULL ? NULL : fgets(word, LOCK_WORD, file);
    if (end == NULL) word[0] = '\0';
    word[strcspn(word, " \t\n")] = '\0';
    if (word[0] == '\0') (void)snprintf(word, LOCK_WORD, "-");
    if (file != NULL) (void)fclose(file);
}

/* State and start of a process; false where the system does not tell. */
static bool read_process(uint64_t pid, char *state, uint64_t *started)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%" PRIu64 "/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    const char *p = strrchr(text, ')'); /* the name may hold anything */
    if (p == NULL || p[1] != ' ' || p[2] == '\0') return false;
    *state = p[2];
    for (int field = 2; field < 22 && p != NULL; field++) p = strchr(p + 1, ' ');
    return p != NULL && sscanf(p, "%" SCNu64, started) == 1;
}

int lock_describe_self(struct lock_holder *h, const char *folder, const struct file_lock_rules *rules,
                       struct tabft_failure *f)
{
    uint64_t random[2];
    char state;
    *h = (struct lock_holder){.pid = (uint64_t)getpid(), .attempt = rules->attempt};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return file_fail(f, folder, "cannot draw a name for its lock", errno, false);
    (void)snprintf(h->nonce, sizeof h->nonce, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    if (gethostname(h->host, sizeof h->host - 1) != 0 || h->host[0] == '\0') (void)snprintf(h->host, LOCK_WORD, "-");
    for (char *p = h->host; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~') *p = '?';
    read_word("/proc/sys/kernel/random/boot_id", h->boot);
    ssize_t n = readlink("/proc/self/ns/pid", h->space, sizeof h->space - 1);
    if (n <= 0) (void)snprintf(h->space, LOCK_WORD, "-");
    (void)snprintf(h->job, LOCK_WORD, "%s", rules->job == NULL || rules->job[0] == '\0' ? "-" : rules->job);
    for (char *p = h->job; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~') *p = '?';
    (void)read_process(h->pid, &state, &h->started);
    return 0;
}

void lock_describe(const struct lock_holder *h, char *text, size_t size)
{
    if (strcmp(h->job, "-") == 0) (void)snprintf(text, size, "process %" PRIu64 " on %s", h->pid, h->host);
    else (void)snprintf(text, size, "process %" PRIu64 " on %s (job %s)", h->pid, h->host, h->job);
}

enum lock_verdict lock_judge(const struct lock_holder *self, const struct lock_holder *h)
{
    char state;
    uint64_t started;
    if (strcmp(h->boot, "-") != 0 && strcmp(h->space, "-") != 0 && strcmp(h->boot, self->boot) == 0 &&
        strcmp(h->space, self->space) == 0) {
        if (read_process(h->pid, &state, &started))
            return started == h->started && state != 'Z' && state != 'X' ? LOCK_LIVES : LOCK_DEAD;
        return kill((pid_t)h->pid, 0) != 0 && errno == ESRCH ? LOCK_DEAD : LOCK_UNKNOWN;
    }
    if (strcmp(h->job, "-") != 0 && strcmp(h->job, self->job) == 0 && h->attempt < self->attempt) return LOCK_DEAD;
    return LOCK_UNKNOWN;
}
