#include "base/available.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number after `key` (and white space) at the start of a line; the file's first number where key is "". */
static bool number_in(const char *path, const char *key, uint64_t *value)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(key);
        unsigned long long number;
        if (strncmp(line, key, length) != 0 || sscanf(line + length, " %llu", &number) != 1) continue;
        *value = number;
        found = true;
    }
    (void)fclose(file);
    return found;
}

static bool number_at(const char *folder, const char *file, const char *key, uint64_t *value)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, file);
    return length > 0 && (size_t)length < sizeof path && number_in(path, key, value);
}

/* What one cgroup leaves. Pages of files that nobody used lately go when memory is asked for, so they count as free. */
static uint64_t left_in(const char *folder, bool v2)
{
    uint64_t limit, used, idle;
    /* No limit is the text "max", or no file. */
    if (!number_at(folder, v2 ? "memory.max" : "memory.limit_in_bytes", "", &limit)) return UINT64_MAX;
    if (!number_at(folder, v2 ? "memory.current" : "memory.usage_in_bytes", "", &used)) return UINT64_MAX;
    if (number_at(folder, "memory.stat", v2 ? "inactive_file" : "total_inactive_file", &idle))
        used = used > idle ? used - idle : 0;
    return limit > used ? limit - used : 0;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* A cgroup and all above it; `path` starts with '/' and is cut as it is walked. Inside a container the path may not be
 * there, but its root always is. */
static uint64_t left_above(const char *root, char *path, bool v2)
{
    char folder[PATH_MAX];
    uint64_t left = UINT64_MAX;
    for (;;) {
        int length = snprintf(folder, sizeof folder, "%s%s%s", root, v2 ? "" : "/memory", path);
        if (length > 0 && (size_t)length < sizeof folder) left = least(left, left_in(folder, v2));
        char *slash = strrchr(path, '/');
        if (slash == NULL) return left;
        *slash = '\0';
    }
}

uint64_t memory_available_at(const char *proc, const char *cgroup)
{
    char path[PATH_MAX], line[PATH_MAX];
    uint64_t left = UINT64_MAX, kib;
    if (number_at(proc, "meminfo", "MemAvailable:", &kib)) left = kib > UINT64_MAX >> 10 ? UINT64_MAX : kib << 10;
    int length = snprintf(path, sizeof path, "%s/self/cgroup", proc);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    if (file == NULL) return left;
    /* Lines are "number:controllers:path"; version 2 is number 0 without controllers. */
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *where = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (where == NULL) continue;
        *where++ = '\0';
        controllers++;
        char *end = NULL;
        bool v2 = *controllers == '\0', memory = false;
        for (char *word = strtok_r(controllers, ",", &end); word != NULL; word = strtok_r(NULL, ",", &end))
            memory = memory || strcmp(word, "memory") == 0;
        if (v2 || memory) left = least(left, left_above(cgroup, where, v2));
    }
    (void)fclose(file);
    return left;
}

uint64_t memory_available(void) { return memory_available_at("/proc", "/sys/fs/cgroup"); }

static uint64_t status_bytes(const char *key)
{
    uint64_t kib = 0;
    return number_in("/proc/self/status", key, &kib) ? kib << 10 : 0;
}

uint64_t memory_peak(void) { return status_bytes("VmHWM:"); }
uint64_t memory_now(void) { return status_bytes("VmRSS:"); }

/* A number of MiB from the environment in bytes; UINT64_MAX where there is none (Slurm: 0 is all of a node). */
static uint64_t environment_mib(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || *text < '0' || *text > '9') return UINT64_MAX;
    unsigned long long mib = strtoull(text, &end, 10);
    return *end != '\0' || mib == 0 || mib > UINT64_MAX >> 20 ? UINT64_MAX : (uint64_t)mib << 20;
}

uint64_t memory_budget(int processes)
{
    const uint64_t n = processes > 0 ? (uint64_t)processes : 1, left = memory_available();
    uint64_t budget = left == UINT64_MAX ? left : left / n + memory_now();
    const uint64_t node = environment_mib("SLURM_MEM_PER_NODE"), cpu = environment_mib("SLURM_MEM_PER_CPU");
    if (node != UINT64_MAX) budget = least(budget, node / n);
    if (cpu != UINT64_MAX) {
        const char *text = getenv("SLURM_CPUS_PER_TASK");
        const uint64_t cpus = text != NULL && *text >= '1' && *text <= '9' ? strtoull(text, NULL, 10) : 1;
        if (cpu <= UINT64_MAX / cpus) budget = least(budget, cpu * cpus);
    }
    return budget;
}
