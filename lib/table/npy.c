/* NPY matrices (versions 1 to 3): the header is a Python literal, of which just the three keys and value forms that
 * numpy writes are taken; nothing is evaluated. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/pack_internal.h"

enum { HEADER_MAX = 1 << 20 };

static void skip_blanks(const char **p)
{
    while (**p == ' ' || **p == '\n') (*p)++;
}

static bool take(const char **p, const char *word)
{
    skip_blanks(p);
    size_t n = strlen(word);
    if (strncmp(*p, word, n) != 0) return false;
    *p += n;
    return true;
}

static bool take_descr(const char **p, char descr[8])
{
    size_t n = 0;
    skip_blanks(p);
    char quote = **p;
    if (quote != '\'' && quote != '"') return false;
    for ((*p)++; **p != quote; (*p)++) {
        if (**p == '\0' || n == 7) return false;
        descr[n++] = **p;
    }
    (*p)++;
    descr[n] = '\0';
    return true;
}

/* (), (3,) or (3, 4); at most 32 numbers. */
static bool take_shape(const char **p, uint64_t shape[32], size_t *n)
{
    if (!take(p, "(")) return false;
    for (*n = 0; !take(p, ")"); (*n)++) {
        char *end;
        if (*n == 32 || (*n > 0 && !take(p, ","))) return false;
        if (take(p, ")")) break;
        skip_blanks(p);
        if (**p < '0' || **p > '9') return false;
        shape[*n] = strtoull(*p, &end, 10);
        if (shape[*n] > INT64_MAX / 16) return false;
        *p = end;
    }
    return true;
}

/* Takes the header apart; false where it is not as numpy writes it. */
static bool parse(const char *p, char descr[8], bool *fortran, uint64_t shape[32], size_t *n_shape)
{
    int seen = 0;
    if (!take(&p, "{")) return false;
    while (!take(&p, "}")) {
        if (take(&p, "'descr':") && take_descr(&p, descr)) seen |= 1;
        else if (take(&p, "'fortran_order':") && (take(&p, "True") || take(&p, "False"))) {
            seen |= 2;
            *fortran = p[-2] == 'u';
        } else if (take(&p, "'shape':") && take_shape(&p, shape, n_shape)) seen |= 4;
        else return false;
        (void)take(&p, ",");
    }
    skip_blanks(&p);
    return *p == '\0' && seen == 7;
}

static int check_type(struct npy *n, const char *said, const char *descr, struct tabft_failure *f)
{
    size_t item = descr[0] != '\0' && descr[1] != '\0' && descr[2] >= '1' && descr[2] <= '8' && descr[3] == '\0'
                      ? (size_t)(descr[2] - '0')
                      : 0;
    n->type = descr[0] == '\0' ? '\0' : descr[1];
    n->item = item;
    if (n->type == 'O')
        return tabft_fail(f, TABFT_INPUT,
                          "%s: holds Python objects, which are not read; save numbers (array.astype(float))", said);
    bool order = descr[0] == '<' || (item == 1 && descr[0] == '|');
    bool real = n->type == 'f' && (item == 4 || item == 8);
    bool whole = (n->type == 'i' || n->type == 'u') && (item == 1 || item == 2 || item == 4 || item == 8);
    bool boolean = n->type == 'b' && item == 1;
    if (order && (real || whole || boolean)) return 0;
    return tabft_fail(f, TABFT_INPUT,
                      "%s: type %s; little-endian f4, f8, i1 to i8, u1 to u8 and bool are read (array.astype)", said,
                      descr);
}

int npy_open(struct npy *n, const struct input *in, struct tabft_failure *f)
{
    int error = 0;
    unsigned char head[12];
    char *text = NULL, descr[8] = "";
    bool fortran = false;
    uint64_t shape[32];
    size_t n_shape = 0, bytes;
    const char *said = input_said(in);
    if (in->size < 12)
        FAIL(f, TABFT_INPUT, "%s: %llu bytes are no NPY file; save the array again (numpy.save)", said,
             (unsigned long long)in->size);
    TRY(input_get(in, 0, head, 12, f));
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        FAIL(f, TABFT_INPUT, "%s: NPY version %u.%u; 1.0 to 3.0 are read", said, head[6], head[7]);
    uint32_t size = (uint32_t)head[8] | (uint32_t)head[9] << 8;
    if (head[6] > 1) size |= (uint32_t)head[10] << 16 | (uint32_t)head[11] << 24;
    uint64_t start = head[6] > 1 ? 12 : 10;
    if (size > HEADER_MAX || size > in->size - start)
        FAIL(f, TABFT_INPUT, "%s: an NPY header of %u bytes; save the array again (numpy.save)", said, size);
    TRY(memory_new(&text, (size_t)size + 1, 1, "an NPY header", f));
    TRY(input_get(in, start, text, size, f));
    if (!parse(text, descr, &fortran, shape, &n_shape))
        FAIL(f, TABFT_INPUT,
             "%s: the NPY header is not as numpy writes it for a matrix of numbers; save one with numpy.save", said);
    TRY(check_type(n, said, descr, f));
    if (n_shape < 1 || n_shape > 2)
        FAIL(f, TABFT_INPUT, "%s: %zu dimensions; a matrix has rows and columns (array.reshape)", said, n_shape);
    n->rows = shape[0];
    n->columns = n_shape == 2 ? shape[1] : 1;
    n->offset = start + size;
    if (fortran && n->columns != 1 && n->rows > 1)
        FAIL(f, TABFT_INPUT, "%s: lies in Fortran order; save numpy.ascontiguousarray(array)", said);
    if (n->columns < 1 || n->columns > TABLE_COLUMNS_MAX)
        FAIL(f, TABFT_INPUT, "%s: %llu columns; 1 to %d are taken", said, (unsigned long long)n->columns,
             (int)TABLE_COLUMNS_MAX);
    if (!size_mul((size_t)n->rows, (size_t)n->columns, &bytes) || !size_mul(bytes, n->item, &bytes) ||
        bytes != in->size - n->offset) {
        FAIL(f, TABFT_INPUT,
             "%s: %llu x %llu numbers of %zu bytes do not make the %llu bytes behind the header; copy or save it again",
             said, (unsigned long long)n->rows, (unsigned long long)n->columns, n->item,
             (unsigned long long)(in->size - n->offset));
    }
fail:
    free(text);
    return error;
}

bool npy_cell(const struct npy *n, const unsigned char *at, int64_t *integer, double *real)
{
    float f32;
    uint64_t bits = 0;
    memcpy(&bits, at, n->item);
    switch (n->type) {
    case 'f':
        memcpy(&f32, at, 4);
        if (n->item == 4) *real = (double)f32;
        else memcpy(real, at, 8);
        return true;
    case 'i': {
        unsigned shift = (unsigned)(64 - 8 * n->item);
        *integer = (int64_t)(bits << shift) >> shift;
        return true;
    }
    default: *integer = (int64_t)bits; return bits <= INT64_MAX;
    }
}
