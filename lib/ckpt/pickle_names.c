/* The names that pickles may use, and those of all opcodes: a refusal says what it refuses. */
#define TABFT_IN_CKPT
#include "ckpt/pickle_internal.h"

#include <string.h>

static const char *const opcodes[256] = {
    [0x28] = "MARK", [0x29] = "EMPTY_TUPLE", [0x2e] = "STOP", [0x30] = "POP", [0x31] = "POP_MARK", [0x32] = "DUP",
    [0x42] = "BINBYTES", [0x43] = "SHORT_BINBYTES", [0x46] = "FLOAT", [0x47] = "BINFLOAT", [0x49] = "INT",
    [0x4a] = "BININT", [0x4b] = "BININT1", [0x4c] = "LONG", [0x4d] = "BININT2", [0x4e] = "NONE", [0x50] = "PERSID",
    [0x51] = "BINPERSID", [0x52] = "REDUCE", [0x53] = "STRING", [0x54] = "BINSTRING", [0x55] = "SHORT_BINSTRING",
    [0x56] = "UNICODE", [0x58] = "BINUNICODE", [0x5d] = "EMPTY_LIST", [0x61] = "APPEND", [0x62] = "BUILD",
    [0x63] = "GLOBAL", [0x64] = "DICT", [0x65] = "APPENDS", [0x67] = "GET", [0x68] = "BINGET", [0x69] = "INST",
    [0x6a] = "LONG_BINGET", [0x6c] = "LIST", [0x6f] = "OBJ", [0x70] = "PUT", [0x71] = "BINPUT",
    [0x72] = "LONG_BINPUT", [0x73] = "SETITEM", [0x74] = "TUPLE", [0x75] = "SETITEMS", [0x7d] = "EMPTY_DICT",
    [0x80] = "PROTO", [0x81] = "NEWOBJ", [0x82] = "EXT1", [0x83] = "EXT2", [0x84] = "EXT4", [0x85] = "TUPLE1",
    [0x86] = "TUPLE2", [0x87] = "TUPLE3", [0x88] = "NEWTRUE", [0x89] = "NEWFALSE", [0x8a] = "LONG1", [0x8b] = "LONG4",
    [0x8c] = "SHORT_BINUNICODE", [0x8d] = "BINUNICODE8", [0x8e] = "BINBYTES8", [0x8f] = "EMPTY_SET",
    [0x90] = "ADDITEMS", [0x91] = "FROZENSET", [0x92] = "NEWOBJ_EX", [0x93] = "STACK_GLOBAL", [0x94] = "MEMOIZE",
    [0x95] = "FRAME", [0x96] = "BYTEARRAY8", [0x97] = "NEXT_BUFFER", [0x98] = "READONLY_BUFFER",
};

static const struct {
    const char *module, *name, *whole;
    enum pickle_global kind;
    int dtype;
} globals[] = {
    {"collections", "OrderedDict", "collections.OrderedDict", PICKLE_CALL_ORDERED_DICT, -1},
    {"torch._utils", "_rebuild_tensor_v2", "torch._utils._rebuild_tensor_v2", PICKLE_CALL_TENSOR, -1},
    {"torch", "FloatStorage", "torch.FloatStorage", PICKLE_STORAGE_TYPE, CKPT_F32},
    {"torch", "DoubleStorage", "torch.DoubleStorage", PICKLE_STORAGE_TYPE, CKPT_F64},
    {"torch", "HalfStorage", "torch.HalfStorage", PICKLE_STORAGE_TYPE, CKPT_F16},
    {"torch", "BFloat16Storage", "torch.BFloat16Storage", PICKLE_STORAGE_TYPE, CKPT_BF16},
    {"torch", "LongStorage", "torch.LongStorage", PICKLE_STORAGE_TYPE, CKPT_I64},
    {"torch", "IntStorage", "torch.IntStorage", PICKLE_STORAGE_TYPE, CKPT_I32},
    {"torch", "ShortStorage", "torch.ShortStorage", PICKLE_STORAGE_TYPE, CKPT_I16},
    {"torch", "CharStorage", "torch.CharStorage", PICKLE_STORAGE_TYPE, CKPT_I8},
    {"torch", "ByteStorage", "torch.ByteStorage", PICKLE_STORAGE_TYPE, CKPT_U8},
    {"torch", "BoolStorage", "torch.BoolStorage", PICKLE_STORAGE_TYPE, CKPT_BOOL},
};
enum { GLOBALS = sizeof globals / sizeof *globals };

const char *pickle_opcode_name(unsigned char opcode) { return opcodes[opcode]; }

static bool same(const char *text, size_t size, const char *expected)
{
    return strlen(expected) == size && memcmp(text, expected, size) == 0;
}

int pickle_global_find(const char *module, size_t module_size, const char *name, size_t name_size)
{
    for (int i = 0; i < GLOBALS; i++)
        if (same(module, module_size, globals[i].module) && same(name, name_size, globals[i].name)) return i;
    return -1;
}

const char *pickle_global_name(uint32_t place) { return globals[place].whole; }
enum pickle_global pickle_global_kind(uint32_t place) { return globals[place].kind; }

int pickle_global_dtype(const struct pickle_value *global)
{
    return global->kind == PICKLE_GLOBAL ? globals[global->size].dtype : -1;
}

bool pickle_text_is(const struct pickle_value *v, const char *text)
{
    return v->kind == PICKLE_TEXT && same(v->of.text, v->size, text);
}

const char *pickle_kind_name(enum pickle_kind kind)
{
    static const char *const names[] = {
        [PICKLE_NONE] = "None",   [PICKLE_BOOL] = "a bool",       [PICKLE_INT] = "an int",
        [PICKLE_FLOAT] = "a float", [PICKLE_TEXT] = "a text",     [PICKLE_TUPLE] = "a tuple",
        [PICKLE_LIST] = "a list", [PICKLE_DICT] = "a dictionary", [PICKLE_ORDERED_DICT] = "an OrderedDict",
        [PICKLE_GLOBAL] = "a name", [PICKLE_STORAGE] = "a storage", [PICKLE_TENSOR] = "a tensor",
    };
    return names[kind];
}
