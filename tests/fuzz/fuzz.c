#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/file.h"

enum { PATHS = 8 };

static char folder[64];

static void forget_folder(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf -- '%s'", folder);
    if (system(command) != 0) _exit(4);
}

static void make_folder(void)
{
    struct stat status;
    const bool memory = stat("/dev/shm", &status) == 0 && access("/dev/shm", W_OK) == 0;
    (void)snprintf(folder, sizeof folder, "%s/tabft-fuzz-XXXXXX", memory ? "/dev/shm" : "/tmp");
    fuzz_hold(mkdtemp(folder) != NULL, "a folder can be made");
    fuzz_hold(atexit(forget_folder) == 0, "the folder will be removed");
}

const char *fuzz_path(const char *name)
{
    static char paths[PATHS][128];
    static unsigned next;
    if (folder[0] == '\0') make_folder();
    char *path = paths[next++ % PATHS];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    const char *path = fuzz_path(name);
    FILE *file = fopen(path, "wb");
    fuzz_hold(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0, "an input can be written");
    return path;
}

void fuzz_hold(bool held, const char *promise)
{
    if (held) return;
    fprintf(stderr, "not held: %s\n", promise);
    abort();
}

bool fuzz_taken(int error, struct tabft_failure *f)
{
    if (error == 0) return true;
    if (error != TABFT_INPUT && error != TABFT_USE) {
        fprintf(stderr, "code %d: %s\n", error, f->message);
        abort();
    }
    fuzz_hold(f->code == error && f->message[0] != '\0', "a refusal says why");
    for (const char *p = f->message; *p != '\0'; p++)
        fuzz_hold((unsigned char)*p >= 0x20 && *p != 0x7f, "a message is one line without control characters");
    *f = (struct tabft_failure){0};
    return false;
}

bool fuzz_same(const char *a, const char *b)
{
    struct tabft_failure f = {0};
    void *bytes[2] = {NULL, NULL};
    size_t size[2] = {0, 0};
    fuzz_hold(file_read_all(a, 1 << 28, &bytes[0], &size[0], &f) == 0, "a file that was written can be read");
    fuzz_hold(file_read_all(b, 1 << 28, &bytes[1], &size[1], &f) == 0, "a file that was written can be read");
    const bool same = size[0] == size[1] && (size[0] == 0 || memcmp(bytes[0], bytes[1], size[0]) == 0);
    free(bytes[0]);
    free(bytes[1]);
    return same;
}
