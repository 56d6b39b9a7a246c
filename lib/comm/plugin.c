/* Engines by name: where a plugin may lie, and whether it may be trusted. Whoever can write a plugin runs code in
 * the job, so folder and file must belong to root or the user and be writable by nobody else. */
#include "comm/comm_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef TABFT_PLUGIN_DIR
#error "TABFT_PLUGIN_DIR is the folder that plugins are installed in"
#endif

/* A group that is the user's own (its primary group, or root's) is not "somebody else". */
static int check_trusted(const char *path, struct tabft_failure *f)
{
    struct stat s;
    if (stat(path, &s) != 0) return tabft_fail(f, TABFT_SYSTEM, "%s: %s", path, strerror(errno));
    if (s.st_uid != 0 && s.st_uid != geteuid())
        return tabft_fail(f, TABFT_USE, "%s: belongs to user %ld; a plugin must belong to root or to you", path,
                          (long)s.st_uid);
    if ((s.st_mode & S_IWOTH) != 0 || ((s.st_mode & S_IWGRP) != 0 && s.st_gid != 0 && s.st_gid != getegid()))
        return tabft_fail(f, TABFT_USE, "%s: others may write to it; refused as a plugin (chmod go-w)", path);
    return 0;
}

/* The folder of this program's own ../lib/tabft, so that an installed tree can be moved. */
static bool beside_program(char folder[PATH_MAX])
{
    char program[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return false;
    program[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(program, '/');
        if (slash == NULL) return false;
        *slash = '\0';
    }
    const int length = snprintf(folder, PATH_MAX, "%s/lib/tabft", program);
    return length > 0 && length < PATH_MAX;
}

/* The path of `name`'s plugin in `folder`; false when there is none. */
static bool plugin_in(const char *folder, size_t folder_length, const char *name, char path[PATH_MAX])
{
    const int n = snprintf(path, PATH_MAX, "%.*s/tabft-engine-%s.so", (int)folder_length, folder, name);
    return folder_length > 0 && n > 0 && n < PATH_MAX && access(path, F_OK) == 0;
}

/* The first of TABFT_PLUGIN_PATH, ../lib/tabft, the installed folder that has it. */
static int plugin_find(const char *name, char path[PATH_MAX], struct tabft_failure *f)
{
    char folder[PATH_MAX];
    const char *list = getenv("TABFT_PLUGIN_PATH");
    for (const char *p = list; p != NULL && *p != '\0';) {
        const size_t n = strcspn(p, ":");
        if (plugin_in(p, n, name, path)) return 0;
        p += n + (p[n] == ':');
    }
    if (beside_program(folder) && plugin_in(folder, strlen(folder), name, path)) return 0;
    if (plugin_in(TABFT_PLUGIN_DIR, strlen(TABFT_PLUGIN_DIR), name, path)) return 0;
    return tabft_fail(f, TABFT_USE,
                      "no engine '%s': tabft-engine-%s.so is neither in TABFT_PLUGIN_PATH nor in %s; build TabFT "
                      "with MPI (configure --with-mpi), or start one rank",
                      name, name, TABFT_PLUGIN_DIR);
}

static int plugin_check(const char *path, struct tabft_failure *f)
{
    int error = 0;
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    TRY(check_trusted(folder[0] ? folder : "/", f));
    TRY(check_trusted(path, f));
fail:
    return error;
}

static int plugin_load(const char *name, char path[PATH_MAX], const struct comm_engine **out, struct tabft_failure *f)
{
    int error = 0;
    TRY(plugin_find(name, path, f));
    TRY(plugin_check(path, f));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        FAIL(f, TABFT_SYSTEM, "engine '%s' cannot be opened: %s; load the site's MPI module", name, dlerror());
    void *symbol = dlsym(library, COMM_ENGINE_ENTRY);
    if (symbol == NULL) FAIL(f, TABFT_USE, "%s: is no TabFT engine", path);
    comm_engine_entry *entry;
    memcpy(&entry, &symbol, sizeof symbol);
    const struct comm_engine *engine = entry();
    if (engine->abi != COMM_ENGINE_ABI)
        FAIL(f, TABFT_USE, "%s: is of another TabFT (interface %d, needed %d); install both from one build", path,
             engine->abi, COMM_ENGINE_ABI);
    *out = engine;
fail:
    return error;
}

int plugin_open(const char *name, const struct comm_engine **out, struct tabft_failure *f)
{
    char path[PATH_MAX];
    if (strcmp(name, "self") == 0) {
        *out = &comm_engine_self;
        return 0;
    }
    if (name[0] == '\0' || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(name))
        return tabft_fail(f, TABFT_USE, "engine '%s': no such name; engines are auto, self and mpi", name);
    return plugin_load(name, path, out, f);
}

void plugin_describe(const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    char version[256];
    struct tabft_failure f = {0};
    const struct comm_engine *engine = NULL;
    if (plugin_load(name, path, &engine, &f) < 0) {
        (void)snprintf(text, size, "not usable (%s)", f.message);
        return;
    }
    engine->version(version, sizeof version);
    (void)snprintf(text, size, "%s, %s", version, path);
}
