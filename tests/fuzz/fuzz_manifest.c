/* Manifests of checkpoints, the text in their container: what is taken holds together, is compared with a run without harm,
 * and says the same after it was written again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "table/table.h"
#include "train/state_internal.h"

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void hold_together(const struct state_manifest *m)
{
    size_t at = 0;
    for (size_t i = 0; i < m->n_slices; i++) {
        fuzz_hold(m->slice[i].begin == at && m->slice[i].end >= at, "slices follow one another");
        at = m->slice[i].end;
    }
    fuzz_hold(m->n_slices > 0 && m->slice[0].end > 0 && at == m->n_parameters, "slices hold all parameters");
    fuzz_hold(m->seconds >= 0 && m->n_parameters <= (uint64_t)1 << 48, "numbers are bounded");
}

static void hold_equal(const struct state_manifest *a, const struct state_manifest *b)
{
    const struct progress *p = &a->progress, *q = &b->progress;
    fuzz_hold(p->epoch == q->epoch && p->position == q->position && p->checked == q->checked && p->step == q->step &&
                  p->n_steps == q->n_steps && p->skipped == q->skipped && p->epoch_steps == q->epoch_steps &&
                  p->best_epoch == q->best_epoch && p->waited == q->waited && same_number(p->epoch_loss, q->epoch_loss) &&
                  same_number(p->best, q->best) && same_number(p->initial, q->initial),
              "progress is written as it was read");
    fuzz_hold(a->n_parameters == b->n_parameters && a->n_slices == b->n_slices && a->metrics_bytes == b->metrics_bytes &&
                  a->optimiser_steps == b->optimiser_steps && a->has_best == b->has_best && a->seconds == b->seconds &&
                  memcmp(a->slice, b->slice, a->n_slices * sizeof *a->slice) == 0,
              "sizes and slices are written as they were read");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tabft_failure f = {0};
    struct state_manifest m, again;
    struct train_options options;
    struct table table = {.path = "train.tbf", .digest = "0123"};
    struct trainer t = {.o = &options, .n_parameters = 64, .backend.isa = "avx2", .base_digest = "4567", .data.table = &table};
    char *text = NULL;
    train_options_default(&options);
    if (!fuzz_taken(state_manifest_read(&m, "manifest", (const char *)data, size, &f), &f)) return 0;
    hold_together(&m);
    (void)fuzz_taken(state_manifest_match(&m, &t, &f), &f);
    (void)fuzz_taken(train_options_compare(&options, json_object_get(m.root, "options"), &f), &f);
    fuzz_hold(state_manifest_write(&t, &m, &text, &f) == 0 &&
                  state_manifest_read(&again, "again", text, strlen(text), &f) == 0,
              "what was read can be written and read");
    hold_equal(&m, &again);
    free(text);
    state_manifest_clear(&m);
    state_manifest_clear(&again);
    return 0;
}
