#include "file/file_lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_internal.h"

enum {
    BEAT_MS = 5000,
    STALE_MS = 45000,
    TEXT_MAX = 2048,
    MOST = 16,      /* lock files in one folder: one, and what takers that were killed left */
    ATTEMPTS = 100, /* how often what was seen may have changed before a lock is taken */
    WORD = 96
};

/* What a lock file says. */
struct holder {
    char nonce[33];
    char host[WORD], boot[WORD], space[WORD]; /* boot: this boot of the kernel; space: the process namespace */
    uint64_t pid, started;                    /* started: in the kernel's ticks, so that a pid used again is seen */
    char job[WORD];                           /* "-": none */
    uint64_t attempt, beat;
};

struct file_lock {
    char *path; /* of the folder */
    int folder;
    uint64_t number;
    struct holder self;
    struct file_temporary *listed;
    unsigned beat_ms;
    bool beating;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};

/* What lay in the folder: [n] locks by ascending number. */
struct seen {
    size_t n;
    uint64_t number[MOST];
    struct holder holder[MOST];
};

/* ---- the file ---- */

static void name_of(uint64_t number, char name[32]) { (void)snprintf(name, 32, ".lock-%" PRIu64, number); }

/* 0 for a name that is no lock's. */
static uint64_t number_of(const char *name)
{
    uint64_t number = 0;
    if (strncmp(name, ".lock-", 6) != 0 || name[6] < '1' || name[6] > '9') return 0;
    for (const char *p = name + 6; *p != '\0'; p++) {
        if (!isdigit((unsigned char)*p) || number > UINT64_MAX / 100) return 0;
        number = number * 10 + (uint64_t)(*p - '0');
    }
    return number;
}

/* The beat stands last with all its digits, so that it changes in place. */
enum { BEAT_DIGITS = 20, BEAT_TAIL = BEAT_DIGITS + 1 };

static int format_holder(const struct holder *h, char text[TEXT_MAX])
{
    return snprintf(text, TEXT_MAX,
                    "TabFT lock 1\nnonce %s\nhost %s\nboot %s\nspace %s\npid %" PRIu64 "\nstarted %" PRIu64
                    "\njob %s\nattempt %" PRIu64 "\nbeat %0*" PRIu64 "\n",
                    h->nonce, h->host, h->boot, h->space, h->pid, h->started, h->job, h->attempt, BEAT_DIGITS, h->beat);
}

static bool parse_holder(const char *text, struct holder *h)
{
    int end = 0;
    int n = sscanf(text,
                   "TabFT lock 1\nnonce %32[0-9a-f]\nhost %95[!-~]\nboot %95[!-~]\nspace %95[!-~]\npid %" SCNu64
                   "\nstarted %" SCNu64 "\njob %95[!-~]\nattempt %" SCNu64 "\nbeat %" SCNu64 "%n",
                   h->nonce, h->host, h->boot, h->space, &h->pid, &h->started, h->job, &h->attempt, &h->beat, &end);
    return n == 9 && strcmp(text + end, "\n") == 0;
}

/* Reads lock `number`. *gone: it is no longer there. A fresh open each time: on network file systems that is what brings
 * another node's writes. */
static int read_holder(int folder, const char *path, uint64_t number, struct holder *h, bool *gone,
                       struct tabft_failure *f)
{
    int error = 0;
    char name[32], text[TEXT_MAX];
    name_of(number, name);
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

static int look(int folder, const char *path, struct seen *seen, struct tabft_failure *f)
{
    int error = 0;
    *seen = (struct seen){0};
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list == NULL) {
        error = file_fail(f, path, "cannot read the folder", errno, false);
        if (fd >= 0) (void)close(fd);
        return error;
    }
    for (const char *name; (name = file_folder_next(list)) != NULL;) {
        uint64_t number = number_of(name);
        struct holder holder;
        bool gone;
        if (number == 0) continue;
        if (seen->n == MOST) FAIL(f, TABFT_INPUT, "%s: holds more than %d locks; remove .lock-* if nothing uses it", path, MOST);
        TRY(read_holder(folder, path, number, &holder, &gone, f));
        if (gone) continue;
        size_t at = seen->n++;
        for (; at > 0 && seen->number[at - 1] > number; at--) {
            seen->number[at] = seen->number[at - 1];
            seen->holder[at] = seen->holder[at - 1];
        }
        seen->number[at] = number;
        seen->holder[at] = holder;
    }
    if (errno != 0) error = file_fail(f, path, "cannot read the folder", errno, false);
fail:
    (void)closedir(list);
    return error;
}

/* ---- who we are, and whether another lives ---- */

static void read_word(const char *path, char word[WORD])
{
    FILE *file = fopen(path, "re");
    char *end = file == NULL ? NULL : fgets(word, WORD, file);
    if (end == NULL) word[0] = '\0';
    word[strcspn(word, " \t\n")] = '\0';
    if (word[0] == '\0') (void)snprintf(word, WORD, "-");
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

static int describe_self(struct holder *h, const char *folder, const struct file_lock_rules *rules,
                         struct tabft_failure *f)
{
    uint64_t random[2];
    char state;
    *h = (struct holder){.pid = (uint64_t)getpid(), .attempt = rules->attempt};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return file_fail(f, folder, "cannot draw a name for its lock", errno, false);
    (void)snprintf(h->nonce, sizeof h->nonce, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    if (gethostname(h->host, sizeof h->host - 1) != 0 || h->host[0] == '\0') (void)snprintf(h->host, WORD, "-");
    for (char *p = h->host; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~') *p = '?';
    read_word("/proc/sys/kernel/random/boot_id", h->boot);
    ssize_t n = readlink("/proc/self/ns/pid", h->space, sizeof h->space - 1);
    if (n <= 0) (void)snprintf(h->space, WORD, "-");
    (void)snprintf(h->job, WORD, "%s", rules->job == NULL || rules->job[0] == '\0' ? "-" : rules->job);
    for (char *p = h->job; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~') *p = '?';
    (void)read_process(h->pid, &state, &h->started);
    return 0;
}

static void describe(const struct holder *h, char *text, size_t size)
{
    if (strcmp(h->job, "-") == 0) (void)snprintf(text, size, "process %" PRIu64 " on %s", h->pid, h->host);
    else (void)snprintf(text, size, "process %" PRIu64 " on %s (job %s)", h->pid, h->host, h->job);
}

enum verdict { LIVES, DEAD, UNKNOWN };

static enum verdict judge(const struct holder *self, const struct holder *h)
{
    char state;
    uint64_t started;
    if (strcmp(h->boot, "-") != 0 && strcmp(h->space, "-") != 0 && strcmp(h->boot, self->boot) == 0 &&
        strcmp(h->space, self->space) == 0) {
        if (read_process(h->pid, &state, &started))
            return started == h->started && state != 'Z' && state != 'X' ? LIVES : DEAD;
        return kill((pid_t)h->pid, 0) != 0 && errno == ESRCH ? DEAD : UNKNOWN;
    }
    if (strcmp(h->job, "-") != 0 && strcmp(h->job, self->job) == 0 && h->attempt < self->attempt) return DEAD;
    return UNKNOWN;
}

static void pause_ms(unsigned ms)
{
    const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Watches a lock whose holder cannot be looked at. */
static int watch(struct file_lock *l, const struct file_lock_rules *rules, uint64_t number, const struct holder *h,
                 enum verdict *verdict, bool *gone, struct tabft_failure *f)
{
    int error = 0;
    char who[3 * WORD], line[4 * WORD];
    unsigned stale = rules->stale_ms > 0 ? rules->stale_ms : STALE_MS, look_ms = stale / 40 + 1;
    describe(h, who, sizeof who);
    (void)snprintf(line, sizeof line, "%.200s: is locked by %.120s; waits up to %u s to see whether it lives", l->path, who,
                   (stale + 999) / 1000);
    if (rules->say != NULL) rules->say(rules->context, line);
    *verdict = DEAD;
    for (unsigned waited = 0; waited < stale; waited += look_ms) {
        struct holder now;
        pause_ms(look_ms);
        TRY(read_holder(l->folder, l->path, number, &now, gone, f));
        if (*gone) return 0;
        if (strcmp(now.nonce, h->nonce) == 0 && now.beat == h->beat) continue;
        *verdict = LIVES;
        break;
    }
fail:
    return error;
}

/* ---- taking it ---- */

static bool was_seen(const struct seen *before, uint64_t number, const struct holder *h)
{
    for (size_t i = 0; i < before->n; i++)
        if (before->number[i] == number && strcmp(before->holder[i].nonce, h->nonce) == 0) return true;
    return false;
}

static void remove_lock(const struct file_lock *l, uint64_t number)
{
    char name[32];
    name_of(number, name);
    (void)unlinkat(l->folder, name, 0);
}

/* Creates lock `number`. *taken stays false where another was faster. */
static int create(struct file_lock *l, uint64_t number, const struct seen *before, bool *taken,
                  struct tabft_failure *f)
{
    int error = 0;
    char name[32], text[TEXT_MAX], *path = NULL;
    struct tabft_failure refusal = {0};
    struct seen now;
    size_t size = strlen(l->path) + sizeof name + 1;
    name_of(number, name);
    TRY(memory_new(&path, size, 1, "a lock's name", f));
    (void)snprintf(path, size, "%s/%s", l->path, name);
    int code = file_write_all(path, false, text, (size_t)format_holder(&l->self, text), &refusal);
    if (code == TABFT_USE) goto fail;
    error = look(l->folder, l->path, &now, f);
    bool alone = error == 0;
    for (size_t i = 0; i < now.n && alone; i++)
        alone = now.number[i] == number || was_seen(before, now.number[i], &now.holder[i]);
    if (code < 0) {
        /* A holder that came between may have cleared the temporary file away. */
        bool other = error == 0 && (!alone || (now.n > 0 && now.number[now.n - 1] == number));
        if (other) goto fail;
        error = 0;
        FAIL(f, code, "%s", refusal.message);
    }
    /* Whoever saw less or more than we did created another number: then neither has it. */
    l->number = number;
    if (!alone) {
        remove_lock(l, number);
        TRY(error);
        FAIL(f, TABFT_USE, "%s: another run has just started in it; wait for its end, or name another folder", l->path);
    }
    *taken = true;
fail:
    free(path);
    return error;
}

/* One look at the folder and what follows from it. */
static int try_once(struct file_lock *l, const struct file_lock_rules *rules, bool *taken, struct tabft_failure *f)
{
    int error = 0;
    struct seen seen;
    char who[3 * WORD] = "", line[4 * WORD];
    bool gone = false;
    TRY(look(l->folder, l->path, &seen, f));
    uint64_t highest = seen.n > 0 ? seen.number[seen.n - 1] : 0;
    if (highest > 0) {
        const struct holder *h = &seen.holder[seen.n - 1];
        enum verdict verdict = judge(&l->self, h);
        describe(h, who, sizeof who);
        if (verdict == UNKNOWN) TRY(watch(l, rules, highest, h, &verdict, &gone, f));
        if (gone) return 0;
        if (verdict == LIVES)
            FAIL(f, TABFT_USE, "%s: is used by %s; wait for its end, or name another folder", l->path, who);
    }
    TRY(create(l, highest + 1, &seen, taken, f));
    if (!*taken || highest == 0) return 0;
    (void)snprintf(line, sizeof line, "%.200s: takes over the lock of %.120s, which is gone", l->path, who);
    if (rules->say != NULL) rules->say(rules->context, line);
    for (size_t i = 0; i < seen.n; i++) remove_lock(l, seen.number[i]);
fail:
    return error;
}

/* ---- the beat ---- */

static void *beat(void *argument)
{
    struct file_lock *l = argument;
    char name[32], text[TEXT_MAX], digits[BEAT_DIGITS + 1];
    off_t at = format_holder(&l->self, text) - BEAT_TAIL;
    struct timespec until;
    name_of(l->number, name);
    int fd = file_descriptor_above_stdio(openat(l->folder, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&l->mutex);
    while (!l->done) {
        until.tv_sec += l->beat_ms / 1000;
        until.tv_nsec += (long)(l->beat_ms % 1000) * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        int woken = 0;
        while (!l->done && woken == 0) woken = pthread_cond_timedwait(&l->wake, &l->mutex, &until);
        if (l->done) break;
        pthread_mutex_unlock(&l->mutex);
        /* A beat that cannot be written shows to others as one that was not made; file_lock_check finds out. */
        (void)snprintf(digits, sizeof digits, "%0*" PRIu64, BEAT_DIGITS, ++l->self.beat);
        if (fd >= 0 && pwrite(fd, digits, BEAT_DIGITS, at) == BEAT_DIGITS) (void)fdatasync(fd);
        pthread_mutex_lock(&l->mutex);
    }
    pthread_mutex_unlock(&l->mutex);
    if (fd >= 0) (void)close(fd);
    return NULL;
}

static int start_beat(struct file_lock *l, struct tabft_failure *f)
{
    sigset_t all, old;
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&l->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&l->mutex, NULL);
    sigfillset(&all); /* signals go to the threads that look after them */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int cause = pthread_create(&l->thread, NULL, beat, l);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    l->beating = cause == 0;
    return cause == 0 ? 0 : file_fail(f, l->path, "cannot start the thread of its lock", cause, false);
}

int file_lock_take(struct file_lock **out, const char *folder, const struct file_lock_rules *rules,
                   struct tabft_failure *f)
{
    int error = 0;
    struct file_lock *l = NULL;
    bool taken = false;
    char name[32];
    *out = NULL;
    TRY(memory_new(&l, 1, sizeof *l, "a lock", f));
    l->folder = -1;
    l->beat_ms = rules->beat_ms > 0 ? rules->beat_ms : BEAT_MS;
    TRY(memory_copy_string(&l->path, folder, f));
    l->folder = file_descriptor_above_stdio(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (l->folder < 0) {
        error = file_fail(f, folder, "cannot open the folder", errno, false);
        goto fail;
    }
    TRY(describe_self(&l->self, folder, rules, f));
    for (int i = 0; i < ATTEMPTS && !taken; i++) TRY(try_once(l, rules, &taken, f));
    if (!taken) FAIL(f, TABFT_USE, "%s: its lock changes all the time; other runs start in it", folder);
    name_of(l->number, name);
    l->listed = file_temporary_add(l->folder, name);
    TRY(start_beat(l, f));
    *out = l;
    return 0;
fail:
    if (!taken && l != NULL) l->number = 0;
    file_lock_release(l);
    return error;
}

int file_lock_check(struct file_lock *l, struct tabft_failure *f)
{
    int error = 0;
    struct seen seen;
    char who[3 * WORD] = "somebody";
    bool held = false;
    TRY(look(l->folder, l->path, &seen, f));
    for (size_t i = 0; i < seen.n; i++)
        held |= seen.number[i] == l->number && strcmp(seen.holder[i].nonce, l->self.nonce) == 0;
    if (seen.n > 0) describe(&seen.holder[seen.n - 1], who, sizeof who);
    if (!held || seen.number[seen.n - 1] != l->number)
        FAIL(f, TABFT_USE,
             "%s: was taken over by %s while this run did not move (was it suspended?); this run ends and leaves it",
             l->path, held || seen.n > 0 ? who : "somebody");
fail:
    return error;
}

void file_lock_release(struct file_lock *l)
{
    if (l == NULL) return;
    if (l->beating) {
        pthread_mutex_lock(&l->mutex);
        l->done = true;
        pthread_cond_signal(&l->wake);
        pthread_mutex_unlock(&l->mutex);
        (void)pthread_join(l->thread, NULL);
        pthread_mutex_destroy(&l->mutex);
        pthread_cond_destroy(&l->wake);
    }
    file_temporary_remove(l->listed);
    /* Taken over and ended by its successor, it may be a third one's by now. */
    struct holder h;
    struct tabft_failure ignored = {0};
    bool gone = false;
    if (l->number > 0 && read_holder(l->folder, l->path, l->number, &h, &gone, &ignored) == 0 && !gone &&
        strcmp(h.nonce, l->self.nonce) == 0)
        remove_lock(l, l->number);
    if (l->folder >= 0) (void)close(l->folder);
    free(l->path);
    free(l);
}
