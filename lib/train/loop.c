/* The loop: epochs of steps, validations, early stopping. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/stop.h"
#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "comm/comm.h"
#include "train/schedule.h"
#include "train/state.h"

enum { NCCL_EXPECTED = 512 << 20 }; /* of a GPU, with several ranks: an estimate */

/* ---- epochs ---- */

static void show_progress(const struct trainer *t, const struct progress *p, const struct step *s,
                          const struct step_outcome *out)
{
    char line[160];
    if (t->report == NULL || t->report->progress == NULL || comm_rank(t->c) != 0) return;
    double spent = trainer_clock() - p->started,
           left = spent / (double)p->step * (double)(p->n_steps > p->step ? p->n_steps - p->step : 0);
    (void)snprintf(line, sizeof line,
                   "epoch %" PRIu64 "/%" PRIu64 " step %" PRIu64 "/%" PRIu64
                   " loss %.6f lr %.3g norm %.3g, %.0f s, %.0f s left",
                   s->epoch, t->o->epochs, p->step, p->n_steps, out->loss, s->learning_rate, out->norm, spent, left);
    t->report->progress(t->report->context, line);
}

static int take_step(struct trainer *t, struct progress *p, const struct chunk *const *chunk, size_t n_chunks,
                     struct tabft_failure *f)
{
    int error = 0;
    double start = trainer_clock();
    struct checkpoint_words words;
    struct step_outcome out;
    struct step s = {
        .number = p->step + 1,
        .epoch = p->epoch + 1,
        .chunk = chunk,
        .n_chunks = n_chunks,
        .learning_rate = t->o->learning_rate * schedule_factor((enum schedule_kind)t->o->schedule, p->step, p->n_steps),
    };
    TRY(step_take(t, &s, &out, f));
    if (t->first_step <= 0) {
        t->first_step = trainer_clock();
        t->first_rows = train_data_seconds(&t->data);
    }
    p->step++;
    p->epoch_loss += out.loss;
    p->epoch_steps++;
    TRY(checkpoint_agree(t, p, &words, f));
    TRY(trainer_agree(t, record_step(t, &s, &out, trainer_clock() - start, words.peak, f), f));
    show_progress(t, p, &s, &out);
    TRY(checkpoint_take(t, p, &words, f));
fail:
    return error;
}

static int run_epoch(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    struct chunks_rules rules = train_data_rules(&t->data, t->o);
    struct chunks *chunks = NULL;
    const struct chunk **group = NULL;
    size_t most = (size_t)t->o->chunks_per_step, n_group = 0;
    if (p->position == 0) { /* else the epoch goes on from a checkpoint */
        p->epoch_loss = 0;
        p->epoch_steps = 0;
    }
    TRY(trainer_agree(t, chunks_open(&chunks, &rules, (uint32_t)p->epoch, f), f));
    size_t n = chunks_count(chunks);
    if (most > n) most = n;
    if (p->n_steps == 0) p->n_steps = (n + most - 1) / most * t->o->epochs;
    TRY(memory_new(&group, most, sizeof(void *), "the chunks of a step", f));
    TRY(trainer_agree(t, trainer_expect(t, chunks, (size_t)p->position, f), f));
    while (p->position < n) {
        size_t missing;
        const struct chunk *c = chunks_at(chunks, p->position++);
        if (step_must_skip(t, c, &missing)) {
            p->skipped++;
            TRY(trainer_agree(t, record_skip(t, p, c, missing, f), f));
            continue;
        }
        if (step_targets_equal(t, c))
            trainer_say(t, "epoch %" PRIu64 ", chunk %zu: the targets of its context are all equal; its loss tells little",
                        p->epoch + 1, c->id);
        group[n_group++] = c;
        if (n_group < most) continue;
        TRY(take_step(t, p, group, n_group, f));
        n_group = 0;
    }
    if (n_group > 0) TRY(take_step(t, p, group, n_group, f));
    p->epoch++;
    p->position = 0;
    p->checked = false;
    trainer_say(t, "epoch %" PRIu64 ": %" PRIu64 " steps, mean loss %.6f", p->epoch, p->epoch_steps,
                p->epoch_loss / (double)(p->epoch_steps > 0 ? p->epoch_steps : 1));
fail:
    free(group);
    train_data_forget(&t->data);
    chunks_close(chunks);
    return error;
}

/* ---- validation and stopping ---- */

static void say_validation(const struct trainer *t, const struct progress *p, const struct validation *v, bool is_best)
{
    const char *when = p->epoch == 0 ? "base model, epoch" : "validation, epoch";
    const char *praise = is_best && p->epoch > 0 ? ", best so far" : "";
    if (t->data.is_regression)
        trainer_say(t, "%s %" PRIu64 ": MSE %.6g, MAE %.6g, R2 %.6f%s", when, p->epoch, v->errors.mse, v->errors.mae,
                    v->errors.r2, praise);
    else
        trainer_say(t, "%s %" PRIu64 ": ROC AUC %.6f, log loss %.6f%s", when, p->epoch, v->roc_auc, v->log_loss,
                    praise);
}

static int check_validation(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    double start = trainer_clock();
    struct validation v;
    TRY(validate(t, &v, f));
    bool initial = p->epoch == 0, is_best = initial || v.value > p->best + t->o->min_delta;
    if (initial) p->initial = v.value;
    if (is_best) {
        p->best = v.value;
        p->best_epoch = p->epoch;
        p->waited = 0;
        trainer_best_keep(t);
    } else {
        p->waited++;
    }
    say_validation(t, p, &v, is_best);
    TRY(trainer_agree(t, record_validation(t, p, &v, is_best, trainer_clock() - start, f), f));
    if (t->best != NULL && p->waited >= t->o->patience) p->ended_by = "patience";
fail:
    return error;
}

/* Rank 0's clock decides for all. */
static int check_time(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0, stop = 0;
    if (t->o->time_limit <= 0) return 0;
    double spent = trainer_clock() - p->started;
    stop = spent > t->o->time_limit || spent + spent / (double)p->epoch > t->o->time_limit;
    TRY(comm_broadcast(t->c, &stop, sizeof stop, 0, f));
    if (stop) p->ended_by = "time_limit";
fail:
    return error;
}

/* What follows epochs, and the start: a validation where one is due, and whether there is time for more. A stop that was
 * asked for meanwhile is not put off for a step. */
static int check_epoch(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    struct checkpoint_words words;
    if (p->checked) return 0;
    if (t->data.n_valid > 0 && p->epoch % t->o->validation_frequency == 0) TRY(check_validation(t, p, f));
    if (p->epoch == 0) p->started = trainer_clock();
    else if (p->ended_by == NULL && p->epoch < t->o->epochs) TRY(check_time(t, p, f));
    p->checked = true;
    if (p->ended_by != NULL || p->epoch == t->o->epochs) return 0;
    TRY(checkpoint_agree(t, p, &words, f));
    words.save = false;
    TRY(checkpoint_take(t, p, &words, f));
fail:
    return error;
}

static int run_epochs(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    TRY(check_epoch(t, p, f));
    while (p->epoch < t->o->epochs && p->ended_by == NULL) {
        TRY(run_epoch(t, p, f));
        TRY(check_epoch(t, p, f));
    }
    if (p->ended_by == NULL) p->ended_by = "epochs";
    if (p->step == 0) trainer_say(t, "no step was taken: every chunk was skipped; the model is the base model");
    /* Early stopping keeps what validated best, the base model included. */
    if (t->best != NULL) {
        trainer_best_take(t);
        TRY(reduce_gather(t->reduce, t->values, f));
    }
fail:
    return error;
}

/* ---- a run ---- */

/* A run in the folder is gone on with, or begun. */
static int begin(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    bool found = false;
    if (t->resume) TRY(state_resume(t, p, &found, f));
    if (!found) {
        state_clear(t);
        TRY(trainer_agree(t, comm_rank(t->c) == 0 ? run_folder_start(t->folder, f) : 0, f));
    }
    checkpoint_saved(p);
fail:
    return error;
}

/* What a run that was killed at its very end, already complete, has left. Rank 0. */
static int clear_rest(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    const struct train_report *report = t->report;
    if (!run_folder_has_rest(t->o->out)) return 0;
    TRY(run_folder_open(&t->folder, t->o->out, RUN_FOLDER_RESUME, report == NULL ? NULL : report->say,
                        report == NULL ? NULL : report->context, f));
    TRY(memory_copy_string(&t->run_path, t->o->out, f));
    state_clear(t);
fail:
    run_folder_close(t->folder);
    t->folder = NULL;
    free(t->run_path);
    t->run_path = NULL;
    return error;
}

/* Rank 0 says whether to resume; *complete: there is nothing left to do. */
static int agree_resume(struct trainer *t, bool *complete, struct tabft_failure *f)
{
    int error = 0;
    t->resume = t->o->resume;
    *complete = false;
    TRY(comm_broadcast(t->c, &t->resume, sizeof t->resume, 0, f));
    if (!t->resume) return 0;
    error = record_complete(t, complete, f);
    if (error == 0 && *complete) error = clear_rest(t, f);
    TRY(trainer_agree(t, error, f));
    TRY(comm_broadcast(t->c, complete, sizeof *complete, 0, f));
fail:
    return error;
}

/* What rows have cost rank 0, of all the time since the first step began, and since it was done: it waits for the first
 * window of --stream, which nothing hides. */
static void say_rows(const struct trainer *t)
{
    double seconds = train_data_seconds(&t->data), now = trainer_clock(), all = now - t->begun;
    double later = seconds - t->first_rows, rest = t->first_step > 0 ? now - t->first_step : 0;
    trainer_say(t,
                "rows: %.3f s of %.3f s went to gathering and waiting for them (%.2f %%), after the first step %.3f s "
                "of %.3f s (%.2f %%)",
                seconds, all, 100 * seconds / (all > 0 ? all : 1), later, rest, 100 * later / (rest > 0 ? rest : 1));
}

int train_run(const struct train_options *o, const struct tensor_device *device, struct comm *c,
              const struct train_report *report, struct train_result *result, struct tabft_failure *f)
{
    int error = 0;
    bool complete = false;
    struct trainer t = {.o = o, .device = device, .c = c, .report = report, .result = result};
    struct progress p = {.best = NAN, .initial = NAN};
    *result = (struct train_result){.speaker = -1};
    stop_catch((unsigned)o->stop_timeout);
    TRY(agree_resume(&t, &complete, f));
    if (complete) return 0;
    TRY(trainer_open(&t, f));
    TRY(begin(&t, &p, f));
    t.begun = trainer_clock();
    error = run_epochs(&t, &p, f);
    if (error == 0 || error == TABFT_STOPPED) say_rows(&t);
    if (error < 0) goto fail;
    item_room_close(&t);
    TRY(trainer_agree(&t, record_run(&t, &p, trainer_seconds(&p), f), f));
    state_clear(&t);
fail:
    trainer_close(&t);
    return error;
}

int train_plan(const struct train_options *o, const struct tensor_device *device, char **text, struct tabft_failure *f)
{
    int error = 0;
    struct ckpt *c = NULL;
    struct model *m = NULL;
    struct train_sizes sizes;
    struct train_plan plan;
    struct tensor_backend backend = {0};
    struct train_place place = {.n_ranks = (int)o->ranks,
                                .n_local = (int)o->ranks_per_node,
                                .n_threads = train_options_threads(o),
                                .engine = o->ranks > 1,
                                .budget = train_plan_budget(o, (int)o->ranks_per_node),
                                .backend = &backend,
                                .gpu_budget = o->gpu_memory > 0 ? o->gpu_memory : UINT64_MAX};
    if (device->plugin != NULL) place.gpu_taken = device->plugin->expected + (o->ranks > 1 ? NCCL_EXPECTED : 0);
    enum tensor_precision precision;
    *text = NULL;
    TRY(tensor_device_precision(device, (enum tensor_precision)(o->precision - TRAIN_PRECISION_AUTO), &precision, f));
    TRY(tensor_device_open_planning(device, precision, place.n_threads, &backend, f));
    TRY(ckpt_open(&c, o->model, f));
    TRY(train_schema_sizes(o, &sizes, f));
    TRY(model_open(&m, c, sizes.is_regression ? MODEL_REGRESSION : MODEL_CLASSIFICATION, f));
    TRY(trainer_check_model(m, o, sizes.is_regression, sizes.n_classes, f));
    TRY(train_plan_make(&plan, m, o, &sizes, &place, f));
    TRY(train_plan_text(&plan, m, o, &sizes, &place, text, f));
    if (!train_plan_fits(&plan, &place)) error = TABFT_SYSTEM;
fail:
    if (backend.close != NULL) backend.close(backend.state);
    model_close(m);
    ckpt_close(c);
    return error;
}
