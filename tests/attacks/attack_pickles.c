/* Pickles that would run code, reach outside their storages or eat memory (R27): each is refused by the name of its
 * opcode or global, within a second and 64 MiB. */
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/torch.h"
#include "file/file.h"
#include "torch_archive.h"

static struct tabft_failure f;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long peak_kib(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static const float weights[4] = {1, 2, 3, 4};

static void write_pickle(const char *path, const void *pickle, size_t size, const void *storage, size_t storage_size)
{
    const struct piece pieces[] = {{.name = "m/data.pkl", .data = pickle, .size = size},
                                   {.name = "m/data/0", .data = storage, .size = storage_size}};
    struct archive a;
    archive_build(&a, pieces, 2);
    (void)unlink(path);
    MUST(file_write_all(path, false, a.bytes, a.size, &f));
    archive_clear(&a);
}

static void refuse_with(const void *pickle, size_t size, const void *storage, size_t storage_size, const char *reason)
{
    struct torch_file t;
    write_pickle("attack.ckpt", pickle, size, storage, storage_size);
    double start = now();
    long before = peak_kib();
    int code = torch_open(&t, "attack.ckpt", &f);
    ck_assert_msg(code == TABFT_INPUT, "%s: accepted or another code: %d %s", reason, code, f.message);
    ck_assert_msg(strstr(f.message, reason) != NULL && strstr(f.message, "attack.ckpt") != NULL, "\"%s\" has no \"%s\"",
                  f.message, reason);
    ck_assert_ptr_null(t.buffers);
#if !defined(__SANITIZE_ADDRESS__)
    ck_assert_msg(now() - start < 1, "%s: %.2f s", reason, now() - start);
    ck_assert_msg(peak_kib() - before < 65536, "%s: %ld KiB", reason, peak_kib() - before);
#else
    (void)start, (void)before;
#endif
    f = (struct tabft_failure){0};
    ck_assert_int_eq(unlink("attack.ckpt"), 0);
}

static void refuse(const void *pickle, size_t size, const char *reason)
{
    refuse_with(pickle, size, weights, sizeof weights, reason);
}

#define REFUSE(pickle, reason) refuse(pickle, sizeof(pickle) - 1, reason)
/* Opcodes in front of a pickle's end; what they would do is what is refused. */
#define RUN(opcodes, reason) REFUSE("\x80\002" opcodes ".", reason)
#define TENSORS(tensor, reason) REFUSE(CHECKPOINT(tensor, ""), reason)
#define BESIDE(pairs, reason) REFUSE(CHECKPOINT(TENSOR, pairs), reason)

/* What is spoiled below is sound as it is. */
START_TEST(sound)
{
    static const char pickle[] = CHECKPOINT(TENSOR, "X\001\0\0\0kG\x3f\xb9\x99\x99\x99\x99\x99\x9a");
    struct torch_file t;
    write_pickle("sound.ckpt", pickle, sizeof pickle - 1, weights, sizeof weights);
    MUST(torch_open(&t, "sound.ckpt", &f));
    ck_assert(t.n_tensors == 1 && t.tensor[0].count == 4 && ckpt_value(&t.tensor[0], 3) == 4);
    ck_assert(t.n_metadata == 1 && strcmp(t.metadata[0][0], "k") == 0 && strcmp(t.metadata[0][1], "0.1") == 0);
    torch_close(&t);
    ck_assert_int_eq(unlink("sound.ckpt"), 0);
}
END_TEST

START_TEST(code)
{
    RUN("cposix\nsystem\nX\002\0\0\0id\x85R", "posix.system is not among the names");
    RUN("cos\nsystem\nX\002\0\0\0id\x85R", "os.system");
    RUN("cbuiltins\neval\nX\001\0\0\0001\x85R", "builtins.eval");
    RUN("c__builtin__\nexec\nX\001\0\0\0001\x85R", "__builtin__.exec");
    RUN("csubprocess\nPopen\n)R", "subprocess.Popen");
    RUN("ctorch\nload\n)R", "torch.load");
    RUN("ctorch.storage\n_load_from_bytes\n)R", "torch.storage._load_from_bytes");
    RUN("ctorch\nFloatStorage.__class__\n)R", "torch.FloatStorage.__class__");
    RUN("ctorch._utils\n_rebuild_tensor\n)R", "torch._utils._rebuild_tensor ");
    RUN("c\n\n", "GLOBAL");
    RUN("cposix", "GLOBAL: names nothing");
    RUN("c\nsystem\nX", "GLOBAL");
    RUN("X\002\0\0\0osX\006\0\0\0system\x93", "STACK_GLOBAL");
    RUN("(X\002\0\0\0idios\nsystem\n", "INST");
    RUN("(cos\nsystem\no", "os.system");
    RUN("(ccollections\nOrderedDict\no", "OBJ");
    RUN("ccollections\nOrderedDict\n)\x81", "NEWOBJ");
    RUN("ccollections\nOrderedDict\n)}\x92", "NEWOBJ_EX");
    RUN("\x82\001", "EXT1");
    RUN("\x83\001\001", "EXT2");
    RUN("\x84\001\001\001\001", "EXT4");
    RUN("P1\n", "PERSID");
    RUN("X\002\0\0\0id)R", "REDUCE: calls a text");
    RUN("})R", "REDUCE: calls a dictionary");
    RUN("ctorch\nFloatStorage\n)R", "REDUCE: calls torch.FloatStorage");
    RUN("ccollections\nOrderedDict\n}R", "REDUCE: arguments that are a dictionary");
    RUN("ccollections\nOrderedDict\n}\x85R", "collections.OrderedDict with arguments");
    RUN("ctorch._utils\n_rebuild_tensor_v2\n)R", "REDUCE: arguments of torch._utils._rebuild_tensor_v2");
    RUN(ORDERED_DICT "}(X\014\0\0\0__setstate__K\001ub", "BUILD: sets the attribute __setstate__");
    RUN(ORDERED_DICT "}b", "BUILD: sets 0 attributes");
    RUN("}}b", "BUILD: sets attributes of a dictionary");
    RUN(ORDERED_DICT "ccollections\nOrderedDict\nb", "BUILD: sets attributes of an OrderedDict from a name");
    TENSORS(TENSOR "}b", "BUILD: sets attributes of a tensor");
    TENSORS(TENSOR "X\001\0\0\0kK\001s", "SETITEM: sets an item of a tensor");
    TENSORS(TENSOR "(K\001e", "APPENDS: appends to a tensor");
    RUN("]X\001\0\0\0kK\001s", "SETITEM: sets an item of a list");
    RUN("}K\001a", "APPEND: appends to a dictionary");
    RUN("}K\001K\001s", "SETITEM: a key that is an int");
    RUN("}(X\001\0\0\0ku", "SETITEMS: a key without a value");
}
END_TEST

/* Opcodes that other pickles have and tensors do not need. */
START_TEST(other_opcodes)
{
    static const struct {
        unsigned char code;
        const char *name;
    } others[] = {{'0', "POP"},           {'1', "POP_MARK"},      {'2', "DUP"},           {'F', "FLOAT"},
                  {'I', "INT"},           {'L', "LONG"},          {'S', "STRING"},        {'T', "BINSTRING"},
                  {'U', "SHORT_BINSTRING"}, {'V', "UNICODE"},     {'B', "BINBYTES"},      {'C', "SHORT_BINBYTES"},
                  {0x8b, "LONG4"},        {0x8c, "SHORT_BINUNICODE"}, {0x8d, "BINUNICODE8"}, {0x8e, "BINBYTES8"},
                  {0x8f, "EMPTY_SET"},    {0x90, "ADDITEMS"},     {0x91, "FROZENSET"},    {0x94, "MEMOIZE"},
                  {0x95, "FRAME"},        {0x96, "BYTEARRAY8"},   {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"},
                  {'g', "GET"},           {'p', "PUT"},           {'d', "DICT"},          {'l', "LIST"},
                  {0x80, "PROTO"},        {0xff, "no opcode"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        /* Eight bytes that say 2^63 to those which would take a length. */
        char pickle[] = "\x80\002}?\0\0\0\0\0\0\0\x80.", reason[64];
        pickle[3] = (char)others[i].code;
        (void)snprintf(reason, sizeof reason, "byte 3: %s: not among the opcodes", others[i].name);
        refuse(pickle, sizeof pickle - 1, reason);
    }
}
END_TEST

START_TEST(storages)
{
#define FLOATS(elements) STORAGE_OF("Float", KEY_0, elements)
#define VIEW(storage) TENSOR_OF(storage, "K\0", "K\004\x85", "K\001\x85")
#define KEY(size, name) VIEW(STORAGE_OF("Float", "X" size "\0\0\0" name, "K\004"))
    TENSORS(VIEW(FLOATS("K\005")), "storage data/0 has 5 elements of F32, but 16 bytes");
    TENSORS(VIEW(FLOATS("K\003")), "storage data/0 has 3 elements of F32, but 16 bytes");
    TENSORS(VIEW(FLOATS("J\377\377\377\377")), "-1 elements");
    TENSORS(VIEW(FLOATS("\x8a\010\004\0\0\0\0\0\0\x40")), "4611686018427387908 elements");
    TENSORS(VIEW(FLOATS("\x8a\011\004\0\0\0\0\0\0\0\001")), "LONG1: an integer of 9 bytes");
    TENSORS(VIEW(FLOATS("\x88")), "BINPERSID");
    TENSORS(VIEW(STORAGE_OF("Double", KEY_0, "K\004")), "4 elements of F64, but 16 bytes");
    TENSORS(VIEW(STORAGE_OF("Untyped", KEY_0, "K\020")), "torch.UntypedStorage");
    TENSORS(KEY("\001", "1"), "storage \"1\" is no entry");
    TENSORS(KEY("\002", "00"), "storage \"00\" is no entry");
    TENSORS(KEY("\013", "../data.pkl"), "storage \"../data.pkl\" is no entry");
    TENSORS(KEY("\0", ""), "storage \"\" is no entry");
    RUN("X\001\0\0\0000Q", "BINPERSID: a persistent id that is no storage");
    RUN("(X\006\0\0\0moduleccollections\nOrderedDict\n" KEY_0 KEY_0 "K\004tQ", "BINPERSID");
    RUN("(X\007\0\0\0storageccollections\nOrderedDict\n" KEY_0 KEY_0 "K\004tQ", "BINPERSID");
}
END_TEST

START_TEST(layouts)
{
#define LAYOUT(offset, sizes, strides) TENSOR_OF(FLOATS("K\004"), offset, sizes, strides)
    TENSORS(LAYOUT("K\0", "K\004\x85", "J\377\377\377\377\x85"), "w: has a negative stride");
    TENSORS(LAYOUT("K\0", "J\377\377\377\377\x85", "K\001\x85"), "w: has a negative size");
    TENSORS(LAYOUT("J\377\377\377\377", "K\004\x85", "K\001\x85"), "negative offset");
    TENSORS(LAYOUT("K\001", "K\004\x85", "K\001\x85"), "reaches behind its storage");
    TENSORS(LAYOUT("K\005", "K\0\x85", "K\001\x85"), "begins behind its storage");
    TENSORS(LAYOUT("K\0", "K\002\x85", "K\004\x85"), "reaches behind its storage");
    TENSORS(LAYOUT("K\0", "K\002\x85", "\x8a\010\377\377\377\377\377\377\377\x7f\x85"), "reaches behind");
    TENSORS(LAYOUT("K\0", "K\005\x85", "\x8a\010\377\377\377\377\377\377\377\x7f\x85"), "strides beyond 2^64");
    TENSORS(LAYOUT("K\0", "K\002\x85", "K\0\x85"), "share a place");
    TENSORS(LAYOUT("K\0", "J\377\377\377\x7f\x85", "K\0\x85"), "share a place");
    TENSORS(LAYOUT("K\0", "K\002K\002\x86", "K\001K\001\x86"), "share a place");
    TENSORS(LAYOUT("K\0", "K\002K\002\x86", "K\002K\0\x86"), "share a place");
    TENSORS(LAYOUT("K\0", "K\002K\002K\001\x87", "K\001K\001K\003\x87"), "share a place");
    TENSORS(LAYOUT("K\0", "\x8a\010\0\0\0\0\0\0\0\x40K\004K\001\x87", "K\0K\0K\0\x87"), "more than 2^64 elements");
    TENSORS(LAYOUT("K\0", "K\002K\002\x86", "K\002\x85"), "REDUCE: arguments of");
#define NINE_ONES "(K\001K\001K\001K\001K\001K\001K\001K\001K\001t"
    TENSORS(LAYOUT("K\0", NINE_ONES, NINE_ONES), "more than 8 dimensions");
    TENSORS(LAYOUT("K\0", "\x88\x85", "K\001\x85"), "REDUCE: arguments of");
    TENSORS(LAYOUT("X\001\0\0\0000", "K\004\x85", "K\001\x85"), "REDUCE: arguments of");
    /* Each alone is fine, but a small file must not become large tensors. */
#define SHARED TENSOR_OF(STORAGE_OF("Float", KEY_0, "M\0\x10"), "K\0", "M\0\x10\x85", "K\001\x85")
    static const char twice[] = "\x80\002}(" STATE_DICT "}(X\001\0\0\0a" SHARED "X\001\0\0\0b" SHARED "uu.";
    static const float storage[4096];
    refuse_with(twice, sizeof twice - 1, storage, sizeof storage, "tensor b: the tensors' storages together have more");
}
END_TEST

/* ---- time and memory ---- */

static void repeat(const char *head, size_t head_size, const char *part, size_t part_size, unsigned n, const char *tail,
                   size_t tail_size, const char *reason)
{
    struct archive p = {0};
    archive_add(&p, head, head_size);
    for (unsigned i = 0; i < n; i++) archive_add(&p, part, part_size);
    archive_add(&p, tail, tail_size);
    refuse(p.bytes, p.size, reason);
    archive_clear(&p);
}
#define REPEAT(head, part, n, tail, reason)                                                                          \
    repeat(head, sizeof(head) - 1, part, sizeof(part) - 1, n, tail, sizeof(tail) - 1, reason)

START_TEST(bombs)
{
    REPEAT("\x80\002", "(", 1000000, ".", "MARK: nested more than 256 deep");
    REPEAT("\x80\002)", "\x85", 1000000, ".", "TUPLE1: more than 500000 opcodes");
    REPEAT("\x80\002", "]", 10000000, ".", "EMPTY_LIST: more than 500000 opcodes");
    REPEAT("\x80\002", "N", 16777000, ".", "NONE: more than 500000 opcodes");
    REPEAT("\x80\002", "N", 16777300, ".", "data.pkl: 16777303 bytes, more than 16777216");
    REPEAT("\x80\002}(" STATE_DICT "}X\001\0\0\0k)", "\x85", 200, "u.", "nested more than 64 deep");
    /* Thirty lists, each holding the one before twice: 2^30 in the end. */
    struct archive p = {0};
    archive_add(&p, "\x80\002}(" STATE_DICT "}X\001\0\0\0k]", 4 + 15 + 1 + 6 + 1);
    for (unsigned i = 0; i < 30; i++) {
        archive_add(&p, "q", 1);
        archive_number(&p, 1, i);
        archive_add(&p, "h", 1);
        archive_number(&p, 1, i);
        archive_add(&p, "\x86", 1);
    }
    archive_add(&p, "u.", 2);
    refuse(p.bytes, p.size, "metadata of the checkpoint have more than 4194304 bytes");
    archive_clear(&p);
    BESIDE("X\001\0\0\0k]q\0h\0a", "nested more than 64 deep");
    BESIDE("X\001\0\0\0k}q\0X\001\0\0\0dh\0s", "nested more than 64 deep");
    /* A long tuple shown to many calls, a long dictionary to many BUILDs. */
    REPEAT("\x80\002ctorch._utils\n_rebuild_tensor_v2\nq\0(" "KKKKKKKKKKKKKKKKtq\001", "h\0h\001R", 100000, ".",
           "REDUCE: arguments of");
    RUN("X\377\377\377\377abc", "BINUNICODE: needs 4294967295 bytes");
    RUN("}r\0\x28\x6b\xee", "LONG_BINPUT: memo 4000000000, but the next one is 0");
    RUN("}q\001", "BINPUT: memo 1, but the next one is 0");
    RUN("h\0", "BINGET: memo 0 is not there");
    RUN("j\377\377\377\377", "LONG_BINGET: memo 4294967295 is not there");
}
END_TEST

START_TEST(wholes)
{
    REFUSE("", "begins with PROTO 2");
    REFUSE("\x80", "begins with PROTO 2");
    REFUSE("}.", "begins with PROTO 2");
    REFUSE("\x80\004}.", "PROTO: protocol 4");
    REFUSE("\x80\002}", "cut short");
    REFUSE("\x80\002.", "STOP: 0 values");
    REFUSE("\x80\002}}.", "STOP: 2 values");
    REFUSE("\x80\002(}.", "1 marks left");
    REFUSE("\x80\002}.}", "STOP: 1 bytes after it");
    RUN("s", "SETITEM: takes 3 values, the stack has 0");
    RUN("}(K\001s", "SETITEM: takes 3 values, the stack has 1");
    RUN("t", "TUPLE: there is no mark");
    RUN("\x87", "TUPLE3: takes 3 values");
    RUN("R", "REDUCE: takes 2 values");
    RUN("b", "BUILD: takes 2 values");
    RUN("Q", "BINPERSID: takes 1 values");
    RUN("q\0", "BINPUT: takes 1 values");
    RUN("G\0\0", "BINFLOAT: needs 8 bytes");
    RUN("X\002\0\0\0\xc0\xaf", "BINUNICODE: text that is not UTF-8");
    RUN("X\001\0\0\0\0", "BINUNICODE: text that is not UTF-8 or has a NUL");
    RUN("]", "holds a list, not a dictionary with a state_dict");
    RUN("}", "no state_dict");
    RUN("}" STATE_DICT "]s", "no state_dict that is a dictionary");
    RUN("}(" STATE_DICT "}" STATE_DICT "}u", "two state_dicts");
    TENSORS("K\001", "w is an int, not a tensor");
    BESIDE("X\001\0\0\0k" TENSOR, "attack.ckpt: k holds a tensor");
    BESIDE("X\001\0\0\0kctorch\nFloatStorage\n", "k holds a name");
    BESIDE("X\001\0\0\0kG\177\370\0\0\0\0\0\0", "k holds a number that is not finite");
    BESIDE("X\001\0\0\0k}(X\001\0\0\0aNX\001\0\0\0aNu", "k has the key a twice");
}
END_TEST

UNIT_MAIN("pickles", sound, code, other_opcodes, storages, layouts, bombs, wholes)
