#include "eval/json_value.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

json_t *eval_json_text(const char *text)
{
    json_t *string = json_string(text);
    if (string != NULL) return string;
    char *copy = strdup(text);
    if (copy == NULL) return NULL;
    for (char *p = copy; *p != '\0'; p++)
        if ((unsigned char)*p >= 0x80) *p = '?';
    string = json_string(copy);
    free(copy);
    return string;
}

json_t *eval_json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }
json_t *eval_json_size(size_t value) { return json_integer((json_int_t)value); }

void eval_json_add(json_t *object, const char *key, json_t *value, bool *whole)
{
    if (json_object_set_new(object, key, value) != 0) *whole = false;
}

static void put_string(FILE *to, const char *text)
{
    (void)fputc('"', to);
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') (void)fputc('\\', to);
        if (*p < 0x20 || *p == 0x7f) (void)fprintf(to, "\\u%04x", *p);
        else (void)fputc(*p, to);
    }
    (void)fputc('"', to);
}

/* A JSON real keeps a point or an exponent, so that it reads back as a real. */
static void put_real(FILE *to, double value)
{
    char text[40];
    int precision = 1;
    do (void)snprintf(text, sizeof text, "%.*g", precision, value);
    while (strtod(text, NULL) != value && precision++ < 17);
    (void)fputs(text, to);
    if (strpbrk(text, ".e") == NULL) (void)fputs(".0", to);
}

static void put(FILE *to, const json_t *value, int depth)
{
    const bool object = json_is_object(value);
    const size_t size = object ? json_object_size(value) : json_array_size(value);
    size_t i = 0;
    const char *key;
    json_t *item;
    switch (json_typeof(value)) {
    case JSON_NULL: (void)fputs("null", to); return;
    case JSON_TRUE: (void)fputs("true", to); return;
    case JSON_FALSE: (void)fputs("false", to); return;
    case JSON_STRING: put_string(to, json_string_value(value)); return;
    case JSON_INTEGER: (void)fprintf(to, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); return;
    case JSON_REAL: put_real(to, json_real_value(value)); return;
    case JSON_OBJECT:
    case JSON_ARRAY: break;
    }
    (void)fputc(object ? '{' : '[', to);
    if (object) {
        json_object_foreach ((json_t *)value, key, item) {
            (void)fprintf(to, "%s\n%*s", i++ > 0 ? "," : "", 2 * depth + 2, "");
            put_string(to, key);
            (void)fputs(": ", to);
            put(to, item, depth + 1);
        }
    } else {
        json_array_foreach (value, i, item) {
            (void)fprintf(to, "%s\n%*s", i > 0 ? "," : "", 2 * depth + 2, "");
            put(to, item, depth + 1);
        }
    }
    if (size > 0) (void)fprintf(to, "\n%*s", 2 * depth, "");
    (void)fputc(object ? '}' : ']', to);
}

void eval_json_put(FILE *to, const json_t *value)
{
    put(to, value, 0);
    (void)fputc('\n', to);
}
