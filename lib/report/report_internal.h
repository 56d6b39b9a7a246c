/* What the files of this room share: runs as they are read, and the page as it is written. */
#ifndef TABFT_REPORT_REPORT_INTERNAL_H
#define TABFT_REPORT_REPORT_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

struct file_writer;

/* ---- runs (read.c) ---- */

enum { N_PHASES = 5 };
extern const char *const report_phase_name[N_PHASES];

struct point {
    double x, y; /* y may be no number: null in the log */
};
struct series {
    struct point *point; /* [n] */
    size_t n, room;
};

struct report_run {
    const char *path; /* borrowed */
    json_t *record;   /* run.json; NULL: the run has not come to its end */
    /* From metrics.jsonl: */
    struct series loss, seconds; /* a step each */
    struct series validation;    /* of `metric`; x: the epoch, 0 before the first step */
    char metric[32];             /* "" without validation */
    double phase[N_PHASES];      /* seconds, summed over the steps */
    uint64_t peak_bytes;         /* the largest of all steps */
    size_t n_epochs, n_skipped;  /* the last epoch that has a step; chunks that were skipped */
};

/* Reads a run's folder. Errors: TABFT_INPUT by file and line. *out is to be cleared on failure too. */
int report_run_read(struct report_run *out, const char *path, struct tabft_failure *f) TABFT_MUST_CHECK;
void report_run_clear(struct report_run *r);

/* A field of run.json, of its "options" or its "train"; NULL where there is none. */
const json_t *report_field(const struct report_run *r, const char *part, const char *key);

/* ---- the page (page.c) ---- */

/* Whatever goes wrong stays in `error` and `f`, and nothing more is written. */
struct page {
    struct file_writer *to;
    struct tabft_failure *f;
    int error;
};

/* Our own words; what comes from elsewhere goes through page_text. */
void page_put(struct page *p, const char *format, ...) TABFT_PRINTF(2, 3); /* at most 1023 bytes */
void page_words(struct page *p, const char *text);                         /* any number */
/* Text from a file or a command line: markup is escaped, control characters and bytes that are not UTF-8 become U+FFFD.
 */
void page_text(struct page *p, const char *text);
/* A value as JSON has it, texts without quotes; NULL: a dash. */
void page_json(struct page *p, const json_t *value);
/* A number with 5 significant digits; a dash where it is none. */
void page_number(struct page *p, double v);
/* Bytes in GB, MB or kB. */
void page_bytes(struct page *p, double bytes);

/* ---- charts (chart.c) ---- */

/* The colour of the i-th run, and its dashes once there are more runs than colours: attributes of a line. */
const char *chart_colour(size_t i);
const char *chart_dashes(size_t i);

struct chart {
    const char *title, *x, *y;          /* what is drawn, and the axes' names */
    const struct series *const *series; /* [n]: one a run, in their colours; NULL or empty ones are left out */
    size_t n;
};
/* An SVG inside the page. Of long series means of neighbouring points are drawn. Nothing where no point is finite. */
int chart_put(struct page *p, const struct chart *c, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
