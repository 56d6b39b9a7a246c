/* lib/base/available: the tightest of machine and cgroups, in both versions, in a made-up /proc and /sys. */
#include <string.h>
#include <sys/stat.h>

#include "base/available.h"
#include "unit.h"

static char root[] = "available-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static uint64_t ask(const char *proc, const char *cgroup)
{
    char a[256], b[256];
    (void)snprintf(a, sizeof a, "%s/%s", root, proc);
    (void)snprintf(b, sizeof b, "%s/%s", root, cgroup);
    return memory_available_at(a, b);
}

START_TEST(tightest_wins)
{
    char command[64];
    ck_assert_ptr_nonnull(mkdtemp(root));
    ck_assert(ask("none", "none") == UINT64_MAX);
    put("p/meminfo", "MemTotal:  9000 kB\nMemFree: 1 kB\nMemAvailable:    4096 kB\n");
    ck_assert(ask("p", "none") == 4096 << 10);

    put("p/self/cgroup", "0::/job_7/step_0\n");
    put("v2/memory.stat", "inactive_file 0\n");
    put("v2/job_7/memory.max", "3000000\n");
    put("v2/job_7/memory.current", "1000000\n");
    put("v2/job_7/memory.stat", "anon 5\nfile 7\ninactive_file 200000\n");
    put("v2/job_7/step_0/memory.max", "max\n");
    put("v2/job_7/step_0/memory.current", "100\n");
    ck_assert(ask("p", "v2") == 2200000);
    put("v2/job_7/step_0/memory.max", "50\n"); /* more in use than allowed */
    ck_assert(ask("p", "v2") == 0);

    put("p/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/slurm/job\n1:memory2:/other\n0::/\n");
    put("v1/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712\n");
    put("v1/memory/slurm/job/memory.usage_in_bytes", "10\n");
    put("v1/memory/memory.limit_in_bytes", "1000000\n");
    put("v1/memory/memory.usage_in_bytes", "400000\n");
    put("v1/memory/memory.stat", "inactive_file 399999\ntotal_inactive_file 100000\n");
    ck_assert(ask("p", "v1") == 700000);
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(this_machine) { ck_assert(memory_available() > 1 << 20 && memory_available() < UINT64_MAX); }
END_TEST

UNIT_MAIN("available memory", tightest_wins, this_machine)
