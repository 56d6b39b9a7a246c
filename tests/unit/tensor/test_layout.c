/* The plan: buffers that live at the same time never overlap, and the block is no larger than the fullest moment by
 * much. */
#define TABFT_TENSOR_ROOM
#include <stdlib.h>

#include "base/memory.h"
#include "tensor/tape_internal.h"
#include "unit.h"

static struct tabft_failure f;

static uint32_t random_state = 11;
static size_t draw(size_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (size_t)(random_state >> 8) % below;
}

static bool share_time(const struct tape_buffer *a, const struct tape_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}
static bool share_place(const struct tape_buffer *a, const struct tape_buffer *b)
{
    return a->bytes > 0 && b->bytes > 0 && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

START_TEST(buffers_do_not_overlap)
    {
        enum { BUFFERS = 300, STEPS = 120 };
        for (int round = 0; round < 20; round++) {
            struct tape_plan p = {.n_buffers = BUFFERS, .n_steps = STEPS};
            struct tape_sizes sizes;
            MUST(memory_new(&p.buffers, BUFFERS, sizeof *p.buffers, "a test", &f));
            for (size_t i = 0; i < BUFFERS; i++) {
                const long first = (long)draw(STEPS), last = first + (long)draw(i % 7 == 0 ? STEPS : 6);
                p.buffers[i] = (struct tape_buffer){.bytes = 64 * draw(50),
                                                    .first = first,
                                                    .last = last > STEPS ? STEPS : last,
                                                    .scratch = i % 5 == 0};
            }
            MUST(tape_layout(&p, &sizes, &f));
            size_t live = 0, end = 0, most = 0;
            for (long step = 0; step <= STEPS; step++, live = 0) {
                for (size_t i = 0; i < BUFFERS; i++)
                    if (p.buffers[i].first <= step && step <= p.buffers[i].last) live += p.buffers[i].bytes;
                most = live > most ? live : most;
            }
            for (size_t i = 0; i < BUFFERS; i++) {
                end = p.buffers[i].offset + p.buffers[i].bytes > end ? p.buffers[i].offset + p.buffers[i].bytes : end;
                for (size_t j = 0; j < i; j++)
                    ck_assert(!share_time(&p.buffers[i], &p.buffers[j]) || !share_place(&p.buffers[i], &p.buffers[j]));
            }
            ck_assert_uint_eq(end, sizes.total);
            ck_assert_uint_le(most, sizes.total);
            ck_assert_uint_le(sizes.total, most + most / 4);
            ck_assert_uint_eq(sizes.activations + sizes.scratch, sizes.total);
            free(p.buffers);
        }
    }
END_TEST

/* What goes wrong while recording is told when the plan is made. */
START_TEST(sizes_that_do_not_fit_are_told)
    {
        struct tape *t;
        struct tape_plan *p;
        struct tape_sizes sizes;
        MUST(tape_open(&t, &f));
        int x = tape_input(t, SIZE_MAX / 8, 16);
        x = tape_gelu(t, x);
        MUST_FAIL(tape_plan_open(&p, t, &(struct tensor_backend){0}, (struct tape_options){.last = x}, &sizes, &f),
                  TABFT_SYSTEM, "does not fit this machine");
        tape_close(t);
    }
END_TEST

UNIT_MAIN("tensor/layout", buffers_do_not_overlap, sizes_that_do_not_fit_are_told)
