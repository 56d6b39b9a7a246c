/* tabft-prep: tables into packed files and out of them. */
#include <getopt.h>
#include <stdlib.h>

#include "base/threads.h"
#include "prep_options.h"
#include "table/prep.h"
#include "tool.h"

static int open_threads(const struct given *g, struct threads **pool, struct tabft_failure *f)
{
    return threads_open(pool, g->threads == 0 ? threads_default_count() : (int)g->threads, f);
}

static void say(void *context, bool warning, const char *text)
{
    if (*(const bool *)context && !warning) return;
    (void)fprintf(stderr, "tabft-prep: %s%s\n", warning ? "warning: " : "", text);
}

static int need_output(const struct given *g, const char *verb, struct tabft_failure *f)
{
    return g->output != NULL ? 0 : tabft_fail(f, TABFT_USE, "%s: no output; -o FILE names it, -o - is stdout", verb);
}

static int one_file(int argc, char **argv, struct tabft_failure *f)
{
    return argc - optind == 1 ? 0 : tabft_fail(f, TABFT_USE, "%s: needs one file; see --help", argv[0]);
}

static int run_pack(int argc, char **argv, struct tabft_failure *f)
{
    static const int allowed[] = {'o',           OPT_FORCE,       OPT_THREADS,   OPT_QUIET,
                                  OPT_TARGET,    OPT_TASK,        OPT_CLASSES,   OPT_SCHEMA,
                                  OPT_TEXT,      OPT_NUMERIC,     OPT_NA,        OPT_NA_TEXT,
                                  OPT_DELIMITER, OPT_DECIMAL,     OPT_NO_HEADER, OPT_FILL_SHORT,
                                  OPT_PART,      OPT_BLOCK_BYTES, OPT_UNPACKED,  OPT_SURVEY,
                                  0};
    int error = 0;
    struct given g;
    struct threads *pool = NULL;
    error = prep_read_options(argc, argv, allowed, &g, f);
    if (error < 0) return error;
    TRY(need_output(&g, argv[0], f));
    g.pack.input = (const char *const *)argv + optind;
    g.pack.n_inputs = (size_t)(argc - optind);
    g.pack.output = g.output;
    g.pack.force = g.force;
    TRY(open_threads(&g, &pool, f));
    TRY(prep_pack(&g.pack, pool, &(struct prep_say){say, &g.quiet}, f));
fail:
    threads_close(pool);
    prep_given_clear(&g);
    return error;
}

/* The verbs that read packed files: one file, an output where one is allowed. */
static int run_cat(int argc, char **argv, struct tabft_failure *f)
{
    static const int allowed[] = {'o', OPT_FORCE, OPT_THREADS, OPT_QUIET, 0};
    struct given g;
    struct threads *pool = NULL;
    int error = prep_read_options(argc, argv, allowed, &g, f);
    if (error < 0) return error;
    TRY(one_file(argc, argv, f));
    TRY(open_threads(&g, &pool, f));
    TRY(prep_cat(argv[optind], g.output == NULL ? "-" : g.output, g.force, pool, f));
fail:
    threads_close(pool);
    prep_given_clear(&g);
    return error;
}

static int run_merge(int argc, char **argv, struct tabft_failure *f)
{
    static const int allowed[] = {'o', OPT_FORCE, OPT_THREADS, OPT_QUIET, 0};
    struct given g;
    struct threads *pool = NULL;
    int error = prep_read_options(argc, argv, allowed, &g, f);
    if (error < 0) return error;
    TRY(need_output(&g, argv[0], f));
    TRY(open_threads(&g, &pool, f));
    TRY(prep_merge((const char *const *)argv + optind, (size_t)(argc - optind), g.output, g.force, pool,
                   &(struct prep_say){say, &g.quiet}, f));
fail:
    threads_close(pool);
    prep_given_clear(&g);
    return error;
}

static int run_split(int argc, char **argv, struct tabft_failure *f)
{
    static const int allowed[] = {OPT_TEST,  OPT_SEED,    OPT_TRAIN_OUT, OPT_TEST_OUT,
                                  OPT_FORCE, OPT_THREADS, OPT_QUIET,     0};
    struct given g;
    struct threads *pool = NULL;
    int error = prep_read_options(argc, argv, allowed, &g, f);
    if (error < 0) return error;
    TRY(one_file(argc, argv, f));
    if (g.split.train == NULL || g.split.test == NULL)
        FAIL(f, TABFT_USE, "split: --train-out and --test-out name the two tables");
    if (g.split.rows == 0 && !(g.split.fraction > 0))
        FAIL(f, TABFT_USE, "split: --test says how many rows the test table gets");
    TRY(open_threads(&g, &pool, f));
    g.split.input = argv[optind];
    g.split.force = g.force;
    TRY(prep_split(&g.split, pool, &(struct prep_say){say, &g.quiet}, f));
fail:
    threads_close(pool);
    prep_given_clear(&g);
    return error;
}

static int run_info(int argc, char **argv, struct tabft_failure *f)
{
    static const int allowed[] = {OPT_JSON, 0};
    struct given g;
    char *text = NULL;
    int error = prep_read_options(argc, argv, allowed, &g, f);
    if (error < 0) return error;
    TRY(one_file(argc, argv, f));
    TRY(prep_info(argv[optind], g.json, &text, f));
    (void)fputs(text, stdout);
    if (g.json) (void)putchar('\n');
fail:
    free(text);
    prep_given_clear(&g);
    return error;
}

static int run_verify(int argc, char **argv, struct tabft_failure *f)
{
    static const int allowed[] = {OPT_THREADS, OPT_QUIET, 0};
    struct given g;
    struct threads *pool = NULL;
    int error = prep_read_options(argc, argv, allowed, &g, f);
    if (error < 0) return error;
    TRY(one_file(argc, argv, f));
    TRY(open_threads(&g, &pool, f));
    TRY(prep_verify(argv[optind], pool, f));
    if (!g.quiet) {
        tool_put_text(stdout, argv[optind]);
        printf(": ok\n");
    }
fail:
    threads_close(pool);
    prep_given_clear(&g);
    return error;
}

int main(int argc, char **argv)
{
    static const struct tool_verb verbs[] = {{"pack", run_pack}, {"merge", run_merge}, {"split", run_split},
                                             {"cat", run_cat},   {"info", run_info},   {"verify", run_verify},
                                             {NULL, NULL}};
    return tool_main(&(struct tool){"tabft-prep", prep_help, verbs}, argc, argv);
}
