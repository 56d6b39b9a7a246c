/* Apart from device.c, since a program that is fully static must not even link dlopen. */
#include "tensor/device.h"

static const struct plugin_kind devices = {.word = "device", .entry = TENSOR_DEVICE_ENTRY, .abi = TENSOR_DEVICE_ABI};

int tensor_device_plugin_open(const struct tensor_device_plugin **out, char path[PLUGIN_PATH_MAX],
                              struct tabft_failure *f)
{
    const void *table = NULL;
    const int error = plugin_open(&devices, "cuda",
                                  "build TabFT with CUDA (configure --with-cuda), or use --device cpu",
                                  "load the site's CUDA module, or use --device cpu", &table, path, f);
    if (error == 0) *out = table;
    return error;
}
