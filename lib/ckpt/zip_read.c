/* Reading the zip archives of torch.save. PyTorch's writer puts sizes and CRC-32 after the bytes (a descriptor, flag
 * 8), pads with an extra field "FB" so that bytes begin at multiples of 64, and always adds a zip64 end record. */
#define TABFT_IN_CKPT
#include "ckpt/zip_internal.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "file/file.h"

enum {
    LOCAL = 30,
    CENTRAL = 46,
    DESCRIPTOR = 16,
    END64 = 56,
    LOCATOR = 20,
    END = 22,
    NAME_LONGEST = 255,
    ENTRIES_MAX = 65534,
    DIRECTORY_MAX = 1 << 24,
    READ_SIZE = 1 << 20
};
enum { FLAG_ENCRYPTED = 1, FLAG_DESCRIPTOR = 8, FLAG_UTF8 = 0x800 };

struct zip {
    const char *path; /* of the reader */
    struct file_reader *reader;
    unsigned char *directory; /* the central headers; names lie in it */
    struct zip_entry *entry;
    size_t n_entries;
    uint64_t directory_begin;
    size_t directory_size;
};

/* A central header. */
struct header {
    unsigned made_by, flags, method, time, date, name_size, extra_size, comment_size, disk;
    uint32_t crc, packed, size, attributes, offset;
    const char *name;
};

static unsigned get16(const unsigned char *at) { return (unsigned)at[0] | (unsigned)at[1] << 8; }
static uint32_t get32(const unsigned char *at) { return (uint32_t)get16(at) | (uint32_t)get16(at + 2) << 16; }
static uint64_t get64(const unsigned char *at) { return (uint64_t)get32(at) | (uint64_t)get32(at + 4) << 32; }
static bool is(const unsigned char *at, const char *mark) { return memcmp(at, mark, 4) == 0; }

/* The zip64 end record and its locator, between directory and end record, must say what the end record says. */
static int check_end64(const struct zip *z, const unsigned char *record, uint64_t at, struct tabft_failure *f)
{
    int error = 0;
    const unsigned char *locator = record + END64;
    if (!is(record, "PK\6\6") || get64(record + 4) != END64 - 12 || get64(locator + 8) != at ||
        get32(locator + 4) != 0 || get32(locator + 16) != 1)
        FAIL(f, TABFT_INPUT, "%s: its zip64 locator points at no zip64 end record; save it anew", z->path);
    if (get32(record + 16) != 0 || get32(record + 20) != 0 || get64(record + 24) != z->n_entries ||
        get64(record + 32) != z->n_entries || get64(record + 40) != z->directory_size ||
        get64(record + 48) != z->directory_begin)
        FAIL(f, TABFT_INPUT, "%s: its zip64 end record and its end record differ; save it anew", z->path);
fail:
    return error;
}

/* Where the directory is, from the last bytes of the file. */
static int read_end(struct zip *z, struct tabft_failure *f)
{
    int error = 0;
    unsigned char tail[END64 + LOCATOR + END], *end = tail + END64 + LOCATOR;
    uint64_t file_size = file_reader_size(z->reader), end_begin = file_size - END;
    if (file_size < END)
        FAIL(f, TABFT_INPUT, "%s: cut short: %llu bytes found, at least %d needed; copy it again", z->path,
             (unsigned long long)file_size, END);
    if (file_size > UINT32_MAX)
        FAIL(f, TABFT_INPUT, "%s: more than 4 GiB, which no TabPFN checkpoint has; not read", z->path);
    const size_t n = file_size < sizeof tail ? END : sizeof tail;
    TRY(file_reader_get(z->reader, file_size - n, tail + sizeof tail - n, n, f));
    if (!is(end, "PK\5\6") || get16(end + 20) != 0)
        FAIL(f, TABFT_INPUT,
             "%s: no end record in its last %d bytes: cut short, or something was appended; copy it again", z->path,
             END);
    if (get16(end + 4) != 0 || get16(end + 6) != 0 || get16(end + 8) != get16(end + 10))
        FAIL(f, TABFT_INPUT, "%s: end record: one of several disks; save it as one file", z->path);
    z->n_entries = get16(end + 10);
    z->directory_size = get32(end + 12);
    z->directory_begin = get32(end + 16);
    if (n > END && is(end - LOCATOR, "PK\6\7")) {
        end_begin -= END64 + LOCATOR;
        TRY(check_end64(z, tail, end_begin, f));
    }
    if (z->n_entries == 0 || z->n_entries > ENTRIES_MAX || z->directory_size > DIRECTORY_MAX)
        FAIL(f, TABFT_INPUT,
             "%s: end record: %zu entries and a directory of %zu bytes; 1 to %d and at most %d are read", z->path,
             z->n_entries, z->directory_size, ENTRIES_MAX, DIRECTORY_MAX);
    if (z->directory_begin + z->directory_size != end_begin)
        FAIL(f, TABFT_INPUT,
             "%s: end record: a directory of bytes %llu to %llu, but it must end at byte %llu; copy it again", z->path,
             (unsigned long long)z->directory_begin,
             (unsigned long long)(z->directory_begin + z->directory_size), (unsigned long long)end_begin);
fail:
    return error;
}

/* A central header at place..end; *next = what follows it. */
static int read_central(const struct zip *z, const unsigned char *place, const unsigned char *end, struct header *h,
                        const unsigned char **next, struct tabft_failure *f)
{
    int error = 0;
    if (end - place < CENTRAL || !is(place, "PK\1\2"))
        FAIL(f, TABFT_INPUT, "%s: directory, byte %td: no entry's header; copy it again", z->path,
             place - z->directory);
    *h = (struct header){.made_by = get16(place + 4),
                         .flags = get16(place + 8),
                         .method = get16(place + 10),
                         .time = get16(place + 12),
                         .date = get16(place + 14),
                         .crc = get32(place + 16),
                         .packed = get32(place + 20),
                         .size = get32(place + 24),
                         .name_size = get16(place + 28),
                         .extra_size = get16(place + 30),
                         .comment_size = get16(place + 32),
                         .disk = get16(place + 34),
                         .attributes = get32(place + 38),
                         .offset = get32(place + 42),
                         .name = (const char *)place + CENTRAL};
    if ((size_t)(end - place - CENTRAL) < (size_t)h->name_size + h->extra_size + h->comment_size)
        FAIL(f, TABFT_INPUT, "%s: directory, byte %td: an entry's header is cut; copy it again", z->path,
             place - z->directory);
    if (h->name_size == 0 || h->name_size > NAME_LONGEST)
        FAIL(f, TABFT_INPUT, "%s: an entry's name has %u bytes; 1 to %d are read", z->path, h->name_size, NAME_LONGEST);
    *next = place + CENTRAL + h->name_size + h->extra_size + h->comment_size;
fail:
    return error;
}

/* What an entry may be at all. */
static int check_central(const struct zip *z, const struct header *h, struct tabft_failure *f)
{
    const char *wrong = NULL;
    if ((h->flags & FLAG_ENCRYPTED) != 0) wrong = "encrypted";
    else if ((h->flags & ~(unsigned)(FLAG_DESCRIPTOR | FLAG_UTF8)) != 0) wrong = "flags that torch.save does not set";
    else if (h->method != 0) wrong = "compressed; torch.save stores its entries";
    else if (h->packed == UINT32_MAX || h->size == UINT32_MAX || h->offset == UINT32_MAX)
        wrong = "zip64 sizes; no TabPFN checkpoint has 4 GiB";
    else if (h->packed != h->size) wrong = "stored, but with two different sizes";
    else if (h->extra_size != 0) wrong = "an extra field in the directory";
    else if (h->comment_size != 0) wrong = "a comment";
    else if (h->disk != 0) wrong = "on another disk";
    else if ((h->attributes >> 16 & 0170000) != 0 && (h->attributes >> 16 & 0170000) != 0100000)
        wrong = "no regular file (a link, folder or device)";
    if (wrong == NULL) return 0;
    return tabft_fail(f, TABFT_INPUT, "%s: entry %.*s: %s; save it anew with torch.save", z->path, (int)h->name_size,
                      h->name, wrong);
}

/* Only paddings: fields "FB" that fill the extra bytes. */
static bool only_padding(const unsigned char *extra, size_t size)
{
    while (size >= 4 && extra[0] == 'F' && extra[1] == 'B' && get16(extra + 2) <= size - 4) {
        size_t field = (size_t)get16(extra + 2) + 4;
        extra += field;
        size -= field;
    }
    return size == 0;
}

/* The entry that the directory announces must begin at *place, and its own header and descriptor must say the same.
 * *place moves behind it. */
static int check_local(const struct zip *z, const struct header *h, struct zip_entry *e, uint64_t *place,
                       struct tabft_failure *f)
{
    int error = 0;
    unsigned char local[LOCAL + NAME_LONGEST], after[DESCRIPTOR], *extra = NULL;
    const char *wrong = NULL;
    const bool described = (h->flags & FLAG_DESCRIPTOR) != 0;
    if (h->offset != *place) wrong = "does not begin where the one before ends: a hole or an overlap";
    else if (z->directory_begin - *place < LOCAL + h->name_size) wrong = "begins behind the last one's place";
    if (wrong != NULL) goto fail;
    TRY(file_reader_get(z->reader, *place, local, LOCAL + h->name_size, f));
    const unsigned extra_size = get16(local + 28);
    e->begin = *place + LOCAL + h->name_size + extra_size;
    const uint64_t end = e->begin + h->size + (described ? DESCRIPTOR : 0);
    if (!is(local, "PK\3\4")) wrong = "has no header of its own";
    else if (get16(local + 6) != h->flags || get16(local + 8) != h->method || get16(local + 10) != h->time ||
             get16(local + 12) != h->date)
        wrong = "its own header and the directory differ";
    else if (get16(local + 26) != h->name_size || memcmp(local + LOCAL, h->name, h->name_size) != 0)
        wrong = "has another name in its own header";
    else if (get32(local + 14) != (described ? 0 : h->crc) || get32(local + 18) != (described ? 0 : h->size) ||
             get32(local + 22) != (described ? 0 : h->size))
        wrong = "has another size or CRC-32 in its own header";
    else if (end > z->directory_begin) wrong = "reaches into the directory";
    if (wrong != NULL) goto fail;
    TRY(memory_new(&extra, extra_size, 1, "an extra field", f));
    TRY(file_reader_get(z->reader, e->begin - extra_size, extra, extra_size, f));
    if (!only_padding(extra, extra_size)) wrong = "has an extra field that is no padding";
    if (wrong == NULL && described) {
        TRY(file_reader_get(z->reader, end - DESCRIPTOR, after, DESCRIPTOR, f));
        if (!is(after, "PK\7\10") || get32(after + 4) != h->crc || get32(after + 8) != h->size ||
            get32(after + 12) != h->size)
            wrong = "has another size or CRC-32 after its bytes";
    }
    *place = end;
fail:
    free(extra);
    if (wrong != NULL)
        error = tabft_fail(f, TABFT_INPUT, "%s: entry %.*s: %s; copy the file again or save it anew with torch.save",
                           z->path, (int)h->name_size, h->name, wrong);
    return error;
}

/* Bytes of the root folder's name and its '/', the same for all entries; 0 where there is none or it is strange. */
static size_t root_size(const char *name, size_t size)
{
    const char *slash = memchr(name, '/', size);
    if (slash == NULL || slash == name || name[0] == '.') return 0;
    for (const char *at = name; at < slash; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == '\\') return 0;
    return (size_t)(slash - name) + 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct zip_entry *)a)->name, ((const struct zip_entry *)b)->name);
}

static int read_directory(struct zip *z, struct tabft_failure *f)
{
    int error = 0;
    const char *root = NULL;
    size_t root_length = 0;
    uint64_t place = 0;
    TRY(memory_new(&z->directory, z->directory_size, 1, "directory of an archive", f));
    TRY(memory_new(&z->entry, z->n_entries, sizeof *z->entry, "entries of an archive", f));
    TRY(file_reader_get(z->reader, z->directory_begin, z->directory, z->directory_size, f));
    const unsigned char *at = z->directory, *end = at + z->directory_size;
    for (size_t i = 0; i < z->n_entries; i++) {
        struct header h = {0};
        const unsigned char *header = at;
        TRY(read_central(z, header, end, &h, &at, f));
        TRY(check_central(z, &h, f));
        TRY(check_local(z, &h, &z->entry[i], &place, f));
        if (root == NULL) {
            root_length = root_size(h.name, h.name_size);
            root = h.name - 1; /* see below */
        } else if (h.name_size <= root_length || memcmp(root, h.name, root_length) != 0) root_length = 0;
        if (root_length == 0 || memchr(h.name, '\0', h.name_size) != NULL)
            FAIL(f, TABFT_INPUT, "%s: entry %.*s: not in one folder with the others; save it anew with torch.save",
                 z->path, (int)h.name_size, h.name);
        /* The name moves one byte down, onto a field that was read, to make place for its end. */
        char *name = (char *)z->directory + (header - z->directory) + CENTRAL - 1;
        memmove(name, name + 1, h.name_size);
        name[h.name_size] = '\0';
        z->entry[i].name = name + root_length;
        z->entry[i].size = h.size;
        z->entry[i].crc = h.crc;
    }
    if (at != end || place != z->directory_begin)
        FAIL(f, TABFT_INPUT, "%s: bytes that belong to no entry before or after its directory; save it anew", z->path);
    qsort(z->entry, z->n_entries, sizeof *z->entry, by_name);
    for (size_t i = 1; i < z->n_entries; i++)
        if (strcmp(z->entry[i - 1].name, z->entry[i].name) == 0)
            FAIL(f, TABFT_INPUT, "%s: entry %s is there twice; save it anew", z->path, z->entry[i].name);
fail:
    return error;
}

int zip_open(struct zip **out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct zip *z = NULL;
    TRY(memory_new(&z, 1, sizeof *z, "an archive", f));
    TRY(file_reader_open(&z->reader, path, f));
    z->path = file_reader_path(z->reader);
    TRY(read_end(z, f));
    TRY(read_directory(z, f));
    *out = z;
    z = NULL;
fail:
    zip_close(z);
    return error;
}

void zip_close(struct zip *z)
{
    if (z == NULL) return;
    file_reader_close(z->reader);
    free(z->directory);
    free(z->entry);
    free(z);
}

size_t zip_count(const struct zip *z) { return z->n_entries; }
uint64_t zip_file_size(const struct zip *z) { return file_reader_size(z->reader); }
struct zip_entry *zip_at(struct zip *z, size_t i) { return &z->entry[i]; }

struct zip_entry *zip_find(struct zip *z, const char *name)
{
    const struct zip_entry key = {.name = name};
    return bsearch(&key, z->entry, z->n_entries, sizeof key, by_name);
}

static int judge(const struct zip *z, struct zip_entry *e, uint32_t found, struct tabft_failure *f)
{
    e->checked = found == e->crc;
    if (e->checked) return 0;
    return tabft_fail(f, TABFT_INPUT, "%s: entry %s: damaged: CRC-32 is %08lx, the archive says %08lx; copy it again",
                      z->path, e->name, (unsigned long)found, (unsigned long)e->crc);
}

int zip_get(struct zip *z, struct zip_entry *e, void *data, struct tabft_failure *f)
{
    int error = 0;
    TRY(file_reader_get(z->reader, e->begin, data, e->size, f));
    TRY(judge(z, e, libdeflate_crc32(0, data, e->size), f));
fail:
    return error;
}

int zip_finish(struct zip *z, struct tabft_failure *f)
{
    int error = 0;
    unsigned char *block = NULL;
    TRY(memory_new(&block, READ_SIZE, 1, "a block of an archive", f));
    for (size_t i = 0; i < z->n_entries; i++) {
        struct zip_entry *e = &z->entry[i];
        uint32_t crc = 0;
        if (e->checked) continue;
        for (uint32_t done = 0, part; done < e->size; done += part) {
            part = e->size - done < READ_SIZE ? e->size - done : READ_SIZE;
            TRY(file_reader_get(z->reader, e->begin + done, block, part, f));
            crc = libdeflate_crc32(crc, block, part);
        }
        TRY(judge(z, e, crc, f));
    }
    TRY(file_reader_unchanged(z->reader, f));
fail:
    free(block);
    return error;
}
