/* Gives files to the fuzzer it is linked with, without libFuzzer: what `make check` does with the stored inputs.
 *   fuzz_NAME [--changed N] FILE...   each file once, and N times with bytes changed, cut out, doubled or taken from
 *                                     another file: the same changes every time
 * Ends as the fuzzer does where a promise is broken; the last line printed names the input and the change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
#include "fuzz.h"

enum { INPUT_MOST = 1 << 20 };

struct input {
    uint8_t *bytes;
    size_t size;
};

static struct input read_input(const char *path)
{
    struct tabft_failure f = {0};
    struct input input = {0};
    void *bytes = NULL;
    if (file_read_all(path, INPUT_MOST, &bytes, &input.size, &f) < 0) {
        fprintf(stderr, "%s\n", f.message);
        exit(4);
    }
    input.bytes = bytes;
    return input;
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* One change in `to`, which has room for `room` bytes. */
static void change(struct input *to, size_t room, const struct input *other, uint64_t *state)
{
    static const uint8_t odd[] = {0, 1, 2, 7, 8, 0x7f, 0x80, 0xfe, 0xff, '"', ',', '\n', '\r', '-', '{', ':'};
    if (to->size == 0) to->bytes[to->size++] = 0;
    const size_t at = draw(state, to->size);
    size_t n = 1 + draw(state, 16);
    if (n > to->size - at) n = to->size - at;
    switch (draw(state, 6)) {
    case 0: to->bytes[at] = (uint8_t)(to->bytes[at] ^ 1u << draw(state, 8)); break;
    case 1: to->bytes[at] = odd[draw(state, sizeof odd)]; break;
    case 2: to->bytes[at] = (uint8_t)(to->bytes[at] + 1 - 2 * draw(state, 2)); break;
    case 3: /* cut out */
        memmove(to->bytes + at, to->bytes + at + n, to->size - at - n);
        to->size -= n;
        break;
    case 4: /* doubled */
        if (to->size + n > room) return;
        memmove(to->bytes + at + n, to->bytes + at, to->size - at);
        to->size += n;
        break;
    default: { /* from another file */
        if (other->size == 0) return;
        const size_t from = draw(state, other->size);
        if (n > other->size - from) n = other->size - from;
        memcpy(to->bytes + at, other->bytes + from, n);
        break;
    }
    }
}

/* A copy of just the input's size, so that a byte read beyond it shows. */
static void give(const struct input *input)
{
    uint8_t *copy = malloc(input->size > 0 ? input->size : 1);
    if (copy == NULL) exit(4);
    if (input->size > 0) memcpy(copy, input->bytes, input->size);
    (void)LLVMFuzzerTestOneInput(copy, input->size);
    free(copy);
}

static void give_changed(const struct input *input, const struct input *other, uint64_t seed)
{
    const size_t room = input->size + 256;
    struct input changed = {malloc(room), input->size};
    uint64_t state = seed * 0x9e3779b97f4a7c15u;
    if (changed.bytes == NULL) exit(4);
    if (input->size > 0) memcpy(changed.bytes, input->bytes, input->size);
    for (uint64_t n = 1 + draw(&state, 4); n > 0; n--) change(&changed, room, other, &state);
    give(&changed);
    free(changed.bytes);
}

int main(int count, char **arguments)
{
    int first = 1;
    unsigned long n_changed = 0;
    if (count > 2 && strcmp(arguments[1], "--changed") == 0) {
        n_changed = strtoul(arguments[2], NULL, 10);
        first = 3;
    }
    for (int i = first; i < count; i++) {
        const struct input input = read_input(arguments[i]);
        const struct input other = read_input(arguments[i + 1 < count ? i + 1 : first]);
        /* Said before it is tried: the last line names what broke a promise. */
        printf("%s\n", arguments[i]);
        fflush(stdout);
        give(&input);
        for (unsigned long k = 0; k < n_changed; k++) {
            printf("%s, change %lu\n", arguments[i], k);
            fflush(stdout);
            give_changed(&input, &other, k * 1000003u + (unsigned long)(i - first));
        }
        free(input.bytes);
        free(other.bytes);
    }
    printf("%lu inputs\n", (unsigned long)(count - first) * (1 + n_changed));
    return 0;
}
