/* The pickles of PyTorch's checkpoints as plain values, by an interpreter of the opcodes that tensors need. It calls
 * nothing: what a pickle names is looked up in a fixed list, and what it "calls" becomes a value of that kind. Not for
 * other rooms. */
#ifndef TABFT_CKPT_PICKLE_INTERNAL_H
#define TABFT_CKPT_PICKLE_INTERNAL_H

#include "ckpt/ckpt.h"

#ifndef TABFT_IN_CKPT
#error "pickle_internal.h belongs to lib/ckpt"
#endif

/* More is refused: what bounds time and memory (about 40 MiB) whatever the pickle says. */
enum { PICKLE_SIZE_MAX = 1 << 24, PICKLE_OPCODES_MAX = 500000, PICKLE_MARKS_MAX = 256 };

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_FLOAT,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_ORDERED_DICT,
    PICKLE_GLOBAL,  /* a name of the list */
    PICKLE_STORAGE, /* items: the values of its persistent id, their kinds checked: text, global, text, text, int */
    PICKLE_TENSOR   /* items: the arguments of _rebuild_tensor_v2, their kinds checked: storage, int, tuple of ints,
                       tuple of as many ints, bool, empty ordered dict */
};

enum pickle_global { PICKLE_CALL_ORDERED_DICT, PICKLE_CALL_TENSOR, PICKLE_STORAGE_TYPE };

struct pickle_value {
    enum pickle_kind kind;
    uint32_t size, room; /* bytes of a text; items and place for items; for a global its place in the list */
    union {
        int64_t integer; /* also of a bool */
        double real;
        const char *text; /* UTF-8 without NUL inside; does not end in NUL; points into the pickle */
        uint32_t *item;   /* values by number; of dictionaries key (a text), value, key, ... */
    } of;
};

struct pickle {
    struct pickle_value *value;
    uint32_t n_values, room;
    uint32_t root; /* the value of the whole */
};

/* Interprets a pickle; `place` ("FILE: data.pkl") goes into messages; `text` must outlive *out. Errors: TABFT_INPUT
 * naming the opcode or the name and the byte, TABFT_SYSTEM. */
int pickle_read(struct pickle *out, const void *text, size_t size, const char *place,
                struct tabft_failure *f) TABFT_MUST_CHECK;
void pickle_clear(struct pickle *p);

/* The kind of a value as Python calls it. */
const char *pickle_kind_name(enum pickle_kind kind);
/* The element type of a global of PICKLE_STORAGE_TYPE, -1 for other names. */
int pickle_global_dtype(const struct pickle_value *global);
/* Whether a text is this one. */
bool pickle_text_is(const struct pickle_value *v, const char *text);

/* The name of an opcode in any protocol, NULL where no protocol has it. */
const char *pickle_opcode_name(unsigned char opcode);
/* The place in the list of a name "module name", -1 where it is not in it. */
int pickle_global_find(const char *module, size_t module_size, const char *name, size_t name_size);
const char *pickle_global_name(uint32_t place);
enum pickle_global pickle_global_kind(uint32_t place);

#endif
