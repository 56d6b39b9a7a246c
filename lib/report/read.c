/* Runs, from their folders: run.json where there is one, and the log. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "file/file.h"
#include "report/report_internal.h"

enum { RUN_JSON_MAX = 1 << 24, METRICS_MAX = 1 << 30 };

const char *const report_phase_name[N_PHASES] = {"preprocess", "forward", "backward", "reduce", "optimiser"};

/* PATH/NAME in *out. */
static int join(char **out, const char *path, const char *name, struct tabft_failure *f)
{
    int error = 0;
    char *joined;
    size_t size;
    if (!size_add(strlen(path), strlen(name) + 2, &size)) FAIL(f, TABFT_USE, "a name is too long");
    TRY(memory_new(&joined, size, 1, "a name", f));
    (void)snprintf(joined, size, "%s/%s", path, name);
    *out = joined;
fail:
    return error;
}

static bool exists(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 || errno != ENOENT;
}

static int read_record(struct report_run *r, const char *path, struct tabft_failure *f)
{
    int error = 0;
    void *text = NULL;
    size_t size;
    json_error_t where;
    TRY(file_read_all(path, RUN_JSON_MAX, &text, &size, f));
    r->record = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (r->record == NULL)
        FAIL(f, TABFT_INPUT, "%s:%d:%d: not JSON: %s; name the folder of a run", path, where.line, where.column, where.text);
    const json_t *schema = json_object_get(r->record, "schema");
    if (!json_is_integer(schema) || !json_is_object(json_object_get(r->record, "options")) ||
        !json_is_object(json_object_get(r->record, "train")))
        FAIL(f, TABFT_INPUT, "%s: not a run's record; name the folder of a run", path);
    if (json_integer_value(schema) != 1)
        FAIL(f, TABFT_INPUT, "%s: written by a later version (schema %lld); take that version's tabft-eval", path,
             (long long)json_integer_value(schema));
fail:
    free(text);
    return error;
}

static int add_point(struct series *s, double x, double y, struct tabft_failure *f)
{
    if (s->n == s->room) {
        const size_t room = s->room > 0 ? 2 * s->room : 256;
        int error = memory_grow(&s->point, room, sizeof *s->point, "a run's log", f);
        if (error < 0) return error;
        s->room = room;
    }
    s->point[s->n++] = (struct point){x, y};
    return 0;
}

/* A number of a log's line; null is none. */
static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int take_step(struct report_run *r, const json_t *line, struct tabft_failure *f)
{
    int error = 0;
    const double step = number_at(line, "step"), epoch = number_at(line, "epoch"), peak = number_at(line, "peak_bytes");
    const json_t *phases = json_object_get(line, "phases");
    TRY(add_point(&r->loss, step, number_at(line, "loss"), f));
    TRY(add_point(&r->seconds, step, number_at(line, "seconds"), f));
    for (size_t i = 0; i < N_PHASES; i++) {
        const double seconds = number_at(phases, report_phase_name[i]);
        if (seconds > 0) r->phase[i] += seconds;
    }
    if (epoch > (double)r->n_epochs && epoch < 1e9) r->n_epochs = (size_t)epoch;
    if (peak > (double)r->peak_bytes && peak < 0x1p63) r->peak_bytes = (uint64_t)peak;
fail:
    return error;
}

/* The scores of a validation; the first of them is drawn where run.json does not name another. */
static int take_validation(struct report_run *r, json_t *line, struct tabft_failure *f)
{
    static const char *const others[] = {"kind", "step", "epoch"};
    const char *asked = json_string_value(json_object_get(r->record, "metric")), *key;
    json_t *value;
    if (r->metric[0] == '\0' && asked != NULL) (void)snprintf(r->metric, sizeof r->metric, "%s", asked);
    if (r->metric[0] == '\0') {
        json_object_foreach(line, key, value) {
            bool other = false;
            for (size_t i = 0; i < sizeof others / sizeof *others; i++) other = other || strcmp(key, others[i]) == 0;
            if (other) continue;
            (void)snprintf(r->metric, sizeof r->metric, "%s", key);
            break;
        }
    }
    return add_point(&r->validation, number_at(line, "epoch"), number_at(line, r->metric), f);
}

static int take_line(struct report_run *r, const char *path, size_t number, const char *text, size_t size,
                     struct tabft_failure *f)
{
    int error = 0;
    json_error_t where;
    json_t *line = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (line == NULL)
        FAIL(f, TABFT_INPUT, "%s:%zu:%d: not JSON: %s; copy the log again", path, number, where.column, where.text);
    const char *kind = json_string_value(json_object_get(line, "kind"));
    if (kind == NULL) FAIL(f, TABFT_INPUT, "%s:%zu: has no \"kind\": not a run's log; name the folder of a run", path, number);
    if (strcmp(kind, "step") == 0) TRY(take_step(r, line, f));
    else if (strcmp(kind, "validation") == 0) TRY(take_validation(r, line, f));
    else if (strcmp(kind, "skip") == 0) r->n_skipped++;
fail:
    json_decref(line);
    return error;
}

/* Of a log that grows the last line may be half there: it is left for the next time. */
static int read_log(struct report_run *r, const char *path, bool grows, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    size_t size, number = 1;
    TRY(file_read_all(path, METRICS_MAX, (void **)&text, &size, f));
    for (size_t at = 0; at < size; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        if (end == NULL && grows) break;
        const size_t length = end != NULL ? (size_t)(end - (text + at)) : size - at;
        if (length > 0) TRY(take_line(r, path, number, text + at, length, f));
        at += length + 1;
    }
fail:
    free(text);
    return error;
}

int report_run_read(struct report_run *out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    char *record = NULL, *log = NULL, *partial = NULL;
    *out = (struct report_run){.path = path};
    TRY(join(&record, path, "run.json", f));
    TRY(join(&log, path, "metrics.jsonl", f));
    TRY(join(&partial, path, "metrics.jsonl.partial", f));
    if (exists(record)) {
        TRY(read_record(out, record, f));
        TRY(read_log(out, log, false, f));
    } else if (exists(partial)) {
        TRY(read_log(out, partial, true, f));
    } else {
        FAIL(f, TABFT_INPUT, "%s: has neither run.json nor metrics.jsonl.partial; name the folder of a run (--out of tabft-train)",
             path);
    }
fail:
    free(record);
    free(log);
    free(partial);
    return error;
}

void report_run_clear(struct report_run *r)
{
    json_decref(r->record);
    free(r->loss.point);
    free(r->seconds.point);
    free(r->validation.point);
    *r = (struct report_run){0};
}

const json_t *report_field(const struct report_run *r, const char *part, const char *key)
{
    return json_object_get(part != NULL ? json_object_get(r->record, part) : r->record, key);
}
