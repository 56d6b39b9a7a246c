#include "train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "file/file.h"

struct run_folder {
    char *path, *name; /* name: room for path/FILE */
    size_t name_size;
    bool force, made;
    struct file_log *metrics;
};

static int system_failure(struct tabft_failure *f, const char *path, const char *action)
{
    return tabft_fail(f, TABFT_SYSTEM, "%s: %s: %s", path, action, strerror(errno));
}

int run_folder_check(const char *path, bool force, struct tabft_failure *f)
{
    int error = 0;
    struct stat status;
    DIR *folder = NULL;
    if (stat(path, &status) != 0) {
        if (errno == ENOENT && lstat(path, &status) != 0) return 0;
        FAIL(f, TABFT_USE, "%s: cannot be the run's folder: %s", path, strerror(errno));
    }
    if (!S_ISDIR(status.st_mode)) FAIL(f, TABFT_USE, "%s: is no folder; name a new one for the run", path);
    if (force) return 0;
    folder = opendir(path);
    if (folder == NULL) {
        error = system_failure(f, path, "cannot read the folder");
        goto fail;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            FAIL(f, TABFT_USE, "%s: is used already (it holds %s); name another folder or use --force", path,
                 entry->d_name);
fail:
    if (folder != NULL) (void)closedir(folder);
    return error;
}

/* path/file in the room of r, valid until the next call. */
static const char *in_folder(struct run_folder *r, const char *file)
{
    (void)snprintf(r->name, r->name_size, "%s/%s", r->path, file);
    return r->name;
}

int run_folder_open(struct run_folder **out, const char *path, bool force, struct tabft_failure *f)
{
    int error = 0;
    struct run_folder *r = NULL;
    *out = NULL;
    TRY(run_folder_check(path, force, f));
    TRY(memory_new(&r, 1, sizeof *r, "the run's folder", f));
    r->force = force;
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
    TRY(file_log_open(&r->metrics, in_folder(r, "metrics.jsonl"), force, f));
    *out = r;
    return 0;
fail:
    run_folder_abandon(r);
    return error;
}

int run_folder_log(struct run_folder *r, const char *line, struct tabft_failure *f)
{
    return file_log_put(r->metrics, line, f);
}

int run_folder_model(struct run_folder *r, const struct model *m, const float *values, char hex[65],
                     struct tabft_failure *f)
{
    int error = 0;
    struct ckpt *c = NULL;
    char line[128];
    if (r->force && unlink(in_folder(r, "run.json")) != 0 && errno != ENOENT) {
        error = system_failure(f, r->name, "cannot remove the older run's");
        goto fail;
    }
    TRY(model_write(m, values, in_folder(r, "model.safetensors"), r->force, f));
    TRY(ckpt_open(&c, in_folder(r, "model.safetensors"), f));
    ckpt_digest(c, hex);
    int size = snprintf(line, sizeof line, "%s  model.safetensors\n", hex);
    TRY(file_write_all(in_folder(r, "model.safetensors.sha256"), r->force, line, (size_t)size, f));
fail:
    ckpt_close(c);
    return error;
}

int run_folder_close(struct run_folder *r, const char *text, struct tabft_failure *f)
{
    int error = 0;
    struct file_log *metrics = r->metrics;
    r->metrics = NULL;
    TRY(file_log_close(metrics, f));
    TRY(file_write_all(in_folder(r, "run.json"), r->force, text, strlen(text), f));
fail:
    r->made = false;
    run_folder_abandon(r);
    return error;
}

void run_folder_abandon(struct run_folder *r)
{
    if (r == NULL) return;
    file_log_abandon(r->metrics);
    if (r->made) (void)rmdir(r->path); /* goes only while it is empty */
    free(r->path);
    free(r->name);
    free(r);
}
