/* Byte planes: all first bytes of the items, then all second ones, and so on; what does not fill an item follows as it
 * is. Sixteen items at a time: with the index of a byte written as bits, one interleave of the two halves of the block
 * rotates these bits by one, so "item, byte" becomes "byte, item" after four rotations, and goes back after the rest.
 */
#include "tbf/tbf_internal.h"

typedef uint8_t bytes16 __attribute__((vector_size(16)));

#define LOW(a, b) __builtin_shufflevector((a), (b), 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector((a), (b), 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Both `width`s are constants where this is inlined, so that the loops unroll. */
static inline __attribute__((always_inline)) void rotate(bytes16 *block, int width, int times)
{
    for (int t = 0; t < times; t++) {
        bytes16 next[8];
        for (int i = 0; i < width / 2; i++) {
            next[2 * i] = LOW(block[i], block[i + width / 2]);
            next[2 * i + 1] = HIGH(block[i], block[i + width / 2]);
        }
        memcpy(block, next, (size_t)width * sizeof *block);
    }
}

static inline __attribute__((always_inline)) void to_planes(uint8_t *restrict out, const uint8_t *restrict in,
                                                            size_t size, size_t width)
{
    size_t n = size / width, i = 0;
    for (; i + 16 <= n; i += 16) {
        bytes16 block[8];
        memcpy(block, in + i * width, width * 16);
        rotate(block, (int)width, 4);
        for (size_t b = 0; b < width; b++) memcpy(out + b * n + i, &block[b], 16);
    }
    for (; i < n; i++)
        for (size_t b = 0; b < width; b++) out[b * n + i] = in[i * width + b];
    memcpy(out + n * width, in + n * width, size - n * width);
}

static inline __attribute__((always_inline)) void from_planes(uint8_t *restrict out, const uint8_t *restrict in,
                                                              size_t size, size_t width)
{
    size_t n = size / width, i = 0;
    for (; i + 16 <= n; i += 16) {
        bytes16 block[8];
        for (size_t b = 0; b < width; b++) memcpy(&block[b], in + b * n + i, 16);
        rotate(block, (int)width, width == 8 ? 3 : 2);
        memcpy(out + i * width, block, width * 16);
    }
    for (; i < n; i++)
        for (size_t b = 0; b < width; b++) out[i * width + b] = in[b * n + i];
    memcpy(out + n * width, in + n * width, size - n * width);
}

void tbf_shuffle(void *out, const void *in, size_t size, enum tbf_strategy strategy)
{
    if (size == 0) return;
    if (strategy == TBF_SHUFFLE8) to_planes(out, in, size, 8);
    else if (strategy == TBF_SHUFFLE4) to_planes(out, in, size, 4);
    else memcpy(out, in, size);
}

void tbf_unshuffle(void *out, const void *in, size_t size, enum tbf_strategy strategy)
{
    if (size == 0) return;
    if (strategy == TBF_SHUFFLE8) from_planes(out, in, size, 8);
    else if (strategy == TBF_SHUFFLE4) from_planes(out, in, size, 4);
    else memcpy(out, in, size);
}
