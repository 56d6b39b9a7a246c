/* Archives as torch.save writes them, for tests that spoil them: where each part begins is known, and fields can be
 * overwritten. */
#ifndef TABFT_TESTS_TORCH_ARCHIVE_H
#define TABFT_TESTS_TORCH_ARCHIVE_H

#include <libdeflate.h>
#include <string.h>

#include "unit.h"

struct piece {
    const char *name; /* with the root folder */
    const void *data;
    size_t size, name_size; /* name_size 0: up to its NUL */
};

enum { ARCHIVE_PIECES_MAX = 8 };

struct archive {
    unsigned char *bytes; /* freed by archive_clear */
    size_t size, room;
    size_t local[ARCHIVE_PIECES_MAX], data[ARCHIVE_PIECES_MAX], after[ARCHIVE_PIECES_MAX], central[ARCHIVE_PIECES_MAX];
    size_t end64, locator, end;
};

static inline void archive_set(struct archive *a, size_t at, unsigned bytes, uint64_t value)
{
    for (unsigned i = 0; i < bytes; i++) a->bytes[at + i] = (unsigned char)(value >> 8 * i);
}

static inline void archive_add(struct archive *a, const void *bytes, size_t size)
{
    if (a->room - a->size < size) {
        a->room = 2 * (a->size + size) + 4096;
        a->bytes = realloc(a->bytes, a->room);
        ck_assert_ptr_nonnull(a->bytes);
    }
    if (size > 0) memcpy(a->bytes + a->size, bytes, size);
    a->size += size;
}

static inline void archive_number(struct archive *a, unsigned bytes, uint64_t value)
{
    static const unsigned char zeros[8];
    archive_add(a, zeros, bytes);
    archive_set(a, a->size - bytes, bytes, value);
}

/* Flags, method, time and date, CRC-32, sizes, length of the name, of the extra field: the same in both headers. */
static inline void archive_fields(struct archive *a, uint32_t crc, size_t size, size_t name, size_t extra)
{
    archive_number(a, 2, 0x808);
    archive_number(a, 6, 0);
    archive_number(a, 4, crc);
    archive_number(a, 4, size);
    archive_number(a, 4, size);
    archive_number(a, 2, name);
    archive_number(a, 2, extra);
}

static inline void archive_build(struct archive *a, const struct piece *piece, size_t n)
{
    *a = (struct archive){0};
    for (size_t i = 0; i < n; i++) {
        const size_t name = piece[i].name_size > 0 ? piece[i].name_size : strlen(piece[i].name);
        a->local[i] = a->size;
        archive_add(a, "PK\3\4\0", 6);
        archive_fields(a, 0, 0, name, 8);
        archive_add(a, piece[i].name, name);
        archive_add(a, "FB\4\0ZZZZ", 8);
        a->data[i] = a->size;
        archive_add(a, piece[i].data, piece[i].size);
        a->after[i] = a->size;
        archive_add(a, "PK\7\10", 4);
        archive_number(a, 4, libdeflate_crc32(0, piece[i].data, piece[i].size));
        archive_number(a, 4, piece[i].size);
        archive_number(a, 4, piece[i].size);
    }
    const size_t directory = a->size;
    for (size_t i = 0; i < n; i++) {
        const size_t name = piece[i].name_size > 0 ? piece[i].name_size : strlen(piece[i].name);
        a->central[i] = a->size;
        archive_add(a, "PK\1\2\0\0\0", 8);
        archive_fields(a, libdeflate_crc32(0, piece[i].data, piece[i].size), piece[i].size, name, 0);
        archive_number(a, 8, 0); /* comment, disk, attributes */
        archive_number(a, 2, 0);
        archive_number(a, 4, a->local[i]);
        archive_add(a, piece[i].name, name);
    }
    const size_t size = a->size - directory;
    a->end64 = a->size;
    archive_add(a, "PK\6\6", 4);
    archive_number(a, 8, 44);
    archive_number(a, 4, 0x2d031e);
    archive_number(a, 8, 0);
    archive_number(a, 8, n);
    archive_number(a, 8, n);
    archive_number(a, 8, size);
    archive_number(a, 8, directory);
    a->locator = a->size;
    archive_add(a, "PK\6\7", 4);
    archive_number(a, 4, 0);
    archive_number(a, 8, a->end64);
    archive_number(a, 4, 1);
    a->end = a->size;
    archive_add(a, "PK\5\6", 4);
    archive_number(a, 4, 0);
    archive_number(a, 2, n);
    archive_number(a, 2, n);
    archive_number(a, 4, size);
    archive_number(a, 4, directory);
    archive_number(a, 2, 0);
}

static inline void archive_clear(struct archive *a)
{
    free(a->bytes);
    *a = (struct archive){0};
}

/* ---- pickles of torch.save, as string literals ---- */

#define ORDERED_DICT "ccollections\nOrderedDict\n)R"
#define STORAGE_OF(type, key, elements)                                                                              \
    "(X\007\0\0\0storage" "ctorch\n" type "Storage\n" key "X\003\0\0\0cpu" elements "tQ"
#define KEY_0 "X\001\0\0\0000"
#define TENSOR_OF(storage, offset, sizes, strides)                                                                   \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage offset sizes strides "\x89" ORDERED_DICT "tR"
#define TENSOR TENSOR_OF(STORAGE_OF("Float", KEY_0, "K\004"), "K\0", "K\004\x85", "K\001\x85")
#define STATE_DICT "X\012\0\0\0state_dict"
/* A checkpoint with one tensor "w", and with pairs beside its state_dict. */
#define CHECKPOINT(tensor, beside) "\x80\002}(" STATE_DICT "}(X\001\0\0\0w" tensor "u" beside "u."

#endif
