#include "prep_options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "part.h"
#include "tool.h"

const char prep_help[] = "Usage: tabft-prep pack [OPTION]... -o OUT.tbf INPUT...\n"
                         "       tabft-prep merge [--force] -o OUT.tbf PART.tbf...\n"
                         "       tabft-prep split --test ROWS|FRACTION [--seed N] --train-out A.tbf\n"
                         "                        --test-out B.tbf FILE.tbf\n"
                         "       tabft-prep cat [-o OUT.csv] FILE.tbf\n"
                         "       tabft-prep info [--json] FILE.tbf\n"
                         "       tabft-prep verify FILE.tbf\n"
                         "Tables in CSV, TSV (RFC 4180, UTF-8) or NPY, gzipped or not, into packed files,\n"
                         "which training and prediction read, and back. INPUT - is stdin.\n"
                         "\n"
                         "  -o, --output FILE      what is written; - is stdout\n"
                         "      --force            replace existing outputs\n"
                         "      --threads N        0 (default): the CPUs that Slurm gives this process;\n"
                         "                         results do not depend on it\n"
                         "      --quiet            no reports, only warnings and errors\n"
                         "      --help             this text\n"
                         "      --version          version and licence\n"
                         "\n"
                         "pack:\n"
                         "      --target COL       the column to predict (default: none)\n"
                         "      --task TASK        classification, regression or auto (default): texts,\n"
                         "                         booleans and up to 20 whole numbers are classes\n"
                         "      --classes          the target's cells are class names, letter for letter\n"
                         "      --schema FILE.tbf  kinds, target and task as in that table\n"
                         "      --text COL         keep a column as text (again for more)\n"
                         "      --numeric COL      refuse what is no number in a column (again for more)\n"
                         "      --na LIST          comma-separated spellings of missing cells in number\n"
                         "                         and boolean columns (default: NA,N/A,n/a,#N/A,<NA>,\n"
                         "                         NaN,nan,NAN,-nan,-NaN,null,NULL,None)\n"
                         "      --na-text LIST     the same in text columns (default: none). An empty\n"
                         "                         cell is missing everywhere\n"
                         "      --delimiter C      between cells (default: tab for .tsv and .tab, else ,)\n"
                         "      --decimal C        decimal point: . (default) or ,\n"
                         "      --no-header        the first record is data; columns are x0, x1, ...\n"
                         "      --fill-short       short records are filled with missing cells\n"
                         "      --part I/N         part I (from 0) of N, reading its bytes or files alone;\n"
                         "                         merge joins the parts\n"
                         "      --part array       the part of this task of a Slurm job array\n"
                         "      --unpacked SIZE    bytes that a gzipped input may unpack to, as 20G\n"
                         "                         (default: 1G, or 100 times its own)\n"
                         "      --survey PART.tbf  cells of that other part count for kinds too (again for\n"
                         "                         more): where merge asks for it\n"
                         "      --block-bytes N    text a thread takes at a time (default 1048576)\n"
                         "\n"
                         "split:\n"
                         "      --test ROWS|FRACTION  size of the test table: whole, or 0 < F < 1\n"
                         "      --seed N           seed of the draw (default 0)\n"
                         "      --train-out FILE   the rows that are left\n"
                         "      --test-out FILE    the drawn rows\n"
                         "\n"
                         "info:\n"
                         "      --json             JSON on stdout instead of text\n"
                         "\n"
                         "Exit status: 0 done, 2 wrong use, 3 bad input, 4 system.\n";

static const char *const default_na[] = {"NA",  "N/A",  "n/a",  "#N/A", "<NA>", "NaN", "nan",
                                         "NAN", "-nan", "-NaN", "null", "NULL", "None"};

static const struct option long_options[] = {{"output", required_argument, NULL, 'o'},
                                             {"force", no_argument, NULL, OPT_FORCE},
                                             {"threads", required_argument, NULL, OPT_THREADS},
                                             {"quiet", no_argument, NULL, OPT_QUIET},
                                             {"target", required_argument, NULL, OPT_TARGET},
                                             {"task", required_argument, NULL, OPT_TASK},
                                             {"classes", no_argument, NULL, OPT_CLASSES},
                                             {"schema", required_argument, NULL, OPT_SCHEMA},
                                             {"text", required_argument, NULL, OPT_TEXT},
                                             {"numeric", required_argument, NULL, OPT_NUMERIC},
                                             {"na", required_argument, NULL, OPT_NA},
                                             {"na-text", required_argument, NULL, OPT_NA_TEXT},
                                             {"delimiter", required_argument, NULL, OPT_DELIMITER},
                                             {"decimal", required_argument, NULL, OPT_DECIMAL},
                                             {"no-header", no_argument, NULL, OPT_NO_HEADER},
                                             {"fill-short", no_argument, NULL, OPT_FILL_SHORT},
                                             {"part", required_argument, NULL, OPT_PART},
                                             {"unpacked", required_argument, NULL, OPT_UNPACKED},
                                             {"survey", required_argument, NULL, OPT_SURVEY},
                                             {"block-bytes", required_argument, NULL, OPT_BLOCK_BYTES},
                                             {"test", required_argument, NULL, OPT_TEST},
                                             {"seed", required_argument, NULL, OPT_SEED},
                                             {"train-out", required_argument, NULL, OPT_TRAIN_OUT},
                                             {"test-out", required_argument, NULL, OPT_TEST_OUT},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {0}};

static int read_task(const char *text, enum table_task *task, struct tabft_failure *f)
{
    if (strcmp(text, "auto") == 0) *task = TABLE_NO_TASK;
    else if (strcmp(text, "classification") == 0) *task = TABLE_CLASSIFICATION;
    else if (strcmp(text, "regression") == 0) *task = TABLE_REGRESSION;
    else return tabft_fail(f, TABFT_USE, "--task %.100s: auto, classification and regression are known", text);
    return 0;
}

/* Cuts a comma-separated list; empty entries are left out. */
static int read_list(const char *option, const char *text, char **copy, const char **list, size_t *n,
                     struct tabft_failure *f)
{
    char *rest;
    free(*copy);
    *copy = NULL;
    *n = 0;
    int error = memory_copy_string(copy, text, f);
    if (error < 0) return error;
    for (char *word = strtok_r(*copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (*n == PACK_NA_MAX) return tabft_fail(f, TABFT_USE, "%s: more than %d spellings", option, (int)PACK_NA_MAX);
        list[(*n)++] = word;
    }
    return 0;
}

static int read_character(const char *option, const char *text, char *out, struct tabft_failure *f)
{
    if (strcmp(text, "\\t") == 0 || strcmp(text, "tab") == 0) *out = '\t';
    else if (strlen(text) == 1) *out = *text;
    else return tabft_fail(f, TABFT_USE, "%s %.100s: one character is needed, or tab", option, text);
    return 0;
}

static int read_part(const char *text, struct pack_options *o, struct tabft_failure *f)
{
    struct tool_part part;
    int error = tool_part_read(text, &part, f);
    if (error < 0) return error;
    o->part = part.index;
    o->n_parts = part.of;
    return 0;
}

static int read_test(const char *text, struct split_options *o, struct tabft_failure *f)
{
    if (strpbrk(text, ".eE") == NULL) return tool_integer("--test", text, 1, INT64_MAX, &o->rows, f);
    char *end;
    o->fraction = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !(o->fraction > 0 && o->fraction < 1)) {
        return tabft_fail(f, TABFT_USE, "--test %.100s: a number of rows, or a fraction between 0 and 1", text);
    }
    return 0;
}

static int read_option(int found, struct given *g, struct tabft_failure *f)
{
    struct pack_options *o = &g->pack;
    uint64_t n = 0;
    int error = 0;
    switch (found) {
    case 'o': g->output = optarg; break;
    case OPT_FORCE: g->force = true; break;
    case OPT_THREADS: return tool_integer("--threads", optarg, 0, 1024, &g->threads, f);
    case OPT_QUIET: g->quiet = true; break;
    case OPT_TARGET: o->target = optarg; break;
    case OPT_TASK: return read_task(optarg, &o->task, f);
    case OPT_CLASSES: o->classes = true; break;
    case OPT_SCHEMA: o->schema = optarg; break;
    case OPT_TEXT: g->text[o->n_text++] = optarg; break;
    case OPT_NUMERIC: g->numeric[o->n_numeric++] = optarg; break;
    case OPT_NA: return read_list("--na", optarg, &g->na, g->na_list, &o->n_na, f);
    case OPT_NA_TEXT: return read_list("--na-text", optarg, &g->na_text, g->na_text_list, &o->n_text_na, f);
    case OPT_DELIMITER: return read_character("--delimiter", optarg, &o->delimiter, f);
    case OPT_DECIMAL: return read_character("--decimal", optarg, &o->point, f);
    case OPT_NO_HEADER: o->no_header = true; break;
    case OPT_FILL_SHORT: o->fill_short = true; break;
    case OPT_PART: return read_part(optarg, o, f);
    case OPT_UNPACKED: return tool_bytes("--unpacked", optarg, &o->unpacked_limit, f);
    case OPT_SURVEY: g->survey[o->n_survey++] = optarg; break;
    case OPT_BLOCK_BYTES:
        error = tool_integer("--block-bytes", optarg, 1, 64 << 20, &n, f);
        o->block_bytes = (size_t)n;
        return error;
    case OPT_TEST: return read_test(optarg, &g->split, f);
    case OPT_SEED:
        error = tool_integer("--seed", optarg, 0, UINT32_MAX, &n, f);
        g->split.seed = (uint32_t)n;
        return error;
    case OPT_TRAIN_OUT: g->split.train = optarg; break;
    case OPT_TEST_OUT: g->split.test = optarg; break;
    case OPT_JSON: g->json = true; break;
    default: break;
    }
    return 0;
}

void prep_given_clear(struct given *g)
{
    free(g->text);
    free(g->numeric);
    free(g->survey);
    free(g->na);
    free(g->na_text);
}

int prep_read_options(int argc, char **argv, const int *allowed, struct given *g, struct tabft_failure *f)
{
    int error = 0, found;
    *g = (struct given){
        .pack = {.point = '.', .block_bytes = PACK_BLOCK_BYTES, .n_na = sizeof default_na / sizeof *default_na}};
    memcpy(g->na_list, default_na, sizeof default_na);
    TRY(memory_new(&g->text, (size_t)argc, sizeof *g->text, "options", f));
    TRY(memory_new(&g->numeric, (size_t)argc, sizeof *g->numeric, "options", f));
    TRY(memory_new(&g->survey, (size_t)argc, sizeof *g->survey, "options", f));
    while ((found = getopt_long(argc, argv, ":o:", long_options, NULL)) != -1) {
        const int *a = allowed;
        if (found == ':' || found == '?') TRY(tool_bad_option(argv, found, f));
        while (*a != 0 && *a != found) a++;
        if (*a == 0) TRY(tool_bad_option(argv, '?', f));
        TRY(read_option(found, g, f));
    }
    g->pack.text = g->text;
    g->pack.numeric = g->numeric;
    g->pack.survey = g->survey;
    g->pack.na = g->na_list;
    g->pack.text_na = g->na_text_list;
    return 0;
fail:
    prep_given_clear(g);
    return error;
}
