#include "train/run_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "file/file.h"
#include "file/file_lock.h"

struct run_folder {
    char *path, *name; /* name: room for path/FILE */
    size_t name_size;
    bool replace; /* files of an older run, or of this one before it was resumed, may lie there */
    bool made;
    struct file_lock *lock;
    struct file_log *metrics;
};

static int system_failure(struct tabft_failure *f, const char *path, const char *action)
{
    return tabft_fail(f, TABFT_SYSTEM, "%s: %s: %s", path, action, strerror(errno));
}

static bool is_of_a_run(const char *name)
{
    static const char *const names[] = {"metrics.jsonl",  "model.safetensors",  "run.json",  "state-", ".lock-",
                                        ".metrics.jsonl", ".model.safetensors", ".run.json", "..lock-"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* What lies in the folder, as far as a refusal needs it. */
struct contents {
    char first[256]; /* a name, "" where the folder is empty */
    bool run;        /* something of a run */
};

static int read_contents(const char *path, struct contents *c, struct tabft_failure *f)
{
    DIR *folder = opendir(path);
    *c = (struct contents){0};
    if (folder == NULL) return system_failure(f, path, "cannot read the folder");
    for (const char *name; (name = file_folder_next(folder)) != NULL;) {
        if (strncmp(name, ".nfs", 4) == 0) continue; /* what NFS keeps of a file that was removed while it was open */
        c->run = c->run || is_of_a_run(name);
        if (c->first[0] == '\0' || name[0] != '.') (void)snprintf(c->first, sizeof c->first, "%s", name);
    }
    int error = errno == 0 ? 0 : system_failure(f, path, "cannot read the folder");
    (void)closedir(folder);
    return error;
}

int run_folder_check(const char *path, enum run_folder_use use, struct tabft_failure *f)
{
    int error = 0;
    struct stat status, link;
    struct contents c;
    while (stat(path, &status) != 0) {
        const int cause = errno;
        if (cause == ENOENT && lstat(path, &link) != 0) return 0;
        /* What is there now and no link was made between both looks, by a run that starts just now. */
        if (cause != ENOENT || S_ISLNK(link.st_mode))
            FAIL(f, TABFT_USE, "%s: cannot be the run's folder: %s", path, strerror(cause));
    }
    if (!S_ISDIR(status.st_mode)) FAIL(f, TABFT_USE, "%s: is no folder; name a new one for the run", path);
    if (use == RUN_FOLDER_FORCE) return 0;
    TRY(read_contents(path, &c, f));
    if (c.first[0] == '\0' || (use == RUN_FOLDER_RESUME && c.run)) return 0;
    if (use == RUN_FOLDER_RESUME)
        FAIL(f, TABFT_USE, "%s: holds %s and nothing of a run; name the run's folder, or a new one", path, c.first);
    FAIL(f, TABFT_USE, "%s: is used already (it holds %s); name another folder, or use %s--force to start anew", path,
         c.first, c.run ? "--resume to go on or " : "");
fail:
    return error;
}

static bool is_there(const char *path, const char *file)
{
    char name[4096];
    int size = snprintf(name, sizeof name, "%s/%s", path, file);
    return size > 0 && (size_t)size < sizeof name && access(name, F_OK) == 0;
}

bool run_folder_complete(const char *path)
{
    return is_there(path, "run.json") && !is_there(path, "metrics.jsonl.partial");
}

bool run_folder_has_rest(const char *path)
{
    DIR *folder = opendir(path);
    bool found = false;
    if (folder == NULL) return false;
    for (const char *name; (name = file_folder_next(folder)) != NULL;)
        found = found || name[0] == '.' || strncmp(name, "state-", 6) == 0;
    (void)closedir(folder);
    return found;
}

/* path/file in the room of r, valid until the next call. */
static const char *in_folder(struct run_folder *r, const char *file)
{
    (void)snprintf(r->name, r->name_size, "%s/%s", r->path, file);
    return r->name;
}

/* Slurm's job: a requeued one keeps its number and counts its restarts. */
static void name_job(char *job, size_t size, struct file_lock_rules *rules)
{
    const char *id = getenv("SLURM_JOB_ID"), *cluster = getenv("SLURM_CLUSTER_NAME");
    const char *restarts = getenv("SLURM_RESTART_COUNT");
    job[0] = '\0';
    if (id != NULL) (void)snprintf(job, size, "%s%s%s", cluster != NULL ? cluster : "", cluster != NULL ? "/" : "", id);
    rules->job = job;
    rules->attempt = restarts != NULL && *restarts >= '0' && *restarts <= '9' ? strtoull(restarts, NULL, 10) : 0;
}

int run_folder_open(struct run_folder **out, const char *path, enum run_folder_use use,
                    void (*say)(void *context, const char *line), void *context, struct tabft_failure *f)
{
    int error = 0;
    struct run_folder *r = NULL;
    struct file_lock_rules rules = {.say = say, .context = context};
    char job[128];
    *out = NULL;
    TRY(run_folder_check(path, use, f));
    TRY(memory_new(&r, 1, sizeof *r, "the run's folder", f));
    r->replace = use != RUN_FOLDER_NEW;
    TRY(memory_copy_string(&r->path, path, f));
    size_t size = strlen(path);
    while (size > 1 && r->path[size - 1] == '/') r->path[--size] = '\0';
    r->name_size = size + 64;
    TRY(memory_new(&r->name, r->name_size, 1, "the run's folder", f));
    r->made = mkdir(path, 0777) == 0;
    if (!r->made && errno != EEXIST) {
        error = system_failure(f, path, "cannot make the folder");
        goto fail;
    }
    name_job(job, sizeof job, &rules);
    TRY(file_lock_take(&r->lock, r->path, &rules, f));
    *out = r;
    return 0;
fail:
    run_folder_close(r);
    return error;
}

int run_folder_check_lock(struct run_folder *r, struct tabft_failure *f) { return file_lock_check(r->lock, f); }

int run_folder_start(struct run_folder *r, struct tabft_failure *f)
{
    return file_log_open(&r->metrics, in_folder(r, "metrics.jsonl"), r->replace, f);
}

int run_folder_continue(struct run_folder *r, struct tabft_failure *f)
{
    return file_log_continue(&r->metrics, in_folder(r, "metrics.jsonl"), f);
}

int run_folder_log(struct run_folder *r, const char *line, struct tabft_failure *f)
{
    return file_log_put(r->metrics, line, f);
}

uint64_t run_folder_logged(const struct run_folder *r) { return file_log_size(r->metrics); }

int run_folder_model(struct run_folder *r, const struct model *m, const float *values, char hex[65],
                     struct tabft_failure *f)
{
    int error = 0;
    struct ckpt *c = NULL;
    char line[128];
    if (r->replace && unlink(in_folder(r, "run.json")) != 0 && errno != ENOENT) {
        error = system_failure(f, r->name, "cannot remove the older run's");
        goto fail;
    }
    TRY(model_write(m, values, in_folder(r, "model.safetensors"), r->replace, f));
    TRY(ckpt_open(&c, in_folder(r, "model.safetensors"), f));
    ckpt_digest(c, hex);
    int size = snprintf(line, sizeof line, "%s  model.safetensors\n", hex);
    TRY(file_write_all(in_folder(r, "model.safetensors.sha256"), r->replace, line, (size_t)size, f));
fail:
    ckpt_close(c);
    return error;
}

int run_folder_finish(struct run_folder *r, const char *text, struct tabft_failure *f)
{
    int error = 0;
    struct file_log *metrics = r->metrics;
    r->metrics = NULL;
    TRY(file_log_close(metrics, f));
    TRY(file_write_all(in_folder(r, "run.json"), r->replace, text, strlen(text), f));
fail:
    return error;
}

void run_folder_close(struct run_folder *r)
{
    if (r == NULL) return;
    file_log_abandon(r->metrics);
    file_lock_release(r->lock);
    if (r->made) (void)rmdir(r->path); /* goes only while it is empty */
    free(r->path);
    free(r->name);
    free(r);
}
