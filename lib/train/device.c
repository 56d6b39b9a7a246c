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
    TRY(comm_check_equal(t->c, t->device->plugin == NULL ? "the instruction set" : "the kind of GPU", t->backend.isa,
                         f));
    if (t->device->plugin != NULL) trainer_say(t, "device: %s, %s", t->backend.isa, t->gpu.uuid);
    else if (t->device->why[0] != '\0') trainer_say(t, "device: cpu (%s)", t->device->why);
fail:
    return error;
}

int trainer_device_memory(const struct trainer *t, uint64_t *taken, uint64_t *budget, struct tabft_failure *f)
{
    int error = 0;
    size_t bytes = 0;
    *taken = 0;
    *budget = UINT64_MAX;
    if (t->device->plugin == NULL) return 0;
    TRY(t->device->plugin->taken(t->gpu_index, &bytes, f));
    *taken = bytes;
    *budget = t->o->gpu_memory > 0 && t->o->gpu_memory < t->gpu.bytes ? t->o->gpu_memory : t->gpu.bytes;
fail:
    return error;
}

int trainer_device_reserve(struct trainer *t, struct tabft_failure *f)
{
    if (t->backend.reserve == NULL) return 0;
    return t->backend.reserve(t->backend.state, t->plan.gpu_run, f);
}
