#include "part.h"

#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum { PARTS_MAX = 1000000 };

static int read_variable(const char *name, const char *otherwise, uint64_t *out, struct tabft_failure *f)
{
    const char *text = getenv(name);
    char what[96];
    if (text == NULL) text = otherwise;
    if (text == NULL)
        return tabft_fail(f, TABFT_USE, "--part array: %s is not set: this is no task of a job array; use --part I/N",
                          name);
    (void)snprintf(what, sizeof what, "--part array: %s", name);
    return tool_integer(what, text, 0, UINT32_MAX, out, f);
}

static int read_array(struct tool_part *out, struct tabft_failure *f)
{
    int error = 0;
    uint64_t task, count, first, step;
    TRY(read_variable("SLURM_ARRAY_TASK_ID", NULL, &task, f));
    TRY(read_variable("SLURM_ARRAY_TASK_COUNT", NULL, &count, f));
    TRY(read_variable("SLURM_ARRAY_TASK_MIN", "0", &first, f));
    TRY(read_variable("SLURM_ARRAY_TASK_STEP", "1", &step, f));
    if (step == 0) step = 1;
    if (count < 1 || count > PARTS_MAX || task < first || (task - first) % step != 0 || (task - first) / step >= count)
        FAIL(f, TABFT_USE,
             "--part array: task %llu of %llu from %llu in steps of %llu: the array has gaps; use START-END[:STEP], or "
             "--part I/N for single parts",
             (unsigned long long)task, (unsigned long long)count, (unsigned long long)first, (unsigned long long)step);
    *out = (struct tool_part){.index = (size_t)((task - first) / step),
                              .of = (size_t)count,
                              .first_task = (size_t)first,
                              .task_step = (size_t)step};
fail:
    return error;
}

int tool_part_read(const char *text, struct tool_part *out, struct tabft_failure *f)
{
    int error = 0;
    char copy[64];
    uint64_t part, n;
    if (strcmp(text, "array") == 0) return read_array(out, f);
    const char *slash = strchr(text, '/');
    if (slash == NULL || (size_t)(slash - text) >= sizeof copy)
        FAIL(f, TABFT_USE, "--part %.100s: I/N is needed, as 0/4, or array", text);
    memcpy(copy, text, (size_t)(slash - text));
    copy[slash - text] = '\0';
    TRY(tool_integer("--part", copy, 0, PARTS_MAX - 1, &part, f));
    TRY(tool_integer("--part I/N with N", slash + 1, part + 1, PARTS_MAX, &n, f));
    *out = (struct tool_part){.index = (size_t)part, .of = (size_t)n};
fail:
    return error;
}
