/* What networks run on, by name: "cpu" is built in, "cuda" is a plugin (tabft-device-cuda.so, see base/plugin.h), so
 * that the same program runs where there is no GPU and nothing of CUDA. */
#ifndef TABFT_TENSOR_DEVICE_H
#define TABFT_TENSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/failure.h"
#include "base/gpu.h"
#include "base/plugin.h"
#include "tensor/ops.h"

/* How products of matrices are computed; sums are float32 in each. FLOAT32: to float32's precision. TF32: operands are rounded
 * to 10 bits of mantissa. BF16: to 7 bits, and votes' to 10; tensors between such products are kept so (struct op_bf16),
 * but never what is added to: the sums of residuals, parameters and their gradients. */
enum tensor_precision { TENSOR_FLOAT32 = 1, TENSOR_TF32, TENSOR_BF16 };
static inline const char *tensor_precision_name(enum tensor_precision precision)
{
    return precision == TENSOR_BF16 ? "bf16" : precision == TENSOR_TF32 ? "tf32" : "float32";
}

/* A GPU. */
struct tensor_gpu {
    char name[256];           /* "NVIDIA H100 80GB HBM3" */
    char uuid[GPU_UUID_SIZE]; /* "GPU-..." */
    size_t bytes;             /* of memory */
};

/* What a plugin exports. Its functions are thread safe but for those of a backend that it has opened. */
enum { TENSOR_DEVICE_ABI = 3 };
#define TENSOR_DEVICE_ENTRY "tabft_device"
struct tensor_device_plugin {
    int abi; /* TENSOR_DEVICE_ABI */
    /* Bytes of a GPU's memory that a process is expected to take of it for its libraries: their contexts and code. */
    size_t expected;
    /* The versions of what it runs with, one line: "CUDA 13.0, driver 580.65, cuBLAS 13.0.2". Starts nothing. */
    void (*versions)(char *text, size_t size);
    /* GPUs that this process may use (CUDA_VISIBLE_DEVICES). Errors: TABFT_SYSTEM: none, or no driver. */
    int (*count)(int *n, struct tabft_failure *f);
    int (*about)(int index, struct tensor_gpu *out, struct tabft_failure *f);
    /* Bytes of a GPU's memory that are taken now, by what this process has opened and by others, and those that its
     * libraries take later; to be asked when the backend is open. */
    int (*taken)(int index, size_t *bytes, struct tabft_failure *f);
    int (*open)(struct tensor_backend *out, int index, enum tensor_precision precision, struct tabft_failure *f);
    /* For planning alone: needs no GPU; calls must not be run and memory must not be taken. */
    int (*open_planning)(struct tensor_backend *out, enum tensor_precision precision, struct tabft_failure *f);
};

struct tensor_device {
    const char *name;                          /* "cpu", "cuda" */
    const struct tensor_device_plugin *plugin; /* NULL: the CPU */
    char path[PLUGIN_PATH_MAX];                /* of the plugin */
    int n_gpus;                                /* that this process may use */
    char why[TABFT_MESSAGE_SIZE];              /* why "auto" is the CPU though there is the plugin; else "" */
};

/* How a program opens plugins: tensor_device_plugin_open, or NULL in one that is fully static and cannot. */
typedef int tensor_device_opener(const struct tensor_device_plugin **out, char path[PLUGIN_PATH_MAX],
                                 struct tabft_failure *f);
int tensor_device_plugin_open(const struct tensor_device_plugin **out, char path[PLUGIN_PATH_MAX],
                              struct tabft_failure *f) TABFT_MUST_CHECK;

/* `name`: "cpu"; "cuda", which needs the plugin and, unless `planning`, a GPU; "auto": cuda where both are there, else
 * cpu. Errors: TABFT_USE, TABFT_SYSTEM where cuda was named and is not there. */
int tensor_device_find(struct tensor_device *out, const char *name, bool planning, tensor_device_opener *opener,
                       struct tabft_failure *f) TABFT_MUST_CHECK;

/* precision 0: what suits the device, float32 on CPUs, bf16 on GPUs; CPUs have no other (TABFT_USE). */
int tensor_device_precision(const struct tensor_device *d, enum tensor_precision asked, enum tensor_precision *out,
                            struct tabft_failure *f) TABFT_MUST_CHECK;

/* Opens the backend: on the CPU with the threads of `pool` (may be NULL; outlives it), or on GPU `index`. Planning: for
 * n_threads. Closed with backend->close. */
struct threads;
int tensor_device_open(const struct tensor_device *d, int index, enum tensor_precision precision, struct threads *pool,
                       struct tensor_backend *out, struct tabft_failure *f) TABFT_MUST_CHECK;
int tensor_device_open_planning(const struct tensor_device *d, enum tensor_precision precision, int n_threads,
                                struct tensor_backend *out, struct tabft_failure *f) TABFT_MUST_CHECK;

/* For --version: the plugin and what it found, or why there is none; at most `size` bytes including the 0. */
void tensor_device_describe(tensor_device_opener *opener, char *text, size_t size);

#endif
