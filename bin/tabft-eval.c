/* tabft-eval: predictions of a fine-tuned model, their scores, the verdict whether two runs are one, and a page about runs. */
#include <getopt.h>
#include <malloc.h>

#include "base/threads.h"
#include "eval/json_value.h"
#include "eval/parity.h"
#include "eval_verbs.h"
#include "tool.h"

static const char help[] = "Usage: tabft-eval predict --model M --train TRAIN --test TEST.tbf -o PRED.tbf\n"
                           "       tabft-eval merge -o PRED.tbf PART.tbf...\n"
                           "       tabft-eval score [--json] PRED.tbf\n"
                           "       tabft-eval parity [OPTION]... --test TEST.tbf BASE_RUN OTHER_RUN\n"
                           "       tabft-eval report [--force] -o REPORT.html RUN...\n"
                           "Predict a table, score predictions, judge whether two runs gave the same, and\n"
                           "show runs side by side.\n"
                           "\n"
                           "predict:\n"
                           "      --model M          weights (.safetensors)\n"
                           "      --train TRAIN.tbf  labelled rows that the model sees as context\n"
                           "      --test TEST.tbf    rows to predict; a target in it is kept as their label\n"
                           "      --estimators E     members of the ensemble (default: as the checkpoint\n"
                           "                         asks, mostly 8; more for very many columns)\n"
                           "      --seed N           of the ensemble (default 0)\n"
                           "      --quantiles LIST   of regression: 0.1,0.5,0.9 adds these to the means\n"
                           "      --softmax-temperature T   instead of the checkpoint's, mostly 0.9\n"
                           "      --average-before-softmax  the mean of logits instead of probabilities\n"
                           "      --balance-probabilities   divide by each class's share of TRAIN's rows\n"
                           "  -o, --output PRED.tbf  predictions: row, label, a probability a class; or\n"
                           "                         row, target, mean, quantiles\n"
                           "      --memory SIZE      memory it may take, as 800M or 4G (default: all left)\n"
                           "      --device NAME      auto|cpu|cuda (default: auto, a GPU where there is one)\n"
                           "      --precision NAME   on GPUs: auto|float32|tf32|bf16 (default: bf16)\n"
                           "      --block-rows N     rows that go through the network at a time (default: as\n"
                           "                         suits the memory); results do not depend on it,\n"
                           "                         on GPUs their last bits may\n"
                           "      --plan             print what it takes, and whether it fits, and stop\n"
                           "      --part I/N         rows of part I (from 0) of N; merge joins the parts\n"
                           "      --part array       the part of this task of a Slurm job array\n"
                           "score:\n"
                           "      --json             JSON instead of text\n"
                           "parity (JSON on stdout):\n"
                           "      --test TEST.tbf    table that both runs predict\n"
                           "      --train TRAIN.tbf  the runs' training table, where it has moved\n"
                           "      --tolerance T      exact (default), published, or a JSON file with bounds\n"
                           "report (a page of HTML, in one file):\n"
                           "  -o, --output REPORT.html  results, losses, times and options of the runs\n"
                           "predict, merge, report:\n"
                           "      --force            replace an existing output\n"
                           "predict, merge, parity:\n"
                           "      --threads N        0, the default: all CPUs this process may use\n"
                           "\n"
                           "      --help             this text\n"
                           "      --version          version and licence\n"
                           "\n"
                           "Exit status: 0 done, 1 parity not held, 2 wrong use, 3 bad input, 4 system.\n";

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
        case 'n': TRY(tool_integer("--threads", optarg, 0, EVAL_THREADS_MAX, &n_threads, f)); break;
        default: return tool_bad_option(argv, found, f);
        }
    }
    if (test == NULL || argc - optind != 2)
        FAIL(f, TABFT_USE, "parity: needs --test TEST.tbf and two runs' folders; see --help");
    TRY(parity_tolerance_read(tolerance_name, &tolerance, f));
    TRY(eval_open_pool(n_threads, &pool, f));
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
    static const struct tool_verb verbs[] = {{"predict", eval_predict_run},
                                             {"merge", eval_merge_run},
                                             {"score", eval_score_run},
                                             {"parity", run_parity},
                                             {"report", eval_report_run},
                                             {0}};
    static const struct tool tool = {.name = "tabft-eval", .help = help, .verbs = verbs};
    /* Large blocks go back to the system when they are freed: what preparing rows frees writing can have, and the plan
     * holds. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    return tool_main(&tool, argc, argv);
}
