/* What a rank's networks run on: its CPU, or the GPU that is its own. */
#include "base/gpu.h"
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

int trainer_device_compare(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    TRY(comm_check_equal(t->c, "the device", t->device->name, f));
    TRY(comm_check_equal(t->c, "the instruction set", t->backend.isa, f));
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
