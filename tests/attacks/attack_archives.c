/* Zip archives that lie (R28): each is refused by the name of its entry or record; and no flipped bit or cut of a
 * checkpoint passes unseen. */
#include <fcntl.h>
#include <unistd.h>

#include "ckpt/torch.h"
#include "file/file.h"
#include "torch_archive.h"

static struct tabft_failure f;
static const char pickle[] = CHECKPOINT(TENSOR, "");
static const float weights[4] = {1, 2, 3, 4};
static const struct piece sound_pieces[] = {{.name = "m/data.pkl", .data = pickle, .size = sizeof pickle - 1},
                                            {.name = "m/byteorder", .data = "little", .size = 6},
                                            {.name = "m/data/0", .data = weights, .size = sizeof weights},
                                            {.name = "m/version", .data = "3\n", .size = 2}};

/* Writes the archive, sees it refused for `reason`, and clears it. */
static void refuse(struct archive *a, const char *reason)
{
    struct torch_file t;
    MUST(file_write_all("archive.ckpt", true, a->bytes, a->size, &f));
    int code = torch_open(&t, "archive.ckpt", &f);
    ck_assert_msg(code == TABFT_INPUT, "%s: accepted or another code: %d %s", reason, code, f.message);
    ck_assert_msg(strstr(f.message, reason) != NULL, "\"%s\" has no \"%s\"", f.message, reason);
    f = (struct tabft_failure){0};
    ck_assert_int_eq(unlink("archive.ckpt"), 0);
    archive_clear(a);
}

static struct archive sound_archive(void)
{
    struct archive a;
    archive_build(&a, sound_pieces, 4);
    return a;
}

/* Overwrites a field of the sound archive, in one place or in two. */
#define SPOIL(part, at, bytes, value, reason)                   \
    do {                                                        \
        struct archive a = sound_archive();                     \
        archive_set(&a, a.part + (size_t)(at), bytes, value);           \
        refuse(&a, reason);                                     \
    } while (0)
#define SPOIL_BOTH(entry, at, bytes, value, reason)                \
    do {                                                           \
        struct archive a = sound_archive();                        \
        archive_set(&a, a.local[entry] + (at), bytes, value);      \
        archive_set(&a, a.central[entry] + (at) + 2, bytes, value); \
        refuse(&a, reason);                                        \
    } while (0)

/* The sound archive with one piece changed. */
static void with_piece(size_t i, struct piece changed, const char *reason)
{
    struct piece pieces[4];
    struct archive a;
    memcpy(pieces, sound_pieces, sizeof pieces);
    if (changed.data == NULL) {
        changed.data = pieces[i].data;
        changed.size = pieces[i].size;
    }
    pieces[i] = changed;
    archive_build(&a, pieces, 4);
    refuse(&a, reason);
}

START_TEST(sound)
{
    struct archive a = sound_archive();
    struct torch_file t;
    MUST(file_write_all("sound-archive.ckpt", true, a.bytes, a.size, &f));
    MUST(torch_open(&t, "sound-archive.ckpt", &f));
    ck_assert(t.n_tensors == 1 && ckpt_value(&t.tensor[0], 0) == 1);
    torch_close(&t);
    archive_clear(&a);
    ck_assert_int_eq(unlink("sound-archive.ckpt"), 0);
}
END_TEST

START_TEST(entries)
{
    SPOIL_BOTH(2, 8, 2, 8, "entry m/data/0: compressed");
    SPOIL_BOTH(2, 8, 2, 99, "entry m/data/0: compressed");
    SPOIL_BOTH(2, 6, 2, 0x809, "entry m/data/0: encrypted");
    SPOIL_BOTH(2, 6, 2, 0x2808, "entry m/data/0: flags");
    SPOIL(central[2], 8, 2, 0x800, "entry m/data/0: its own header and the directory differ");
    SPOIL(local[2], 8, 2, 8, "entry m/data/0: its own header and the directory differ");
    SPOIL(local[2], 10, 4, 1, "entry m/data/0: its own header and the directory differ");
    SPOIL(local[2], 30, 1, 'n', "entry m/data/0: has another name in its own header");
    SPOIL(local[2], 26, 2, 7, "entry m/data/0: has another name in its own header");
    SPOIL(local[2], 22, 4, 16, "entry m/data/0: has another size or CRC-32 in its own header");
    SPOIL(local[2], 14, 4, 16, "entry m/data/0: has another size or CRC-32 in its own header");
    SPOIL(local[2], 0, 1, 'Q', "entry m/data/0: has no header of its own");
    SPOIL(after[2], 4, 4, 1, "entry m/data/0: has another size or CRC-32 after its bytes");
    SPOIL(after[2], 8, 4, 1, "entry m/data/0: has another size or CRC-32 after its bytes");
    SPOIL(after[2], 0, 1, 'Q', "entry m/data/0: has another size or CRC-32 after its bytes");
    SPOIL(central[2], 20, 4, 12, "entry m/data/0: stored, but with two different sizes");
    SPOIL(central[2], 20, 8, 0x0000000c0000000cU, "entry m/data/0: has another size");
    SPOIL(central[2], 20, 8, 0xfffffff0fffffff0U, "entry m/data/0: reaches into the directory");
    SPOIL(central[2], 20, 8, UINT64_MAX, "entry m/data/0: zip64 sizes");
    SPOIL(central[2], 42, 4, UINT32_MAX, "entry m/data/0: zip64 sizes");
    SPOIL(central[2], 42, 4, 0, "entry m/data/0: does not begin where the one before ends");
    SPOIL(central[2], 42, 4, 0x7fffffff, "entry m/data/0: does not begin");
    SPOIL(central[0], 42, 4, 1, "entry m/data.pkl: does not begin");
    SPOIL(central[2], 34, 2, 1, "entry m/data/0: on another disk");
    SPOIL(central[2], 38, 4, 0xa1ff0000U, "entry m/data/0: no regular file (a link");
    SPOIL(central[2], 38, 4, 0x41ff0000U, "entry m/data/0: no regular file");
    SPOIL(central[2], 28, 2, 0, "name has 0 bytes");
    SPOIL(central[2], 28, 2, 65535, "an entry's header is cut");
    SPOIL(central[2], 30, 2, 4, "entry m/data/0: an extra field in the directory");
    SPOIL(central[2], 32, 2, 4, "entry m/data/0: a comment");
    SPOIL(central[2], 0, 1, 'Q', "no entry's header");
    SPOIL(local[2], 28, 2, 65535, "entry m/data/0: reaches into the directory");
    SPOIL(data[2], -8, 2, 1, "entry m/data/0: has an extra field that is no padding");
    SPOIL(data[2], -6, 2, 5, "entry m/data/0: has an extra field that is no padding");
    SPOIL(data[2], 0, 1, 1, "entry data/0: damaged: CRC-32 is");
    SPOIL(data[3], 0, 1, '4', "entry version: damaged: CRC-32 is");
    SPOIL(data[0], 9, 1, 'S', "entry data.pkl: damaged: CRC-32 is");
}
END_TEST

START_TEST(names)
{
    with_piece(3, (struct piece){.name = "../version"}, "entry ../version: not in one folder");
    with_piece(0, (struct piece){.name = "../data.pkl"}, "entry ../data.pkl: not in one folder");
    with_piece(3, (struct piece){.name = "m/../../x"}, "entry ../../x: torch.save writes none of that name");
    with_piece(3, (struct piece){.name = "/etc/passwd"}, "entry /etc/passwd: not in one folder");
    with_piece(0, (struct piece){.name = "/data.pkl"}, "entry /data.pkl: not in one folder");
    with_piece(0, (struct piece){.name = "a\\b/data.pkl"}, "not in one folder");
    with_piece(0, (struct piece){.name = "a\nb/data.pkl"}, "not in one folder");
    with_piece(3, (struct piece){.name = "n/version"}, "entry n/version: not in one folder");
    with_piece(3, (struct piece){.name = "m/"}, "entry m/: not in one folder");
    with_piece(3, (struct piece){.name = "version"}, "entry version: not in one folder");
    with_piece(3, (struct piece){.name = "m/version\0x", .name_size = 11}, "not in one folder");
    with_piece(3, (struct piece){.name = "m/data/0"}, "entry data/0 is there twice");
    with_piece(3, (struct piece){.name = "m/data.pkl"}, "entry data.pkl is there twice");
    with_piece(3, (struct piece){.name = "m/data/00"}, "entry data/00: torch.save writes none of that name");
    with_piece(3, (struct piece){.name = "m/data/1/"}, "entry data/1/: torch.save writes none");
    with_piece(3, (struct piece){.name = "m/data/-1"}, "entry data/-1: torch.save writes none");
    with_piece(3, (struct piece){.name = "m/code/x.py"}, "entry code/x.py: torch.save writes none");
    with_piece(0, (struct piece){.name = "m/data/1"}, "no entry data.pkl");
    char longest[257] = "m/";
    memset(longest + 2, 'x', 254);
    with_piece(3, (struct piece){.name = longest, .name_size = 256}, "name has 256 bytes");
    with_piece(1, (struct piece){.name = "m/byteorder", .data = "big", .size = 3}, "entry byteorder: not little");
}
END_TEST

START_TEST(ends)
{
    SPOIL(end, 8, 4, 0x00030003, "zip64 end record and its end record differ");
    SPOIL(end64, 24, 8, 3, "zip64 end record and its end record differ");
    SPOIL(end64, 32, 8, UINT64_MAX, "zip64 end record and its end record differ");
    SPOIL(end64, 40, 8, 1, "zip64 end record and its end record differ");
    SPOIL(end64, 48, 8, 1, "zip64 end record and its end record differ");
    SPOIL(end64, 4, 8, UINT64_MAX, "zip64 locator points at no");
    SPOIL(end64, 16, 4, 1, "zip64 end record and its end record differ");
    SPOIL(end64, 0, 1, 'Q', "zip64 locator points at no");
    SPOIL(locator, 8, 8, 0, "zip64 locator points at no");
    SPOIL(locator, 8, 8, UINT64_MAX, "zip64 locator points at no");
    SPOIL(locator, 16, 4, 2, "zip64 locator points at no");
    SPOIL(locator, 0, 1, 'Q', "but it must end at byte");
    SPOIL(end, 4, 2, 1, "one of several disks");
    SPOIL(end, 8, 2, 3, "one of several disks");
    SPOIL(end, 12, 4, 0x7fffffff, "differ");
    SPOIL(end, 20, 2, 1, "no end record in its last 22 bytes");
    SPOIL(end, 0, 1, 'Q', "no end record in its last 22 bytes");
    struct archive a = sound_archive();
    archive_add(&a, "x", 1);
    refuse(&a, "something was appended");
    /* Both records agree that there are 3 of the 4 entries, or 5. */
    for (unsigned n = 3; n <= 5; n += 2) {
        a = sound_archive();
        archive_set(&a, a.end + 8, 2, n);
        archive_set(&a, a.end + 10, 2, n);
        archive_set(&a, a.end64 + 24, 8, n);
        archive_set(&a, a.end64 + 32, 8, n);
        refuse(&a, n == 3 ? "bytes that belong to no entry" : "no entry's header");
    }
    a = (struct archive){0};
    archive_add(&a, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    refuse(&a, "0 entries");
    archive_add(&a, "PK\3\4", 4);
    refuse(&a, "cut short: 4 bytes found");
}
END_TEST

/* ---- damage of a file that PyTorch wrote ---- */

static bool same(const struct torch_file *a, const struct torch_file *b)
{
    bool all = a->n_tensors == b->n_tensors && a->n_metadata == b->n_metadata;
    for (size_t i = 0; all && i < a->n_tensors; i++) {
        const struct ckpt_tensor *x = &a->tensor[i], *y = &b->tensor[i];
        all = strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && x->rank == y->rank &&
              memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape) == 0 &&
              memcmp(x->data, y->data, (size_t)x->count * ckpt_dtype_size(x->dtype)) == 0;
    }
    for (size_t i = 0; all && i < a->n_metadata; i++)
        all = strcmp(a->metadata[i][0], b->metadata[i][0]) == 0 && strcmp(a->metadata[i][1], b->metadata[i][1]) == 0;
    return all;
}

/* Flips each step-th bit: refused, or what comes out is the same (paddings, fields that nobody reads). */
static void flip(const char *name, size_t step)
{
    struct torch_file whole, damaged;
    unsigned char *bytes;
    size_t size, unseen = 0, flips = 0;
    MUST(file_read_all(unit_data(name), 1 << 20, (void **)&bytes, &size, &f));
    MUST(file_write_all("flip.ckpt", true, bytes, size, &f));
    MUST(torch_open(&whole, "flip.ckpt", &f));
    int file = open("flip.ckpt", O_WRONLY);
    ck_assert_int_ge(file, 0);
    for (size_t bit = 0; bit < 8 * size; bit += step, flips++) {
        unsigned char flipped = (unsigned char)(bytes[bit / 8] ^ 1U << bit % 8);
        ck_assert_int_eq(pwrite(file, &flipped, 1, (off_t)(bit / 8)), 1);
        if (torch_open(&damaged, "flip.ckpt", &f) == 0) {
            ck_assert_msg(same(&whole, &damaged), "bit %zu of byte %zu changes the checkpoint", bit % 8, bit / 8);
            torch_close(&damaged);
            unseen++;
        } else ck_assert_msg(f.code == TABFT_INPUT, "bit %zu of byte %zu: %s", bit % 8, bit / 8, f.message);
        f = (struct tabft_failure){0};
        ck_assert_int_eq(pwrite(file, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    ck_assert_uint_lt(unseen, flips / 2);
    ck_assert_int_eq(close(file), 0);
    ck_assert_int_eq(unlink("flip.ckpt"), 0);
    torch_close(&whole);
    free(bytes);
}

START_TEST(flips)
{
    flip("ckpt/odd.ckpt", 1);
    flip("ckpt/v2_6_cls.ckpt", 1511);
}
END_TEST

/* Cut after each step-th byte. */
static void cut(const char *name, size_t step)
{
    struct torch_file t;
    unsigned char *bytes;
    size_t size;
    MUST(file_read_all(unit_data(name), 1 << 20, (void **)&bytes, &size, &f));
    MUST(file_write_all("cut.ckpt", true, bytes, size, &f));
    for (size_t left = size; left-- > 0;) {
        if (left % step != 0) continue;
        ck_assert_int_eq(truncate("cut.ckpt", (off_t)left), 0);
        MUST_FAIL(torch_open(&t, "cut.ckpt", &f), TABFT_INPUT, "cut");
    }
    ck_assert_int_eq(unlink("cut.ckpt"), 0);
    free(bytes);
}

START_TEST(cuts)
{
    cut("ckpt/odd.ckpt", 1);
    cut("ckpt/v2_6_cls.ckpt", 509);
}
END_TEST

UNIT_MAIN("archives", sound, entries, names, ends, flips, cuts)
