/* JSON out: values that jansson alone would refuse, and numbers in the shortest form that reads back as the same bits.
 */
#ifndef TABFT_EVAL_JSON_VALUE_H
#define TABFT_EVAL_JSON_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Text that may not be UTF-8 (file names) as a JSON string: such a text has its bytes above ASCII replaced by '?'.
 * NULL only without memory, as in jansson; the caller owns the value. */
json_t *eval_json_text(const char *text);
/* A finite number, else null: JSON has no others. */
json_t *eval_json_number(double value);
json_t *eval_json_size(size_t value);

/* Adds a field to an object, taking `value`; *whole becomes false where memory is short. */
void eval_json_add(json_t *object, const char *key, json_t *value, bool *whole);

/* Prints a value in JSON, indented by two spaces, a newline at the end. Write errors stay in `to` (ferror). */
void eval_json_put(FILE *to, const json_t *value);

#endif
