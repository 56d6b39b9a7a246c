/* What a run leaves to be read: the lines of metrics.jsonl, run.json, and the order in which RUN/ is published. */
#include <config.h>

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "comm/comm.h"
#include "file/file.h"
#include "table/table.h"
#include "train/train_internal.h"

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

int record_step(struct trainer *t, const struct step *s, const struct step_outcome *out, double seconds, uint64_t peak,
                struct tabft_failure *f)
{
    if (comm_rank(t->c) != 0) return 0;
    json_t *chunks = json_array();
    for (size_t i = 0; i < s->n_chunks; i++)
        (void)json_array_append_new(chunks, json_integer((json_int_t)s->chunk[i]->id));
    const struct step_seconds *p = &out->seconds;
    json_t *phases = json_pack("{so so so so so}", "preprocess", number(p->preprocess), "forward", number(p->forward),
                               "backward", number(p->backward), "reduce", number(p->reduce), "optimiser",
                               number(p->optimiser));
    return put_line(t,
                    json_pack("{ss sI sI so so so so so so sI}", "kind", "step", "step", (json_int_t)s->number, "epoch",
                              (json_int_t)s->epoch, "chunks", chunks, "loss", number(out->loss), "learning_rate",
                              number(s->learning_rate), "grad_norm", number(out->norm), "seconds", number(seconds),
                              "phases", phases, "peak_bytes", (json_int_t)peak),
                    f);
}

int record_validation(struct trainer *t, const struct progress *p, const struct validation *v, bool is_best,
                      double seconds, struct tabft_failure *f)
{
    if (comm_rank(t->c) != 0) return 0;
    double loss = p->epoch_steps > 0 ? p->epoch_loss / (double)p->epoch_steps : NAN;
    json_t *line = json_pack("{ss sI sI}", "kind", "validation", "step", (json_int_t)p->step, "epoch",
                             (json_int_t)p->epoch);
    json_t *scores = t->data.is_regression
                         ? json_pack("{so so so}", "mse", number(v->errors.mse), "mae", number(v->errors.mae), "r2",
                                     number(v->errors.r2))
                         : json_pack("{so so}", "roc_auc", number(v->roc_auc), "log_loss", number(v->log_loss));
    json_t *rest = json_pack("{so sb so}", "train_loss", number(loss), "best", is_best, "seconds", number(seconds));
    if (line == NULL || json_object_update_missing_new(line, scores) != 0 ||
        json_object_update_missing_new(line, rest) != 0)
        return tabft_fail(f, TABFT_SYSTEM, "metrics: no memory for a line");
    return put_line(t, line, f);
}

int record_skip(struct trainer *t, const struct progress *p, const struct chunk *chunk, size_t class,
                struct tabft_failure *f)
{
    trainer_say(t, "epoch %" PRIu64 ", chunk %zu is skipped: queries of class \"%.100s\", which no context shows",
                p->epoch + 1, chunk->id, t->data.label[class]);
    if (comm_rank(t->c) != 0) return 0;
    return put_line(t,
                    json_pack("{ss sI sI ss}", "kind", "skip", "epoch", (json_int_t)p->epoch + 1, "chunk",
                              (json_int_t)chunk->id, "missing_class", t->data.label[class]),
                    f);
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
    return json_pack("{ss ss ss sI sI so so}", "path", table->path, "digest", table->digest, "task",
                     t->data.is_regression ? "regression" : "classification", "rows", (json_int_t)table->n_rows,
                     "columns", (json_int_t)table->n_columns, "labels", labels, "left_out", left_out);
}

static const char *metric_name(enum train_metric metric)
{
    return metric == TRAIN_METRIC_MSE ? "mse" : metric == TRAIN_METRIC_LOG_LOSS ? "log_loss" : "roc_auc";
}

static int run_json(const struct trainer *t, const struct progress *p, const char *model_digest, double seconds,
                    char **out, struct tabft_failure *f)
{
    int error = 0;
    char *options = NULL, cpu[256];
    json_t *object = NULL;
    TRY(train_options_json(t->o, false, &options, f));
    read_cpu_name(cpu, sizeof cpu);
    object = json_pack("{si ss ss ss so so* so}", "schema", 1, "version", PACKAGE_VERSION, "model_sha256", model_digest,
                       "base_model_sha256", t->base_digest, "train", table_json(t, t->data.table), "valid",
                       t->data.valid == NULL ? NULL : table_json(t, t->data.valid), "options",
                       json_loads(options, 0, NULL));
    json_t *place = json_pack("{si ss ss ss ss ss ss si ss ss}", "world_size", comm_size(t->c), "engine",
                              comm_engine(t->c), "launcher", comm_launcher(t->c), "libraries", comm_libraries(t->c),
                              "device", t->device->name, "isa", t->backend.isa, "cpu", cpu, "threads",
                              threads_count(t->pool), "host", comm_host(t->c), "recompute",
                              train_recompute_name(t->plan.recompute));
    if (t->device->plugin != NULL) {
        char versions[512];
        t->device->plugin->versions(versions, sizeof versions);
        json_t *gpu = json_pack("{ss ss ss}", "gpu_name", t->gpu.name, "gpu_uuid", t->gpu.uuid, "gpu_libraries",
                                versions);
        if (gpu == NULL || json_object_update_missing_new(object, gpu) != 0)
            FAIL(f, TABFT_SYSTEM, "run.json: no memory, or a name that is not UTF-8");
    }
    const enum train_metric metric = train_data_metric(&t->data, t->o);
    const double sign = metric == TRAIN_METRIC_ROC_AUC ? 1 : -1; /* p has it so that larger is better */
    json_t *course = json_pack("{sI sI sI sI ss so so so so sI ss}", "steps", (json_int_t)p->step, "epochs_run",
                               (json_int_t)p->epoch, "skipped_chunks", (json_int_t)p->skipped, "best_epoch",
                               (json_int_t)(t->best != NULL ? p->best_epoch : p->epoch), "metric", metric_name(metric),
                               "base_metric", number(sign * p->initial), "best_metric", number(sign * p->best),
                               "seconds", number(seconds), "data_seconds", number(train_data_seconds(&t->data)),
                               "peak_bytes", (json_int_t)trainer_memory_peak(t), "ended_by", p->ended_by);
    if (object == NULL || json_object_update_missing_new(object, place) != 0 ||
        json_object_update_missing_new(object, course) != 0)
        FAIL(f, TABFT_SYSTEM, "run.json: no memory, or a name that is not UTF-8");
    *out = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (*out == NULL) FAIL(f, TABFT_SYSTEM, "run.json: no memory");
fail:
    free(options);
    json_decref(object);
    return error;
}

int record_complete(struct trainer *t, bool *complete, struct tabft_failure *f)
{
    int error = 0;
    void *text = NULL;
    size_t size;
    char path[4096];
    json_t *record = NULL;
    *complete = comm_rank(t->c) == 0 && run_folder_complete(t->o->out);
    if (!*complete) return 0;
    if (snprintf(path, sizeof path, "%s/run.json", t->o->out) >= (int)sizeof path)
        FAIL(f, TABFT_USE, "--out: the path is too long");
    TRY(file_read_all(path, 64 << 20, &text, &size, f));
    record = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(json_object_get(record, "options")))
        FAIL(f, TABFT_INPUT, "%s: is no record of a run; use --force to start anew", path);
    TRY(train_options_compare(t->o, json_object_get(record, "options"), f));
    trainer_say(t, "%s: the run is complete already", t->o->out);
fail:
    json_decref(record);
    free(text);
    return error;
}

int record_run(struct trainer *t, const struct progress *p, double seconds, struct tabft_failure *f)
{
    int error = 0;
    char digest[65], *text = NULL;
    struct run_folder *folder = t->folder;
    if (comm_rank(t->c) != 0) return 0;
    TRY(trainer_weights_fetch(t, f));
    for (size_t i = 0; i < t->n_parameters; i++)
        if (!isfinite(t->weights[i])) FAIL(f, TABFT_INPUT, "the trained weights are not finite; lower --lr");
    TRY(run_folder_model(folder, t->model, t->weights, digest, f));
    TRY(run_json(t, p, digest, seconds, &text, f));
    TRY(run_folder_check_lock(folder, f));
    TRY(run_folder_finish(folder, text, f));
    trainer_say(t, "%s: %" PRIu64 " steps, %s", t->o->out, p->step, digest);
fail:
    free(text);
    return error;
}
