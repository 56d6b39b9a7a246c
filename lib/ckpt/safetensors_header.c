/* The header of a safetensors file: JSON of one fixed form, read by a parser for that form alone. A general JSON reader
 * would build a tree many times the size of a hostile header, nest as deep as it says and forget where a key stood;
 * this one allocates for tensors and metadata only, has no recursion, and names the byte. */
#define TABFT_IN_CKPT
#include "ckpt/safetensors_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Where the parser is. Strings are rewritten in place: what they mean is never longer than what stands in the file. */
struct scan {
    char *text;
    size_t size, at;
    const char *path;
    struct tabft_failure *f;
};

/* "path: header, byte N: what". Byte 0 is the file's first. */
#define REFUSE(s, ...) REFUSE_AT(s, (s)->at, __VA_ARGS__)
#define REFUSE_AT(s, where, ...)                                                         \
    do {                                                                                 \
        error = tabft_fail((s)->f, TABFT_INPUT, __VA_ARGS__);                            \
        (void)tabft_fail_prefix((s)->f, "%s: header, byte %zu", (s)->path, (where) + 8); \
        goto fail;                                                                       \
    } while (0)

size_t safetensors_utf8(const unsigned char *text, size_t size)
{
    if (size == 0) return 0;
    unsigned char c = text[0];
    if (c < 0x80) return 1;
    size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC2 || c > 0xF4 || length > size) return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    if (c == 0xE0 && text[1] < 0xA0) return 0; /* overlong */
    if (c == 0xED && text[1] > 0x9F) return 0; /* surrogates */
    if (c == 0xF0 && text[1] < 0x90) return 0; /* overlong */
    if (c == 0xF4 && text[1] > 0x8F) return 0; /* beyond U+10FFFF */
    return length;
}

static void skip_space(struct scan *s)
{
    while (s->at < s->size &&
           (s->text[s->at] == ' ' || s->text[s->at] == '\n' || s->text[s->at] == '\r' || s->text[s->at] == '\t'))
        s->at++;
}

/* The next character after white space, or 0 at the end. */
static char peek(struct scan *s)
{
    skip_space(s);
    return s->at < s->size ? s->text[s->at] : '\0';
}

static int expect(struct scan *s, char wanted)
{
    int error = 0;
    char found = peek(s);
    if (found == '\0' && s->at >= s->size)
        REFUSE(s, "ends where '%c' is expected; not a whole safetensors header", wanted);
    if (found != wanted)
        REFUSE(s, "byte 0x%02x where '%c' is expected; not a safetensors header", (unsigned char)found, wanted);
    s->at++;
fail:
    return error;
}

/* After an element of a list or object: *more = a comma came, otherwise the closing character. */
static int scan_more(struct scan *s, char closing, bool *more)
{
    *more = peek(s) == ',';
    if (*more) {
        s->at++;
        return 0;
    }
    return expect(s, closing);
}

static int scan_hex4(struct scan *s, uint32_t *value)
{
    int error = 0;
    *value = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        char c = s->at < s->size ? s->text[s->at] : '\0';
        uint32_t digit;
        if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F') digit = (uint32_t)(c - 'A') + 10;
        else REFUSE(s, "\\u without four hex digits");
        *value = *value << 4 | digit;
    }
fail:
    return error;
}

/* One \u escape (a pair of them for a surrogate pair), s->at after the 'u', as UTF-8 at `to`. */
static int scan_unicode(struct scan *s, char **to)
{
    int error = 0;
    uint32_t c, low;
    TRY(scan_hex4(s, &c));
    if (c == 0) REFUSE(s, "\\u0000 in a string; names and metadata must be text");
    if (c >= 0xDC00 && c <= 0xDFFF) REFUSE(s, "half of a surrogate pair");
    if (c >= 0xD800 && c <= 0xDBFF) {
        if (s->size - s->at < 6 || s->text[s->at] != '\\' || s->text[s->at + 1] != 'u')
            REFUSE(s, "half of a surrogate pair");
        s->at += 2;
        TRY(scan_hex4(s, &low));
        if (low < 0xDC00 || low > 0xDFFF) REFUSE(s, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (c < 0x80) *(*to)++ = (char)c;
    else if (c < 0x800) {
        *(*to)++ = (char)(0xC0 | c >> 6);
        *(*to)++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *(*to)++ = (char)(0xE0 | c >> 12);
        *(*to)++ = (char)(0x80 | (c >> 6 & 63));
        *(*to)++ = (char)(0x80 | (c & 63));
    } else {
        *(*to)++ = (char)(0xF0 | c >> 18);
        *(*to)++ = (char)(0x80 | (c >> 12 & 63));
        *(*to)++ = (char)(0x80 | (c >> 6 & 63));
        *(*to)++ = (char)(0x80 | (c & 63));
    }
fail:
    return error;
}

static int scan_escape(struct scan *s, char **to)
{
    static const char from[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    int error = 0;
    char c = s->at < s->size ? s->text[s->at] : '\0';
    const char *known = c != '\0' ? strchr(from, c) : NULL;
    if (known != NULL) {
        *(*to)++ = meant[known - from];
        s->at++;
    } else if (c == 'u') {
        s->at++;
        TRY(scan_unicode(s, to));
    } else REFUSE(s, "unknown escape in a string");
fail:
    return error;
}

/* A string, as text that ends in NUL, in place. */
static int scan_string(struct scan *s, const char **out)
{
    int error = 0;
    TRY(expect(s, '"'));
    char *start = s->text + s->at, *to = start;
    for (;;) {
        if (s->at >= s->size) REFUSE(s, "ends within a string; not a whole safetensors header");
        unsigned char c = (unsigned char)s->text[s->at];
        if (c == '"') break;
        if (c < 0x20) REFUSE(s, "a control character in a string");
        if (c < 0x80 && c != '\\') {
            *to++ = (char)c;
            s->at++;
            continue;
        }
        if (c == '\\') {
            s->at++;
            TRY(scan_escape(s, &to));
            continue;
        }
        size_t length = safetensors_utf8((const unsigned char *)s->text + s->at, s->size - s->at);
        if (length == 0) REFUSE(s, "a string that is not UTF-8");
        memmove(to, s->text + s->at, length);
        to += length;
        s->at += length;
    }
    s->at++;
    *to = '\0';
    *out = start;
fail:
    return error;
}

/* A whole number from 0 to 2^64-1; anything else JSON calls a number is refused. */
static int scan_number(struct scan *s, uint64_t *out, const char *what)
{
    int error = 0;
    char first = peek(s);
    uint64_t value = 0;
    if (first == '-') REFUSE(s, "a negative number in %s", what);
    if (first < '0' || first > '9') REFUSE(s, "no number in %s", what);
    size_t start = s->at;
    for (; s->at < s->size && s->text[s->at] >= '0' && s->text[s->at] <= '9'; s->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(s->text[s->at] - '0'), &value))
            REFUSE_AT(s, start, "a number beyond 2^64 in %s", what);
    if (first == '0' && s->at - start > 1) REFUSE_AT(s, start, "a number with a leading zero in %s", what);
    if (s->at < s->size && (s->text[s->at] == '.' || s->text[s->at] == 'e' || s->text[s->at] == 'E'))
        REFUSE_AT(s, start, "a number that is not whole in %s", what);
    *out = value;
fail:
    return error;
}

static int scan_shape(struct scan *s, struct ckpt_tensor *t)
{
    int error = 0;
    bool more = true;
    TRY(expect(s, '['));
    t->rank = 0;
    if (peek(s) == ']') {
        s->at++;
        return 0;
    }
    while (more) {
        if (t->rank == CKPT_RANK_MAX) REFUSE(s, "tensor %.200s has more than %d dimensions", t->name, CKPT_RANK_MAX);
        TRY(scan_number(s, &t->shape[t->rank], "a shape"));
        t->rank++;
        TRY(scan_more(s, ']', &more));
    }
fail:
    return error;
}

static int scan_offsets(struct scan *s, struct safetensors_entry *e)
{
    int error = 0;
    TRY(expect(s, '['));
    TRY(scan_number(s, &e->begin, "data_offsets"));
    TRY(expect(s, ','));
    TRY(scan_number(s, &e->end, "data_offsets"));
    TRY(expect(s, ']'));
fail:
    return error;
}

/* Elements, and that they fill the tensor's bytes exactly. */
static int check_size(struct scan *s, struct safetensors_entry *e)
{
    int error = 0;
    struct ckpt_tensor *t = &e->tensor;
    uint64_t bytes;
    bool empty = false, fits = true;
    t->count = 1;
    for (int i = 0; i < t->rank; i++) {
        empty = empty || t->shape[i] == 0;
        fits = fits && !__builtin_mul_overflow(t->count, t->shape[i], &t->count);
    }
    if (empty) t->count = 0;
    if ((!fits && !empty) || __builtin_mul_overflow(t->count, (uint64_t)ckpt_dtype_size(t->dtype), &bytes))
        REFUSE(s, "tensor %.200s: its shape takes more than 2^64 bytes", t->name);
    if (e->begin > e->end) REFUSE(s, "tensor %.200s: data_offsets run backwards", t->name);
    if (e->end - e->begin != bytes)
        REFUSE(s, "tensor %.200s: shape and dtype %s take %llu bytes, data_offsets give %llu", t->name,
               ckpt_dtype_name(t->dtype), (unsigned long long)bytes, (unsigned long long)(e->end - e->begin));
fail:
    return error;
}

/* {"dtype": …, "shape": […], "data_offsets": […]}: these three keys, once each, in any order. */
static int scan_tensor(struct scan *s, struct safetensors_entry *e)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    int error = 0;
    bool more = true, seen[3] = {false, false, false};
    TRY(expect(s, '{'));
    while (more) {
        const char *key, *dtype;
        TRY(scan_string(s, &key));
        int k = 0;
        while (k < 3 && strcmp(key, keys[k]) != 0) k++;
        if (k == 3)
            REFUSE(s, "tensor %.200s has a key \"%.100s\"; only dtype, shape and data_offsets are known",
                   e->tensor.name, key);
        if (seen[k]) REFUSE(s, "tensor %.200s has %s twice", e->tensor.name, key);
        seen[k] = true;
        TRY(expect(s, ':'));
        if (k == 0) {
            TRY(scan_string(s, &dtype));
            int known = safetensors_dtype(dtype);
            if (known < 0) REFUSE(s, "tensor %.200s has the unknown dtype \"%.100s\"", e->tensor.name, dtype);
            e->tensor.dtype = (enum ckpt_dtype)known;
        } else if (k == 1) TRY(scan_shape(s, &e->tensor));
        else TRY(scan_offsets(s, e));
        TRY(scan_more(s, '}', &more));
    }
    for (int k = 0; k < 3; k++)
        if (!seen[k]) REFUSE(s, "tensor %.200s has no %s", e->tensor.name, keys[k]);
    TRY(check_size(s, e));
fail:
    return error;
}

static int scan_metadata(struct scan *s, struct safetensors_header *h)
{
    int error = 0;
    bool more = true;
    size_t room = 0;
    TRY(expect(s, '{'));
    if (peek(s) == '}') {
        s->at++;
        return 0;
    }
    while (more) {
        struct safetensors_pair pair;
        TRY(scan_string(s, &pair.key));
        TRY(expect(s, ':'));
        if (peek(s) != '"') REFUSE(s, "metadata \"%.100s\" is not a string", pair.key);
        TRY(scan_string(s, &pair.value));
        if (h->n_pairs == CKPT_METADATA_MAX) REFUSE(s, "more than %d metadata entries", CKPT_METADATA_MAX);
        if (h->n_pairs == room) {
            room = room != 0 ? 2 * room : 16;
            TRY(memory_grow(&h->pair, room, sizeof *h->pair, "metadata of a safetensors file", s->f));
        }
        h->pair[h->n_pairs++] = pair;
        TRY(scan_more(s, '}', &more));
    }
fail:
    return error;
}

static int scan_header(struct scan *s, struct safetensors_header *h)
{
    int error = 0;
    bool more = true, seen_metadata = false;
    size_t room = 0;
    if (s->size == 0 || s->text[0] != '{') REFUSE(s, "no '{' at the start; not a safetensors file");
    s->at = 1;
    if (peek(s) == '}') {
        s->at++;
        more = false;
    }
    while (more) {
        const char *name;
        TRY(scan_string(s, &name));
        TRY(expect(s, ':'));
        if (strcmp(name, "__metadata__") == 0) {
            if (seen_metadata) REFUSE(s, "__metadata__ twice");
            seen_metadata = true;
            TRY(scan_metadata(s, h));
        } else {
            if (h->n_entries == CKPT_TENSORS_MAX) REFUSE(s, "more than %d tensors", CKPT_TENSORS_MAX);
            if (h->n_entries == room) {
                room = room != 0 ? 2 * room : 64;
                TRY(memory_grow(&h->entry, room, sizeof *h->entry, "tensors of a safetensors file", s->f));
            }
            struct safetensors_entry *e = &h->entry[h->n_entries];
            *e = (struct safetensors_entry){.tensor = {.name = name}};
            TRY(scan_tensor(s, e));
            h->n_entries++;
        }
        TRY(scan_more(s, '}', &more));
    }
    skip_space(s);
    if (s->at != s->size) REFUSE(s, "something after the closing brace");
fail:
    return error;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_entry *)a)->tensor.name,
                  ((const struct safetensors_entry *)b)->tensor.name);
}

static int by_place(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? by_name(a, b) : x->end < y->end ? -1 : 1;
}

static int pair_by_key(const void *a, const void *b)
{
    return strcmp((*(const struct safetensors_pair *const *)a)->key, (*(const struct safetensors_pair *const *)b)->key);
}

/* No name and no metadata key twice. */
static int check_names(struct safetensors_header *h, const char *path, struct tabft_failure *f)
{
    int error = 0;
    const struct safetensors_pair **sorted = NULL;
    if (h->n_entries > 0) qsort(h->entry, h->n_entries, sizeof *h->entry, by_name);
    for (size_t i = 1; i < h->n_entries; i++)
        if (by_name(&h->entry[i - 1], &h->entry[i]) == 0)
            FAIL(f, TABFT_INPUT, "%s: header: tensor %.200s is there twice", path, h->entry[i].tensor.name);
    TRY(memory_new(&sorted, h->n_pairs, sizeof *sorted, "metadata of a safetensors file", f));
    for (size_t i = 0; i < h->n_pairs; i++) sorted[i] = &h->pair[i];
    if (h->n_pairs > 0) qsort(sorted, h->n_pairs, sizeof *sorted, pair_by_key);
    for (size_t i = 1; i < h->n_pairs; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            FAIL(f, TABFT_INPUT, "%s: header: metadata \"%.100s\" is there twice", path, sorted[i]->key);
fail:
    free(sorted);
    return error;
}

int safetensors_parse(struct safetensors_header *header, size_t size, const char *path, uint64_t *data_size,
                      struct tabft_failure *f)
{
    int error = 0;
    struct scan s = {.text = header->text, .size = size, .path = path, .f = f};
    uint64_t end = 0;
    TRY(scan_header(&s, header));
    TRY(check_names(header, path, f));
    if (header->n_entries > 0) qsort(header->entry, header->n_entries, sizeof *header->entry, by_place);
    for (size_t i = 0; i < header->n_entries; i++) {
        const struct safetensors_entry *e = &header->entry[i];
        if (e->begin != end)
            FAIL(f, TABFT_INPUT, "%s: header: tensor %.200s starts at byte %llu of the data where %llu is due: %s",
                 path, e->tensor.name, (unsigned long long)e->begin, (unsigned long long)end,
                 e->begin < end ? "it overlaps the one before" : "there is a hole before it");
        end = e->end;
    }
    *data_size = end;
fail:
    return error;
}

void safetensors_header_clear(struct safetensors_header *header)
{
    free(header->text);
    free(header->entry);
    free(header->pair);
    *header = (struct safetensors_header){0};
}
