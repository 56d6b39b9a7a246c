/* Runs, from their folders: run.json where there is one, and the log. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "eval/run_files.h"
#include "report/report_internal.h"

const char *const report_phase_name[N_PHASES] = {"preprocess", "forward", "backward", "reduce", "optimiser"};

static bool exists(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 || errno != ENOENT;
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
static int take_validation(struct report_run *r, const json_t *line, struct tabft_failure *f)
{
    static const char *const others[] = {"kind", "step", "epoch"};
    const char *name = json_string_value(json_object_get(r->record, "metric")), *key;
    json_t *value;
    json_object_foreach((json_t *)line, key, value)
    { /* only read, but its iterators know no const */
        bool other = name != NULL;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) other = other || strcmp(key, others[i]) == 0;
        if (!other) name = key;
    }
    if (r->metric[0] == '\0' && name != NULL) (void)snprintf(r->metric, sizeof r->metric, "%s", name);
    return add_point(&r->validation, number_at(line, "epoch"), number_at(line, r->metric), f);
}

static int take_line(void *context, const char *path, size_t number, const char *kind, const json_t *line,
                     struct tabft_failure *f)
{
    struct report_run *r = context;
    (void)path;
    (void)number;
    if (strcmp(kind, "step") == 0) return take_step(r, line, f);
    if (strcmp(kind, "validation") == 0) return take_validation(r, line, f);
    r->n_skipped += strcmp(kind, "skip") == 0;
    return 0;
}

int report_run_read(struct report_run *out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    char *record = NULL, *log = NULL, *partial = NULL;
    *out = (struct report_run){.path = path};
    TRY(run_file_name(&record, path, "run.json", f));
    TRY(run_file_name(&log, path, "metrics.jsonl", f));
    TRY(run_file_name(&partial, path, "metrics.jsonl.partial", f));
    if (exists(partial)) { /* beside it run.json is an older run's */
        TRY(run_log_read(partial, true, take_line, out, f));
    } else if (exists(record)) {
        TRY(run_json_read(&out->record, record, f));
        TRY(run_log_read(log, false, take_line, out, f));
    } else {
        FAIL(f, TABFT_INPUT,
             "%s: has neither run.json nor metrics.jsonl.partial; name the folder of a run (--out of tabft-train)",
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
