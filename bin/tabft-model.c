/* tabft-model: what is in a checkpoint, whether it is whole, what differs between two; PyTorch's made into safetensors,
 * and new random ones. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "ckpt/compare.h"
#include "ckpt/torch.h"
#include "eval/describe.h"
#include "eval/json_value.h"
#include "file/file.h"
#include "model/model.h"
#include "tool.h"

enum { CONFIG_MAX = 1 << 24 /* bytes of a configuration file */ };

static const char help[] =
    "Usage: tabft-model info [--json] MODEL\n"
    "       tabft-model verify [--json] MODEL\n"
    "       tabft-model diff [--json] A B\n"
    "       tabft-model convert [--force] IN OUT\n"
    "       tabft-model init --arch NAME [--config FILE] [--seed N] [--force] OUT\n"
    "Look into, check, compare and make weights of tabular foundation models.\n"
    "\n"
    "  info     architecture, tasks, head, limits, licence terms if recorded, config\n"
    "           and sizes, from the header alone\n"
    "  verify   read every byte; check names, shapes, finite values, and the SHA-256\n"
    "           recorded beside the file (MODEL.sha256, or run.json of a run)\n"
    "  diff     what differs, tensor by tensor; exit 0 the same bits, 1 not\n"
    "  convert  write a PyTorch checkpoint (.ckpt) or a safetensors file as\n"
    "           safetensors; nothing in it is run\n"
    "  init     random weights\n"
    "\n"
    "      --json         JSON on stdout instead of text\n"
    "      --arch NAME    architecture of init: tabpfn_v2, tabpfn_v2_5,\n"
    "                     tabpfn_v2_6, tabpfn_v3 or tabpfn_v3_5\n"
    "      --config FILE  configuration as JSON, - for stdin [published size]\n"
    "      --seed N       seed of init (default 0)\n"
    "      --force        replace an existing OUT\n"
    "      --help         this text\n"
    "      --version      version and licence\n"
    "\n"
    "Exit status: 0 done, 1 diff found differences, 2 wrong use, 3 bad input,\n"
    "4 system.\n";

/* The options of the verbs that read: --json, and exactly n_files arguments. */
static int read_options(int argc, char **argv, int n_files, bool *json, struct tabft_failure *f)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    int error = 0, found;
    *json = false;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (found != 'j') return tool_bad_option(argv, found, f);
        *json = true;
    }
    if (argc - optind != n_files)
        FAIL(f, TABFT_USE, "%s: needs %s; see --help", argv[0], n_files == 1 ? "one file" : "two files");
fail:
    return error;
}

/* "key: value" lines; objects on one line as JSON, and what is not in the file in words. */
static int put_description(const json_t *root, struct tabft_failure *f)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)root, key, value) {
        char *text = json_is_string(value) ? strdup(json_string_value(value))
                     : json_is_null(value) ? strdup("not recorded in the file")
                                           : json_dumps(value, JSON_ENCODE_ANY);
        if (text == NULL) return tabft_fail(f, TABFT_SYSTEM, "no memory for a line of text; give the job more memory");
        printf("%s: ", key);
        tool_put_text(stdout, text);
        (void)putchar('\n');
        free(text);
    }
    return 0;
}

static int run_info(int argc, char **argv, struct tabft_failure *f)
{
    int error = 0;
    bool json;
    struct ckpt *c = NULL;
    json_t *root = NULL;
    TRY(read_options(argc, argv, 1, &json, f));
    TRY(ckpt_open_header(&c, argv[optind], f));
    TRY(describe_checkpoint(c, &root, f));
    if (json) TRY(tool_put_json(json_incref(root), true, f));
    else TRY(put_description(root, f));
fail:
    json_decref(root);
    ckpt_close(c);
    return error;
}

static int check_finite(const struct ckpt *c, struct tabft_failure *f)
{
    for (size_t i = 0; i < ckpt_count(c); i++) {
        const struct ckpt_tensor *t = ckpt_at(c, i);
        for (uint64_t k = 0; k < t->count; k++)
            if (!isfinite(ckpt_value(t, k)))
                return tabft_fail(f, TABFT_INPUT,
                                  "%s: tensor %.200s, element %llu is not finite; no network can use it", ckpt_path(c),
                                  t->name, (unsigned long long)k);
    }
    return 0;
}

static int run_verify(int argc, char **argv, struct tabft_failure *f)
{
    int error = 0;
    bool json;
    struct ckpt *c = NULL;
    struct model *model = NULL;
    const char *recorded = NULL;
    char digest[65];
    TRY(read_options(argc, argv, 1, &json, f));
    TRY(ckpt_open(&c, argv[optind], f));
    TRY(ckpt_check_digest(c, &recorded, f));
    TRY(check_finite(c, f));
    /* A file that names no architecture is somebody else's; TabPFN's own v2 files have a config all the same. */
    if (ckpt_metadata(c, "architecture_name") != NULL || ckpt_metadata(c, "config") != NULL)
        TRY(model_open(&model, c, MODEL_ANY_TASK, f));
    ckpt_digest(c, digest);
    if (json) {
        json_t *root = json_object();
        bool whole = root != NULL;
        eval_json_add(root, "schema", json_integer(1), &whole);
        eval_json_add(root, "status", json_string("ok"), &whole);
        eval_json_add(root, "path", eval_json_text(argv[optind]), &whole);
        eval_json_add(root, "sha256", json_string(digest), &whole);
        eval_json_add(root, "sha256_recorded_in", recorded != NULL ? json_string(recorded) : json_null(), &whole);
        eval_json_add(root, "architecture", model != NULL ? json_string(model_architecture(model)) : json_null(),
                      &whole);
        TRY(tool_put_json(root, whole, f));
    } else {
        tool_put_text(stdout, argv[optind]);
        printf(": ok, %zu tensors, %s, SHA-256 %s (%s)\n", ckpt_count(c),
               model != NULL ? model_architecture(model) : "no architecture recorded, names and shapes not checked",
               digest, recorded != NULL ? recorded : "not recorded beside it");
    }
fail:
    model_close(model);
    ckpt_close(c);
    return error;
}

/* ---- diff ---- */

static void put_diff_text(const struct ckpt_comparison *d)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct ckpt_difference *t = &d->tensor[i];
        if (t->kind == CKPT_SAME) continue;
        tool_put_text(stdout, t->a != NULL ? t->a->name : t->b->name);
        if (t->kind == CKPT_VALUES)
            printf(": max abs difference %.9g at element %llu, %llu of %llu values differ\n", t->max_abs,
                   (unsigned long long)t->worst, (unsigned long long)t->n_different, (unsigned long long)t->a->count);
        else printf(": %s\n", t->kind == CKPT_FORM ? "another shape or dtype" : describe_difference(t->kind));
    }
    if (!d->same_metadata) printf("metadata: different\n");
    if (d->identical) printf("bit-identical: %zu tensors\n", d->n);
    else printf("different: %zu of %zu tensors\n", d->n_different, d->n);
}

static int run_diff(int argc, char **argv, struct tabft_failure *f)
{
    int error = 0;
    bool json;
    struct ckpt *a = NULL, *b = NULL;
    struct ckpt_comparison d = {0};
    TRY(read_options(argc, argv, 2, &json, f));
    TRY(ckpt_open(&a, argv[optind], f));
    TRY(ckpt_open(&b, argv[optind + 1], f));
    TRY(ckpt_compare(a, b, &d, f));
    if (json) TRY(tool_put_json(describe_comparison(&d, a, b), true, f));
    else put_diff_text(&d);
    if (!d.identical) error = TABFT_NOT_HELD; /* said on stdout; no error line */
fail:
    ckpt_comparison_clear(&d);
    ckpt_close(a);
    ckpt_close(b);
    return error;
}

/* Python chooses its reader by the end of a name, so a safetensors file must not be called .ckpt. */
static int check_out_name(const char *out, struct tabft_failure *f)
{
    static const char *const ends[] = {".ckpt", ".pth", ".pt"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t size = strlen(out), end = strlen(ends[i]);
        if (size >= end && strcmp(out + size - end, ends[i]) == 0)
            return tabft_fail(f, TABFT_USE, "%s: convert writes safetensors; give a name that ends in .safetensors",
                              out);
    }
    return 0;
}

static int run_convert(int argc, char **argv, struct tabft_failure *f)
{
    static const struct option options[] = {{"force", no_argument, NULL, 'f'}, {0}};
    int error = 0, found;
    bool force = false;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (found != 'f') return tool_bad_option(argv, found, f);
        force = true;
    }
    if (argc - optind != 2) FAIL(f, TABFT_USE, "convert: needs a file to read and one to write; see --help");
    TRY(check_out_name(argv[optind + 1], f));
    TRY(ckpt_convert(argv[optind], argv[optind + 1], force, f));
fail:
    return error;
}

/* ---- init ---- */

/* The text of a file or of stdin, ending in NUL. The caller frees it. */
static int read_config(const char *path, char **out, struct tabft_failure *f)
{
    int error = 0;
    struct file_stream *s = NULL;
    char *text = NULL;
    size_t size = 0, got = 1;
    TRY(file_stream_open(&s, path, f));
    while (got > 0) {
        TRY(memory_grow(&text, size + 65536 + 1, 1, "a configuration", f));
        TRY(file_stream_read(s, text + size, 65536, &got, f));
        size += got;
        if (size > CONFIG_MAX) FAIL(f, TABFT_INPUT, "%s: more than %d bytes; not a configuration", path, CONFIG_MAX);
    }
    text[size] = '\0';
    if (strlen(text) != size) FAIL(f, TABFT_INPUT, "%s: has NUL bytes; not a configuration", path);
    *out = text;
    text = NULL;
fail:
    free(text);
    file_stream_close(s);
    return error;
}

static int run_init(int argc, char **argv, struct tabft_failure *f)
{
    static const struct option options[] = {{"arch", required_argument, NULL, 'a'},
                                            {"config", required_argument, NULL, 'c'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"force", no_argument, NULL, 'f'},
                                            {0}};
    int error = 0, found;
    const char *architecture = NULL, *config_path = NULL;
    char *config = NULL;
    uint64_t seed = 0;
    bool force = false;
    struct model *model = NULL;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        switch (found) {
        case 'a': architecture = optarg; break;
        case 'c': config_path = optarg; break;
        case 's': TRY(tool_integer("--seed", optarg, 0, UINT64_MAX, &seed, f)); break;
        case 'f': force = true; break;
        default: return tool_bad_option(argv, found, f);
        }
    }
    if (architecture == NULL) FAIL(f, TABFT_USE, "init: --arch is needed; see --help");
    if (argc - optind != 1) FAIL(f, TABFT_USE, "init: needs one file to write; see --help");
    if (config_path != NULL) TRY(read_config(config_path, &config, f));
    TRY(model_init(&model, architecture, config, seed, f));
    TRY(model_write(model, model_values(model), argv[optind], force, f));
fail:
    model_close(model);
    free(config);
    return error;
}

int main(int argc, char **argv)
{
    static const struct tool_verb verbs[] = {
        {"info", run_info}, {"verify", run_verify}, {"diff", run_diff}, {"convert", run_convert},
        {"init", run_init}, {0}};
    static const struct tool tool = {.name = "tabft-model", .help = help, .verbs = verbs};
    return tool_main(&tool, argc, argv);
}
