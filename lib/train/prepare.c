/* Everything before the first step: load, agree, plan, allocate. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "comm/comm.h"
#include "ensemble/limits.h"
#include "ensemble/regression.h"
#include "table/table.h"
#include "train/train_internal.h"

void trainer_say(const struct trainer *t, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    if (t->report == NULL || t->report->say == NULL || comm_rank(t->c) != 0) return;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    t->report->say(t->report->context, line);
}

/* What ranks tell each other about a failure. */
struct told {
    int code;
    char message[TABFT_MESSAGE_SIZE];
};

int trainer_agree(struct trainer *t, int code, struct tabft_failure *f)
{
    int error = 0, agreed = 0, size = comm_size(t->c), *codes = NULL;
    struct told told = {.code = code};
    struct tabft_failure trouble = {0};
    if (size == 1 || code == TABFT_PEER) return code; /* a lost rank cannot be told anything */
    if (comm_agree(t->c, code, &agreed, &trouble) < 0) goto broken;
    if (agreed == 0) return 0;
    if (memory_new(&codes, (size_t)size, sizeof *codes, "the codes of all ranks", &trouble) < 0) goto broken;
    if (comm_gather_all(t->c, &code, sizeof code, codes, &trouble) < 0) goto broken;
    int speaker = 0;
    while (speaker + 1 < size && codes[speaker] == 0) speaker++;
    (void)snprintf(told.message, sizeof told.message, "%s", f->message);
    if (comm_broadcast(t->c, &told, sizeof told, speaker, &trouble) < 0) goto broken;
    *f = (struct tabft_failure){.code = told.code};
    (void)snprintf(f->message, sizeof f->message, "%s", told.message);
    *t->result = (struct train_result){.agreed = true, .speaker = speaker};
    free(codes);
    return told.code;
broken:
    free(codes);
    error = code < 0 ? code : tabft_fail(f, trouble.code, "%s", trouble.message);
    return error;
}

int trainer_ensemble_open(const struct trainer *t, enum ensemble_phase phase, const struct ensemble_columns *context,
                          const int32_t *label, const double *target, const struct ensemble_columns *query,
                          struct ensemble **out, struct tabft_failure *f)
{
    const struct ensemble_options options = {
        .task = t->data.is_regression ? ENSEMBLE_REGRESSION : ENSEMBLE_CLASSIFICATION,
        .n_estimators = (size_t)t->o->estimators,
        .seed = (uint32_t)t->o->seed,
        .phase = phase,
        .n_classes = t->data.n_classes,
        .architecture = model_architecture(t->model),
        .inference_config = model_inference_config(t->model),
    };
    if (t->data.is_regression) return ensemble_open_regression(out, &options, context, target, query, f);
    return ensemble_open(out, &options, context, label, query, f);
}

/* ---- loading ---- */

int trainer_check_model(const struct model *m, const struct train_options *o, bool is_regression, size_t n_classes,
                        struct tabft_failure *f)
{
    if (is_regression != (model_task(m) == MODEL_REGRESSION))
        return tabft_fail(f, TABFT_INPUT, "%s: is a %s, but %s has a target %s; name a %s", o->model,
                          is_regression ? "classifier" : "regressor", o->data,
                          is_regression ? "for regression" : "of classes", is_regression ? "regressor" : "classifier");
    if (is_regression && model_borders(m) == NULL)
        return tabft_fail(f, TABFT_INPUT, "%s: has no borders of target buckets; take the complete file", o->model);
    if (n_classes > model_outputs(m))
        return tabft_fail(f, TABFT_INPUT,
                          "%s: has %zu classes, but the head of %s has %zu outputs; merge classes or take a model "
                          "with more",
                          o->data, n_classes, o->model, model_outputs(m));
    struct ensemble_limits limits;
    int error = ensemble_limits(model_architecture(m), model_inference_config(m), &limits, f);
    if (error < 0) return tabft_fail_prefix(f, "%s", o->model);
    if (n_classes > limits.classes)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: has %zu classes, but %s was made for at most %zu; merge classes or take a model for more",
                          o->data, n_classes, o->model, limits.classes);
    return 0;
}

static int load_model(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    struct ckpt *c = NULL;
    TRY(ckpt_open(&c, t->o->model, f));
    ckpt_digest(c, t->base_digest);
    TRY(model_open_moving(&t->model, c, (enum model_task)t->data.table->task, f));
    t->weights = model_values_mutable(t->model);
    t->n_parameters = model_parameters(t->model);
fail:
    ckpt_close(c);
    return error;
}

static enum run_folder_use folder_use(const struct trainer *t)
{
    return t->resume ? RUN_FOLDER_RESUME : t->o->force ? RUN_FOLDER_FORCE : RUN_FOLDER_NEW;
}

static int check_infinities(const struct trainer *t, struct tabft_failure *f)
{
    struct ensemble_limits limits;
    int error = ensemble_limits(model_architecture(t->model), model_inference_config(t->model), &limits, f);
    if (error < 0 || limits.takes_infinities) return error;
    return train_data_check_finite(&t->data, f);
}

static int load(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    int threads = train_options_threads(t->o);
    if (comm_rank(t->c) == 0) TRY(run_folder_check(t->o->out, folder_use(t), f));
    TRY(threads_open(&t->pool, threads, f));
    TRY(trainer_device_open(t, f));
    TRY(train_data_open(&t->data, t->o, t->pool, f));
    TRY(load_model(t, f));
    TRY(trainer_check_model(t->model, t->o, t->data.is_regression, t->data.n_classes, f));
    TRY(check_infinities(t, f));
fail:
    return error;
}

/* The ranks must have read the same. comm_check_equal fails alike on all of them. */
static int compare_ranks(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    TRY(comm_check_equal(t->c, "the base model", t->base_digest, f));
    TRY(comm_check_equal(t->c, "the data digest", t->data.table->digest, f));
    if (t->data.valid != NULL) TRY(comm_check_equal(t->c, "the validation data digest", t->data.valid->digest, f));
    TRY(trainer_device_compare(t, f));
fail:
    if (error == TABFT_USE) *t->result = (struct train_result){.agreed = true, .speaker = 0};
    return error;
}

static int compare_options(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    char *json = NULL;
    TRY(train_options_json(t->o, true, &json, f));
    TRY(comm_check_equal(t->c, "the options", json, f));
    TRY(comm_check_equal(t->c, "--stream", t->o->stream ? "given" : "not given", f));
fail:
    if (error == TABFT_USE) *t->result = (struct train_result){.agreed = true, .speaker = 0};
    free(json);
    return error;
}

/* ---- planning ---- */

/* The least budget of all ranks and the fewest that share a node, so that all plan alike. */
static int agree_place(struct trainer *t, struct train_place *place, struct tabft_failure *f)
{
    int error = 0, size = comm_size(t->c);
    struct place {
        uint64_t budget, gpu_taken, gpu_budget;
        int neighbours;
    } own = {.budget = train_plan_budget(t->o, t->near.n), .neighbours = t->near.n}, *all = NULL;
    TRY(trainer_device_memory(t, &own.gpu_taken, &own.gpu_budget, f));
    TRY(memory_new(&all, (size_t)size, sizeof *all, "the memory of all ranks", f));
    TRY(comm_gather_all(t->c, &own, sizeof own, all, f));
    place->budget = place->gpu_budget = UINT64_MAX;
    place->gpu_taken = 0;
    place->n_local = own.neighbours;
    for (int i = 0; i < size; i++)
        if (all[i].gpu_taken > place->gpu_taken) place->gpu_taken = all[i].gpu_taken;
    for (int i = 0; i < size; i++) {
        if (all[i].budget < place->budget) place->budget = all[i].budget;
        if (all[i].neighbours < place->n_local) place->n_local = all[i].neighbours;
        if (all[i].gpu_budget == UINT64_MAX) continue; /* no GPU */
        /* What is left is what counts: as if as much were taken of each GPU. */
        const uint64_t left = all[i].gpu_budget > all[i].gpu_taken ? all[i].gpu_budget - all[i].gpu_taken : 0;
        if (place->gpu_taken + left < place->gpu_budget) place->gpu_budget = place->gpu_taken + left;
    }
fail:
    free(all);
    return error;
}

static void say_lines(const struct trainer *t, char *text)
{
    for (char *line = text, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        if (end == NULL) {
            trainer_say(t, "%s", line);
            return;
        }
        *end = '\0';
        trainer_say(t, "%s", line);
    }
}

static int plan(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    char *text = NULL;
    struct train_place place = {.n_ranks = comm_size(t->c),
                                .n_threads = threads_count(t->pool),
                                .backend = &t->backend,
                                .engine = strcmp(comm_engine(t->c), "self") != 0};
    TRY(neighbours_find(t, &t->near, f));
    TRY(agree_place(t, &place, f));
    TRY(train_data_sizes(&t->data, t->o, &t->sizes, f));
    TRY(train_plan_make(&t->plan, t->model, t->o, &t->sizes, &place, f));
    TRY(train_plan_shapes(t->model, t->o, &t->sizes, &t->train_shape, &t->valid_shape, f));
    TRY(train_plan_text(&t->plan, t->model, t->o, &t->sizes, &place, &text, f));
    char *remedy = strstr(text, "would fit: ");
    if (remedy != NULL) {
        remedy[strcspn(remedy, "\n")] = '\0';
        if (t->plan.on_gpu)
            FAIL(f, TABFT_SYSTEM,
                 "a rank needs %zu bytes of its GPU beside %zu that are taken, %" PRIu64 " are left, and %zu of %" PRIu64
                 " on its node; %s",
                 t->plan.gpu - t->plan.gpu_taken, t->plan.gpu_taken, place.gpu_budget - place.gpu_taken, t->plan.total,
                 place.budget, remedy);
        FAIL(f, TABFT_SYSTEM, "a rank needs %zu bytes and may take %" PRIu64 " on the smallest node; %s", t->plan.total,
             place.budget, remedy);
    }
    say_lines(t, text);
fail:
    free(text);
    return error;
}

/* The cells into memory, once a node, or windows for them. */
static int take_cells(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    struct timespec start, end;
    if (t->o->stream) return trainer_agree(t, train_data_stream(&t->data, t->o, &t->sizes, f), f);
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    TRY(node_table_open(t, f));
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    trainer_say(t, "table: %zu bytes in memory once a node, read by its %d rank%s in %.2f s", t->sizes.cell_bytes,
                t->near.n, t->near.n == 1 ? "" : "s",
                (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
fail:
    return error;
}

static void say_left_out(const struct trainer *t)
{
    for (size_t i = 0; i < t->data.table->n_columns; i++)
        if (t->data.use[i] != ENSEMBLE_USED)
            trainer_say(t, "column \"%.200s\" is left out: %s", t->data.table->column[i].name,
                        ensemble_use_name(t->data.use[i]));
}

static void say_idle(const struct trainer *t)
{
    size_t ranks = (size_t)comm_size(t->c);
    if (ranks <= t->plan.n_items) return;
    char which[64];
    if (t->plan.n_items + 1 == ranks) (void)snprintf(which, sizeof which, "rank %zu is", t->plan.n_items);
    else (void)snprintf(which, sizeof which, "ranks %zu to %zu are", t->plan.n_items, ranks - 1);
    trainer_say(t,
                "%s idle: a step has %zu items for %zu ranks; they hold no activations and only share the sums (more: "
                "--chunks-per-step)",
                which, t->plan.n_items, ranks);
}

/* ---- allocation ---- */

/* The class permutations of all estimators, for the skip rule: drawn from the seed alone, so any chunk shows them. */
static int draw_permutations(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    struct chunks_rules rules = train_data_rules(&t->data, t->o);
    struct chunks *chunks = NULL;
    struct ensemble *e = NULL;
    double *x = NULL;
    int32_t *label = NULL;
    size_t n = t->data.n_classes;
    TRY(chunks_open(&chunks, &rules, 0, f));
    const struct chunk *c = chunks_at(chunks, 0);
    TRY(memory_new(&x, c->n_context * t->data.n_columns, sizeof *x, "a chunk's context", f));
    TRY(memory_new(&label, c->n_context, sizeof *label, "a chunk's labels", f));
    TRY(memory_new(&t->permutation, (size_t)t->o->estimators, n * sizeof *t->permutation, "class permutations", f));
    /* Nothing of the cells shows in what is drawn, so they are not read for it. */
    for (size_t i = 0; i < c->n_context; i++) label[i] = t->data.train_label[c->context[i]];
    struct ensemble_columns context = train_data_columns(&t->data, x, c->n_context);
    TRY(trainer_ensemble_open(t, ENSEMBLE_VALIDATION, &context, label, NULL, NULL, &e, f));
    for (size_t i = 0; i < (size_t)t->o->estimators; i++)
        memcpy(t->permutation + i * n, ensemble_class_permutation(e, i), n * sizeof *t->permutation);
fail:
    ensemble_close(e);
    chunks_close(chunks);
    free(x);
    free(label);
    return error;
}

static int take_borders(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    size_t n = model_outputs(t->model) + 1;
    TRY(memory_new(&t->borders, n, sizeof *t->borders, "the borders of target buckets", f));
    for (size_t i = 0; i < n; i++) t->borders[i] = (double)model_borders(t->model)[i];
fail:
    return error;
}

static int allocate(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    TRY(t->data.is_regression ? take_borders(t, f) : draw_permutations(t, f));
    TRY(trainer_device_reserve(t, f));
    TRY(memory_new(&t->loss, t->plan.n_items, sizeof *t->loss, "the losses of a step", f));
    TRY(trainer_values_open(t, f));
    TRY(item_room_open(t, f));
fail:
    return error;
}

/* Makes and locks RUN/ on rank 0, and tells all ranks where it lies: they may work in other folders. */
static int open_folder(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    char *path = NULL;
    size_t size = 0;
    if (comm_rank(t->c) == 0) {
        const struct train_report *report = t->report;
        error = run_folder_open(&t->folder, t->o->out, folder_use(t), report == NULL ? NULL : report->say,
                                report == NULL ? NULL : report->context, f);
        if (error == 0 && (path = realpath(t->o->out, NULL)) == NULL)
            error = tabft_fail(f, TABFT_SYSTEM, "%s: cannot find its place: %s", t->o->out, strerror(errno));
        if (path != NULL) size = strlen(path) + 1;
    }
    TRY(trainer_agree(t, error, f));
    TRY(comm_broadcast(t->c, &size, sizeof size, 0, f));
    TRY(trainer_agree(t, memory_new(&t->run_path, size, 1, "the run's folder", f), f));
    if (path != NULL) memcpy(t->run_path, path, size);
    TRY(comm_broadcast(t->c, t->run_path, size, 0, f));
fail:
    free(path);
    return error;
}

int trainer_open(struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    TRY(compare_options(t, f));
    TRY(trainer_agree(t, load(t, f), f));
    TRY(compare_ranks(t, f));
    TRY(trainer_agree(t, plan(t, f), f));
    say_left_out(t);
    say_idle(t);
    TRY(open_folder(t, f));
    TRY(take_cells(t, f));
    TRY(trainer_agree(t, allocate(t, f), f));
fail:
    return error;
}

void trainer_close(struct trainer *t)
{
    item_room_close(t);
    trainer_values_close(t);
    free(t->loss);
    free(t->permutation);
    free(t->borders);
    run_folder_close(t->folder);
    free(t->run_path);
    train_data_clear(&t->data);
    node_table_close(t->node);
    model_close(t->model);
    if (t->backend.close != NULL) t->backend.close(t->backend.state);
    threads_close(t->pool);
}
