/* Engines by name: self is built in, the others are plugins. */
#include "comm/comm_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/plugin.h"

static const struct plugin_kind engines = {.word = "engine", .entry = COMM_ENGINE_ENTRY, .abi = COMM_ENGINE_ABI};

static int engine_load(const char *name, char path[PLUGIN_PATH_MAX], const struct comm_engine **out,
                       struct tabft_failure *f)
{
    const void *table = NULL;
    const bool nccl = strcmp(name, "nccl") == 0;
    const int error = plugin_open(&engines, name,
                                  nccl ? "build TabFT with NCCL (configure --with-nccl), or start one rank"
                                       : "build TabFT with MPI (configure --with-mpi), or start one rank",
                                  nccl ? "load the site's CUDA and NCCL modules" : "load the site's MPI module", &table,
                                  path, f);
    if (error == 0) *out = table;
    return error;
}

int engine_open(const char *name, const struct comm_engine **out, struct tabft_failure *f)
{
    char path[PLUGIN_PATH_MAX];
    if (strcmp(name, "self") == 0) {
        *out = &comm_engine_self;
        return 0;
    }
    if (name[0] == '\0' || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(name))
        return tabft_fail(f, TABFT_USE, "engine '%s': no such name; engines are auto, self, mpi and nccl", name);
    return engine_load(name, path, out, f);
}

void engine_describe(const char *name, char *text, size_t size)
{
    char path[PLUGIN_PATH_MAX];
    char version[256];
    struct tabft_failure f = {0};
    const struct comm_engine *engine = NULL;
    if (engine_load(name, path, &engine, &f) < 0) {
        (void)snprintf(text, size, "not usable (%s)", f.message);
        return;
    }
    engine->version(version, sizeof version);
    (void)snprintf(text, size, "%s, %s", version, path);
}
