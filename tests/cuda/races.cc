/* Whether threads touch the same memory without waiting for each other, which a block on processors, whose threads take turns,
 * never shows. Kernels that are watched are compiled with -fsanitize=thread, by which a compiler calls a function before each
 * access; those functions are here instead of ThreadSanitizer's, as what orders threads of a GPU is another and much less:
 * a barrier of the block, for a warp __syncwarp (exchanges between lanes order no memory), and the end of a launch.
 * Of each two bytes is known who wrote them last, and who has read them since. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <memory>
#include <unordered_map>

#include "races.h"

/* Who touched, and when: how many barriers of the block and of the warp lay before. */
struct touch {
    int32_t from; /* the instruction, by its distance from a place here; 0: nobody */
    uint32_t barriers, warp_barriers;
    uint16_t block;
    uint16_t thread : 13, several_blocks : 1, several_warps : 1, several_lanes : 1; /* several: readers since that barrier; the rest
                                                                                     * tells of the last one */
};
static_assert(sizeof(struct touch) == 16, "a touch is as small as it can be");
struct cell {
    uint64_t space;
    struct touch written, read;
};

static constexpr size_t UNIT = 2, PAGE = 4096, LANES = 32;
static constexpr size_t PAGES_MOST = (size_t)1 << 12; /* that one launch finds at most of those before it: 0.3 GB */

struct page {
    struct cell cells[PAGE / UNIT];
};
static std::unordered_map<uintptr_t, std::unique_ptr<struct page>> &pages =
    *new std::unordered_map<uintptr_t, std::unique_ptr<struct page>>();
/* Those that were looked up last, each in its place. */
static constexpr size_t PLACES = 256;
static struct {
    struct page *page;
    uintptr_t number;
} found[PLACES];

/* What is remembered of one is nothing to the next: of a launch for memory of the GPU, of a block for shared memory. */
static uint64_t spaces, launch_space, block_space;

void races_launch(void)
{
    launch_space = ++spaces;
    if (pages.size() < PAGES_MOST) return;
    pages.clear();
    for (auto &place : found) place = {};
}
void races_block(void) { block_space = ++spaces; }

static struct cell *cell_of(uintptr_t at)
{
    const uintptr_t number = at / PAGE;
    auto &place = found[number % PLACES];
    if (place.page == NULL || place.number != number) {
        std::unique_ptr<struct page> &p = pages[number];
        if (!p) p.reset(new page());
        place = {p.get(), number};
    }
    return &place.page->cells[at % PAGE / UNIT];
}

static bool same_warp(const struct touch *a, const struct touch *b) { return a->thread / LANES == b->thread / LANES; }

/* Whether nothing that `before` has done is ordered with what `now` does. */
static bool in_a_race(const struct touch *before, const struct touch *now)
{
    if (before->from == 0) return false;
    if (before->several_blocks || before->block != now->block) return true;
    if (before->barriers != now->barriers) return false;
    if (before->several_warps || !same_warp(before, now)) return true;
    if (before->warp_barriers != now->warp_barriers) return false;
    return before->several_lanes || before->thread != now->thread;
}

/* One more reader. */
static void read_too(struct touch *read, const struct touch *now)
{
    struct touch all = *now;
    if (read->from != 0) {
        all.several_blocks = read->several_blocks || read->block != now->block;
        if (read->block == now->block && read->barriers == now->barriers) {
            all.several_warps = read->several_warps || !same_warp(read, now);
            all.several_lanes = same_warp(read, now) && read->warp_barriers == now->warp_barriers &&
                                (read->several_lanes || read->thread != now->thread);
        }
    }
    *read = all;
}

/* The instruction as addr2line takes it. */
static void say_place(const char *what, const struct touch *t)
{
    Dl_info about = {};
    const char *from = (const char *)&races_launch + t->from;
    const bool known = dladdr(from, &about) != 0;
    (void)fprintf(stderr, "CUDA emulation:   %s: block %u, thread %u, at %s+%#zx\n", what, t->block, t->thread,
                  known ? about.dli_fname : "?", (size_t)(from - (known ? (const char *)about.dli_fbase : NULL)));
}

[[noreturn]] static void end_by(const struct races_now *now, uintptr_t at, const struct touch *before, const struct touch *own,
                               bool wrote, bool writes)
{
    (void)fprintf(stderr, "CUDA emulation: %s: a race: threads that did not wait for each other touch %s memory at %#zx\n",
                  now->kernel, races_is_shared((const void *)at) ? "shared" : "the GPU's", (size_t)at);
    say_place(wrote ? "has written" : "has read", before);
    say_place(writes ? "writes" : "reads", own);
    abort();
}

static void touched(const void *memory, size_t bytes, bool writes, const void *from)
{
    const struct races_now *now = races_thread();
    const uintptr_t begin = (uintptr_t)memory;
    if (now == NULL || (begin >= (uintptr_t)now->stack && begin < (uintptr_t)now->stack_end)) return;
    struct touch own = {};
    own.from = (int32_t)((const char *)from - (const char *)&races_launch);
    own.barriers = now->barriers;
    own.warp_barriers = now->warp_barriers;
    own.block = (uint16_t)now->block;
    own.thread = (uint16_t)(now->thread & 0x1fff);
    const uint64_t space = races_is_shared(memory) ? block_space : launch_space;
    for (uintptr_t at = begin / UNIT * UNIT; at < begin + bytes; at += UNIT) {
        struct cell *c = cell_of(at);
        if (c->space != space) *c = {space, {}, {}};
        if (in_a_race(&c->written, &own)) end_by(now, at, &c->written, &own, true, writes);
        if (!writes) {
            read_too(&c->read, &own);
            continue;
        }
        if (in_a_race(&c->read, &own)) end_by(now, at, &c->read, &own, false, true);
        c->written = own; /* which all that read before have been waited for by */
        c->read = {};
    }
}

void races_touched(const void *memory, size_t bytes, bool writes)
{
    touched(memory, bytes, writes, __builtin_return_address(0));
}

/* ---- what the compiler calls ---- */

extern "C" {
#define ACCESS(bytes)                                                                                                  \
    void __tsan_read##bytes(void *at);                                                                                 \
    void __tsan_write##bytes(void *at);                                                                                \
    void __tsan_unaligned_read##bytes(void *at);                                                                       \
    void __tsan_unaligned_write##bytes(void *at);                                                                      \
    void __tsan_read##bytes(void *at) { touched(at, bytes, false, __builtin_return_address(0)); }                      \
    void __tsan_write##bytes(void *at) { touched(at, bytes, true, __builtin_return_address(0)); }                      \
    void __tsan_unaligned_read##bytes(void *at) { touched(at, bytes, false, __builtin_return_address(0)); }            \
    void __tsan_unaligned_write##bytes(void *at) { touched(at, bytes, true, __builtin_return_address(0)); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_vptr_update(void **at, void *to);
void __tsan_init(void);
void __tsan_read_range(void *at, size_t bytes) { touched(at, bytes, false, __builtin_return_address(0)); }
void __tsan_write_range(void *at, size_t bytes) { touched(at, bytes, true, __builtin_return_address(0)); }
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **at, void *to) { (void)at, (void)to; }
void __tsan_init(void) {}
}
