/* The interpreter: a stack of values, a stack of marks, a memo. Values are numbers into one array, so that nothing is
 * freed before the end and a value that holds itself does no harm here. */
#define TABFT_IN_CKPT
#include "ckpt/pickle_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/safetensors_internal.h"

struct machine {
    struct pickle *out;
    const unsigned char *text;
    size_t size, at; /* `at`: the next byte */
    size_t opcode_at;
    uint32_t *stack, n_stack, stack_room;
    uint32_t mark[PICKLE_MARKS_MAX], n_marks; /* heights of the stack */
    uint32_t *memo, n_memo, memo_room;
    const char *place;
    struct tabft_failure *f;
};

/* Every refusal names the opcode and where it is. */
static int TABFT_PRINTF(2, 3) refuse(struct machine *m, const char *format, ...)
{
    char reason[512];
    const char *opcode = m->opcode_at < m->size ? pickle_opcode_name(m->text[m->opcode_at]) : "the end";
    va_list list;
    va_start(list, format);
    (void)vsnprintf(reason, sizeof reason, format, list);
    va_end(list);
    return tabft_fail(m->f, TABFT_INPUT, "%s, byte %zu: %s: %s; nothing of it was run, and it is not converted",
                      m->place, m->opcode_at, opcode != NULL ? opcode : "no opcode", reason);
}

static struct pickle_value *value_at(const struct machine *m, uint32_t number) { return &m->out->value[number]; }
/* The value `depth` below the top, 0 the top; the caller has asked need() for it. */
static struct pickle_value *top(const struct machine *m, uint32_t depth)
{
    return value_at(m, m->stack[m->n_stack - 1 - depth]);
}

static uint32_t floor_of(const struct machine *m) { return m->n_marks > 0 ? m->mark[m->n_marks - 1] : 0; }

/* That many values above the last mark. */
static int need(struct machine *m, uint32_t n)
{
    return m->n_stack - floor_of(m) >= n ? 0 : refuse(m, "takes %u values, the stack has %u", n,
                                                      m->n_stack - floor_of(m));
}

/* Room for one more in an array of numbers. */
static int grow(uint32_t **numbers, uint32_t n, uint32_t *room, struct tabft_failure *f)
{
    int error = 0;
    if (n < *room) return 0;
    uint32_t more = 2 * n + 4; /* n is bounded by the opcodes: no overflow */
    TRY(memory_grow(numbers, more, sizeof **numbers, "values of a pickle", f));
    *room = more;
fail:
    return error;
}

static int push(struct machine *m, uint32_t number)
{
    int error = 0;
    TRY(grow(&m->stack, m->n_stack, &m->stack_room, m->f));
    m->stack[m->n_stack++] = number;
fail:
    return error;
}

static int push_value(struct machine *m, struct pickle_value v)
{
    int error = 0;
    struct pickle *p = m->out;
    if (p->n_values == p->room) {
        uint32_t room = 2 * p->room + 64;
        TRY(memory_grow(&p->value, room, sizeof *p->value, "values of a pickle", m->f));
        p->room = room;
    }
    p->value[p->n_values] = v;
    TRY(push(m, p->n_values++));
fail:
    return error;
}

static int push_integer(struct machine *m, enum pickle_kind kind, int64_t integer)
{
    return push_value(m, (struct pickle_value){.kind = kind, .of.integer = integer});
}

/* The next n bytes of the pickle. */
static int take(struct machine *m, size_t n, const unsigned char **bytes)
{
    if (m->size - m->at < n)
        return refuse(m, "needs %zu bytes, the pickle has %zu more: cut short", n, m->size - m->at);
    *bytes = m->text + m->at;
    m->at += n;
    return 0;
}

/* An unsigned number of 1, 2, 4 or 8 bytes. */
static int take_number(struct machine *m, unsigned n, uint64_t *out)
{
    int error = 0;
    const unsigned char *bytes = NULL;
    *out = 0;
    TRY(take(m, n, &bytes));
    for (unsigned i = n; i-- > 0;) *out = *out << 8 | bytes[i];
fail:
    return error;
}

static int read_text(struct machine *m)
{
    int error = 0;
    uint64_t size;
    const unsigned char *bytes = NULL;
    TRY(take_number(m, 4, &size));
    TRY(take(m, (size_t)size, &bytes));
    for (size_t done = 0, length; done < size; done += length) {
        length = safetensors_utf8(bytes + done, (size_t)size - done);
        if (length == 0 || bytes[done] == '\0') return refuse(m, "text that is not UTF-8 or has a NUL");
    }
    TRY(push_value(m, (struct pickle_value){
                          .kind = PICKLE_TEXT, .size = (uint32_t)size, .of.text = (const char *)bytes}));
fail:
    return error;
}

/* Two's complement of n bytes, little-endian. */
static int read_signed(struct machine *m, unsigned n)
{
    int error = 0;
    uint64_t bits;
    TRY(take_number(m, n, &bits));
    if (n > 0 && n < 8 && (bits >> (8 * n - 1) & 1) != 0) bits |= UINT64_MAX << 8 * n;
    TRY(push_integer(m, PICKLE_INT, (int64_t)bits));
fail:
    return error;
}

static int read_long(struct machine *m)
{
    int error = 0;
    uint64_t n;
    TRY(take_number(m, 1, &n));
    if (n > 8) return refuse(m, "an integer of %u bytes, more than 8", (unsigned)n);
    TRY(read_signed(m, (unsigned)n));
fail:
    return error;
}

static int read_float(struct machine *m)
{
    int error = 0;
    const unsigned char *bytes = NULL;
    uint64_t bits = 0;
    struct pickle_value v = {.kind = PICKLE_FLOAT};
    TRY(take(m, 8, &bytes));
    for (int i = 0; i < 8; i++) bits = bits << 8 | bytes[i];
    memcpy(&v.of.real, &bits, sizeof v.of.real);
    TRY(push_value(m, v));
fail:
    return error;
}

static int read_global(struct machine *m)
{
    int error = 0;
    const char *module = (const char *)m->text + m->at, *name, *end;
    size_t left = m->size - m->at;
    name = memchr(module, '\n', left);
    end = name != NULL ? memchr(name + 1, '\n', left - (size_t)(name + 1 - module)) : NULL;
    if (end == NULL) return refuse(m, "names nothing: cut short");
    const size_t module_size = (size_t)(name - module), name_size = (size_t)(end - name - 1);
    name++;
    m->at += (size_t)(end + 1 - module);
    int found = pickle_global_find(module, module_size, name, name_size);
    if (found < 0)
        return refuse(m, "%.*s.%.*s is not among the names that tensors need",
                      module_size < 100 ? (int)module_size : 100, module, name_size < 100 ? (int)name_size : 100, name);
    TRY(push_value(m, (struct pickle_value){.kind = PICKLE_GLOBAL, .size = (uint32_t)found}));
fail:
    return error;
}

/* ---- containers ---- */

static int add_item(struct machine *m, struct pickle_value *container, uint32_t item)
{
    int error = 0;
    TRY(grow(&container->of.item, container->size, &container->room, m->f));
    container->of.item[container->size++] = item;
fail:
    return error;
}

/* The top n values become one tuple. */
static int make_tuple(struct machine *m, uint32_t n)
{
    int error = 0;
    struct pickle_value tuple = {.kind = PICKLE_TUPLE};
    TRY(need(m, n));
    for (uint32_t i = 0; i < n; i++) TRY(add_item(m, &tuple, m->stack[m->n_stack - n + i]));
    m->n_stack -= n;
    error = push_value(m, tuple);
    if (error == 0) tuple.of.item = NULL; /* the array has it */
fail:
    free(tuple.of.item);
    return error;
}

/* Removes the last mark; *n = the values above it. */
static int take_mark(struct machine *m, uint32_t *n)
{
    if (m->n_marks == 0) return refuse(m, "there is no mark");
    *n = m->n_stack - m->mark[--m->n_marks];
    return 0;
}

static int append(struct machine *m, uint32_t n)
{
    int error = 0;
    TRY(need(m, n + 1));
    struct pickle_value *list = top(m, n);
    if (list->kind != PICKLE_LIST) return refuse(m, "appends to %s", pickle_kind_name(list->kind));
    for (uint32_t i = n; i-- > 0;) TRY(add_item(m, list, m->stack[m->n_stack - 1 - i]));
    m->n_stack -= n;
fail:
    return error;
}

static int set_items(struct machine *m, uint32_t n)
{
    int error = 0;
    if (n % 2 != 0) return refuse(m, "a key without a value");
    TRY(need(m, n + 1));
    struct pickle_value *dict = top(m, n);
    if (dict->kind != PICKLE_DICT && dict->kind != PICKLE_ORDERED_DICT)
        return refuse(m, "sets an item of %s", pickle_kind_name(dict->kind));
    for (uint32_t i = n; i-- > 0;) {
        if (i % 2 == 1 && top(m, i)->kind != PICKLE_TEXT)
            return refuse(m, "a key that is %s, not a text (an optimizer's state? save without it)",
                          pickle_kind_name(top(m, i)->kind));
        TRY(add_item(m, dict, m->stack[m->n_stack - 1 - i]));
    }
    m->n_stack -= n;
fail:
    return error;
}

/* ---- what stands for objects ---- */

static const struct pickle_value *item_at(const struct machine *m, const struct pickle_value *v, uint32_t i)
{
    return value_at(m, v->of.item[i]);
}

/* Few of them: a pickle may show the same long tuple again and again. */
static bool all_integers(const struct machine *m, const struct pickle_value *tuple)
{
    if (tuple->size > CKPT_RANK_MAX) return false;
    for (uint32_t i = 0; i < tuple->size; i++)
        if (item_at(m, tuple, i)->kind != PICKLE_INT) return false;
    return true;
}

static bool kinds_are(const struct machine *m, const struct pickle_value *tuple, const enum pickle_kind *kinds,
                      uint32_t n)
{
    if (tuple->kind != PICKLE_TUPLE || tuple->size != n) return false;
    for (uint32_t i = 0; i < n; i++)
        if (item_at(m, tuple, i)->kind != kinds[i]) return false;
    return true;
}

/* Replaces the top n values by one of that kind which shares the tuple's items. */
static int replace(struct machine *m, uint32_t n, enum pickle_kind kind, const struct pickle_value *tuple)
{
    int error = 0;
    struct pickle_value v = {.kind = kind};
    for (uint32_t i = 0; i < tuple->size; i++) TRY(add_item(m, &v, tuple->of.item[i]));
    m->n_stack -= n;
    error = push_value(m, v);
    if (error == 0) v.of.item = NULL; /* the array has it */
fail:
    free(v.of.item);
    return error;
}

static int call(struct machine *m)
{
    static const enum pickle_kind tensor[] = {PICKLE_STORAGE, PICKLE_INT,  PICKLE_TUPLE,
                                              PICKLE_TUPLE,   PICKLE_BOOL, PICKLE_ORDERED_DICT};
    int error = 0;
    TRY(need(m, 2));
    const struct pickle_value *callee = top(m, 1), *arguments = top(m, 0);
    if (callee->kind != PICKLE_GLOBAL) return refuse(m, "calls %s", pickle_kind_name(callee->kind));
    if (arguments->kind != PICKLE_TUPLE)
        return refuse(m, "arguments that are %s, not a tuple", pickle_kind_name(arguments->kind));
    switch (pickle_global_kind(callee->size)) {
    case PICKLE_CALL_ORDERED_DICT:
        if (arguments->size != 0) return refuse(m, "collections.OrderedDict with arguments");
        TRY(replace(m, 2, PICKLE_ORDERED_DICT, arguments));
        break;
    case PICKLE_CALL_TENSOR:
        if (!kinds_are(m, arguments, tensor, 6) || !all_integers(m, item_at(m, arguments, 2)) ||
            !all_integers(m, item_at(m, arguments, 3)) ||
            item_at(m, arguments, 2)->size != item_at(m, arguments, 3)->size || item_at(m, arguments, 5)->size != 0)
            return refuse(m, "arguments of torch._utils._rebuild_tensor_v2 of other types than torch.save writes, or "
                             "more than %d dimensions", CKPT_RANK_MAX);
        TRY(replace(m, 2, PICKLE_TENSOR, arguments));
        break;
    case PICKLE_STORAGE_TYPE: return refuse(m, "calls %s", pickle_global_name(callee->size));
    }
fail:
    return error;
}

static int read_storage(struct machine *m)
{
    static const enum pickle_kind kinds[] = {PICKLE_TEXT, PICKLE_GLOBAL, PICKLE_TEXT, PICKLE_TEXT, PICKLE_INT};
    int error = 0;
    TRY(need(m, 1));
    const struct pickle_value *id = top(m, 0);
    if (!kinds_are(m, id, kinds, 5) || !pickle_text_is(item_at(m, id, 0), "storage") ||
        pickle_global_dtype(item_at(m, id, 1)) < 0)
        return refuse(m, "a persistent id that is no storage of torch.save");
    TRY(replace(m, 1, PICKLE_STORAGE, id));
fail:
    return error;
}

/* torch.save leaves a state_dict's attribute _metadata (versions of modules), which holds nothing for a network. */
static int build(struct machine *m)
{
    int error = 0;
    TRY(need(m, 2));
    const struct pickle_value *object = top(m, 1), *state = top(m, 0);
    if (object->kind != PICKLE_ORDERED_DICT || state->kind != PICKLE_DICT)
        return refuse(m, "sets attributes of %s from %s", pickle_kind_name(object->kind),
                      pickle_kind_name(state->kind));
    if (state->size != 2) return refuse(m, "sets %u attributes, not one", state->size / 2);
    const struct pickle_value *name = item_at(m, state, 0);
    if (!pickle_text_is(name, "_metadata"))
        return refuse(m, "sets the attribute %.*s", name->size < 100 ? (int)name->size : 100, name->of.text);
    m->n_stack--;
fail:
    return error;
}

/* ---- memo and dispatch ---- */

/* Picklers number what they remember from 0 on, so the memo cannot be larger than the pickle. */
static int remember(struct machine *m, unsigned n)
{
    int error = 0;
    uint64_t number;
    TRY(take_number(m, n, &number));
    TRY(need(m, 1));
    if (number != m->n_memo)
        return refuse(m, "memo %llu, but the next one is %u", (unsigned long long)number, m->n_memo);
    TRY(grow(&m->memo, m->n_memo, &m->memo_room, m->f));
    m->memo[m->n_memo++] = m->stack[m->n_stack - 1];
fail:
    return error;
}

static int recall(struct machine *m, unsigned n)
{
    int error = 0;
    uint64_t number;
    TRY(take_number(m, n, &number));
    if (number >= m->n_memo) return refuse(m, "memo %llu is not there", (unsigned long long)number);
    TRY(push(m, m->memo[number]));
fail:
    return error;
}

static int push_mark(struct machine *m)
{
    if (m->n_marks == PICKLE_MARKS_MAX) return refuse(m, "nested more than %d deep", PICKLE_MARKS_MAX);
    m->mark[m->n_marks++] = m->n_stack;
    return 0;
}

/* BININT1 and BININT2 have no sign. */
static int read_unsigned(struct machine *m, unsigned n)
{
    int error = 0;
    uint64_t number;
    TRY(take_number(m, n, &number));
    TRY(push_integer(m, PICKLE_INT, (int64_t)number));
fail:
    return error;
}

/* What takes everything above a mark. */
static int step_marked(struct machine *m, unsigned char opcode)
{
    int error = 0;
    uint32_t n = 0;
    TRY(take_mark(m, &n));
    TRY(opcode == 't' ? make_tuple(m, n) : opcode == 'e' ? append(m, n) : set_items(m, n));
fail:
    return error;
}

static int step(struct machine *m, unsigned char opcode)
{
    switch (opcode) {
    case '(': return push_mark(m);
    case 'N': return push_integer(m, PICKLE_NONE, 0);
    case 0x88: return push_integer(m, PICKLE_BOOL, 1);
    case 0x89: return push_integer(m, PICKLE_BOOL, 0);
    case 'K': return read_unsigned(m, 1);
    case 'M': return read_unsigned(m, 2);
    case 'J': return read_signed(m, 4);
    case 0x8a: return read_long(m);
    case 'G': return read_float(m);
    case 'X': return read_text(m);
    case ')': return make_tuple(m, 0);
    case 0x85: return make_tuple(m, 1);
    case 0x86: return make_tuple(m, 2);
    case 0x87: return make_tuple(m, 3);
    case ']': return push_value(m, (struct pickle_value){.kind = PICKLE_LIST});
    case '}': return push_value(m, (struct pickle_value){.kind = PICKLE_DICT});
    case 'a': return append(m, 1);
    case 's': return set_items(m, 2);
    case 't':
    case 'e':
    case 'u': return step_marked(m, opcode);
    case 'q': return remember(m, 1);
    case 'r': return remember(m, 4);
    case 'h': return recall(m, 1);
    case 'j': return recall(m, 4);
    case 'c': return read_global(m);
    case 'R': return call(m);
    case 'b': return build(m);
    case 'Q': return read_storage(m);
    default: return refuse(m, "not among the opcodes that tensors need");
    }
}

static int run(struct machine *m)
{
    int error = 0;
    const unsigned char *bytes = NULL;
    if (m->size < 2 || m->text[0] != 0x80) return refuse(m, "a pickle of torch.save begins with PROTO 2");
    if (m->text[1] != 2) return refuse(m, "protocol %u; torch.save writes 2", m->text[1]);
    m->at = 2;
    for (uint32_t done = 0;; done++) {
        m->opcode_at = m->at;
        TRY(take(m, 1, &bytes));
        if (bytes[0] == '.') break;
        if (done == PICKLE_OPCODES_MAX) return refuse(m, "more than %d opcodes", PICKLE_OPCODES_MAX);
        TRY(step(m, bytes[0]));
    }
    if (m->n_stack != 1 || m->n_marks != 0) return refuse(m, "%u values and %u marks left", m->n_stack, m->n_marks);
    if (m->at != m->size) return refuse(m, "%zu bytes after it", m->size - m->at);
    m->out->root = m->stack[0];
fail:
    return error;
}

int pickle_read(struct pickle *out, const void *text, size_t size, const char *place, struct tabft_failure *f)
{
    struct machine m = {.out = out, .text = text, .size = size, .place = place, .f = f};
    *out = (struct pickle){0};
    int error = run(&m);
    free(m.stack);
    free(m.memo);
    if (error < 0) pickle_clear(out);
    return error;
}

void pickle_clear(struct pickle *p)
{
    for (uint32_t i = 0; i < p->n_values; i++)
        if (p->value[i].kind >= PICKLE_TUPLE && p->value[i].kind != PICKLE_GLOBAL) free(p->value[i].of.item);
    free(p->value);
    *p = (struct pickle){0};
}
