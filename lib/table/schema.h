/* What a packed table says of itself: the schema, provenance and statistics records of tbf(5), as structs and as JSON.
 * Private to lib/table. */
#ifndef TABFT_TABLE_SCHEMA_H
#define TABFT_TABLE_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "table/table.h"

/* Record types of a packed table, all of version 1, but a schema with decimals, which is of version 2. */
enum {
    TABLE_RECORD_SCHEMA = 1,
    TABLE_RECORD_PROVENANCE = 2,
    TABLE_RECORD_DICTIONARY = 3,
    TABLE_RECORD_PAGE = 4,
    TABLE_RECORD_STATISTICS = 5,
    TABLE_RECORD_VERSION = 1,
    TABLE_RECORD_DECIMALS = 2
};

enum {
    TABLE_TEXT_MAX = 1 << 20,         /* bytes of a text cell */
    TABLE_DICTIONARY_BYTES = 4 << 20, /* a dictionary record is closed when it holds so much */
    TABLE_DECIMALS_MAX = 9,           /* places behind the point of a column stored as decimals */
    TABLE_NO_TARGET = -1
};

/* How the cells of a column lie in pages. Integers, codes and booleans: the narrowest that holds all of them. Doubles
 * that are all i / 10^decimals: i, the same way. */
enum page_storage {
    STORAGE_I8 = 1,
    STORAGE_I16,
    STORAGE_I32,
    STORAGE_I64,
    STORAGE_F32,
    STORAGE_F64,
    STORAGE_D8,
    STORAGE_D16,
    STORAGE_D32
};
static inline bool storage_is_decimal(enum page_storage s) { return s >= STORAGE_D8; }
static inline bool storage_is_real(enum page_storage s) { return s >= STORAGE_F32; } /* doubles, once they are read */

struct schema_column {
    char *name;
    enum table_kind kind;
    enum page_storage storage;
    unsigned decimals; /* of D8, D16 and D32; else 0 */
    size_t n_texts;    /* of its dictionary records; 0 for a classification target, whose texts are the labels */
};

struct schema {
    size_t n_rows, n_columns;
    struct schema_column *column; /* [n_columns] */
    ptrdiff_t target;             /* index in column or TABLE_NO_TARGET */
    enum table_task task;
    size_t n_labels;
    char **label; /* [n_labels] */
};

/* What the statistics record says of a column. min and max are over finite values of FLOAT, INTEGER and BOOLEAN columns
 * that are no classification target; `any` is false where there is none. Integers use the int64 pair. */
struct column_statistics {
    uint64_t n_missing, n_infinite;
    bool any;
    double min, max;
    int64_t integer_min, integer_max;
};

size_t storage_size(enum page_storage s);                        /* bytes of an item */
const char *storage_name(enum page_storage s);                   /* "i8" ... "f64" */
const char *kind_name(enum table_kind k);                        /* "float", "integer", "text", "boolean" */
const char *task_name(enum table_task t);                        /* "classification", "regression" or "none" */
enum page_storage storage_of_range(int64_t min, int64_t max);    /* the narrowest integer storage */
enum page_storage storage_of_codes(size_t n);                    /* for codes 0..n-1 */
size_t schema_groups(const struct schema *s);                    /* row groups */
bool schema_is_code(const struct schema *s, size_t column);      /* text or classification target: cells are codes */
size_t schema_code_count(const struct schema *s, size_t column); /* their number of different codes */
bool statistics_equal(const struct column_statistics *a, const struct column_statistics *b, enum page_storage storage);
void statistics_merge(struct column_statistics *into, const struct column_statistics *more);

uint32_t schema_version(const struct schema *s); /* of its record */

/* JSON texts; the caller frees *text. Errors: TABFT_SYSTEM, and TABFT_INPUT where names or labels do not fit a record.
 */
int schema_to_json(const struct schema *s, char **text, size_t *size, struct tabft_failure *f) TABFT_MUST_CHECK;
int statistics_to_json(const struct schema *s, const struct column_statistics *statistics, char **text, size_t *size,
                       struct tabft_failure *f) TABFT_MUST_CHECK;
/* The other way; `s` is empty before, and cleared by schema_clear in any case. Errors: TABFT_INPUT. */
int schema_from_json(struct schema *s, const char *text, size_t size, struct tabft_failure *f) TABFT_MUST_CHECK;
int statistics_from_json(const struct schema *s, struct column_statistics *statistics, const char *text, size_t size,
                         struct tabft_failure *f) TABFT_MUST_CHECK;
/* The arrays of a column entry as `info --json` and the statistics record have them: a new reference or NULL. */
json_t *statistics_json(const struct schema *s, size_t column, const struct column_statistics *statistics);

/* A deep copy into an empty struct. */
int schema_copy(struct schema *out, const struct schema *s, struct tabft_failure *f) TABFT_MUST_CHECK;
void schema_clear(struct schema *s);

/* JSON text of a value, compact, keys in the order they were set; the caller frees it. Takes over the reference. */
int json_text(json_t *value, char **text, size_t *size, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
