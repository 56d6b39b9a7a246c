/* tabft-eval predict and merge. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "config.h"
#include "eval/eval.h"
#include "eval/json_value.h"
#include "eval_verbs.h"
#include "model/model.h"
#include "part.h"
#include "table/table.h"
#include "tensor/ops.h"
#include "tool.h"

enum { ESTIMATORS_MAX = 4096, LEVELS_MAX = 99, BLOCK_ROWS_MAX = 1 << 20 };

int eval_open_pool(uint64_t n_threads, struct threads **pool, struct tabft_failure *f)
{
    return threads_open(pool, n_threads > 0 ? (int)n_threads : threads_default_count(), f);
}

/* ---- predict ---- */

struct predict_options {
    const char *model, *train, *test, *output;
    struct eval_device device;
    uint64_t estimators, seed, threads, memory, block_rows;
    struct tool_part part;
    bool force, plan, average_before_softmax, balance_probabilities;
    double softmax_temperature; /* 0: not given */
    size_t n_levels;
    double level[LEVELS_MAX];
};

/* Numbers between 0 and 1 with commas between, none twice. */
static int read_levels(const char *list, struct predict_options *o, struct tabft_failure *f)
{
    int error = 0;
    const char *at = list;
    for (o->n_levels = 0;; at++) {
        char *end;
        double level = strtod(at, &end);
        bool held = end != at && (*end == ',' || *end == '\0') && level > 0 && level < 1 && o->n_levels < LEVELS_MAX;
        for (size_t i = 0; held && i < o->n_levels; i++) held = level != o->level[i];
        if (!held)
            FAIL(f, TABFT_USE,
                 "--quantiles: \"%.100s\" is no list of up to %d different numbers between 0 and 1, as "
                 "0.1,0.5,0.9",
                 list, LEVELS_MAX);
        o->level[o->n_levels++] = level;
        at = end;
        if (*at == '\0') break;
    }
fail:
    return error;
}

static int read_temperature(const char *text, double *out, struct tabft_failure *f)
{
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(*out) && *out > 0) return 0;
    return tabft_fail(f, TABFT_USE, "--softmax-temperature: \"%.100s\" is no number above 0, as 0.9", text);
}

static int take_option(int found, struct predict_options *o, char **argv, struct tabft_failure *f)
{
    switch (found) {
    case 'm': o->model = optarg; return 0;
    case 't': o->train = optarg; return 0;
    case 'q': o->test = optarg; return 0;
    case 'o': o->output = optarg; return 0;
    case 'e': return tool_integer("--estimators", optarg, 1, ESTIMATORS_MAX, &o->estimators, f);
    case 's': return tool_integer("--seed", optarg, 0, UINT32_MAX, &o->seed, f);
    case 'n': return tool_integer("--threads", optarg, 0, EVAL_THREADS_MAX, &o->threads, f);
    case 'y': return tool_bytes("--memory", optarg, &o->memory, f);
    case 'b': return tool_integer("--block-rows", optarg, 1, BLOCK_ROWS_MAX, &o->block_rows, f);
    case 'a': return tool_part_read(optarg, &o->part, f);
    case 'u': return read_levels(optarg, o, f);
    case 'x': return read_temperature(optarg, &o->softmax_temperature, f);
    case 'v': o->average_before_softmax = true; return 0;
    case 'l': o->balance_probabilities = true; return 0;
    case 'd': o->device.name = optarg; return 0;
    case 'c': return eval_read_precision(optarg, &o->device, f);
    case 'p': o->plan = true; return 0;
    case 'f': o->force = true; return 0;
    default: return tool_bad_option(argv, found, f);
    }
}

static int predict_options(int argc, char **argv, struct predict_options *o, struct tabft_failure *f)
{
    static const struct option options[] = {{"model", required_argument, NULL, 'm'},
                                            {"train", required_argument, NULL, 't'},
                                            {"test", required_argument, NULL, 'q'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"estimators", required_argument, NULL, 'e'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"threads", required_argument, NULL, 'n'},
                                            {"memory", required_argument, NULL, 'y'},
                                            {"block-rows", required_argument, NULL, 'b'},
                                            {"part", required_argument, NULL, 'a'},
                                            {"quantiles", required_argument, NULL, 'u'},
                                            {"softmax-temperature", required_argument, NULL, 'x'},
                                            {"average-before-softmax", no_argument, NULL, 'v'},
                                            {"balance-probabilities", no_argument, NULL, 'l'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"precision", required_argument, NULL, 'c'},
                                            {"plan", no_argument, NULL, 'p'},
                                            {"force", no_argument, NULL, 'f'},
                                            {0}};
    int error = 0, found;
    while ((found = getopt_long(argc, argv, ":o:", options, NULL)) != -1) TRY(take_option(found, o, argv, f));
    if (o->model == NULL || o->train == NULL || o->test == NULL || (o->output == NULL && !o->plan))
        FAIL(f, TABFT_USE, "predict: --model, --train, --test and -o are needed; see --help");
    if (argc != optind) FAIL(f, TABFT_USE, "predict: %.100s: tables are given with --train and --test", argv[optind]);
fail:
    return error;
}

/* Which part this is; merge takes it off again. */
static json_t *part_json(const struct tool_part *p, size_t rows)
{
    json_t *part = json_object();
    bool whole = part != NULL;
    eval_json_add(part, "index", eval_json_size(p->index), &whole);
    eval_json_add(part, "of", eval_json_size(p->of), &whole);
    eval_json_add(part, "rows", eval_json_size(rows), &whole);
    if (p->task_step > 0) {
        json_t *array = json_object();
        whole = whole && array != NULL;
        eval_json_add(array, "first", eval_json_size(p->first_task), &whole);
        eval_json_add(array, "step", eval_json_size(p->task_step), &whole);
        eval_json_add(part, "array", array, &whole);
    }
    if (whole) return part;
    json_decref(part);
    return NULL;
}

/* What made the predictions, for the table's provenance: all that their values depend on. The caller frees it. */
static int provenance(const struct predict_options *o, const char *isa, size_t estimators, const struct ckpt *c,
                      const struct table *train, const struct table *test, char **out, struct tabft_failure *f)
{
    char digest[65];
    ckpt_digest(c, digest);
    json_t *root = json_object();
    bool whole = root != NULL;
    eval_json_add(root, "tool", json_string("tabft-eval predict"), &whole);
    eval_json_add(root, "version", json_string(PACKAGE_VERSION), &whole);
    eval_json_add(root, "isa", json_string(isa), &whole);
    eval_json_add(root, "model_sha256", json_string(digest), &whole);
    eval_json_add(root, "train_digest", json_string(train->digest), &whole);
    eval_json_add(root, "test_digest", json_string(test->digest), &whole);
    eval_json_add(root, "estimators", eval_json_size(estimators), &whole);
    eval_json_add(root, "seed", eval_json_size((size_t)o->seed), &whole);
    if (o->softmax_temperature > 0)
        eval_json_add(root, "softmax_temperature", eval_json_number(o->softmax_temperature), &whole);
    if (o->average_before_softmax) eval_json_add(root, "average_before_softmax", json_true(), &whole);
    if (o->balance_probabilities) eval_json_add(root, "balance_probabilities", json_true(), &whole);
    if (o->n_levels > 0) {
        json_t *levels = json_array();
        for (size_t i = 0; i < o->n_levels; i++)
            whole = whole && json_array_append_new(levels, eval_json_number(o->level[i])) == 0;
        eval_json_add(root, "quantiles", levels, &whole);
    }
    if (o->part.of > 0) eval_json_add(root, "part", part_json(&o->part, test->n_rows), &whole);
    *out = whole ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return *out != NULL ? 0 : tabft_fail(f, TABFT_SYSTEM, "no memory for the provenance; give the job more memory");
}

/* What is open for a prediction. */
struct session {
    struct threads *pool;
    struct ckpt *weights;
    struct model *model;
    struct table *train, *test;
    struct tensor_backend backend;
    struct eval_predictor *predictor;
};

static int session_open(struct session *s, const struct predict_options *o, struct tabft_failure *f)
{
    int error = 0;
    struct eval_options options = {.n_estimators = (size_t)o->estimators,
                                   .seed = (uint32_t)o->seed,
                                   .softmax_temperature = o->softmax_temperature,
                                   .average_before_softmax = o->average_before_softmax,
                                   .balance_probabilities = o->balance_probabilities,
                                   .memory = o->memory,
                                   .block_rows = (size_t)o->block_rows,
                                   .output = o->output,
                                   .n_levels = o->n_levels,
                                   .level = o->level};
    TRY(eval_open_pool(o->threads, &s->pool, f));
    TRY(eval_open_device(&o->device, o->plan, s->pool, &s->backend, &options, f));
    options.backend = &s->backend;
    TRY(ckpt_open(&s->weights, o->model, f));
    TRY(table_open_parts(&s->train, o->train, s->pool, f));
    TRY(model_open_moving(&s->model, s->weights, (enum model_task)s->train->task, f));
    TRY(table_open_parts(&s->test, o->test, s->pool, f));
    if (o->part.of > 0) {
        const struct eval_part part = {.index = o->part.index, .of = o->part.of};
        error = eval_part_rows(&part, s->test->n_rows, &options.first_row, &options.n_rows, f);
        if (error < 0) {
            (void)tabft_fail_prefix(f, "%s", o->test);
            goto fail;
        }
    }
    TRY(eval_predictor_open(&s->predictor, s->model, s->train, s->test, &options, s->pool, f));
fail:
    return error;
}

static void session_close(struct session *s)
{
    eval_predictor_close(s->predictor);
    table_close(s->test);
    table_close(s->train);
    model_close(s->model);
    ckpt_close(s->weights);
    if (s->backend.close != NULL) s->backend.close(s->backend.state);
    threads_close(s->pool);
}

int eval_predict_run(int argc, char **argv, struct tabft_failure *f)
{
    int error = 0;
    struct predict_options o = {.device.name = "auto"};
    struct session s = {0};
    struct eval_prediction_writer *w = NULL, *closing;
    char *made_by = NULL;
    TRY(predict_options(argc, argv, &o, f));
    TRY(session_open(&s, &o, f));
    const struct eval_plan *plan = eval_predictor_plan(s.predictor);
    if (o.plan) eval_put_plan(plan);
    TRY(eval_predictor_fits(s.predictor, f));
    if (o.plan) goto fail; /* all is said */
    TRY(provenance(&o, s.backend.isa, plan->n_estimators, s.weights, s.train, s.test, &made_by, f));
    TRY(eval_prediction_writer_open(&w, eval_predictor_head(s.predictor), o.output, o.force, made_by, s.pool, f));
    TRY(eval_predictor_run(s.predictor, eval_prediction_writer_put, w, f));
    TRY(table_unchanged(s.train, f));
    TRY(table_unchanged(s.test, f));
    closing = w;
    w = NULL;
    TRY(eval_prediction_writer_close(closing, f));
    TRY(eval_tell_left_out(s.train, s.test, eval_predictor_use(s.predictor), f));
fail:
    free(made_by);
    eval_prediction_writer_abandon(w);
    session_close(&s);
    return error;
}

/* ---- merge ---- */

int eval_merge_run(int argc, char **argv, struct tabft_failure *f)
{
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"threads", required_argument, NULL, 'n'},
                                            {"force", no_argument, NULL, 'f'},
                                            {0}};
    int error = 0, found;
    const char *output = NULL;
    uint64_t n_threads = 0;
    bool force = false;
    struct threads *pool = NULL;
    while ((found = getopt_long(argc, argv, ":o:", options, NULL)) != -1) {
        switch (found) {
        case 'o': output = optarg; break;
        case 'n': TRY(tool_integer("--threads", optarg, 0, EVAL_THREADS_MAX, &n_threads, f)); break;
        case 'f': force = true; break;
        default: return tool_bad_option(argv, found, f);
        }
    }
    if (output == NULL || argc == optind) FAIL(f, TABFT_USE, "merge: needs -o PRED.tbf and the parts; see --help");
    TRY(eval_open_pool(n_threads, &pool, f));
    TRY(eval_merge((const char *const *)argv + optind, (size_t)(argc - optind), output, force, pool, f));
fail:
    threads_close(pool);
    return error;
}
