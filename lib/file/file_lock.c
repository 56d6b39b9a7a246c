/* The lock of a folder: looking who has it, taking it, keeping it alive. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/file_lock_internal.h"

enum {
    BEAT_MS = 5000,
    STALE_MS = 45000,
    MOST = 16,     /* lock files in one folder: one, and what takers that were killed left */
    ATTEMPTS = 100 /* how often what was seen may have changed before a lock is taken */
};

struct file_lock {
    char *path; /* of the folder */
    int folder;
    uint64_t number;
    struct lock_holder self;
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
    struct lock_holder holder[MOST];
};

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
        uint64_t number = lock_number(name);
        struct lock_holder holder;
        bool gone;
        if (number == 0) continue;
        if (seen->n == MOST) FAIL(f, TABFT_INPUT, "%s: holds more than %d locks; remove .lock-* if nothing uses it", path, MOST);
        TRY(lock_read(folder, path, number, &holder, &gone, f));
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

static void pause_ms(unsigned ms)
{
    const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Watches a lock whose holder cannot be looked at. */
static int watch(struct file_lock *l, const struct file_lock_rules *rules, uint64_t number, const struct lock_holder *h,
                 enum lock_verdict *verdict, bool *gone, struct tabft_failure *f)
{
    int error = 0;
    char who[3 * LOCK_WORD], line[4 * LOCK_WORD];
    unsigned stale = rules->stale_ms > 0 ? rules->stale_ms : STALE_MS, look_ms = stale / 40 + 1;
    lock_describe(h, who, sizeof who);
    (void)snprintf(line, sizeof line, "%.200s: is locked by %.120s; waits up to %u s to see whether it lives", l->path, who,
                   (stale + 999) / 1000);
    if (rules->say != NULL) rules->say(rules->context, line);
    *verdict = LOCK_DEAD;
    for (unsigned waited = 0; waited < stale; waited += look_ms) {
        struct lock_holder now;
        pause_ms(look_ms);
        TRY(lock_read(l->folder, l->path, number, &now, gone, f));
        if (*gone) return 0;
        if (strcmp(now.nonce, h->nonce) == 0 && now.beat == h->beat) continue;
        *verdict = LOCK_LIVES;
        break;
    }
fail:
    return error;
}

/* ---- taking it ---- */

static bool was_seen(const struct seen *before, uint64_t number, const struct lock_holder *h)
{
    for (size_t i = 0; i < before->n; i++)
        if (before->number[i] == number && strcmp(before->holder[i].nonce, h->nonce) == 0) return true;
    return false;
}

static void remove_lock(const struct file_lock *l, uint64_t number)
{
    char name[LOCK_NAME_MAX];
    lock_name(number, name);
    (void)unlinkat(l->folder, name, 0);
}

/* Creates lock `number`. *taken stays false where another was faster. */
static int create(struct file_lock *l, uint64_t number, const struct seen *before, bool *taken,
                  struct tabft_failure *f)
{
    int error = 0;
    char name[LOCK_NAME_MAX], text[LOCK_TEXT_MAX], *path = NULL;
    struct tabft_failure refusal = {0};
    struct seen now;
    size_t size = strlen(l->path) + sizeof name + 1;
    lock_name(number, name);
    TRY(memory_new(&path, size, 1, "a lock's name", f));
    (void)snprintf(path, size, "%s/%s", l->path, name);
    int code = file_write_all(path, false, text, (size_t)lock_format(&l->self, text), &refusal);
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
    char who[3 * LOCK_WORD] = "", line[4 * LOCK_WORD];
    bool gone = false;
    TRY(look(l->folder, l->path, &seen, f));
    uint64_t highest = seen.n > 0 ? seen.number[seen.n - 1] : 0;
    if (highest > 0) {
        const struct lock_holder *h = &seen.holder[seen.n - 1];
        enum lock_verdict verdict = lock_judge(&l->self, h);
        lock_describe(h, who, sizeof who);
        if (verdict == LOCK_UNKNOWN) TRY(watch(l, rules, highest, h, &verdict, &gone, f));
        if (gone) return 0;
        if (verdict == LOCK_LIVES)
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
    char name[LOCK_NAME_MAX], text[LOCK_TEXT_MAX], digits[LOCK_BEAT_DIGITS + 1];
    off_t at = lock_format(&l->self, text) - LOCK_BEAT_TAIL;
    struct timespec until;
    lock_name(l->number, name);
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
        (void)snprintf(digits, sizeof digits, "%0*" PRIu64, LOCK_BEAT_DIGITS, ++l->self.beat);
        if (fd >= 0 && pwrite(fd, digits, LOCK_BEAT_DIGITS, at) == LOCK_BEAT_DIGITS) (void)fdatasync(fd);
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
    char name[LOCK_NAME_MAX];
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
    TRY(lock_describe_self(&l->self, folder, rules, f));
    for (int i = 0; i < ATTEMPTS && !taken; i++) TRY(try_once(l, rules, &taken, f));
    if (!taken) FAIL(f, TABFT_USE, "%s: its lock changes all the time; other runs start in it", folder);
    lock_name(l->number, name);
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
    char who[3 * LOCK_WORD] = "somebody";
    bool held = false;
    TRY(look(l->folder, l->path, &seen, f));
    for (size_t i = 0; i < seen.n; i++)
        held |= seen.number[i] == l->number && strcmp(seen.holder[i].nonce, l->self.nonce) == 0;
    if (seen.n > 0) lock_describe(&seen.holder[seen.n - 1], who, sizeof who);
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
    struct lock_holder h;
    struct tabft_failure ignored = {0};
    bool gone = false;
    if (l->number > 0 && lock_read(l->folder, l->path, l->number, &h, &gone, &ignored) == 0 && !gone &&
        strcmp(h.nonce, l->self.nonce) == 0)
        remove_lock(l, l->number);
    if (l->folder >= 0) (void)close(l->folder);
    free(l->path);
    free(l);
}
