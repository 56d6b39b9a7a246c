#include "tensor/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tensor/cpu/cpu.h"

static int find_cuda(struct tensor_device *out, bool planning, tensor_device_opener *opener, struct tabft_failure *f)
{
    int error = 0;
    const struct tensor_device_plugin *plugin = NULL;
    if (opener == NULL)
        FAIL(f, TABFT_USE,
             "--device cuda: this program is fully static and opens no plugins; configure --with-cuda makes one that "
             "does");
    TRY(opener(&plugin, out->path, f));
    if (!planning) TRY(plugin->count(&out->n_gpus, f));
    out->plugin = plugin;
    out->name = "cuda";
fail:
    return error;
}

int tensor_device_find(struct tensor_device *out, const char *name, bool planning, tensor_device_opener *opener,
                       struct tabft_failure *f)
{
    struct tabft_failure missing = {0};
    *out = (struct tensor_device){.name = "cpu"};
    if (strcmp(name, "cpu") == 0) return 0;
    if (strcmp(name, "cuda") == 0) return find_cuda(out, planning, opener, f);
    if (strcmp(name, "auto") != 0)
        return tabft_fail(f, TABFT_USE, "--device %.40s: there is no such device; use auto, cpu or cuda", name);
    /* A plan for "auto" is one for what a run would take here. */
    if (opener != NULL && find_cuda(out, false, opener, &missing) < 0) {
        const bool is_there = access(out->path, F_OK) == 0;
        *out = (struct tensor_device){.name = "cpu"};
        if (is_there) (void)snprintf(out->why, sizeof out->why, "%s", missing.message);
    }
    return 0;
}

int tensor_device_precision(const struct tensor_device *d, enum tensor_precision asked, enum tensor_precision *out,
                            struct tabft_failure *f)
{
    *out = asked != 0 ? asked : d->plugin != NULL ? TENSOR_BF16 : TENSOR_FLOAT32;
    if (d->plugin != NULL || *out == TENSOR_FLOAT32) return 0;
    return tabft_fail(f, TABFT_USE, "--precision %s: CPUs compute in float32 alone; use --device cuda, or float32",
                      tensor_precision_name(*out));
}

int tensor_device_open(const struct tensor_device *d, int index, enum tensor_precision precision, struct threads *pool,
                       struct tensor_backend *out, struct tabft_failure *f)
{
    return d->plugin == NULL ? cpu_backend_open(out, pool, f) : d->plugin->open(out, index, precision, f);
}

int tensor_device_open_planning(const struct tensor_device *d, enum tensor_precision precision, int n_threads,
                                struct tensor_backend *out, struct tabft_failure *f)
{
    return d->plugin == NULL ? cpu_backend_open_planning(out, n_threads, f)
                             : d->plugin->open_planning(out, precision, f);
}

static size_t add_text(char *text, size_t size, size_t used, const char *more)
{
    const int n = used < size ? snprintf(text + used, size - used, "%s", more) : 0;
    return n > 0 ? used + (size_t)n : used;
}

void tensor_device_describe(tensor_device_opener *opener, char *text, size_t size)
{
    struct tensor_device d = {0};
    struct tabft_failure f = {0};
    char line[1024];
    size_t used = 0;
    if (find_cuda(&d, true, opener, &f) < 0) {
        (void)snprintf(text, size, "  device cuda: not usable (%s)\n", f.message);
        return;
    }
    d.plugin->versions(line, sizeof line);
    used = add_text(text, size, used, "  device cuda: ");
    used = add_text(text, size, used, line);
    used = add_text(text, size, used, ", ");
    used = add_text(text, size, used, d.path);
    used = add_text(text, size, used, "\n");
    if (d.plugin->count(&d.n_gpus, &f) < 0) {
        used = add_text(text, size, used, "  GPUs: none (");
        used = add_text(text, size, used, f.message);
        used = add_text(text, size, used, ")\n");
        return;
    }
    for (int i = 0; i < d.n_gpus; i++) {
        struct tensor_gpu gpu;
        if (d.plugin->about(i, &gpu, &f) < 0) {
            used = add_text(text, size, used, f.message);
            used = add_text(text, size, used, "\n");
            return;
        }
        (void)snprintf(line, sizeof line, "  GPU %d: %s, %.1f GiB, %s\n", i, gpu.name,
                       (double)gpu.bytes / (double)(1 << 30), gpu.uuid);
        used = add_text(text, size, used, line);
    }
}
