/* Deflate of items whose bytes lie plane by plane. The low bytes of numbers are noise and are stored; those above
 * mostly have uneven bytes in no order, which a code of literals makes as small as a search for matches would, in a
 * fraction of the time; what repeats is left to libdeflate. Stored blocks end on a byte and so can what lies between,
 * so all of it is one stream. */
#include <libdeflate.h>

#include "tbf/tbf_internal.h"
#include "tbf/tbf_literals.h"

enum { PIECE = 4096, WIDTH_MAX = 8, STORED_MAX = 65535 };

enum way { STORED, LITERALS, MATCHES };

struct run {
    enum way way;
    const uint8_t *bytes;
    size_t size;
    struct tbf_literals code; /* of literals */
};

/* ---- what a plane is, told by a piece of it ---- */

/* True where the bytes are as good as even: no code would save 1 %. */
static bool is_noise(const uint8_t *piece)
{
    uint32_t count[256] = {0};
    uint64_t squares = 0;
    for (size_t i = 0; i < PIECE; i++) count[piece[i]]++;
    for (size_t s = 0; s < 256; s++) squares += (uint64_t)count[s] * count[s];
    /* Even bytes come to PIECE^2 / 256 + PIECE, a sixteenth more than that of the whole; a fifth more is about 1 %. */
    return 256 * squares < (uint64_t)PIECE * PIECE / 5 * 6;
}

/* How many places have the four bytes of an earlier one. */
static size_t count_repeats(const uint8_t *piece)
{
    enum { SLOTS = 4096 };
    uint16_t last[SLOTS] = {0};
    size_t repeats = 0;
    for (size_t i = 0; i + 4 <= PIECE; i++) {
        uint32_t four = get_u32(piece + i);
        uint16_t *slot = &last[four * UINT32_C(2654435761) >> 20];
        repeats += *slot > 0 && get_u32(piece + *slot - 1) == four;
        *slot = (uint16_t)(i + 1);
    }
    return repeats;
}

/* Are matches worth more than a code of literals? `scratch` has room for a piece. */
static bool has_matches(struct libdeflate_compressor *compressor, const uint8_t *piece, uint8_t *scratch)
{
    struct tbf_literals code;
    if (8 * count_repeats(piece) < PIECE) return false;
    size_t n = libdeflate_deflate_compress(compressor, piece, PIECE, scratch, PIECE);
    tbf_literals_plan(&code, piece, PIECE);
    return n > 0 && 8 * (uint64_t)n < code.bits;
}

static void choose_way(struct run *run, struct libdeflate_compressor *compressor, const uint8_t *piece,
                       uint8_t *scratch)
{
    run->way = STORED;
    if (has_matches(compressor, piece, scratch)) {
        run->way = MATCHES;
    } else if (!is_noise(piece)) {
        tbf_literals_plan(&run->code, run->bytes, run->size);
        if (run->code.bits < 8 * (uint64_t)(run->size - run->size / 64)) run->way = LITERALS;
    }
}

/* Cuts the planes into runs: stored ones that follow each other are one, and from the first with matches on all are. */
static size_t cut_runs(struct libdeflate_compressor *compressor, const uint8_t *raw, size_t size, size_t width,
                       uint8_t *scratch, struct run run[WIDTH_MAX])
{
    size_t plane = (size - TBF_RECORD_HEADER) / width, n = 0;
    for (size_t k = 0; k < width; k++) {
        const uint8_t *begin = raw + TBF_RECORD_HEADER + k * plane;
        const uint8_t *from = k == 0 ? raw : begin, *end = k + 1 == width ? raw + size : begin + plane;
        run[n] = (struct run){.bytes = from, .size = (size_t)(end - from)};
        choose_way(&run[n], compressor, begin + plane / 2, scratch);
        if (run[n].way == MATCHES) {
            run[n].size = (size_t)(raw + size - from);
            return n + 1;
        }
        if (run[n].way == STORED && n > 0 && run[n - 1].way == STORED) run[n - 1].size += run[n].size;
        else n++;
    }
    return n;
}

/* ---- runs out ---- */

static void put_stored(struct tbf_bits *b, const uint8_t *bytes, size_t size, bool final)
{
    do {
        size_t n = size < STORED_MAX ? size : STORED_MAX;
        b->held |= (uint64_t)(final && n == size) << b->n; /* BFINAL, BTYPE 00 */
        b->n += 3;
        if (b->n > 8) *b->at++ = (uint8_t)b->held, b->held >>= 8, b->n -= 8;
        tbf_bits_align(b);
        put_u32(b->at, (uint32_t)n | (uint32_t)~n << 16);
        memcpy(b->at + 4, bytes, n);
        b->at += 4 + n;
        bytes += n;
        size -= n;
    } while (size > 0);
}

size_t tbf_store(const uint8_t *raw, size_t size, uint8_t *out)
{
    struct tbf_bits b = {.at = out};
    put_stored(&b, raw, size, true);
    return (size_t)(b.at - out);
}

/* The most that a run takes, but one with matches. */
static uint64_t run_size(const struct run *run)
{
    return run->way == STORED ? run->size + 5 * (run->size / STORED_MAX + 1) : run->code.bits / 8 + 1;
}

size_t tbf_deflate_planes(struct libdeflate_compressor *compressor, const uint8_t *raw, size_t size, size_t width,
                          uint8_t *out, size_t room)
{
    struct run run[WIDTH_MAX];
    struct tbf_bits b = {.at = out};
    uint64_t most = 0;
    size_t n = 0, packed = 0;
    if (size - TBF_RECORD_HEADER >= 4 * PIECE * width) n = cut_runs(compressor, raw, size, width, out, run);
    else run[n++] = (struct run){.way = MATCHES, .bytes = raw, .size = size};
    const bool matches = run[n - 1].way == MATCHES;
    for (size_t i = 0; i + matches < n; i++) most += run_size(&run[i]);
    if (most + 5 > room) return 0;
    for (size_t i = 0; i + matches < n; i++) {
        bool final = i + 1 == n;
        if (run[i].way == STORED) put_stored(&b, run[i].bytes, run[i].size, final);
        else tbf_literals_put(&b, &run[i].code, run[i].bytes, run[i].size, final);
    }
    if (matches && b.n > 0) put_stored(&b, raw, 0, false); /* to the end of a byte */
    tbf_bits_align(&b);
    if (!matches) return (size_t)(b.at - out);
    packed = (size_t)(b.at - out);
    n = libdeflate_deflate_compress(compressor, run[n - 1].bytes, run[n - 1].size, b.at, room - packed);
    return n == 0 ? 0 : packed + n;
}
