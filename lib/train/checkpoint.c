/* When a checkpoint is due, and when a run stops: agreed by all ranks between two steps. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/stop.h"
#include "comm/comm.h"
#include "train/state.h"

double trainer_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double trainer_seconds(const struct progress *p) { return p->started > 0 ? trainer_clock() - p->started : 0; }

/* Rank 0's word; steps need no clock. */
static bool is_due(const struct trainer *t, const struct progress *p)
{
    const struct train_interval every = t->o->checkpoint_every;
    if (every.n == 0) return false;
    if (!every.minutes) return p->step - p->saved_step >= every.n;
    return trainer_clock() - p->saved_at >= 60 * (double)every.n;
}

int checkpoint_agree(struct trainer *t, const struct progress *p, struct checkpoint_words *out,
                     struct tabft_failure *f)
{
    int error = 0, size = comm_size(t->c);
    struct checkpoint_words own = {.peak = trainer_memory_peak(t), .stop = stop_requested(), .save = is_due(t, p)};
    struct checkpoint_words *all = NULL;
    *out = own;
    if (size == 1) return 0;
    TRY(memory_new(&all, (size_t)size, sizeof *all, "the words of all ranks", f));
    TRY(comm_gather_all(t->c, &own, sizeof own, all, f));
    *out = all[0];
    for (int i = 1; i < size; i++) {
        if (all[i].peak > out->peak) out->peak = all[i].peak;
        if (out->stop == 0) out->stop = all[i].stop;
    }
fail:
    free(all);
    return error;
}

int checkpoint_take(struct trainer *t, struct progress *p, const struct checkpoint_words *words,
                    struct tabft_failure *f)
{
    int error = 0;
    if (words->stop == 0 && !words->save) return 0;
    if (t->kept[0] == '\0' || p->saved_step != p->step || p->saved_checked != p->checked) TRY(state_save(t, p, f));
    checkpoint_saved(p);
    if (words->stop == 0) return 0;
    *t->result = (struct train_result){.agreed = true, .speaker = 0};
    FAIL(f, TABFT_STOPPED, "stopped on request (%s) after step %" PRIu64 "; the checkpoint is %s/%s: go on with --resume",
         words->stop == SIGTERM ? "SIGTERM" : "SIGUSR1", p->step, t->o->out, t->kept);
fail:
    return error;
}

void checkpoint_saved(struct progress *p)
{
    p->saved_step = p->step;
    p->saved_checked = p->checked;
    p->saved_at = trainer_clock();
}
