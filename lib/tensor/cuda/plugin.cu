/* The plugin's face: versions, and for which GPUs it was compiled (TABFT_CUDA_ARCHS), and the one symbol that it exports. */
#define TABFT_TENSOR_ROOM
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tensor/cuda/device_internal.h"

/* The driver's own version, "580.65.06": the first word of its module's line that begins with a digit. */
static void driver_version(char *out, size_t size)
{
    char line[512], *rest = NULL;
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    (void)snprintf(out, size, "none");
    if (file == NULL) return;
    if (fgets(line, sizeof line, file) != NULL)
        for (char *word = strtok_r(line, " \t\n", &rest); word != NULL; word = strtok_r(NULL, " \t\n", &rest)) {
            if (!isdigit((unsigned char)*word)) continue;
            (void)snprintf(out, size, "%s", word);
            break;
        }
    (void)fclose(file);
}

void cuda_versions(char *text, size_t size)
{
    int runtime = 0, blas[3] = {0, 0, 0};
    char driver[64];
    static constexpr libraryPropertyType parts[] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    (void)cudaRuntimeGetVersion(&runtime);
    for (int i = 0; i < 3; i++) (void)cublasGetProperty(parts[i], &blas[i]);
    driver_version(driver, sizeof driver);
    (void)snprintf(text, size, "CUDA %d.%d for " TABFT_CUDA_ARCHS ", driver %s, cuBLAS %d.%d.%d", runtime / 1000,
                   runtime % 1000 / 10, driver, blas[0], blas[1], blas[2]);
}

static const struct tensor_device_plugin plugin = {TENSOR_DEVICE_ABI, CUDA_EXPECTED,     cuda_versions,
                                                   cuda_count,        cuda_about,        cuda_taken,
                                                   cuda_backend_open, cuda_backend_open_planning};

extern "C" __attribute__((visibility("default"))) const void *tabft_device(void) { return &plugin; }
