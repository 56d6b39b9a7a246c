#include "eval/run_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "file/file.h"

enum { RUN_JSON_MAX = 1 << 24, METRICS_MAX = 1 << 30 };

int run_file_name(char **out, const char *folder, const char *name, struct tabft_failure *f)
{
    int error = 0;
    char *path;
    size_t size = strlen(folder) + strlen(name) + 2;
    TRY(memory_new(&path, size, 1, "a name", f));
    (void)snprintf(path, size, "%s/%s", folder, name);
    *out = path;
fail:
    return error;
}

int run_json_read(json_t **out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    void *text = NULL;
    size_t size;
    json_t *json = NULL;
    json_error_t where;
    TRY(file_read_all(path, RUN_JSON_MAX, &text, &size, f));
    json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL)
        FAIL(f, TABFT_INPUT, "%s:%d:%d: not JSON: %s; copy the run again", path, where.line, where.column, where.text);
    const json_t *schema = json_object_get(json, "schema");
    if (!json_is_integer(schema))
        FAIL(f, TABFT_INPUT, "%s: no whole number \"schema\" in it; not a run's record", path);
    if (json_integer_value(schema) != 1)
        FAIL(f, TABFT_INPUT, "%s: written by a later version (schema %lld); take that version's tabft-eval", path,
             (long long)json_integer_value(schema));
    if (!json_is_object(json_object_get(json, "train")) || !json_is_object(json_object_get(json, "options")))
        FAIL(f, TABFT_INPUT, "%s: no objects \"train\" and \"options\" in it; not a run's record", path);
    *out = json;
    json = NULL;
fail:
    json_decref(json);
    free(text);
    return error;
}

static int take_line(const char *path, size_t number, const char *text, size_t size, run_log_take *take, void *context,
                     struct tabft_failure *f)
{
    int error = 0;
    json_error_t where;
    json_t *line = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (line == NULL)
        FAIL(f, TABFT_INPUT, "%s:%zu:%d: not JSON: %s; copy the run again", path, number, where.column, where.text);
    const char *kind = json_string_value(json_object_get(line, "kind"));
    if (kind == NULL) FAIL(f, TABFT_INPUT, "%s:%zu: has no \"kind\"; not a run's log", path, number);
    TRY(take(context, path, number, kind, line, f));
fail:
    json_decref(line);
    return error;
}

int run_log_read(const char *path, bool grows, run_log_take *take, void *context, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    size_t size, number = 1;
    TRY(file_read_all(path, METRICS_MAX, (void **)&text, &size, f));
    for (size_t at = 0; at < size; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        if (end == NULL && grows) break;
        const size_t length = end != NULL ? (size_t)(end - (text + at)) : size - at;
        if (length > 0) TRY(take_line(path, number, text + at, length, take, context, f));
        at += length + 1;
    }
fail:
    free(text);
    return error;
}
