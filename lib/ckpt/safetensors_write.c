/* Writing a safetensors file as the safetensors library does. */
#define TABFT_IN_CKPT
#include "ckpt/safetensors_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/text_internal.h"
#include "file/file.h"

/* A JSON string with the shortest escapes, everything beyond ASCII as it is: the library's own choice. */
static int text_put_json(struct text *t, const char *string, struct tabft_failure *f)
{
    int error = 0;
    const unsigned char *at = (const unsigned char *)string;
    size_t left = strlen(string);
    TRY(text_put_string(t, "\"", f));
    while (left > 0) {
        static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        char escape[8];
        size_t length = safetensors_utf8(at, left);
        if (length == 0) FAIL(f, TABFT_INPUT, "safetensors: a name or metadata text is not UTF-8");
        const char *known = strchr(named, *at);
        if (known != NULL) {
            (void)snprintf(escape, sizeof escape, "\\%c", letters[known - named]);
            TRY(text_put_string(t, escape, f));
        } else if (*at < 0x20) {
            (void)snprintf(escape, sizeof escape, "\\u%04x", *at);
            TRY(text_put_string(t, escape, f));
        } else TRY(text_put(t, (const char *)at, length, f));
        at += length;
        left -= length;
    }
    TRY(text_put_string(t, "\"", f));
fail:
    return error;
}

/* The library's order: wide types first, so that every tensor is aligned, then names. */
static int by_dtype_and_name(const void *a, const void *b)
{
    const struct ckpt_tensor *x = *(const struct ckpt_tensor *const *)a, *y = *(const struct ckpt_tensor *const *)b;
    int order = safetensors_dtype_order(y->dtype) - safetensors_dtype_order(x->dtype);
    return order != 0 ? order : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct ckpt_tensor *const *)a)->name, (*(const struct ckpt_tensor *const *)b)->name);
}

/* Pointers to the tensors in file order; refuses what the reader would refuse. The caller frees *out. */
static int sort_tensors(const struct ckpt_tensor *tensors, size_t n, const struct ckpt_tensor ***out,
                        struct tabft_failure *f)
{
    int error = 0;
    const struct ckpt_tensor **sorted = NULL;
    if (n > CKPT_TENSORS_MAX) FAIL(f, TABFT_INPUT, "safetensors: more than %d tensors", CKPT_TENSORS_MAX);
    TRY(memory_new(&sorted, n, sizeof *sorted, "tensors of a safetensors file", f));
    for (size_t i = 0; i < n; i++) {
        const struct ckpt_tensor *t = &tensors[i];
        uint64_t count = 1;
        bool fits = t->rank >= 0 && t->rank <= CKPT_RANK_MAX;
        for (int k = 0; fits && k < t->rank; k++) fits = !__builtin_mul_overflow(count, t->shape[k], &count);
        if (!fits || count != t->count || (t->count > 0 && t->data == NULL) || strcmp(t->name, "__metadata__") == 0)
            FAIL(f, TABFT_INPUT, "safetensors: tensor %.200s has no sound name, shape or data", t->name);
        sorted[i] = t;
    }
    if (n > 0) qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            FAIL(f, TABFT_INPUT, "safetensors: tensor %.200s is there twice", sorted[i]->name);
    if (n > 0) qsort(sorted, n, sizeof *sorted, by_dtype_and_name);
    *out = sorted;
    sorted = NULL;
fail:
    free(sorted);
    return error;
}

static int put_entry(struct text *t, const struct ckpt_tensor *tensor, uint64_t begin, uint64_t end,
                     struct tabft_failure *f)
{
    int error = 0;
    char part[96];
    TRY(text_put_json(t, tensor->name, f));
    (void)snprintf(part, sizeof part, ":{\"dtype\":\"%s\",\"shape\":[", ckpt_dtype_name(tensor->dtype));
    TRY(text_put_string(t, part, f));
    for (int i = 0; i < tensor->rank; i++) {
        (void)snprintf(part, sizeof part, "%s%llu", i > 0 ? "," : "", (unsigned long long)tensor->shape[i]);
        TRY(text_put_string(t, part, f));
    }
    (void)snprintf(part, sizeof part, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                   (unsigned long long)end);
    TRY(text_put_string(t, part, f));
fail:
    return error;
}

static int put_metadata(struct text *t, const char *const (*metadata)[2], size_t n, struct tabft_failure *f)
{
    int error = 0;
    TRY(text_put_string(t, "\"__metadata__\":{", f));
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            if (strcmp(metadata[k][0], metadata[i][0]) == 0)
                FAIL(f, TABFT_INPUT, "safetensors: metadata \"%.100s\" is there twice", metadata[i][0]);
        if (i > 0) TRY(text_put_string(t, ",", f));
        TRY(text_put_json(t, metadata[i][0], f));
        TRY(text_put_string(t, ":", f));
        TRY(text_put_json(t, metadata[i][1], f));
    }
    TRY(text_put_string(t, "}", f));
fail:
    return error;
}

int ckpt_write(const char *path, bool force, const struct ckpt_tensor *tensors, size_t n_tensors,
               const char *const (*metadata)[2], size_t n_metadata, struct tabft_failure *f)
{
    int error = 0;
    const struct ckpt_tensor **sorted = NULL;
    struct text header = {0};
    struct file_writer *w = NULL;
    uint64_t data_size = 0, header_size;
    TRY(sort_tensors(tensors, n_tensors, &sorted, f));
    TRY(text_put_string(&header, "{", f));
    if (n_metadata > 0) TRY(put_metadata(&header, metadata, n_metadata, f));
    for (size_t i = 0; i < n_tensors; i++) {
        uint64_t bytes, begin = data_size;
        if (__builtin_mul_overflow(sorted[i]->count, (uint64_t)ckpt_dtype_size(sorted[i]->dtype), &bytes) ||
            __builtin_add_overflow(data_size, bytes, &data_size))
            FAIL(f, TABFT_INPUT, "safetensors: data of more than 2^64 bytes");
        if (i > 0 || n_metadata > 0) TRY(text_put_string(&header, ",", f));
        TRY(put_entry(&header, sorted[i], begin, data_size, f));
    }
    TRY(text_put_string(&header, "}", f));
    while (header.size % 8 != 0) TRY(text_put_string(&header, " ", f));
    if (header.size > CKPT_HEADER_MAX)
        FAIL(f, TABFT_INPUT, "safetensors: a header of %zu bytes, more than %d", header.size, CKPT_HEADER_MAX);
    header_size = header.size;
    TRY(file_writer_open(&w, path, force, true, sizeof header_size + header_size + data_size, f));
    TRY(file_writer_put(w, &header_size, sizeof header_size, f));
    TRY(file_writer_put(w, header.bytes, header.size, f));
    for (size_t i = 0; i < n_tensors; i++)
        TRY(file_writer_put(w, sorted[i]->data, (size_t)sorted[i]->count * ckpt_dtype_size(sorted[i]->dtype), f));
    error = file_writer_close(w, f);
    w = NULL;
fail:
    file_writer_abandon(w);
    free(header.bytes);
    free(sorted);
    return error;
}
