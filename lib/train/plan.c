#include "train/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/available.h"
#include "base/memory.h"
#include "comm/reduce.h"
#include "train/optimiser.h"
#include "train/state.h"

enum {
    PROCESS_BYTES = 6 << 20, /* program and C library, of which 3.6 to 4.9 MB were seen; stack */
    THREAD_BYTES = 64 << 10, /* its stack, and where it allocates */
    RANKS_LOOKED_AT = 64,
    READING_BYTES = 90,      /* a bucket, while distributions are read (ensemble_add_means) */
    ENGINE_BYTES = 15 << 20  /* what PMIx and an MPI add: Open MPI 4.1, 2 to 8 ranks, 6 to 9 MiB by mpirun, 14 by srun */
};

uint64_t train_plan_budget(const struct train_options *o, int local_ranks)
{
    return o->memory > 0 ? o->memory : memory_budget(local_ranks);
}

/* ---- planning ---- */

const char *train_recompute_name(size_t recompute)
{
    return recompute == MODEL_RECOMPUTE_NONE ? "none" : recompute == MODEL_RECOMPUTE_BLOCK ? "block" : "auto";
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

struct phase {
    struct model_shape shape;
    size_t preprocessing; /* one estimator's call */
};

/* The largest call of the network and the most an estimator's preprocessing takes, in one phase. */
static int plan_phase(struct phase *p, const struct model *m, const struct train_options *o,
                      const struct train_sizes *s, enum ensemble_phase phase, int n_threads, struct tabft_failure *f)
{
    int error = 0;
    bool training = phase == ENSEMBLE_FINETUNING;
    size_t *columns = NULL, n = (size_t)o->estimators;
    struct ensemble_options options = {
        .task = s->is_regression ? ENSEMBLE_REGRESSION : ENSEMBLE_CLASSIFICATION,
        .n_estimators = n,
        .seed = (uint32_t)o->seed,
        .phase = phase,
        .n_classes = s->n_classes,
        .architecture = model_architecture(m),
        .inference_config = model_inference_config(m),
    };
    p->shape.n_context = training ? s->chunks.n_context : s->n_train;
    p->shape.n_query = training ? s->chunks.n_query : s->n_valid;
    p->shape.n_columns = 0;
    TRY(memory_new(&columns, n, sizeof *columns, "the plan", f));
    TRY(ensemble_columns_max(&options, s->n_columns, p->shape.n_context, p->shape.n_query, n_threads, columns,
                             &p->preprocessing, f));
    for (size_t i = 0; i < n; i++)
        if (columns[i] > p->shape.n_columns) p->shape.n_columns = columns[i];
fail:
    free(columns);
    return error;
}

int train_plan_shapes(const struct model *m, const struct train_options *o, const struct train_sizes *sizes,
                      struct model_shape *training, struct model_shape *validating, struct tabft_failure *f)
{
    int error = 0;
    struct phase p = {0};
    TRY(plan_phase(&p, m, o, sizes, ENSEMBLE_FINETUNING, 1, f));
    *training = p.shape;
    *validating = (struct model_shape){0};
    if (sizes->n_valid > 0) {
        TRY(plan_phase(&p, m, o, sizes, ENSEMBLE_VALIDATION, 1, f));
        *validating = p.shape;
    }
fail:
    return error;
}

static void add_total(struct train_plan *p)
{
    const size_t steps = p->weights + p->partial_sums + p->moments + p->best_weights,
                 host = p->table + p->window + p->data + p->preprocessing + p->staging + p->checkpoint + p->logits +
                        p->process;
    const size_t run = steps + p->activations + p->scratch;
    p->gpu_run = p->on_gpu ? run : 0;
    p->gpu = p->on_gpu ? run + p->gpu_workspace + p->gpu_taken : 0;
    p->total = host + (p->on_gpu ? p->weights : run);
}

bool train_plan_fits(const struct train_plan *p, const struct train_place *place)
{
    return p->total <= place->budget && p->gpu <= place->gpu_budget;
}

/* Labels or targets of a phase's rows, what an estimator makes of targets, and the values of text columns. */
static void add_answers(struct train_plan *p, const struct model *m, const struct train_sizes *s)
{
    size_t rows = p->n_context + p->n_query, borders = model_outputs(m) + 1;
    p->data += s->n_texts * p->n_context * sizeof(double);
    if (!s->is_regression) {
        if (!p->validating) p->data += rows * sizeof(int32_t);
        return;
    }
    p->data += (s->n_train + s->n_valid) * (sizeof(double) - sizeof(int32_t)); /* targets instead of labels */
    if (!p->validating) p->data += rows * sizeof(double) + p->n_query * sizeof(float);
    p->data += p->n_context * sizeof(double) + borders * (2 * sizeof(double) + sizeof(bool));
}

/* The results of a validation's estimators. */
static void add_results(struct train_plan *p, const struct model *m, const struct train_options *o,
                        const struct train_sizes *s)
{
    size_t n = (size_t)o->estimators, own = (n + (size_t)p->n_ranks - 1) / (size_t)p->n_ranks;
    size_t outputs = model_outputs(m), logits = p->n_query * outputs * sizeof(float);
    if (s->is_regression) p->logits = logits + (own + n + 1) * p->n_query * sizeof(double) + READING_BYTES * outputs;
    else p->logits = (own + n) * logits + p->n_query * s->n_classes * sizeof(double);
}

/* Fills what one phase adds to what is always there. */
static int add_phase(struct train_plan *p, const struct model *m, const struct train_options *o,
                     const struct train_sizes *s, const struct train_place *place, bool validating,
                     struct tabft_failure *f)
{
    int error = 0;
    struct phase phase = {0};
    struct model_plan network = {0};
    TRY(plan_phase(&phase, m, o, s, validating ? ENSEMBLE_VALIDATION : ENSEMBLE_FINETUNING, place->n_threads, f));
    TRY(model_plan(m, phase.shape, p->recompute, !validating, place->backend, &network, f));
    p->validating = validating;
    p->n_context = phase.shape.n_context;
    p->n_query = phase.shape.n_query;
    p->n_columns = phase.shape.n_columns;
    p->preprocessing = phase.preprocessing;
    p->activations = network.activations;
    p->scratch = network.total - network.activations + (p->on_gpu ? 0 : network.host);
    p->staging = p->on_gpu ? network.host : 0;
    p->data = s->target_bytes + (s->n_train + s->n_valid) * (sizeof(size_t) + sizeof(int32_t)) +
              (p->n_context + p->n_query) * s->n_columns * sizeof(double);
    add_answers(p, m, s);
    if (validating) {
        add_results(p, m, o, s);
    } else {
        p->item_flops = network.flops;
        p->item_bytes = network.bytes;
        size_t checkpoint = state_bytes(place->n_threads);
        if (checkpoint > p->preprocessing) p->checkpoint = checkpoint - p->preprocessing;
        p->data += 4 * s->n_train * sizeof(size_t); /* cutting an epoch into chunks */
    }
    add_total(p);
    if (!validating) {
        const uint64_t taken = p->on_gpu ? p->gpu : p->total, budget = p->on_gpu ? place->gpu_budget : place->budget;
        p->room = network.total;
        if (budget > taken) p->room += (size_t)smaller(budget - taken, SIZE_MAX - 1 - network.total);
    }
fail:
    return error;
}

/* Rank 0 has most items and the longest slice, but one whose items straddle the tree holds more sums. */
static size_t sums_of_fullest(size_t n_items, size_t n_parameters, int n_ranks)
{
    size_t most = 0;
    for (int rank = 0; rank < n_ranks && rank < RANKS_LOOKED_AT; rank++) {
        const size_t bytes = reduce_bytes(n_items, n_parameters, n_ranks, rank);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Of a step's plan and a validation's that of the fuller moment: on the GPU, if there is one. */
static void take_fuller(struct train_plan *p, const struct train_plan *other)
{
    const size_t total = other->total > p->total ? other->total : p->total;
    if (p->on_gpu ? other->gpu > p->gpu : other->total > p->total) *p = *other;
    p->total = total;
}

static int plan_for(struct train_plan *plan, const struct model *m, const struct train_options *o,
                    const struct train_sizes *s, const struct train_place *place, size_t recompute,
                    struct tabft_failure *f)
{
    int error = 0;
    size_t chunks = (size_t)o->chunks_per_step < s->chunks.n_chunks ? (size_t)o->chunks_per_step : s->chunks.n_chunks;
    size_t n = model_parameters(m), slice = (n + (size_t)place->n_ranks - 1) / (size_t)place->n_ranks;
    struct train_plan p = {
        .on_gpu = !place->backend->vectors.host,
        .gpu_workspace = place->backend->workspace,
        .gpu_taken = place->gpu_taken,
        .n_ranks = place->n_ranks,
        .n_items = chunks * (size_t)o->estimators,
        .recompute = recompute,
        .weights = model_weight_bytes(m),
        .moments = optimiser_bytes(slice),
        .best_weights = s->n_valid > 0 && o->patience > 0 && o->epochs >= o->validation_frequency
                            ? slice * sizeof(float)
                            : 0,
        .table = o->stream ? 0 : s->cell_bytes / (size_t)place->n_local + (place->n_local > 1),
        .window = o->stream ? s->window_bytes : 0,
        /* With a GPU a thread more prepares items. */
        .process = PROCESS_BYTES + (size_t)(place->n_threads + !place->backend->vectors.host) * THREAD_BYTES +
                   (place->engine ? ENGINE_BYTES : 0),
    };
    p.partial_sums = sums_of_fullest(p.n_items, n, p.n_ranks);
    struct train_plan validating = p;
    TRY(add_phase(&p, m, o, s, place, false, f));
    const size_t room = p.room;
    if (s->n_valid > 0) {
        validating.item_flops = p.item_flops;
        validating.item_bytes = p.item_bytes;
        TRY(add_phase(&validating, m, o, s, place, true, f));
        take_fuller(&p, &validating);
    }
    p.room = room;
    *plan = p;
fail:
    return error;
}

int train_plan_make(struct train_plan *plan, const struct model *m, const struct train_options *o,
                    const struct train_sizes *s, const struct train_place *place, struct tabft_failure *f)
{
    int error = 0;
    struct train_plan wider;
    size_t first = o->recompute == TRAIN_RECOMPUTE_BLOCK ? MODEL_RECOMPUTE_BLOCK : MODEL_RECOMPUTE_NONE;
    TRY(plan_for(plan, m, o, s, place, first, f));
    if (o->recompute != TRAIN_RECOMPUTE_AUTO || train_plan_fits(plan, place)) return 0;
    TRY(plan_for(plan, m, o, s, place, MODEL_RECOMPUTE_BLOCK, f));
    if (!train_plan_fits(plan, place)) return 0;
    TRY(plan_for(&wider, m, o, s, place, plan->room, f));
    if (train_plan_fits(&wider, place)) *plan = wider;
fail:
    return error;
}

/* ---- what would fit ---- */

/* The most rows a chunk may have (a round number) with recomputation; 0 if none helps. */
static int rows_that_fit(const struct model *m, const struct train_options *o, const struct train_sizes *s,
                         const struct train_place *place, size_t *rows, struct tabft_failure *f)
{
    int error = 0;
    struct tabft_failure ignored = {0};
    size_t low = 0, high = s->chunks.n_context + s->chunks.n_query;
    while (high - low > high / 50 + 1) {
        struct train_plan plan;
        struct train_sizes smaller = *s;
        size_t middle = low + (high - low) / 2;
        struct chunks_rules rules = {.n_rows = s->n_train,
                                     .chunk_rows = middle,
                                     .query_fraction = o->query_fraction,
                                     .query_min = s->n_classes > 0 ? s->n_classes : 1,
                                     .n_labels = s->n_classes};
        bool fits = chunks_sizes(&rules, &smaller.chunks, &ignored) == 0;
        if (fits) {
            TRY(plan_for(&plan, m, o, &smaller, place, MODEL_RECOMPUTE_BLOCK, f));
            fits = train_plan_fits(&plan, place);
        }
        if (fits) low = middle;
        else high = middle;
    }
    *rows = low >= 100 ? low / 100 * 100 : low;
fail:
    return error;
}

static int write_remedies(FILE *text, const struct train_plan *plan, const struct model *m,
                          const struct train_options *o, const struct train_sizes *s, const struct train_place *place,
                          struct tabft_failure *f)
{
    int error = 0;
    struct train_plan other;
    const char *separator = "would fit: ";
    if (plan->recompute == MODEL_RECOMPUTE_NONE) {
        TRY(plan_for(&other, m, o, s, place, MODEL_RECOMPUTE_BLOCK, f));
        if (train_plan_fits(&other, place)) {
            (void)fprintf(text, "%s--recompute block", separator);
            separator = ", or ";
        }
    }
    if (plan->validating && o->valid == NULL) {
        struct train_sizes without = *s;
        without.n_valid = 0;
        TRY(plan_for(&other, m, o, &without, place, MODEL_RECOMPUTE_BLOCK, f));
        if (train_plan_fits(&other, place)) {
            (void)fprintf(text, "%s--recompute block --validation-split 0", separator);
            separator = ", or ";
        }
    } else {
        size_t rows;
        TRY(rows_that_fit(m, o, s, place, &rows, f));
        if (rows > 0) {
            (void)fprintf(text, "%s--recompute block --chunk-rows %zu", separator, rows);
            separator = ", or ";
        }
    }
    if ((size_t)plan->n_ranks < plan->n_items) {
        struct train_place spread = *place;
        spread.n_ranks = plan->n_items < 1 << 20 ? (int)plan->n_items : 1 << 20;
        TRY(plan_for(&other, m, o, s, &spread, MODEL_RECOMPUTE_BLOCK, f));
        if (train_plan_fits(&other, place)) {
            (void)fprintf(text, "%s--recompute block on %d ranks", separator, spread.n_ranks);
            separator = ", or ";
        }
    }
    if (!o->stream) {
        struct train_options streamed = *o;
        streamed.stream = true;
        TRY(plan_for(&other, m, &streamed, s, place, MODEL_RECOMPUTE_BLOCK, f));
        if (train_plan_fits(&other, place)) {
            (void)fprintf(text, "%s--recompute block --stream", separator);
            separator = ", or ";
        }
    }
    (void)fprintf(text, "%s%" PRIu64 " bytes a rank", separator, (uint64_t)plan->total);
    if (plan->on_gpu) (void)fprintf(text, " and %" PRIu64 " on its GPU", (uint64_t)plan->gpu);
    (void)fputc('\n', text);
fail:
    return error;
}

int train_plan_text(const struct train_plan *p, const struct model *m, const struct train_options *o,
                    const struct train_sizes *s, const struct train_place *place, char **out, struct tabft_failure *f)
{
    int error = 0;
    size_t size;
    *out = NULL;
    FILE *text = open_memstream(out, &size);
    if (text == NULL) return tabft_fail(f, TABFT_SYSTEM, "the plan: no memory for its text");
    const struct {
        const char *kind;
        size_t bytes;
    } gpu[] = {
        {"gpu_weights", p->weights},
        {"gpu_partial_sums", p->partial_sums},
        {"gpu_moments", p->moments},
        {"gpu_best", p->best_weights},
        {"gpu_activations", p->activations},
        {"gpu_scratch", p->scratch},
        {"gpu_workspace", p->gpu_workspace},
        {"gpu_cuda", p->gpu_taken},
        {"gpu_total", p->gpu},
        {"weights", p->weights},
        {"table", p->table},
        {"window", p->window},
        {"data", p->data},
        {"preprocessing", p->preprocessing},
        {"staging", p->staging},
        {"checkpoint", p->checkpoint},
        {"logits", p->logits},
        {"process", p->process},
        {"total", p->total},
    }, cpu[] = {
        {"weights", p->weights},
        {"partial_sums", p->partial_sums},
        {"moments", p->moments},
        {"best_weights", p->best_weights},
        {"table", p->table},
        {"window", p->window},
        {"data", p->data},
        {"preprocessing", p->preprocessing},
        {"activations", p->activations},
        {"scratch", p->scratch},
        {"checkpoint", p->checkpoint},
        {"logits", p->logits},
        {"process", p->process},
        {"total", p->total},
    };
    (void)fprintf(
        text,
        "bytes of the fullest of %d rank%s, %zu items a step, --recompute %s; the peak is in %s: %zu context rows, "
        "%zu query rows, %zu columns\n",
        p->n_ranks, p->n_ranks == 1 ? "" : "s", p->n_items, train_recompute_name(p->recompute),
        p->validating ? "a validation" : "a step", p->n_context, p->n_query, p->n_columns);
    const int wide = p->on_gpu ? 16 : 14;
    const size_t n_lines = p->on_gpu ? sizeof gpu / sizeof *gpu : sizeof cpu / sizeof *cpu;
    for (size_t i = 0; i < n_lines; i++)
        (void)fprintf(text, "%-*s %15zu\n", wide, p->on_gpu ? gpu[i].kind : cpu[i].kind,
                      p->on_gpu ? gpu[i].bytes : cpu[i].bytes);
    if (!o->stream)
        (void)fprintf(text, "%-*s %15zu once a node, shared by its ranks (%d)\n", wide, "node_table", s->cell_bytes,
                      place->n_local);
    (void)fprintf(text,
                  "%-*s %.4g TFLOP of matrix products and %.4g GB read and written for an item, %.4g TFLOP a step\n", wide,
                  "work", p->item_flops / 1e12, p->item_bytes / 1e9, p->item_flops / 1e12 * (double)p->n_items);
    if (place->budget != UINT64_MAX) (void)fprintf(text, "%-*s %15" PRIu64 "\n", wide, "available", place->budget);
    if (p->on_gpu && place->gpu_budget != UINT64_MAX)
        (void)fprintf(text, "%-*s %15" PRIu64 "\n", wide, "gpu_available", place->gpu_budget);
    if (!train_plan_fits(p, place)) error = write_remedies(text, p, m, o, s, place, f);
    if (fclose(text) != 0 && error == 0) error = tabft_fail(f, TABFT_SYSTEM, "the plan: no memory for its text");
    if (error < 0) {
        free(*out);
        *out = NULL;
    }
    return error;
}
