/* tabft-eval: predictions of a fine-tuned model, their scores, and the verdict whether two runs are one. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/threads.h"
#include "ckpt/ckpt.h"
#include "config.h"
#include "ensemble/ensemble.h"
#include "eval/eval.h"
#include "eval/json_value.h"
#include "eval/parity.h"
#include "eval_verbs.h"
#include "model/model.h"
#include "table/table.h"
#include "tool.h"

static const char help[] = "Usage: tabft-eval predict --model M --train TRAIN --test TEST.tbf -o PRED.tbf\n"
                           "       tabft-eval score [--json] PRED.tbf\n"
                           "       tabft-eval parity [OPTION]... --test TEST.tbf BASE_RUN OTHER_RUN\n"
                           "Predict a table, score predictions, and judge whether two runs gave the same.\n"
                           "\n"
                           "predict:\n"
                           "      --model M          weights (.safetensors)\n"
                           "      --train TRAIN.tbf  labelled rows that the model sees as context\n"
                           "      --test TEST.tbf    rows to predict; a target in it is kept as their label\n"
                           "      --estimators E     members of the ensemble (default 8)\n"
                           "      --seed N           of the ensemble (default 0)\n"
                           "      --quantiles LIST   of regression: 0.1,0.5,0.9 adds these to the means\n"
                           "  -o, --output PRED.tbf  predictions: row, label, a probability a class; or\n"
                           "                         row, target, mean, quantiles\n"
                           "      --memory SIZE      memory it may take, as 800M or 4G (default: all left)\n"
                           "      --force            replace an existing PRED.tbf\n"
                           "score:\n"
                           "      --json             JSON instead of text\n"
                           "parity (JSON on stdout):\n"
                           "      --test TEST.tbf    table that both runs predict\n"
                           "      --train TRAIN.tbf  the runs' training table, where it has moved\n"
                           "      --tolerance T      exact (default), published, or a JSON file with bounds\n"
                           "predict, parity:\n"
                           "      --threads N        0, the default: all CPUs this process may use\n"
                           "\n"
                           "      --help             this text\n"
                           "      --version          version and licence\n"
                           "\n"
                           "Exit status: 0 done, 1 parity not held, 2 wrong use, 3 bad input, 4 system.\n";

enum { ESTIMATORS_MAX = 4096, THREADS_MAX = 1024, LEVELS_MAX = 99 };

static int open_pool(uint64_t n_threads, struct threads **pool, struct tabft_failure *f)
{
    return threads_open(pool, n_threads > 0 ? (int)n_threads : threads_default_count(), f);
}

/* ---- predict ---- */

struct predict_options {
    const char *model, *train, *test, *output;
    uint64_t estimators, seed, threads, memory;
    bool force;
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
                                            {"quantiles", required_argument, NULL, 'u'},
                                            {"force", no_argument, NULL, 'f'},
                                            {0}};
    int error = 0, found;
    while ((found = getopt_long(argc, argv, ":o:", options, NULL)) != -1) {
        switch (found) {
        case 'm': o->model = optarg; break;
        case 't': o->train = optarg; break;
        case 'q': o->test = optarg; break;
        case 'o': o->output = optarg; break;
        case 'e': TRY(tool_integer("--estimators", optarg, 1, ESTIMATORS_MAX, &o->estimators, f)); break;
        case 's': TRY(tool_integer("--seed", optarg, 0, UINT32_MAX, &o->seed, f)); break;
        case 'n': TRY(tool_integer("--threads", optarg, 0, THREADS_MAX, &o->threads, f)); break;
        case 'y': TRY(tool_bytes("--memory", optarg, &o->memory, f)); break;
        case 'u': TRY(read_levels(optarg, o, f)); break;
        case 'f': o->force = true; break;
        default: return tool_bad_option(argv, found, f);
        }
    }
    if (o->model == NULL || o->train == NULL || o->test == NULL || o->output == NULL)
        FAIL(f, TABFT_USE, "predict: --model, --train, --test and -o are needed; see --help");
    if (argc != optind) FAIL(f, TABFT_USE, "predict: %.100s: tables are given with --train and --test", argv[optind]);
fail:
    return error;
}

/* What made the predictions, for the table's provenance. The caller frees it. */
static int provenance(const struct predict_options *o, const struct ckpt *c, const struct table *train,
                      const struct table *test, char **out, struct tabft_failure *f)
{
    char digest[65];
    ckpt_digest(c, digest);
    json_t *root = json_object();
    bool whole = root != NULL;
    eval_json_add(root, "tool", json_string("tabft-eval predict"), &whole);
    eval_json_add(root, "version", json_string(PACKAGE_VERSION), &whole);
    eval_json_add(root, "model_sha256", json_string(digest), &whole);
    eval_json_add(root, "train_digest", json_string(train->digest), &whole);
    eval_json_add(root, "test_digest", json_string(test->digest), &whole);
    eval_json_add(root, "estimators", eval_json_size((size_t)o->estimators), &whole);
    eval_json_add(root, "seed", eval_json_size((size_t)o->seed), &whole);
    *out = whole ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return *out != NULL ? 0 : tabft_fail(f, TABFT_SYSTEM, "no memory for the provenance; give the job more memory");
}

/* A line for each column of the training table that told nothing and was left out. */
static int tell_left_out(const struct table *train, struct tabft_failure *f)
{
    int error = 0;
    size_t *used = NULL, n_used;
    enum ensemble_use *use = NULL;
    TRY(memory_new(&used, train->n_columns, sizeof *used, "a table's columns", f));
    TRY(memory_new(&use, train->n_columns, sizeof *use, "a table's columns", f));
    TRY(ensemble_useful_columns(train, use, used, &n_used, f));
    for (size_t i = 0; i < train->n_columns; i++) {
        if (use[i] == ENSEMBLE_USED) continue;
        (void)fputs("tabft-eval: column ", stderr);
        tool_put_text(stderr, train->column[i].name);
        (void)fprintf(stderr, " is left out: %s\n", ensemble_use_name(use[i]));
    }
fail:
    free(use);
    free(used);
    return error;
}

static int run_predict(int argc, char **argv, struct tabft_failure *f)
{
    int error = 0;
    struct predict_options o = {.estimators = 8};
    struct threads *pool = NULL;
    struct ckpt *weights = NULL;
    struct model *model = NULL;
    struct table *train = NULL, *test = NULL;
    struct eval_prediction prediction = {0};
    char *made_by = NULL;
    TRY(predict_options(argc, argv, &o, f));
    TRY(open_pool(o.threads, &pool, f));
    TRY(ckpt_open(&weights, o.model, f));
    TRY(table_open(&train, o.train, pool, f));
    TRY(model_open(&model, weights, (enum model_task)train->task, f));
    TRY(table_open(&test, o.test, pool, f));
    TRY(provenance(&o, weights, train, test, &made_by, f));
    const struct eval_options options = {.n_estimators = (size_t)o.estimators,
                                         .seed = (uint32_t)o.seed,
                                         .memory = o.memory,
                                         .n_levels = o.n_levels,
                                         .level = o.level};
    TRY(eval_predict(model, train, test, &options, pool, &prediction, f));
    TRY(eval_prediction_write(&prediction, o.output, o.force, made_by, pool, f));
    TRY(tell_left_out(train, f));
fail:
    free(made_by);
    eval_prediction_clear(&prediction);
    table_close(test);
    table_close(train);
    model_close(model);
    ckpt_close(weights);
    threads_close(pool);
    return error;
}

/* ---- parity ---- */

static int run_parity(int argc, char **argv, struct tabft_failure *f)
{
    static const struct option options[] = {{"tolerance", required_argument, NULL, 'l'},
                                            {"test", required_argument, NULL, 'q'},
                                            {"train", required_argument, NULL, 't'},
                                            {"threads", required_argument, NULL, 'n'},
                                            {0}};
    int error = 0, found;
    const char *tolerance_name = "exact", *test = NULL, *train = NULL;
    uint64_t n_threads = 0;
    bool held;
    struct parity_tolerance tolerance;
    struct threads *pool = NULL;
    json_t *report = NULL;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        switch (found) {
        case 'l': tolerance_name = optarg; break;
        case 'q': test = optarg; break;
        case 't': train = optarg; break;
        case 'n': TRY(tool_integer("--threads", optarg, 0, THREADS_MAX, &n_threads, f)); break;
        default: return tool_bad_option(argv, found, f);
        }
    }
    if (test == NULL || argc - optind != 2)
        FAIL(f, TABFT_USE, "parity: needs --test TEST.tbf and two runs' folders; see --help");
    TRY(parity_tolerance_read(tolerance_name, &tolerance, f));
    TRY(open_pool(n_threads, &pool, f));
    TRY(parity_compare(argv[optind], argv[optind + 1], test, train, &tolerance, pool, &report, &held, f));
    TRY(tool_put_json(json_incref(report), true, f));
    if (!held) error = TABFT_NOT_HELD; /* the report says why; no error line */
fail:
    json_decref(report);
    threads_close(pool);
    return error;
}

int main(int argc, char **argv)
{
    static const struct tool_verb verbs[] = {
        {"predict", run_predict}, {"score", eval_score_run}, {"parity", run_parity}, {0}};
    static const struct tool tool = {.name = "tabft-eval", .help = help, .verbs = verbs};
    return tool_main(&tool, argc, argv);
}
