#define TABFT_MODEL_ROOM
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "model/model_internal.h"

enum { TABLE_ROWS = 2000, TABLE_WIDTH = 48, COLUMN_SEED = 42 };

/* share/models/column-embeddings.safetensors, whole, linked in so that a tool needs no file at run time
 * (column_table.c). */
extern const unsigned char column_table_file[], column_table_end[];

/* The numbers: behind the 8 bytes of the header's length and the header. */
static const unsigned char *table(void)
{
    uint64_t header;
    memcpy(&header, column_table_file, sizeof header);
    assert((size_t)(column_table_end - column_table_file) == 8 + header + sizeof(float) * TABLE_ROWS * TABLE_WIDTH);
    return column_table_file + 8 + header;
}

static float uniform24(struct random_mt *g) { return (float)(random_mt_u32(g) & 0xffffff) * 0x1p-24f; }

/* Box-Muller on a block of 16 uniform numbers: number i with number i + 8. */
static void normal_16(float *block)
{
    for (int i = 0; i < 8; i++) {
        const float radius = sqrtf(-2.0f * logf(1.0f - block[i])), angle = 6.283185307179586f * block[i + 8];
        block[i] = radius * cosf(angle);
        block[i + 8] = radius * sinf(angle);
    }
}

/* Fewer than 16 numbers come one by one, in float64 and in pairs. */
static void randn_few(struct random_mt *g, size_t count, float *out)
{
    for (size_t i = 0; i < count; i += 2) {
        const double u = (double)(random_mt_u64(g) & 0x1fffffffffffff) * 0x1p-53,
                     v = (double)(random_mt_u64(g) & 0x1fffffffffffff) * 0x1p-53;
        const double radius = sqrt(-2.0 * log1p(-v)), angle = 2.0 * 3.14159265358979323846 * u;
        out[i] = (float)(radius * cos(angle));
        if (i + 1 < count) out[i + 1] = (float)(radius * sin(angle));
    }
}

void column_randn(uint32_t seed, size_t count, float *out)
{
    struct random_mt g;
    random_mt_seed(&g, seed);
    if (count < 16) {
        randn_few(&g, count, out);
        return;
    }
    for (size_t i = 0; i < count; i++) out[i] = uniform24(&g);
    for (size_t i = 0; i + 16 <= count; i += 16) normal_16(out + i);
    if (count % 16 == 0) return;
    for (size_t i = count - 16; i < count; i++)
        out[i] = uniform24(&g); /* the last block is drawn anew, over its neighbour's end */
    normal_16(out + count - 16);
}

void column_embeddings(size_t n_columns, size_t width, float *out)
{
    if (width != TABLE_WIDTH || n_columns > TABLE_ROWS) column_randn(COLUMN_SEED, n_columns * width, out);
    if (width != TABLE_WIDTH) return;
    const size_t rows = n_columns < TABLE_ROWS ? n_columns : TABLE_ROWS;
    memcpy(out, table(), rows * width * sizeof *out);
}
