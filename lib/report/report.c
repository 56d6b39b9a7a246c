/* The page: what is on it, and in which order. */
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config.h"
#include "file/file.h"
#include "report/report_internal.h"

static const char style[] =
    "body{font:15px/1.45 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:70em;margin:2em auto;padding:0 "
    "1em}"
    "h1{font-size:1.6em}h2{font-size:1.15em;margin:2em 0 .5em;border-bottom:1px solid #ccc}"
    "table{border-collapse:collapse;margin:.5em 0;display:block;overflow-x:auto}"
    "th,td{padding:.25em .8em .25em 0;text-align:left;vertical-align:top;border-bottom:1px solid #eee}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.w{overflow-wrap:anywhere}"
    "svg{width:100%;max-width:760px;height:auto;display:block}svg text{font-size:11px;fill:#444}"
    ".right{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:#e6e6e6}.axis{stroke:#888}"
    ".mark{width:2.2em;height:.7em;display:inline-block;vertical-align:middle}"
    "@media print{body{margin:0;max-width:none}h2{break-after:avoid}svg{break-inside:avoid}}";

struct report {
    struct page page;
    const struct report_run *run;
    size_t n;
    const struct series **series; /* [n]: room for a chart's */
};

/* ---- pieces ---- */

/* A run's line as charts have it, and its folder. */
static void put_run(struct page *p, const struct report_run *r, size_t i)
{
    page_put(p,
             "<svg class=\"mark\" viewBox=\"0 0 30 8\"><line x1=\"0\" y1=\"4\" x2=\"30\" y2=\"4\" stroke=\"%s\" "
             "stroke-width=\"3\""
             " stroke-dasharray=\"%s\"/></svg> ",
             chart_colour(i), chart_dashes(i));
    page_text(p, r->path);
}

static void put_heads(struct page *p, const char *const *head, size_t n)
{
    page_put(p, "<table><thead><tr>");
    for (size_t i = 0; i < n; i++) {
        const bool number = head[i][0] == '#'; /* a column of numbers */
        page_put(p, number ? "<th class=\"n\">%s</th>" : "<th>%s</th>", head[i] + number);
    }
    page_put(p, "</tr></thead><tbody>\n");
}

static void put_number_cell(struct page *p, double v)
{
    page_put(p, "<td class=\"n\">");
    page_number(p, v);
    page_put(p, "</td>");
}

static void put_json_cell(struct page *p, const json_t *value)
{
    page_put(p, json_is_number(value) ? "<td class=\"n\">" : "<td class=\"w\">");
    page_json(p, value);
    page_put(p, "</td>");
}

static double number_of(const struct report_run *r, const char *key)
{
    const json_t *value = report_field(r, NULL, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of a step's seconds, NaN without steps. */
static int median(const struct series *s, double *out, struct tabft_failure *f)
{
    int error = 0;
    double *value = NULL;
    size_t n = 0;
    *out = (double)NAN;
    TRY(memory_new(&value, s->n, sizeof *value, "a run's steps", f));
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->point[i].y)) value[n++] = s->point[i].y;
    if (n == 0) goto fail;
    qsort(value, n, sizeof *value, compare_doubles);
    *out = n % 2 == 1 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
fail:
    free(value);
    return error;
}

/* ---- sections ---- */

static int put_results(struct report *t, struct tabft_failure *f)
{
    static const char *const head[] = {"run",       "ended by",     "metric", "#before",         "#best",
                                       "#at epoch", "#epochs",      "#steps", "#chunks skipped", "#s a step",
                                       "#seconds",  "#peak memory", "#ranks", "device"};
    int error = 0;
    struct page *p = &t->page;
    page_put(p, "<h2>Results</h2>\n");
    put_heads(p, head, sizeof head / sizeof *head);
    for (size_t i = 0; i < t->n; i++) {
        const struct report_run *r = &t->run[i];
        const bool ended = r->record != NULL;
        double step_seconds;
        TRY(median(&r->seconds, &step_seconds, f));
        page_put(p, "<tr><td>");
        put_run(p, r, i);
        page_put(p, "</td><td>");
        if (ended) page_json(p, report_field(r, NULL, "ended_by"));
        else page_put(p, "<em>not ended: shown as far as it is</em>");
        page_put(p, "</td><td>");
        if (r->metric[0] != '\0') page_text(p, r->metric);
        else page_json(p, report_field(r, NULL, "metric"));
        page_put(p, "</td>");
        put_number_cell(p, number_of(r, "base_metric"));
        put_number_cell(p, number_of(r, "best_metric"));
        put_number_cell(p, number_of(r, "best_epoch"));
        page_put(p, "<td class=\"n\">%zu</td><td class=\"n\">%zu</td><td class=\"n\">%zu</td>", r->n_epochs, r->loss.n,
                 r->n_skipped);
        put_number_cell(p, step_seconds);
        put_number_cell(p, number_of(r, "seconds"));
        page_put(p, "<td class=\"n\">");
        page_bytes(p, fmax((double)r->peak_bytes, number_of(r, "peak_bytes")));
        page_put(p, "</td>");
        put_number_cell(p, number_of(r, "world_size"));
        page_put(p, "<td>");
        page_json(p, report_field(r, NULL, "gpu_name") != NULL ? report_field(r, NULL, "gpu_name")
                                                               : report_field(r, NULL, "device"));
        page_put(p, "</td></tr>\n");
    }
    page_put(
        p, "</tbody></table>\n<p>The metric is of the validation rows; before: of the weights the run began with. Peak "
           "memory is a rank's, of the GPU where there is one.</p>\n");
fail:
    return error;
}

/* A chart of t->series, and which line is whose. */
static int put_chart(struct report *t, const char *title, const char *x, const char *y, struct tabft_failure *f)
{
    struct page *p = &t->page;
    const struct chart c = {.title = title, .x = x, .y = y, .series = t->series, .n = t->n};
    const int error = chart_put(p, &c, f);
    if (error < 0 || t->n == 1) return error;
    page_put(p, "<p>");
    for (size_t i = 0; i < t->n; i++) {
        if (t->series[i] == NULL || t->series[i]->n == 0) continue;
        put_run(p, &t->run[i], i);
        page_put(p, "&#160; ");
    }
    page_put(p, "</p>\n");
    return 0;
}

static int put_charts(struct report *t, struct tabft_failure *f)
{
    int error = 0;
    struct page *p = &t->page;
    page_put(p, "<h2>Training loss</h2>\n");
    for (size_t i = 0; i < t->n; i++) t->series[i] = &t->run[i].loss;
    TRY(put_chart(t, "Training loss", "step", "loss", f));
    /* A chart for each metric that occurs. */
    for (size_t first = 0; first < t->n; first++) {
        const char *metric = t->run[first].metric;
        bool shown = metric[0] == '\0';
        for (size_t i = 0; i < first; i++) shown = shown || strcmp(t->run[i].metric, metric) == 0;
        if (shown) continue;
        for (size_t i = 0; i < t->n; i++)
            t->series[i] = strcmp(t->run[i].metric, metric) == 0 ? &t->run[i].validation : NULL;
        page_put(p, "<h2>Validation: ");
        page_text(p, metric);
        page_put(p, "</h2>\n");
        TRY(put_chart(t, "Validation", "epoch (0: before the first step)", "validation", f));
    }
    for (size_t i = 0; i < t->n; i++) t->series[i] = &t->run[i].seconds;
    page_put(p, "<h2>Seconds a step</h2>\n");
    TRY(put_chart(t, "Seconds a step", "step", "seconds", f));
fail:
    return error;
}

/* Means over the steps, and their shares of what the phases take together. */
static void put_phases(struct report *t)
{
    static const char *const head[] = {"run", "#preprocess", "#forward", "#backward", "#reduce", "#optimiser"};
    struct page *p = &t->page;
    page_put(p, "<h2>Where the time of a step goes</h2>\n");
    put_heads(p, head, sizeof head / sizeof *head);
    for (size_t i = 0; i < t->n; i++) {
        const struct report_run *r = &t->run[i];
        double sum = 0;
        for (size_t k = 0; k < N_PHASES; k++) sum += r->phase[k];
        page_put(p, "<tr><td>");
        put_run(p, r, i);
        page_put(p, "</td>");
        for (size_t k = 0; k < N_PHASES; k++) {
            if (sum > 0)
                page_put(p, "<td class=\"n\">%.3g s, %.1f %%</td>", r->phase[k] / (double)r->loss.n,
                         100 * r->phase[k] / sum);
            else page_put(p, "<td class=\"n\">–</td>");
        }
        page_put(p, "</tr>\n");
    }
    page_put(p, "</tbody></table>\n<p>Seconds of rank 0, a step's mean. What is prepared ahead of a step costs it "
                "nothing.</p>\n");
}

/* A line of a table with a column for each of these runs. */
static void put_field(struct page *p, const struct report_run *run, size_t n, const char *part, const char *key)
{
    page_put(p, "<tr><th>");
    page_text(p, key);
    page_put(p, "</th>");
    for (size_t i = 0; i < n; i++) put_json_cell(p, report_field(&run[i], part, key));
    page_put(p, "</tr>\n");
}

static void begin_fields(struct report *t, const char *title)
{
    struct page *p = &t->page;
    page_put(p, "<h2>%s</h2>\n<table><thead><tr><th></th>", title);
    for (size_t i = 0; i < t->n; i++) {
        page_put(p, "<th>");
        put_run(p, &t->run[i], i);
        page_put(p, "</th>");
    }
    page_put(p, "</tr></thead><tbody>\n");
}

static void end_fields(struct report *t) { page_put(&t->page, "</tbody></table>\n"); }

/* The first run whose options are known: of those that go on they are not. */
static const struct report_run *first_known(const struct report *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->run[i].record != NULL) return &t->run[i];
    return NULL;
}

static bool option_differs(const struct report *t, const char *key, const json_t *value)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->run[i].record != NULL && !json_equal(report_field(&t->run[i], "options", key), value)) return true;
    return false;
}

/* Options in which the runs differ, then the others once. */
static void put_options(struct report *t)
{
    struct page *p = &t->page;
    const struct report_run *first = first_known(t);
    const char *key;
    json_t *value, *options = first != NULL ? json_object_get(first->record, "options") : NULL;
    size_t n_different = 0, n_same = 0;
    json_object_foreach(options, key, value)
    {
        if (!option_differs(t, key, value)) continue;
        if (n_different++ == 0) begin_fields(t, "Options that differ");
        put_field(p, t->run, t->n, "options", key);
    }
    if (n_different > 0) end_fields(t);
    json_object_foreach(options, key, value)
    {
        if (option_differs(t, key, value)) continue;
        if (n_same++ == 0) page_put(p, "<h2>%s</h2>\n<table><tbody>\n", t->n > 1 ? "Options that all have" : "Options");
        put_field(p, first, 1, "options", key);
    }
    if (n_same > 0) end_fields(t);
}

static void put_origin(struct report *t)
{
    enum { N_OF_ANY = 4 }; /* of any table; the others are the training table's */
    static const char *const data[] = {"path", "digest", "rows", "columns", "task", "labels", "left_out"};
    static const char *const run[] = {"base_model_sha256", "model_sha256", "version",  "engine",   "launcher",
                                      "libraries",         "isa",          "cpu",      "gpu_name", "gpu_libraries",
                                      "threads",           "host",         "recompute"};
    struct page *p = &t->page;
    bool validated = false; /* with a table of its own */
    for (size_t i = 0; i < t->n; i++) validated = validated || report_field(&t->run[i], "valid", "path") != NULL;
    begin_fields(t, "Training table");
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) put_field(p, t->run, t->n, "train", data[i]);
    end_fields(t);
    if (validated) {
        begin_fields(t, "Validation table");
        for (size_t i = 0; i < N_OF_ANY; i++) put_field(p, t->run, t->n, "valid", data[i]);
        end_fields(t);
    }
    begin_fields(t, "What it was computed from, by and on");
    for (size_t i = 0; i < sizeof run / sizeof *run; i++) put_field(p, t->run, t->n, NULL, run[i]);
    end_fields(t);
}

static int put_page(struct report *t, struct tabft_failure *f)
{
    int error = 0;
    struct page *p = &t->page;
    page_put(p,
             "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta charset=\"utf-8\"/>"
             "<meta name=\"viewport\" content=\"width=device-width\"/><title>Fine-tuning runs</title>\n<style>");
    page_words(p, style);
    page_put(p,
             "</style></head><body>\n<h1>Fine-tuning runs</h1>\n<p>%zu run%s of tabft-train; written by tabft-eval "
             "%s.</p>\n",
             t->n, t->n > 1 ? "s" : "", PACKAGE_VERSION);
    TRY(put_results(t, f));
    TRY(put_charts(t, f));
    put_phases(t);
    put_options(t);
    put_origin(t);
    page_put(p, "</body></html>\n");
    TRY(p->error);
fail:
    return error;
}

int report_write(const char *const *runs, size_t n_runs, const char *output, bool force, struct tabft_failure *f)
{
    int error = 0;
    struct report t = {.page = {.f = f}, .n = n_runs};
    struct report_run *run = NULL;
    struct file_writer *closing;
    if (n_runs < 1 || n_runs > REPORT_RUNS_MAX)
        FAIL(f, TABFT_USE, "report: %zu runs; name 1 to %d folders", n_runs, (int)REPORT_RUNS_MAX);
    TRY(memory_new(&run, n_runs, sizeof *run, "the runs", f));
    TRY(memory_new(&t.series, n_runs, sizeof *t.series, "the runs", f));
    t.run = run;
    for (size_t i = 0; i < n_runs; i++) TRY(report_run_read(&run[i], runs[i], f));
    TRY(file_writer_open(&t.page.to, output, force, false, 0, f));
    TRY(put_page(&t, f));
    closing = t.page.to;
    t.page.to = NULL;
    TRY(file_writer_close(closing, f));
fail:
    file_writer_abandon(t.page.to);
    for (size_t i = 0; run != NULL && i < n_runs; i++) report_run_clear(&run[i]);
    free(run);
    free(t.series);
    return error;
}
