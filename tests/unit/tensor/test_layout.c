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

/* ---- what is computed again ---- */

static size_t no_scratch(const void *state, const struct op *op)
{
    (void)state;
    (void)op;
    return 0;
}

static struct tensor_backend planning(bool in_place)
{
    struct tensor_backend b = {0};
    for (int i = 0; i < OP_KINDS; i++)
        b.kernels[i] = (struct tensor_kernels){.forward_scratch = no_scratch, .backward_scratch = no_scratch};
    if (in_place) b.in_place[OP_GELU] = 1;
    return b;
}

/* `segments` of two products, on `many` rows in the first two, on `rows` of them in the others; *last is the loss. */
static struct tape *chain(size_t segments, size_t many, size_t rows, bool dear, int *last)
{
    struct tape *t;
    MUST(tape_open(&t, &f));
    int x = tape_input(t, many, 16);
    const int w = tape_parameter(t, 0, 16, 16);
    for (size_t i = 0; i < segments; i++) {
        tape_segment(t);
        const size_t n = i < 2 ? many : rows;
        const int y = tape_linear(t, x, n, w, TAPE_NONE, TAPE_NONE);
        if (dear) tape_dear(t, y);
        x = tape_linear(t, tape_gelu(t, y), n, w, TAPE_NONE, TAPE_NONE);
        if (i == 1) x = tape_select(t, x, 0, 1, rows);
    }
    tape_segment_end(t);
    const int labels = tape_input(t, rows, 1), permutation = tape_input(t, 16, 1);
    *last = tape_cross_entropy(t, x, labels, permutation, 1.0);
    return t;
}

static size_t count_steps(const struct tape_plan *p, enum step_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_steps; i++) n += p->steps[i].kind == kind;
    return n;
}

/* Forward operations of a plan for chain(), and its bytes. */
static size_t forward_of(size_t many, bool dear, bool recompute, size_t *total)
{
    const struct tensor_backend b = planning(false);
    struct tape_options options = {.backward = true, .recompute = recompute};
    struct tape_plan *p;
    struct tape_sizes sizes;
    struct tape *t = chain(5, many, 8, dear, &options.last);
    MUST(tape_plan_open(&p, t, &b, options, &sizes, &f));
    const size_t n = count_steps(p, STEP_FORWARD);
    ck_assert_uint_eq(count_steps(p, STEP_GIVE), 1); /* of the one parameter, when all have added to it */
    ck_assert(p->steps[p->n_steps - 1].kind == STEP_GIVE);
    tape_plan_close(p);
    tape_close(t);
    *total = sizes.total;
    return n;
}

/* Only what is before the fullest moment, in the second segment, is computed again, but for what is dear. Where all
 * segments are alike, it is all but the last. */
START_TEST(segments_are_kept_where_there_is_room)
    {
        size_t none, block, least;
        const size_t once = forward_of(1000, false, false, &none);
        ck_assert_uint_eq(once, 5 * 3 + 1 + 1);
        ck_assert_uint_eq(forward_of(1000, false, true, &block), once + 2);
        ck_assert_uint_lt(block, none);
        ck_assert_uint_eq(forward_of(1000, true, true, &least), once + 1);
        ck_assert_uint_eq(forward_of(8, false, false, &none), once);
        ck_assert_uint_eq(forward_of(8, false, true, &block), once + 2 * 4);
        ck_assert_uint_lt(block, none);
    }
END_TEST

/* An operation writes over what nobody reads again, and over nothing else. */
START_TEST(outputs_take_the_place_of_inputs)
    {
        for (int in_place = 0; in_place <= 1; in_place++) {
            const struct tensor_backend b = planning(in_place == 1);
            struct tape *t;
            struct tape_plan *p;
            struct tape_sizes sizes;
            MUST(tape_open(&t, &f));
            const int x = tape_input(t, 64, 16), y = tape_gelu(t, x), once = tape_gelu(t, y), twice = tape_gelu(t, once),
                      sum = tape_add_rows(t, twice, 1, once);
            MUST(tape_plan_open(&p, t, &b, (struct tape_options){.last = sum}, &sizes, &f));
            const struct tape_step *s = p->steps;
            ck_assert_int_ne(s[0].out[0], s[0].in[0]);                    /* an input is its owner's */
            ck_assert_int_eq(s[1].out[0] == s[1].in[0], in_place == 1);
            ck_assert_int_ne(s[2].out[0], s[2].in[0]);                    /* `once` is read again */
            tape_plan_close(p);
            tape_close(t);
        }
    }
END_TEST

/* ---- what is counted ---- */

/* A product of 7 x 5 by 5 x 5 and one of its result by the same weights, in a segment, then another such, then a loss. */
static struct tape_work work_of(bool backward, bool recompute)
{
    const struct tensor_backend b = planning(false);
    struct tape *t;
    struct tape_plan *p;
    struct tape_sizes sizes;
    int last;
    t = chain(2, 7, 7, false, &last);
    if (!backward) last = t->nodes[t->n_nodes - 1].in[0];
    MUST(tape_plan_open(&p, t, &b,
                        (struct tape_options){.backward = backward, .recompute = recompute, .last = last}, &sizes, &f));
    tape_plan_close(p);
    tape_close(t);
    return sizes.work;
}

START_TEST(work_is_counted)
    {
        const double product = 2 * 7 * 16 * 16, rows = 7 * 16, weights = 16 * 16;
        const struct tape_work forward = work_of(false, false), kept = work_of(true, false), again = work_of(true, true);
        ck_assert(forward.flops == 4 * product);
        /* The first product's input needs no gradient. */
        ck_assert(kept.flops == (4 + 7) * product);
        /* A second time: the first segment's first product, which its GELU and what follows need. */
        ck_assert(again.flops == kept.flops + product);
        /* Four products, each of x, w and y, two GELUs of x and y, one copy of rows. */
        ck_assert(forward.bytes == 4 * (4 * (2 * rows + weights) + 2 * 2 * rows + 2 * rows));
        ck_assert(again.bytes > kept.bytes && kept.bytes > forward.bytes);
    }
END_TEST

/* What backward does not read does not count: a product's result, and its bias and residual. */
START_TEST(bytes_of_backward_are_counted)
    {
        const struct tensor_backend b = planning(false);
        const double rows = 4 * 7 * 16, weights = 4 * 16 * 16, bias = 4 * 16, given = 4 * (7 + 16), loss = 8;
        struct tape_options options = {.backward = true};
        struct tape *t;
        struct tape_plan *p;
        struct tape_sizes sizes;
        MUST(tape_open(&t, &f));
        const int x = tape_input(t, 7, 16), w = tape_parameter(t, 0, 16, 16), c = tape_parameter(t, 256, 1, 16);
        const int y = tape_linear(t, x, 7, w, c, x), z = tape_linear(t, y, 7, w, TAPE_NONE, TAPE_NONE);
        options.last = tape_cross_entropy(t, z, tape_input(t, 7, 1), tape_input(t, 16, 1), 1.0);
        MUST(tape_plan_open(&p, t, &b, options, &sizes, &f));
        const double forward = (2 * rows + weights + bias) + (2 * rows + weights) + (rows + given + loss);
        /* The loss; both products of the second and, as x has no gradient, one of the first, each reading its own of the
         * result's gradient; those of parameters are set to 0, added to, and join the sum of gradients. */
        const double backward = (2 * rows + given + loss) + (rows + weights + 2 * rows + rows + 2 * weights) +
                                (rows + weights + rows + 2 * weights + 2 * bias) + (1 + 3) * (weights + bias);
        ck_assert_msg(sizes.work.bytes == forward + backward, "%g bytes instead of %g", sizes.work.bytes, forward + backward);
        tape_plan_close(p);
        tape_close(t);
    }
END_TEST

UNIT_MAIN("tensor/layout", buffers_do_not_overlap, sizes_that_do_not_fit_are_told,
          segments_are_kept_where_there_is_room, outputs_take_the_place_of_inputs, work_is_counted,
          bytes_of_backward_are_counted)
