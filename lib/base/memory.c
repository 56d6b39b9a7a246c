#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(size_t n, size_t size, const char *what, struct tabft_failure *f)
{
    return tabft_fail(f, TABFT_SYSTEM, "no memory for %s (%zu x %zu bytes); give the job more memory", what, n, size);
}

int memory_new(void *out, size_t n, size_t size, const char *what, struct tabft_failure *f)
{
    size_t bytes;
    if (!size_mul(n, size, &bytes)) return no_memory(n, size, what, f);
    void *p = calloc(bytes ? bytes : 1, 1);
    if (p == NULL) return no_memory(n, size, what, f);
    memcpy(out, &p, sizeof p);
    return 0;
}

int memory_grow(void *out, size_t n, size_t size, const char *what, struct tabft_failure *f)
{
    size_t bytes;
    void *p;
    memcpy(&p, out, sizeof p);
    if (!size_mul(n, size, &bytes)) return no_memory(n, size, what, f);
    p = realloc(p, bytes ? bytes : 1);
    if (p == NULL) return no_memory(n, size, what, f);
    memcpy(out, &p, sizeof p);
    return 0;
}

int memory_new_aligned(void *out, size_t n, size_t size, const char *what, struct tabft_failure *f)
{
    size_t bytes;
    if (!size_mul(n, size, &bytes) || bytes > SIZE_MAX - 64) return no_memory(n, size, what, f);
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 64) != 0) return no_memory(n, size, what, f);
    memcpy(out, &p, sizeof p);
    return 0;
}

int memory_copy_string(char **out, const char *text, struct tabft_failure *f)
{
    size_t n = strlen(text) + 1;
    char *copy;
    int error = memory_new(&copy, n, 1, "a name", f);
    if (error < 0) return error;
    memcpy(copy, text, n);
    *out = copy;
    return 0;
}
