/* The element types of safetensors files: names, sizes, order, values. */
#define TABFT_IN_CKPT
#include "ckpt/safetensors_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* `order` follows the library's own list of types, in which it sorts tensors from last to first. */
static const struct {
    const char name[5];
    unsigned char size, order;
} dtypes[CKPT_DTYPES] = {
    [CKPT_BOOL] = {"BOOL", 1, 0}, [CKPT_U8] = {"U8", 1, 1},   [CKPT_I8] = {"I8", 1, 2},     [CKPT_I16] = {"I16", 2, 3},
    [CKPT_U16] = {"U16", 2, 4},   [CKPT_F16] = {"F16", 2, 5}, [CKPT_BF16] = {"BF16", 2, 6}, [CKPT_I32] = {"I32", 4, 7},
    [CKPT_U32] = {"U32", 4, 8},   [CKPT_F32] = {"F32", 4, 9}, [CKPT_F64] = {"F64", 8, 10},  [CKPT_I64] = {"I64", 8, 11},
    [CKPT_U64] = {"U64", 8, 12},
};

const char *ckpt_dtype_name(enum ckpt_dtype dtype) { return dtypes[dtype].name; }
size_t ckpt_dtype_size(enum ckpt_dtype dtype) { return dtypes[dtype].size; }
int safetensors_dtype_order(enum ckpt_dtype dtype) { return dtypes[dtype].order; }

int safetensors_dtype(const char *name)
{
    for (int i = 0; i < CKPT_DTYPES; i++)
        if (strcmp(name, dtypes[i].name) == 0) return i;
    return -1;
}

/* IEEE 754 binary16. */
static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double fraction = bits & 1023;
    double magnitude;
    if (exponent == 31) magnitude = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0) magnitude = ldexp(fraction, -24);
    else magnitude = ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

static double bfloat_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

#define VALUE_OF(type)                    \
    do {                                  \
        type value;                       \
        memcpy(&value, at, sizeof value); \
        return (double)value;             \
    } while (0)

double ckpt_value(const struct ckpt_tensor *t, uint64_t i)
{
    assert(i < t->count && t->data != NULL);
    const unsigned char *at = (const unsigned char *)t->data + (size_t)i * dtypes[t->dtype].size;
    uint16_t bits;
    switch (t->dtype) {
    case CKPT_F32: VALUE_OF(float);
    case CKPT_F64: VALUE_OF(double);
    case CKPT_I64: VALUE_OF(int64_t);
    case CKPT_I32: VALUE_OF(int32_t);
    case CKPT_I16: VALUE_OF(int16_t);
    case CKPT_I8: VALUE_OF(int8_t);
    case CKPT_U64: VALUE_OF(uint64_t);
    case CKPT_U32: VALUE_OF(uint32_t);
    case CKPT_U16: VALUE_OF(uint16_t);
    case CKPT_U8: VALUE_OF(uint8_t);
    case CKPT_BOOL: return *at != 0;
    case CKPT_F16: memcpy(&bits, at, sizeof bits); return half_value(bits);
    case CKPT_BF16: memcpy(&bits, at, sizeof bits); return bfloat_value(bits);
    case CKPT_DTYPES: break;
    }
    assert(!"a dtype of the list");
    return NAN;
}
