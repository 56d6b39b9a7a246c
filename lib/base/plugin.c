#include "base/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
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
static bool beside_program(char folder[PLUGIN_PATH_MAX])
{
    char program[PLUGIN_PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return false;
    program[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(program, '/');
        if (slash == NULL) return false;
        *slash = '\0';
    }
    const int length = snprintf(folder, PLUGIN_PATH_MAX, "%s/lib/tabft", program);
    return length > 0 && length < PLUGIN_PATH_MAX;
}

/* The path of a plugin in `folder`; false when there is none. */
static bool plugin_in(const char *folder, size_t folder_length, const struct plugin_kind *kind, const char *name,
                      char path[PLUGIN_PATH_MAX])
{
    const int n = snprintf(path, PLUGIN_PATH_MAX, "%.*s/tabft-%s-%s.so", (int)folder_length, folder, kind->word, name);
    return folder_length > 0 && n > 0 && n < PLUGIN_PATH_MAX && access(path, F_OK) == 0;
}

/* The first of TABFT_PLUGIN_PATH, ../lib/tabft, the installed folder that has it. */
static int plugin_find(const struct plugin_kind *kind, const char *name, const char *missing,
                       char path[PLUGIN_PATH_MAX], struct tabft_failure *f)
{
    char folder[PLUGIN_PATH_MAX];
    const char *list = getenv("TABFT_PLUGIN_PATH");
    for (const char *p = list; p != NULL && *p != '\0';) {
        const size_t n = strcspn(p, ":");
        if (plugin_in(p, n, kind, name, path)) return 0;
        p += n + (p[n] == ':');
    }
    if (beside_program(folder) && plugin_in(folder, strlen(folder), kind, name, path)) return 0;
    if (plugin_in(TABFT_PLUGIN_DIR, strlen(TABFT_PLUGIN_DIR), kind, name, path)) return 0;
    return tabft_fail(f, TABFT_USE, "no %s '%s': tabft-%s-%s.so is neither in TABFT_PLUGIN_PATH nor in %s; %s",
                      kind->word, name, kind->word, name, TABFT_PLUGIN_DIR, missing);
}

static int plugin_check(const char *path, struct tabft_failure *f)
{
    int error = 0;
    char folder[PLUGIN_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    TRY(check_trusted(folder[0] ? folder : "/", f));
    TRY(check_trusted(path, f));
fail:
    return error;
}

int plugin_open(const struct plugin_kind *kind, const char *name, const char *missing, const char *broken,
                const void **table, char path[PLUGIN_PATH_MAX], struct tabft_failure *f)
{
    int error = 0, abi;
    TRY(plugin_find(kind, name, missing, path, f));
    TRY(plugin_check(path, f));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        FAIL(f, TABFT_SYSTEM, "%s '%s' cannot be opened: %s; %s", kind->word, name, dlerror(), broken);
    void *symbol = dlsym(library, kind->entry);
    if (symbol == NULL) FAIL(f, TABFT_USE, "%s: is no TabFT %s", path, kind->word);
    plugin_entry *entry;
    memcpy(&entry, &symbol, sizeof symbol);
    const void *found = entry();
    memcpy(&abi, found, sizeof abi);
    if (abi != kind->abi)
        FAIL(f, TABFT_USE, "%s: is of another TabFT (interface %d, needed %d); install both from one build", path, abi,
             kind->abi);
    *table = found;
fail:
    return error;
}
