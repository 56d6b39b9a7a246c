/* The checksum that TabFT's own checkpoints have beside them: a crash of shared storage can leave a file of the right
 * length with zeros in it, which no format check sees. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "ckpt/compare.h"
#include "file/file.h"

enum { SIDECAR_MAX = 1 << 16, RUN_MAX = 1 << 24 };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int judge(const struct ckpt *c, const char *recorded, const char *where, struct tabft_failure *f)
{
    char found[65];
    ckpt_digest(c, found);
    if (strlen(recorded) == 64 && memcmp(recorded, found, 64) == 0) return 0;
    return tabft_fail(f, TABFT_INPUT, "%s: damaged or replaced: SHA-256 is %s, %s says %.64s; take another copy",
                      ckpt_path(c), found, where, recorded);
}

/* Finds the line of the file in what `sha256sum` writes: 64 hex digits, a space, a space or '*', the name. */
static int check_sidecar(const struct ckpt *c, const char *sidecar, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL, *raw = NULL, *rest = NULL;
    size_t size;
    TRY(file_read_all(sidecar, SIDECAR_MAX, (void **)&raw, &size, f));
    TRY(memory_new(&text, size + 1, 1, "a checksum file", f));
    memcpy(text, raw, size);
    for (char *line = strtok_r(text, "\r\n", &rest); line != NULL; line = strtok_r(NULL, "\r\n", &rest)) {
        if (strlen(line) < 67 || line[64] != ' ' || strcmp(base_name(line + 66), base_name(ckpt_path(c))) != 0)
            continue;
        line[64] = '\0';
        TRY(judge(c, line, sidecar, f));
        goto fail;
    }
    FAIL(f, TABFT_INPUT, "%s: has no line for %s; write it anew with sha256sum", sidecar, base_name(ckpt_path(c)));
fail:
    free(text);
    free(raw);
    return error;
}

static int check_run(const struct ckpt *c, const char *path, struct tabft_failure *f)
{
    int error = 0;
    void *text = NULL;
    size_t size;
    json_t *run = NULL;
    json_error_t where;
    TRY(file_read_all(path, RUN_MAX, &text, &size, f));
    run = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    const char *recorded = json_string_value(json_object_get(run, "model_sha256"));
    if (recorded == NULL) FAIL(f, TABFT_INPUT, "%s: no \"model_sha256\" in it; not a run's record", path);
    TRY(judge(c, recorded, path, f));
fail:
    json_decref(run);
    free(text);
    return error;
}

int ckpt_check_digest(const struct ckpt *c, const char **where, struct tabft_failure *f)
{
    int error = 0;
    const char *path = ckpt_path(c), *name = base_name(path);
    char *beside = NULL;
    size_t length = strlen(path);
    *where = NULL;
    TRY(memory_new(&beside, length + sizeof "run.json.sha256", 1, "a name", f));
    memcpy(beside, path, length);
    memcpy(beside + length, ".sha256", sizeof ".sha256");
    if (access(beside, F_OK) == 0) {
        TRY(check_sidecar(c, beside, f));
        *where = "PATH.sha256";
        goto fail;
    }
    memcpy(beside + (name - path), "run.json", sizeof "run.json");
    if (strcmp(name, "model.safetensors") == 0 && access(beside, F_OK) == 0) {
        TRY(check_run(c, beside, f));
        *where = "run.json";
    }
fail:
    free(beside);
    return error;
}
