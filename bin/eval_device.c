/* What tabft-eval predict runs on. */
#include <string.h>

#include "base/threads.h"
#include "eval/eval.h"
#include "eval_verbs.h"
#include "tensor/device.h"

/* A program that is fully static opens no plugins. */
#ifdef TABFT_NO_PLUGINS
static tensor_device_opener *const opener = NULL;
#else
static tensor_device_opener *const opener = tensor_device_plugin_open;
#endif

int eval_read_precision(const char *text, struct eval_device *d, struct tabft_failure *f)
{
    d->precision = 0;
    if (strcmp(text, "auto") == 0) return 0;
    for (int p = TENSOR_FLOAT32; p <= TENSOR_BF16; p++)
        if (strcmp(text, tensor_precision_name((enum tensor_precision)p)) == 0) d->precision = p;
    return d->precision != 0
               ? 0
               : tabft_fail(f, TABFT_USE, "--precision: \"%.100s\" is none of auto, float32, tf32, bf16", text);
}

int eval_open_device(const struct eval_device *asked, bool planning, struct threads *pool, struct tensor_backend *out,
                     struct eval_options *options, struct tabft_failure *f)
{
    int error = 0;
    struct tensor_device d;
    struct tensor_gpu gpu;
    enum tensor_precision precision;
    size_t taken = 0;
    TRY(tensor_device_find(&d, asked->name, planning, opener, f));
    TRY(tensor_device_precision(&d, (enum tensor_precision)asked->precision, &precision, f));
    if (d.plugin != NULL) options->gpu_taken = d.plugin->expected;
    if (planning) return tensor_device_open_planning(&d, precision, threads_count(pool), out, f);
    TRY(tensor_device_open(&d, 0, precision, pool, out, f));
    if (d.plugin == NULL) return 0;
    TRY(d.plugin->about(0, &gpu, f));
    TRY(d.plugin->taken(0, &taken, f));
    options->gpu_memory = gpu.bytes;
    options->gpu_taken = taken;
fail:
    return error;
}
