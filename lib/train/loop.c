/* The loop: epochs of steps, validations, early stopping, and what is left in RUN/. */
#include <config.h>

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "comm/comm.h"
#include "table/table.h"
#include "tensor/cpu/cpu.h"
#include "train/schedule.h"
#include "train/train_internal.h"

/* Where the loop is. */
struct progress {
    uint64_t epoch;            /* epochs done */
    uint64_t step, n_steps;    /* steps done; of the whole run, as the first epoch's chunks say */
    uint64_t skipped;          /* chunks left out by the skip rule */
    double epoch_loss;         /* sum over the steps of this epoch */
    uint64_t epoch_steps;
    double started;            /* seconds of a clock that only runs forward */
    double best, initial;      /* metric; larger is better; NaN without validation */
    uint64_t best_epoch, waited;
    const char *ended_by;
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- metrics.jsonl ---- */

/* NaN has no JSON: null. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* Takes over `line`. On rank 0 only. */
static int put_line(struct trainer *t, json_t *line, struct tabft_failure *f)
{
    int error = 0;
    char *text = line == NULL ? NULL : json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (text == NULL) FAIL(f, TABFT_SYSTEM, "metrics: no memory for a line");
    TRY(run_folder_log(t->folder, text, f));
fail:
    free(text);
    json_decref(line);
    return error;
}

static int log_step(struct trainer *t, const struct step *s, const struct step_outcome *out, double seconds, uint64_t peak,
                    struct tabft_failure *f)
{
    if (comm_rank(t->c) != 0) return 0;
    json_t *chunks = json_array();
    for (size_t i = 0; i < s->n_chunks; i++) (void)json_array_append_new(chunks, json_integer((json_int_t)s->chunk[i]->id));
    return put_line(t, json_pack("{ss sI sI so so so so so sI}", "kind", "step", "step", (json_int_t)s->number, "epoch",
                                 (json_int_t)s->epoch, "chunks", chunks, "loss", number(out->loss), "learning_rate",
                                 number(s->learning_rate), "grad_norm", number(out->norm), "seconds", number(seconds), "peak_bytes",
                                 (json_int_t)peak), f);
}

static int log_validation(struct trainer *t, const struct progress *p, const struct validation *v, bool is_best, double seconds,
                          struct tabft_failure *f)
{
    if (comm_rank(t->c) != 0) return 0;
    double loss = p->epoch_steps > 0 ? p->epoch_loss / (double)p->epoch_steps : NAN;
    return put_line(t, json_pack("{ss sI sI so so so sb so}", "kind", "validation", "step", (json_int_t)p->step, "epoch",
                                 (json_int_t)p->epoch, "roc_auc", number(v->roc_auc), "log_loss", number(v->log_loss), "train_loss",
                                 number(loss), "best", is_best, "seconds", number(seconds)), f);
}

static int log_skip(struct trainer *t, const struct progress *p, const struct chunk *chunk, size_t class, struct tabft_failure *f)
{
    trainer_say(t, "epoch %" PRIu64 ", chunk %zu is skipped: queries of class \"%.100s\", which no context shows", p->epoch + 1,
                chunk->id, t->data.label[class]);
    if (comm_rank(t->c) != 0) return 0;
    return put_line(t, json_pack("{ss sI sI ss}", "kind", "skip", "epoch", (json_int_t)p->epoch + 1, "chunk", (json_int_t)chunk->id,
                                 "missing_class", t->data.label[class]), f);
}

static int largest_peak(struct trainer *t, uint64_t *peak, struct tabft_failure *f)
{
    int error = 0, size = comm_size(t->c);
    uint64_t own = train_memory_peak(), *all = NULL;
    *peak = own;
    if (size == 1) return 0;
    TRY(memory_new(&all, (size_t)size, sizeof *all, "the peaks of all ranks", f));
    TRY(comm_gather_all(t->c, &own, sizeof own, all, f));
    for (int i = 0; i < size; i++)
        if (all[i] > *peak) *peak = all[i];
fail:
    free(all);
    return error;
}

/* ---- epochs ---- */

static void show_progress(const struct trainer *t, const struct progress *p, const struct step *s, const struct step_outcome *out)
{
    char line[160];
    if (t->report == NULL || t->report->progress == NULL || comm_rank(t->c) != 0) return;
    double spent = now() - p->started, left = spent / (double)p->step * (double)(p->n_steps > p->step ? p->n_steps - p->step : 0);
    (void)snprintf(line, sizeof line, "epoch %" PRIu64 "/%" PRIu64 " step %" PRIu64 "/%" PRIu64 " loss %.6f lr %.3g norm %.3g, %.0f s, %.0f s left",
                   s->epoch, t->o->epochs, p->step, p->n_steps, out->loss, s->learning_rate, out->norm, spent, left);
    t->report->progress(t->report->context, line);
}

static int take_step(struct trainer *t, struct progress *p, const struct chunk *const *chunk, size_t n_chunks, struct tabft_failure *f)
{
    int error = 0;
    double start = now();
    uint64_t peak;
    struct step_outcome out;
    struct step s = {
        .number = p->step + 1,
        .epoch = p->epoch + 1,
        .chunk = chunk,
        .n_chunks = n_chunks,
        .learning_rate = t->o->learning_rate * schedule_factor((enum schedule_kind)t->o->schedule, p->step, p->n_steps),
    };
    TRY(step_take(t, &s, &out, f));
    p->step++;
    p->epoch_loss += out.loss;
    p->epoch_steps++;
    TRY(largest_peak(t, &peak, f));
    TRY(trainer_agree(t, log_step(t, &s, &out, now() - start, peak, f), f));
    show_progress(t, p, &s, &out);
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
    p->epoch_loss = 0;
    p->epoch_steps = 0;
    TRY(trainer_agree(t, chunks_open(&chunks, &rules, (uint32_t)p->epoch, f), f));
    size_t n = chunks_count(chunks);
    if (most > n) most = n;
    if (p->n_steps == 0) p->n_steps = (n + most - 1) / most * t->o->epochs;
    TRY(memory_new(&group, most, sizeof(void *), "the chunks of a step", f));
    for (size_t i = 0; i < n; i++) {
        size_t missing;
        const struct chunk *c = chunks_at(chunks, i);
        if (step_must_skip(t, c, &missing)) {
            p->skipped++;
            TRY(trainer_agree(t, log_skip(t, p, c, missing, f), f));
            continue;
        }
        group[n_group++] = c;
        if (n_group < most) continue;
        TRY(take_step(t, p, group, n_group, f));
        n_group = 0;
    }
    if (n_group > 0) TRY(take_step(t, p, group, n_group, f));
    p->epoch++;
    trainer_say(t, "epoch %" PRIu64 ": %" PRIu64 " steps, mean loss %.6f", p->epoch, p->epoch_steps,
                p->epoch_loss / (double)(p->epoch_steps > 0 ? p->epoch_steps : 1));
fail:
    free(group);
    chunks_close(chunks);
    return error;
}

/* ---- validation and stopping ---- */

static void keep_best(struct trainer *t)
{
    if (t->best == NULL) return;
    memcpy(t->best, t->weights + t->slice_begin, (t->slice_end - t->slice_begin) * sizeof *t->best);
}

static int check_validation(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    double start = now();
    struct validation v;
    TRY(validate(t, &v, f));
    bool initial = p->epoch == 0, is_best = initial || v.value > p->best + t->o->min_delta;
    if (initial) p->initial = v.value;
    if (is_best) {
        p->best = v.value;
        p->best_epoch = p->epoch;
        p->waited = 0;
        keep_best(t);
    } else {
        p->waited++;
    }
    trainer_say(t, "%s %" PRIu64 ": ROC AUC %.6f, log loss %.6f%s", initial ? "base model, epoch" : "validation, epoch", p->epoch,
                v.roc_auc, v.log_loss, is_best && !initial ? ", best so far" : "");
    TRY(trainer_agree(t, log_validation(t, p, &v, is_best, now() - start, f), f));
    if (t->best != NULL && p->waited >= t->o->patience) p->ended_by = "patience";
fail:
    return error;
}

/* Rank 0's clock decides for all. */
static int check_time(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0, stop = 0;
    if (t->o->time_limit <= 0) return 0;
    double spent = now() - p->started;
    stop = spent > t->o->time_limit || spent + spent / (double)p->epoch > t->o->time_limit;
    TRY(comm_broadcast(t->c, &stop, sizeof stop, 0, f));
    if (stop) p->ended_by = "time_limit";
fail:
    return error;
}

static int run_epochs(struct trainer *t, struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    uint64_t frequency = t->o->validation_frequency;
    if (t->data.n_valid > 0) TRY(check_validation(t, p, f));
    p->started = now();
    while (p->epoch < t->o->epochs && p->ended_by == NULL) {
        TRY(run_epoch(t, p, f));
        if (t->data.n_valid > 0 && p->epoch % frequency == 0) TRY(check_validation(t, p, f));
        if (p->ended_by == NULL && p->epoch < t->o->epochs) TRY(check_time(t, p, f));
    }
    if (p->ended_by == NULL) p->ended_by = "epochs";
    if (p->step == 0) trainer_say(t, "no step was taken: every chunk was skipped; the model is the base model");
    /* Early stopping keeps what validated best, the base model included. */
    if (t->best != NULL) {
        memcpy(t->weights + t->slice_begin, t->best, (t->slice_end - t->slice_begin) * sizeof *t->best);
        TRY(reduce_gather(t->reduce, t->weights, f));
    }
fail:
    return error;
}

/* ---- RUN/ ---- */

static void read_cpu_name(char *name, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    (void)snprintf(name, size, "unknown");
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    (void)fclose(file);
}

static json_t *table_json(const struct trainer *t, const struct table *table)
{
    json_t *left_out = json_array(), *labels = json_array();
    if (table == t->data.table)
        for (size_t i = 0; i < table->n_columns; i++)
            if (t->data.use[i] != ENSEMBLE_USED)
                (void)json_array_append_new(left_out, json_pack("{ss ss}", "name", table->column[i].name, "reason",
                                                                ensemble_use_name(t->data.use[i])));
    for (size_t i = 0; i < t->data.n_classes; i++) (void)json_array_append_new(labels, json_string(t->data.label[i]));
    return json_pack("{ss ss sI sI so so}", "path", table->path, "digest", table->digest, "rows", (json_int_t)table->n_rows, "columns",
                     (json_int_t)table->n_columns, "labels", labels, "left_out", left_out);
}

static int run_json(const struct trainer *t, const struct progress *p, const char *model_digest, char **out, struct tabft_failure *f)
{
    int error = 0;
    char *options = NULL, cpu[256];
    const char *isa = NULL;
    json_t *object = NULL;
    TRY(train_options_json(t->o, false, &options, f));
    TRY(tensor_isa(&isa, f));
    read_cpu_name(cpu, sizeof cpu);
    object = json_pack("{si ss ss ss so so* so}", "schema", 1, "version", PACKAGE_VERSION, "model_sha256", model_digest,
                       "base_model_sha256", t->base_digest, "train", table_json(t, t->data.table), "valid",
                       t->data.valid == NULL ? NULL : table_json(t, t->data.valid), "options", json_loads(options, 0, NULL));
    json_t *place = json_pack("{si ss ss ss ss ss si ss ss}", "world_size", comm_size(t->c), "engine", comm_engine(t->c), "launcher",
                              comm_launcher(t->c), "libraries", comm_libraries(t->c), "isa", isa, "cpu", cpu, "threads",
                              threads_count(t->pool), "host", comm_host(t->c), "recompute",
                              t->plan.recompute == MODEL_RECOMPUTE_NONE ? "none" : "block");
    json_t *course = json_pack("{sI sI sI sI so so so sI ss}", "steps", (json_int_t)p->step, "epochs_run", (json_int_t)p->epoch,
                               "skipped_chunks", (json_int_t)p->skipped, "best_epoch",
                               (json_int_t)(t->best != NULL ? p->best_epoch : p->epoch), "base_metric", number(p->initial),
                               "best_metric", number(p->best), "seconds", number(now() - p->started), "peak_bytes",
                               (json_int_t)train_memory_peak(), "ended_by", p->ended_by);
    if (object == NULL || json_object_update_missing_new(object, place) != 0 || json_object_update_missing_new(object, course) != 0)
        FAIL(f, TABFT_SYSTEM, "run.json: no memory, or a name that is not UTF-8");
    *out = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (*out == NULL) FAIL(f, TABFT_SYSTEM, "run.json: no memory");
fail:
    free(options);
    json_decref(object);
    return error;
}

/* On rank 0: all of RUN/, run.json last. */
static int publish(struct trainer *t, const struct progress *p, struct tabft_failure *f)
{
    int error = 0;
    char digest[65], *text = NULL;
    struct run_folder *folder = t->folder;
    if (comm_rank(t->c) != 0) return 0;
    for (size_t i = 0; i < t->n_parameters; i++)
        if (!isfinite(t->weights[i])) FAIL(f, TABFT_INPUT, "the trained weights are not finite; lower --lr");
    TRY(run_folder_model(folder, t->model, t->weights, digest, f));
    TRY(run_json(t, p, digest, &text, f));
    t->folder = NULL;
    TRY(run_folder_close(folder, text, f));
    trainer_say(t, "%s: %" PRIu64 " steps, %s", t->o->out, p->step, digest);
fail:
    free(text);
    return error;
}

int train_run(const struct train_options *o, struct comm *c, const struct train_report *report, struct train_result *result,
              struct tabft_failure *f)
{
    int error = 0;
    struct trainer t = {.o = o, .c = c, .report = report, .result = result};
    struct progress p = {.best = NAN, .initial = NAN};
    *result = (struct train_result){.speaker = -1};
    TRY(trainer_open(&t, f));
    TRY(run_epochs(&t, &p, f));
    step_room_close(&t);
    TRY(trainer_agree(&t, publish(&t, &p, f), f));
fail:
    trainer_close(&t);
    return error;
}

int train_plan(const struct train_options *o, char **text, struct tabft_failure *f)
{
    int error = 0;
    struct ckpt *c = NULL;
    struct model *m = NULL;
    struct train_sizes sizes;
    struct train_plan plan;
    struct train_place place = {.n_ranks = (int)o->ranks,
                                .n_threads = o->threads > 0 ? (int)o->threads : threads_default_count(),
                                .engine = o->ranks > 1,
                                .budget = train_plan_budget(o, 1)};
    *text = NULL;
    TRY(ckpt_open(&c, o->model, f));
    TRY(model_open(&m, c, f));
    if (model_task(m) != MODEL_CLASSIFICATION)
        FAIL(f, TABFT_INPUT, "%s: is a regression model; name a classifier", o->model);
    TRY(train_schema_sizes(o, &sizes, f));
    if (sizes.n_classes > model_outputs(m))
        FAIL(f, TABFT_INPUT, "%s: has %zu classes, but the head of %s has %zu outputs", o->data, sizes.n_classes, o->model, model_outputs(m));
    TRY(train_plan_make(&plan, m, o, &sizes, &place, f));
    TRY(train_plan_text(&plan, m, o, &sizes, &place, text, f));
    if (plan.total > place.budget) error = TABFT_SYSTEM;
fail:
    model_close(m);
    ckpt_close(c);
    return error;
}
