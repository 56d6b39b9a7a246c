/* What a rank's networks run on: its CPU, or the GPU that is its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/gpu_index.h"
#include "comm/comm.h"
#include "train/train_internal.h"

int trainer_device_open(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    const struct tensor_device *d = t->device;
    TRY(tensor_device_precision(d, (enum tensor_precision)(t->o->precision - TRAIN_PRECISION_AUTO), &t->precision, f));
    if (d->plugin != NULL) {
        t->gpu_index = gpu_index(comm_local_rank(t->c), d->n_gpus);
        TRY(d->plugin->about(t->gpu_index, &t->gpu, f));
    }
    TRY(tensor_device_open(d, t->gpu_index, t->precision, t->pool, &t->backend, f));
fail:
    return error;
}

/* Two ranks on one GPU: each would plan for all of its memory. */
static int compare_gpus(struct trainer *t, struct tabft_failure *f)
{
    int error = 0, size = comm_size(t->c);
    struct place {
        char host[256], uuid[sizeof t->gpu.uuid];
    } own = {{0}, {0}}, *all = NULL;
    (void)snprintf(own.host, sizeof own.host, "%s", comm_host(t->c));
    (void)snprintf(own.uuid, sizeof own.uuid, "%s", t->gpu.uuid);
    TRY(memory_new(&all, (size_t)size, sizeof *all, "the GPUs of all ranks", f));
    TRY(comm_gather_all(t->c, &own, sizeof own, all, f));
    for (int i = 0; i < size; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(all[i].host, all[j].host) == 0 && strcmp(all[i].uuid, all[j].uuid) == 0)
                FAIL(f, TABFT_USE,
                     "ranks %d and %d have one GPU, %s of %s; start as many ranks a node as it has GPUs, with srun "
                     "--gpus-per-task=1",
                     j, i, all[i].uuid, all[i].host);
fail:
    free(all);
    return error;
}

int trainer_device_compare(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    TRY(comm_check_equal(t->c, "the device", t->device->name, f));
    TRY(comm_check_equal(t->c, "the instruction set", t->backend.isa, f));
    if (t->device->plugin != NULL) TRY(compare_gpus(t, f));
    if (t->device->plugin != NULL) trainer_say(t, "device: %s, %s, %s", t->gpu.name, t->backend.isa, t->gpu.uuid);
    else if (t->device->why[0] != '\0') trainer_say(t, "device: cpu (%s)", t->device->why);
fail:
    return error;
}

int trainer_device_budget(const struct trainer *t, uint64_t *bytes, struct tabft_failure *f)
{
    size_t left = 0;
    *bytes = UINT64_MAX;
    if (t->device->plugin == NULL) return 0;
    const int error = t->device->plugin->left(t->gpu_index, &left, f);
    *bytes = t->o->gpu_memory > 0 && t->o->gpu_memory < left ? t->o->gpu_memory : left;
    return error;
}
