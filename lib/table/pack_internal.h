/* What the passes of pack share. Pass 1 (batches.c, survey.c) reads everything once: digests, record counts, what each
 * column's cells are. From that kinds.c makes the schema. Pass 2 (fill.c) reads again and writes. Where the survey
 * could not collect a text column's texts, because it looked like numbers at first, they are collected between the two.
 */
#ifndef TABFT_TABLE_PACK_INTERNAL_H
#define TABFT_TABLE_PACK_INTERNAL_H

#include "table/decimals.h"
#include "table/dictionary.h"
#include "table/digest.h"
#include "table/input.h"
#include "table/packed.h"
#include "table/prep.h"
#include "table/records.h"
#include "table/schema.h"

enum { SAMPLE_MAX = 40, MESSAGE_MAX = 512 };

/* Where something was seen first, and what. */
struct seen {
    bool any;
    size_t input;
    uint64_t offset; /* in the segment while it is surveyed, then in the input */
    char text[SAMPLE_MAX + 1];
};

/* What the cells of a column are, of a segment and then of all. */
struct survey {
    /* what most cells change, together */
    uint64_t n_integer, n_float;
    int64_t min, max;                           /* of integers, where n_integer > 0 */
    struct decimals decimals;                   /* of the decimal numbers */
    bool float64;                               /* some number is no float32 */
    uint64_t n_empty, n_big, n_boolean, n_text; /* big: integers beyond int64 */
    uint64_t n_rounded;                         /* integers that no double is equal to */
    uint64_t n_infinite;
    struct seen text, big, boolean;
};

/* Text columns and the target have their texts collected; numbers of a target only up to a limit. */
struct collected {
    struct dictionary texts;
    bool overflow; /* more than TABLE_LABELS_MAX different texts, the rest was not taken */
};

struct column_plan {
    char *name;
    bool force_text, force_number, force_float;
    bool collect; /* in pass 1 */
    struct survey survey;
    struct survey others; /* the counts of --survey: other parts' */
    uint64_t *na;         /* [n_na] cells of each spelling, in number columns */
    uint64_t *text_na;    /* [n_text_na] */
    struct collected collected;
    /* labels of a classification target, by kind: the value of each, in order */
    int64_t *label_integer;
    double *label_double;
    uint32_t *label_of_text; /* [collected texts] or NULL */
};

/* A run of whole records that a thread takes at a time. */
struct segment {
    size_t input;
    uint64_t offset, first_row, n_rows;
    size_t size;
};

struct npy {
    char type;   /* 'f', 'i', 'u' or 'b' */
    size_t item; /* bytes */
    uint64_t rows, columns, offset;
};

/* What of an input is packed: all of it, or a part's share. */
struct range {
    bool used;
    uint64_t first_block, bytes_begin, bytes_end; /* of the file as it lies: what is digested */
    uint64_t begin, end;                          /* of whole records, in the unpacked text */
};

struct pack {
    const struct pack_options *options;
    struct threads *pool;
    const struct prep_say *say;
    locale_t locale;
    struct format format;
    struct input *input; /* [n_inputs] */
    struct range *range; /* [n_inputs] */
    size_t first;        /* of the inputs that are open, whose columns the others must have */
    bool is_npy;
    struct npy *npy; /* [n_inputs] */
    size_t n_columns;
    struct column_plan *column;
    ptrdiff_t target;
    enum table_task task, asked; /* TABLE_NO_TASK until decided; as the user said */
    struct segment *segment;
    size_t n_segments, room_segments;
    uint64_t n_rows, n_blank, n_short;
    struct schema schema;
    struct texts *texts; /* [n_columns] sorted dictionaries */
};

void pack_say(const struct pack *p, bool warning, const char *format, ...) TABFT_PRINTF(3, 4);

/* parts.c: what a part packs */
int pack_share(struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK;  /* before inputs are opened: their bytes */
int pack_ranges(struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK; /* when the header was read: their records */
json_t *pack_part_json(const struct pack *p);                              /* "part" of the provenance */
/* Adds the counts of column c that a part's provenance has; false where it has none. */
bool pack_part_survey(const json_t *provenance, size_t c, struct survey *s, bool *forced);
int pack_add_surveys(struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK;

/* header.c: names and where records begin; options and schema applied to columns. */
int pack_header(struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK;
/* npy.c */
int npy_open(struct npy *n, const struct input *in, struct tabft_failure *f) TABFT_MUST_CHECK;
/* The cell at `at` as what it is: *integer is set for i, u and b, *real for f. False for a u8 beyond int64. */
bool npy_cell(const struct npy *n, const unsigned char *at, int64_t *integer, double *real);

/* batches.c */
int pack_survey(struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK;
/* survey.c */
/* The texts of columns that turned out to be text and were not collected. */
int pack_collect(struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK;
/* classify.c: what a cell that is no number is, in number and boolean columns. */
enum cell_class { CELL_EMPTY, CELL_NA, CELL_INFINITE, CELL_TRUE, CELL_FALSE, CELL_TEXT };
enum cell_class pack_classify(const struct pack *p, const struct cell *cell, size_t *spelling, double *infinite);
/* True for a cell that is missing in a text column. */
bool pack_text_missing(const struct pack *p, const struct cell *cell, size_t *spelling);

/* kinds.c: schema, labels, reports. */
/* The kind of a column whose cells decide; *because: the cell that makes it text. */
enum table_kind pack_kind_of(const struct survey *s, const struct seen **because);
enum { PACK_AUTO_LABELS_MAX = 20 }; /* whole numbers: at most so many different ones make --task auto classification */
int pack_decide(struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK;
int pack_labels(struct pack *p, struct tabft_failure *f) TABFT_MUST_CHECK;
void pack_report(const struct pack *p);

/* fill.c: writes all rows. */
int pack_fill(struct pack *p, struct packed_writer *w, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
