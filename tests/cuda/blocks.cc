/* How the emulation runs a block: each thread has a stack of its own and runs until it waits, then the next one does. A
 * thread that never waits runs to its end on the same stack as the one before it. Stacks are switched by a few instructions
 * of our own (x86-64): swapcontext makes system calls, and after the C library's longjmp AddressSanitizer wipes what it
 * knows of the whole stack. What so cannot go wrong, as threads never run beside each other, is for races.cc to find. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

#define TABFT_TENSOR_ROOM
#include "races.h"
#include "tensor/cuda/tensor_core_internal.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define ENTER_FIBER(save, to) __sanitizer_start_switch_fiber(save, (to).stack, STACK)
#define LEAVE_FIBER(save) __sanitizer_start_switch_fiber(save, main_bottom, main_size)
#define ARRIVED(save, bottom, size) __sanitizer_finish_switch_fiber(save, bottom, size)
#else
#define ENTER_FIBER(save, to) ((void)(save))
#define LEAVE_FIBER(save) ((void)(save))
#define ARRIVED(save, bottom, size) ((void)(save), (void)(bottom), (void)(size))
#endif

uint3 threadIdx, blockIdx, blockDim, gridDim;

static constexpr unsigned STACK = 256 << 10, THREADS_MOST = 1024, LANES = 32, WORDS_MOST = 8;
static constexpr size_t SHARED_COMMON = 48 << 10; /* of a block without asking for more */

struct fiber {
    char *stack;
    void *at; /* its stack pointer while another stack runs */
    void *fake_stack;
};
enum wait { NOTHING, WARP_EXCHANGE, BLOCK_BARRIER };
struct thread {
    struct fiber *fiber; /* NULL before the start and after the end */
    bool done;
    enum wait waits;
    unsigned generation; /* of what it waits for */
};
struct warp {
    uint32_t words[2][LANES * WORDS_MOST];
    unsigned arrived, generation, barriers; /* barriers: exchanges of nothing, which order what its lanes do to memory */
    unsigned line, barrier_line;            /* of the exchange under way, and of the block's barrier; 0: no lane is there */
};

struct copy {
    void *to;
    const void *from;
};

/* Never destroyed: what is in it is still found when leaks are looked for at the end. */
static std::vector<struct fiber *> &idle = *new std::vector<struct fiber *>();
static struct thread threads[THREADS_MOST];
static struct warp warps[THREADS_MOST / LANES];
/* A product of a warpgroup that is under way; c_was, a_was: what c and a were when it was asked for. */
struct group_product {
    struct tile_c *c, c_was[8];
    bool add, turned;
    uint64_t a, b;
    const uint32_t *a_at;
    uint32_t a_was[4];
    float a_row[2][16]; /* of a in registers: of this lane's rows */
    unsigned set;
};
struct group_products {
    std::vector<struct group_product> under_way;
    unsigned sets; /* that are closed */
    bool begun, unfenced;
};
static struct group_products *const products = new struct group_products[THREADS_MOST]; /* of each thread */
static unsigned n_unfenced;
/* What each warp has multiplied, in one number: the four of a group must have asked for the same. */
static uint64_t asked[THREADS_MOST / LANES];
static size_t shared_size;
static std::vector<struct copy> *const copies = new std::vector<struct copy>[THREADS_MOST]; /* asked for by each thread */
static unsigned n_threads, current, block_arrived, block_generation;
static void *scheduler; /* its stack pointer while a fiber runs */
static void *scheduler_fake_stack;
static const void *main_bottom;
static size_t main_size;
static const std::function<void()> *body;
static struct fiber *running; /* NULL: the scheduler does */
static const char *kernel_name;
static float *shared;
static size_t shared_allowed = SHARED_COMMON;
static size_t grid_most = 3, last_blocks;

/* Goes on where the stack `to` was left. What a call must preserve lies on the stack that is left, and *left is its pointer
 * then: six registers, and above them the address to go on at (System V ABI, AMD64). */
extern "C" void emulation_switch(void **left, void *to);
__asm__(".text\n"
        ".type emulation_switch, @function\n"
        "emulation_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size emulation_switch, . - emulation_switch\n");
enum { SAVED = 6 };

static void die(const char *what)
{
    (void)fprintf(stderr, "CUDA emulation: %s, block %u, thread %u: %s\n", kernel_name, blockIdx.x, threadIdx.x, what);
    abort();
}

float *emulation_shared(void) { return shared; }

/* Shared memory of a size that the kernel knows is static here, and kernels have nothing else that is. */
extern "C" char __bss_start, _end;
bool races_is_shared(const void *at)
{
    const char *byte = (const char *)at;
    return (byte >= (const char *)shared && byte < (const char *)shared + shared_size) || (byte >= &__bss_start && byte < &_end);
}
const struct races_now *races_thread(void)
{
    static struct races_now now;
    if (running == NULL) return NULL;
    now = {kernel_name, running->stack, running->stack + STACK, blockIdx.x, threadIdx.x, block_generation,
           warps[threadIdx.x / LANES].barriers};
    return &now;
}

size_t emulation_grid_most(void) { return grid_most; }
size_t emulation_last(void) { return last_blocks; }
extern "C" void emulation_run_last(size_t most, size_t last)
{
    grid_most = most;
    last_blocks = last;
}

/* Back to the scheduler until what the thread waits for has come. */
static void wait_for(enum wait what, unsigned generation)
{
    struct thread *t = &threads[current];
    t->waits = what;
    t->generation = generation;
    LEAVE_FIBER(&t->fiber->fake_stack);
    emulation_switch(&t->fiber->at, scheduler);
    ARRIVED(t->fiber->fake_stack, &main_bottom, &main_size);
}

/* `others`: where lanes of the warp wait already. */
static void meet(unsigned *others, unsigned line)
{
    if (*others != 0 && *others != line) die("lanes of a warp that meet at different places of the source");
    *others = line;
}

void __syncthreads(unsigned line)
{
    const unsigned generation = block_generation;
    meet(&warps[threadIdx.x / LANES].barrier_line, line);
    if (++block_arrived == n_threads) {
        block_arrived = 0;
        block_generation++;
        for (struct warp &w : warps) w.barrier_line = 0;
        return;
    }
    wait_for(BLOCK_BARRIER, generation);
}

const uint32_t *emulation_exchange(const uint32_t *words, unsigned count, unsigned line)
{
    struct warp *w = &warps[threadIdx.x / LANES];
    const unsigned generation = w->generation, lanes = n_threads - threadIdx.x / LANES * LANES;
    uint32_t *all = w->words[generation % 2];
    if (count > WORDS_MOST) die("too many words in an exchange");
    meet(&w->line, line);
    if (count > 0) memcpy(all + threadIdx.x % LANES * count, words, count * sizeof *words);
    if (++w->arrived == (lanes < LANES ? lanes : LANES)) {
        w->arrived = w->line = 0;
        w->generation++;
        w->barriers += count == 0;
    } else {
        wait_for(WARP_EXCHANGE, generation);
    }
    return all;
}

void __syncwarp(unsigned line) { (void)emulation_exchange(NULL, 0, line); }

/* A stack runs threads one after the other as long as they do not wait. */
static void fiber_main(void)
{
    ARRIVED(NULL, &main_bottom, &main_size);
    for (;;) {
        struct fiber *own = threads[current].fiber;
        (*body)();
        threads[current].done = true;
        threads[current].fiber = NULL;
        idle.push_back(own);
        LEAVE_FIBER(&own->fake_stack);
        emulation_switch(&own->at, scheduler);
        ARRIVED(own->fake_stack, &main_bottom, &main_size);
    }
}

static struct fiber *new_fiber(void)
{
    struct fiber *f = new fiber();
    f->stack = (char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (f->stack == MAP_FAILED) die("no memory for a thread");
    /* As if it had been left before its first instruction, with the stack aligned as behind a call. */
    void **top = (void **)(f->stack + STACK) - 2;
    *top = (void *)fiber_main;
    f->at = top - SAVED;
    return f;
}

/* Lets a thread run until it waits or ends. */
static void resume(unsigned number)
{
    struct thread *t = &threads[number];
    current = number;
    threadIdx.x = number;
    if (t->fiber == NULL) {
        if (idle.empty()) idle.push_back(new_fiber());
        t->fiber = idle.back();
        idle.pop_back();
    }
    struct fiber *f = t->fiber;
    ENTER_FIBER(&scheduler_fake_stack, *f);
    running = f;
    emulation_switch(&scheduler, f->at);
    running = NULL;
    ARRIVED(scheduler_fake_stack, NULL, NULL);
}

static bool may_run(const struct thread *t, unsigned number)
{
    if (t->done) return false;
    if (t->waits == WARP_EXCHANGE) return warps[number / LANES].generation != t->generation;
    return t->waits == NOTHING || block_generation != t->generation;
}

static void run_block(void)
{
    races_block();
    memset(warps, 0, sizeof warps);
    for (unsigned i = 0; i < n_threads; i++) threads[i] = {};
    block_arrived = block_generation = 0;
    for (unsigned left = n_threads; left > 0;) {
        bool moved = false;
        for (unsigned i = 0; i < n_threads; i++) {
            if (!may_run(&threads[i], i)) continue;
            threads[i].waits = NOTHING;
            moved = true;
            resume(i);
            left -= threads[i].done;
        }
        if (!moved) die("threads wait for others of their block or warp that have ended or wait elsewhere");
    }
    if (block_arrived != 0) die("a barrier that not all threads have reached");
    for (unsigned i = 0; i < n_threads; i++) {
        if (!copies[i].empty()) die("copies that nobody has waited for");
        if (!products[i].under_way.empty()) die("products that nobody has waited for");
        products[i] = {};
    }
    for (unsigned w = 0; w < n_threads / LANES; w++)
        if (asked[w] != asked[w / 4 * 4]) die("warps of a group that ask for different products");
    n_unfenced = 0;
    memset(asked, 0, sizeof asked);
}

static void run_blocks(const char *kernel, unsigned blocks, unsigned n, size_t shared_bytes,
                       const std::function<void()> &run)
{
    races_launch();
    kernel_name = kernel;
    n_threads = n;
    body = &run;
    void *memory;
    if (posix_memalign(&memory, 1024, shared_bytes == 0 ? 1 : shared_bytes) != 0) die("no memory for shared memory");
    shared = (float *)memory;
    shared_size = shared_bytes;
    blockDim = {n, 1, 1};
    gridDim = {blocks, 1, 1};
    const unsigned first = last_blocks > 0 && blocks > last_blocks ? blocks - (unsigned)last_blocks : 0;
    for (unsigned b = first; b < blocks; b++) {
        blockIdx = {b, 0, 0};
        memset(shared, 0xff, shared_bytes);
        run_block();
    }
    free(shared);
}

static int call_step(void *context)
{
    (*(std::function<void()> *)context)();
    return 1;
}
static void call_end(void *context) { delete (std::function<void()> *)context; }

cudaError_t emulation_do(cudaStream_t stream, std::function<void()> work)
{
    return emulation_put(stream, call_step, call_end, new std::function<void()>(std::move(work)));
}

void emulation_launch(const char *kernel, unsigned blocks, unsigned n, size_t shared_bytes, cudaStream_t stream,
                      std::function<void()> run)
{
    const size_t allowed = shared_allowed;
    shared_allowed = SHARED_COMMON;
    if (n == 0 || n > THREADS_MOST || shared_bytes > allowed || blocks > 0x7fffffffu) {
        emulation_set_error(cudaErrorInvalidValue);
        return;
    }
    if (blocks == 0) {
        emulation_set_error(cudaErrorInvalidConfiguration);
        return;
    }
    (void)emulation_do(stream, [=]() { run_blocks(kernel, blocks, n, shared_bytes, run); });
}

cudaError_t emulation_allow_shared(size_t bytes)
{
    struct cudaDeviceProp about;
    int device;
    if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&about, device) != cudaSuccess) return cudaErrorNoDevice;
    if (bytes > about.sharedMemPerBlockOptin) return cudaErrorInvalidValue;
    shared_allowed = bytes > SHARED_COMMON ? bytes : SHARED_COMMON;
    return cudaSuccess;
}

/* ---- tensor cores ---- */

/* To the nearest number of 10 bits of mantissa, ties away from zero. */
uint32_t tf32_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0x7f800000u) return bits & 0xffffe000u;
    return (bits + 0x1000u) & 0xffffe000u;
}

/* Those of all lanes, six words a lane: four of a, two of b. */
static const uint32_t *exchange_operands(const uint32_t *a, const uint32_t *b, unsigned line)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    return emulation_exchange(words, 6, line);
}

void multiply_tf32(struct tile_c *c, const uint32_t *a, const uint32_t *b, unsigned line)
{
    const unsigned g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    const uint32_t *all = exchange_operands(a, b, line);
    for (unsigned i = 0; i < 4; i++) {
        float sum = c->x[i];
        for (unsigned k = 0; k < 8; k++) {
            const uint32_t *of_a = all + (g * 4 + k % 4) * 6, *of_b = all + ((2 * t + i % 2) * 4 + k % 4) * 6;
            sum += float_of(of_a[(i < 2 ? 0 : 1) + (k < 4 ? 0 : 2)]) * float_of(of_b[k < 4 ? 4 : 5]);
        }
        c->x[i] = sum;
    }
}

/* To the nearest number of 7 bits of mantissa, ties to even. */
static uint32_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
uint32_t bf16_pair(float first, float second) { return bf16_of(first) | bf16_of(second) << 16; }

void multiply_bf16(struct tile_c *c, const uint32_t *a, const uint32_t *b, unsigned line)
{
    const unsigned g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    const uint32_t *all = exchange_operands(a, b, line);
    for (unsigned i = 0; i < 4; i++) {
        float sum = c->x[i];
        for (unsigned k = 0; k < 16; k += 2) {
            const uint32_t of_a = all[(g * 4 + k % 8 / 2) * 6 + (i < 2 ? 0 : 1) + (k < 8 ? 0 : 2)];
            const uint32_t of_b = all[((2 * t + i % 2) * 4 + k % 8 / 2) * 6 + (k < 8 ? 4 : 5)];
            sum += float_of(of_a << 16) * float_of(of_b << 16);
            sum += float_of(of_a & 0xffff0000u) * float_of(of_b & 0xffff0000u);
        }
        c->x[i] = sum;
    }
}

cudaError_t emulation_has_code(void)
{
    return getenv("CUDA_EMULATION_OLD") == NULL ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

/* The rows of four matrices, as the lanes name them. */
static void exchange_rows(const uint16_t *row, const uint16_t **rows, unsigned line)
{
    uint32_t words[sizeof row / sizeof(uint32_t)];
    if ((uintptr_t)row % 16 != 0) die("a row of a matrix that is not aligned");
    memcpy(words, &row, sizeof row);
    const uint32_t *all = emulation_exchange(words, sizeof words / sizeof *words, line);
    memcpy((void *)rows, all, LANES * sizeof *rows);
    races_touched(row, 16, false);
}
void load_matrices(uint32_t *x, const uint16_t *row, unsigned line)
{
    const uint16_t *rows[LANES];
    const unsigned g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    exchange_rows(row, rows, line);
    for (unsigned i = 0; i < 4; i++) memcpy(x + i, rows[8 * i + g] + 2 * t, sizeof *x);
}
void load_matrices_turned(uint32_t *x, const uint16_t *row, unsigned line)
{
    const uint16_t *rows[LANES];
    const unsigned g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    exchange_rows(row, rows, line);
    for (unsigned i = 0; i < 4; i++) x[i] = rows[8 * i + 2 * t][g] | (uint32_t)rows[8 * i + 2 * t + 1][g] << 16;
}

void copy_16(void *to, const void *from, bool there)
{
    static const uint32_t zeros[4] = {0, 0, 0, 0};
    if ((uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0) die("a copy that is not aligned");
    races_touched(to, 16, true);
    if (there) races_touched(from, 16, false);
    memset(to, 0xff, 16);
    copies[threadIdx.x].push_back({to, there ? from : zeros});
}
void copies_wait(void)
{
    struct group_products *own = &products[threadIdx.x];
    if (copies[threadIdx.x].empty()) return;
    for (const struct copy &c : copies[threadIdx.x]) {
        races_touched(c.from, 16, false);
        races_touched(c.to, 16, true);
        memcpy(c.to, c.from, 16);
    }
    copies[threadIdx.x].clear();
    n_unfenced += !own->unfenced;
    own->unfenced = true;
}

/* ---- a warpgroup's products ---- */

/* Where a block's shared memory begins, as instructions name it: behind what the system has of it. */
static constexpr uint32_t SHARED_BEGIN = 1024;

uint32_t shared_address(const void *at)
{
    const ptrdiff_t offset = (const char *)at - (const char *)shared;
    if (offset < 0 || (size_t)offset >= shared_size) die("an address that is not of shared memory");
    return SHARED_BEGIN + (uint32_t)offset;
}

void fence_shared(void)
{
    struct group_products *own = &products[threadIdx.x];
    n_unfenced -= own->unfenced;
    own->unfenced = false;
}

void begin_products(void) { products[threadIdx.x].begun = true; }

/* Where number k of column i is that a descriptor names, of 16, or, turned, of row k; with 128-byte swizzling alone (PTX ISA,
 * matrix descriptor format, canonical layouts): bits 4 to 6 of an address are changed by bits 7 to 9. */
static const char *described_place(uint64_t descriptor, bool turned, unsigned i, unsigned k)
{
    const uint64_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4,
                   stride = (descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 62 != 1) die("a tile that is not swizzled by 128 bytes");
    if ((descriptor >> 49 & 7) != 0 || start % 1024 >= 128) die("a tile that does not begin at a multiple of 1024 bytes");
    if (turned && start % 1024 != 0) die("rows of a tile from the middle on");
    const uint64_t offset = turned ? k / 8 * stride + k % 8 * 128 + i / 64 * leading + i % 64 * 2
                                   : i / 8 * stride + i % 8 * 128 + k * 2;
    const uint64_t at = (start + offset) ^ ((start + offset) >> 7 & 7) << 4;
    if (at < SHARED_BEGIN || at - SHARED_BEGIN + sizeof(uint16_t) > shared_size) die("a tile beyond shared memory");
    return (const char *)shared + (at - SHARED_BEGIN);
}
static float described_number(uint64_t descriptor, bool turned, unsigned i, unsigned k)
{
    uint16_t bits;
    memcpy(&bits, described_place(descriptor, turned, i, k), sizeof bits);
    return float_of((uint32_t)bits << 16);
}

/* What a product reads from when it is begun until it is waited for: each thread of the group has 16 bytes of both, not those
 * that it is likely to have written itself. */
static void touch_operands(const struct group_product &p)
{
    const unsigned piece = (threadIdx.x + GROUP_THREADS / 2) % GROUP_THREADS;
    if (!p.turned) races_touched(described_place(p.a, false, piece / 2, piece % 2 * 8), 16, false);
    races_touched(p.turned ? described_place(p.b, true, piece % 8 * 8, piece / 8)
                           : described_place(p.b, false, piece / 2, piece % 2 * 8), 16, false);
}

static void put_product(struct group_product p)
{
    struct group_products *own = &products[threadIdx.x];
    if (!own->begun) die("a product before registers are told to be ready");
    if (n_unfenced > 0) die("a product before what was written to shared memory is fenced");
    if (n_threads % GROUP_THREADS != 0) die("a product of a group that is not whole");
    memcpy(p.c_was, p.c, sizeof p.c_was);
    p.set = own->sets;
    if (threadIdx.x % LANES == 0) {
        uint64_t *all = &asked[threadIdx.x / LANES];
        for (const uint64_t x : {p.a, p.b, (uint64_t)p.turned * 2 + p.add + 1}) *all = (*all ^ x) * 0x9e3779b97f4a7c15u;
    }
    touch_operands(p);
    own->under_way.push_back(p);
}

void multiply_columns(struct tile_c *c, bool add, uint64_t a, uint64_t b)
{
    struct group_product p = {};
    p.c = c;
    p.add = add;
    p.a = a;
    p.b = b;
    put_product(p);
}

void multiply_rows(struct tile_c *c, const uint32_t *a, uint64_t b, unsigned line)
{
    struct group_product p = {};
    const unsigned g = threadIdx.x % LANES / 4;
    const uint32_t *all = emulation_exchange(a, 4, line);
    p.c = c;
    p.add = p.turned = true;
    p.b = b;
    p.a_at = a;
    memcpy(p.a_was, a, sizeof p.a_was);
    for (unsigned row = 0; row < 2; row++)
        for (unsigned k = 0; k < 16; k++) {
            const uint32_t word = all[(g * 4 + k % 8 / 2) * 4 + row + (k < 8 ? 0 : 2)];
            p.a_row[row][k] = float_of(k % 2 == 0 ? word << 16 : word & 0xffff0000u);
        }
    put_product(p);
}

/* From here on registers may be written to again: the next set must begin, too. */
void end_products(void)
{
    products[threadIdx.x].sets++;
    products[threadIdx.x].begun = false;
}

static void make_product(const struct group_product &p)
{
    const unsigned first = threadIdx.x % GROUP_THREADS / LANES * 16 + threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    float a[2][16];
    for (unsigned row = 0; row < 2; row++)
        for (unsigned k = 0; k < 16; k++)
            a[row][k] = p.turned ? p.a_row[row][k] : described_number(p.a, false, first + 8 * row, k);
    for (unsigned i = 0; i < 32; i++) {
        float *to = &p.c[i / 4].x[i % 4], sum = p.add ? *to : 0.0f;
        for (unsigned k = 0; k < 16; k++)
            sum += a[i % 4 / 2][k] * described_number(p.b, p.turned, i / 4 * 8 + 2 * t + i % 2, k);
        *to = sum;
    }
}

void emulation_products_wait(unsigned left)
{
    struct group_products *own = &products[threadIdx.x];
    const auto is_due = [=](const struct group_product &p) { return p.set + left < own->sets; };
    for (const struct group_product &p : own->under_way) {
        if (memcmp(p.c, p.c_was, sizeof p.c_was) != 0) die("sums of products that are under way were written to");
        if (p.turned && memcmp(p.a_at, p.a_was, sizeof p.a_was) != 0)
            die("registers of products that are under way were written to");
    }
    while (!own->under_way.empty() && is_due(own->under_way.front())) {
        touch_operands(own->under_way.front());
        make_product(own->under_way.front());
        own->under_way.erase(own->under_way.begin());
    }
}

float power_of_2(float x)
{
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}
