/* Values of a pickle as the JSON texts that Python writes for them. */
#define TABFT_IN_CKPT
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/safetensors_internal.h"
#include "ckpt/torch_internal.h"

enum { DEPTH_MAX = 64, TEXT_MAX = 1 << 22 };

struct json_writer {
    struct text *text;
    const struct pickle *pickle;
    const char *place;
    int depth;
    struct tabft_failure *f;
};

/* The code point of a character of `length` bytes that is known to be UTF-8. */
static uint32_t code_point(const unsigned char *at, size_t length)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = at[0] & masks[length];
    for (size_t i = 1; i < length; i++) code = code << 6 | (at[i] & 0x3f);
    return code;
}

/* A string in ASCII: Python escapes everything else, beyond 16 bits as a pair of surrogates. */
static int put_string(struct json_writer *w, const struct pickle_value *v)
{
    static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    int error = 0;
    TRY(text_put_string(w->text, "\"", w->f));
    for (uint32_t done = 0; done < v->size;) {
        const unsigned char *at = (const unsigned char *)v->of.text + done;
        const size_t length = safetensors_utf8(at, v->size - done);
        const uint32_t code = code_point(at, length);
        const char *known = code < 0x80 ? strchr(named, (int)code) : NULL;
        char part[16];
        if (known != NULL) (void)snprintf(part, sizeof part, "\\%c", letters[known - named]);
        else if (code >= 0x20 && code < 0x7f) (void)snprintf(part, sizeof part, "%c", (char)code);
        else if (code < 0x10000) (void)snprintf(part, sizeof part, "\\u%04x", code);
        else
            (void)snprintf(part, sizeof part, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                           0xdc00 + ((code - 0x10000) & 0x3ff));
        TRY(text_put_string(w->text, part, w->f));
        done += (uint32_t)length;
    }
    TRY(text_put_string(w->text, "\"", w->f));
fail:
    return error;
}

/* The shortest digits that give the same number back, laid out as Python's repr does. */
static int put_float(struct json_writer *w, double real)
{
    char found[40], digits[24], out[64];
    int n = 0, precision = 0;
    if (!isfinite(real))
        return tabft_fail(w->f, TABFT_INPUT, "%s holds a number that is not finite; JSON has none", w->place);
    do (void)snprintf(found, sizeof found, "%.*e", precision, fabs(real));
    while (strtod(found, NULL) != fabs(real) && ++precision < 17);
    const char *e = strchr(found, 'e');
    const int exponent = atoi(e + 1);
    for (const char *at = found; at < e; at++)
        if (*at != '.') digits[n++] = *at;
    digits[n] = '\0';
    const char *sign = signbit(real) ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        (void)snprintf(out, sizeof out, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                       exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0) (void)snprintf(out, sizeof out, "%s0.%.*s%s", sign, -exponent - 1, "000", digits);
    else if (n <= exponent + 1)
        (void)snprintf(out, sizeof out, "%s%s%.*s.0", sign, digits, exponent + 1 - n, "0000000000000000");
    else (void)snprintf(out, sizeof out, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
    return text_put_string(w->text, out, w->f);
}

static int put_value(struct json_writer *w, uint32_t number);

static int put_list(struct json_writer *w, const struct pickle_value *v)
{
    int error = 0;
    TRY(text_put_string(w->text, "[", w->f));
    for (uint32_t i = 0; i < v->size; i++) {
        if (i > 0) TRY(text_put_string(w->text, ", ", w->f));
        TRY(put_value(w, v->of.item[i]));
    }
    TRY(text_put_string(w->text, "]", w->f));
fail:
    return error;
}

struct pair {
    const struct pickle_value *key;
    uint32_t value;
};

/* The order of code points, as Python sorts texts, is that of their bytes. */
static int by_key(const void *a, const void *b)
{
    const struct pickle_value *x = ((const struct pair *)a)->key, *y = ((const struct pair *)b)->key;
    int order = memcmp(x->of.text, y->of.text, x->size < y->size ? x->size : y->size);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

static int put_dict(struct json_writer *w, const struct pickle_value *v)
{
    int error = 0;
    struct pair *pair = NULL;
    const uint32_t n = v->size / 2;
    TRY(memory_new(&pair, n, sizeof *pair, "keys of a dictionary", w->f));
    for (uint32_t i = 0; i < n; i++)
        pair[i] = (struct pair){&w->pickle->value[v->of.item[2 * i]], v->of.item[2 * i + 1]};
    qsort(pair, n, sizeof *pair, by_key);
    TRY(text_put_string(w->text, "{", w->f));
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && by_key(&pair[i - 1], &pair[i]) == 0)
            FAIL(w->f, TABFT_INPUT, "%s has the key %.*s twice", w->place,
                 pair[i].key->size < 100 ? (int)pair[i].key->size : 100, pair[i].key->of.text);
        if (i > 0) TRY(text_put_string(w->text, ", ", w->f));
        TRY(put_string(w, pair[i].key));
        TRY(text_put_string(w->text, ": ", w->f));
        TRY(put_value(w, pair[i].value));
    }
    TRY(text_put_string(w->text, "}", w->f));
fail:
    free(pair);
    return error;
}

static int put_value(struct json_writer *w, uint32_t number)
{
    int error = 0;
    const struct pickle_value *v = &w->pickle->value[number];
    char integer[24];
    if (++w->depth > DEPTH_MAX) FAIL(w->f, TABFT_INPUT, "%s is nested more than %d deep", w->place, DEPTH_MAX);
    if (w->text->size > TEXT_MAX)
        FAIL(w->f, TABFT_INPUT, "%s: the metadata of the checkpoint have more than %d bytes", w->place, TEXT_MAX);
    switch (v->kind) {
    case PICKLE_NONE: TRY(text_put_string(w->text, "null", w->f)); break;
    case PICKLE_BOOL: TRY(text_put_string(w->text, v->of.integer != 0 ? "true" : "false", w->f)); break;
    case PICKLE_INT:
        (void)snprintf(integer, sizeof integer, "%lld", (long long)v->of.integer);
        TRY(text_put_string(w->text, integer, w->f));
        break;
    case PICKLE_FLOAT: TRY(put_float(w, v->of.real)); break;
    case PICKLE_TEXT: TRY(put_string(w, v)); break;
    case PICKLE_TUPLE:
    case PICKLE_LIST: TRY(put_list(w, v)); break;
    case PICKLE_DICT:
    case PICKLE_ORDERED_DICT: TRY(put_dict(w, v)); break;
    case PICKLE_GLOBAL:
    case PICKLE_STORAGE:
    case PICKLE_TENSOR:
        FAIL(w->f, TABFT_INPUT, "%s holds %s, which JSON cannot; save the checkpoint without it", w->place,
             pickle_kind_name(v->kind));
    }
    w->depth--;
fail:
    return error;
}

int torch_json(struct text *t, const struct pickle *p, uint32_t value, const char *place, struct tabft_failure *f)
{
    int error = 0;
    struct json_writer w = {.text = t, .pickle = p, .place = place, .f = f};
    TRY(put_value(&w, value));
    TRY(text_put(t, "", 1, f));
fail:
    return error;
}
