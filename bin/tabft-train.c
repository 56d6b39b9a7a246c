/* tabft-train: fine-tunes a model on a packed table, on one rank or many. Options in, one call into lib/train, exit
 * status out. The ranks' launcher and engine are lib/comm's. */
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "file/file.h"
#include "tensor/cpu/cpu.h"
#include "tensor/device.h"
#include "tool.h"
#include "train/train.h"

static const char name[] = "tabft-train";

enum { OPTION_HELP = 1000, OPTION_VERSION, QUIET_SECONDS = 60 };

/* ---- what is said ---- */

struct screen {
    bool terminal; /* stderr is one: progress lines are drawn over each other */
    bool drawn;
    time_t last; /* without a terminal a progress line goes out now and then */
};

static void clear_line(struct screen *s)
{
    if (s->drawn) (void)fputs("\r\033[K", stderr);
    s->drawn = false;
}

static void say(void *context, const char *line)
{
    clear_line(context);
    (void)fprintf(stderr, "%s: ", name);
    tool_put_text(stderr, line);
    (void)fputc('\n', stderr);
}

static void show_progress(void *context, const char *line)
{
    struct screen *s = context;
    if (s->terminal) {
        (void)fprintf(stderr, "\r\033[K%s", line);
        (void)fflush(stderr);
        s->drawn = true;
    } else if (time(NULL) - s->last >= QUIET_SECONDS) {
        say(s, line);
        s->last = time(NULL);
    }
}

static void put_help(void)
{
    (void)puts("Usage: tabft-train --model FILE --data FILE --out RUN [OPTION]...\n"
               "       tabft-train --model FILE --data FILE --plan [OPTION]...\n"
               "Fine-tune a tabular foundation model on a packed table. The result has the same\n"
               "bits for every number of ranks (srun --mpi=pmix, mpirun) and of threads.\n");
    for (size_t i = 0; i < train_option_count(); i++) {
        struct train_option o = train_option_at(i);
        char left[64];
        (void)snprintf(left, sizeof left, "--%s%s%s", o.name, o.value_name != NULL ? " " : "",
                       o.value_name != NULL ? o.value_name : "");
        (void)printf("  %-28s %s\n", left, o.help);
    }
    (void)puts("  --help                       this text\n"
               "  --version                    version, licence, and what was found to run with\n"
               "\n"
               "Exit status: 0 done, 2 wrong use, 3 bad input, 4 system (memory, disk; --plan:\n"
               "does not fit), 5 another rank failed, 75 stopped by SIGUSR1 or SIGTERM with a\n"
               "checkpoint to --resume from.");
}

static int put_version(struct tabft_failure *f)
{
    int error = 0;
    char found[2048];
    const char *isa;
    tool_version(name);
    comm_describe(found, sizeof found);
    (void)fputs(found, stdout);
    tensor_device_describe(tensor_device_plugin_open, found, sizeof found);
    (void)fputs(found, stdout);
    TRY(tensor_isa(&isa, f));
    (void)printf("  instruction set: %s\n", isa);
fail:
    return error;
}

/* ---- options ---- */

enum action { ACT_RUN, ACT_HELP, ACT_VERSION };

static int read_options(int argc, char **argv, struct train_options *o, enum action *action, struct tabft_failure *f)
{
    int error = 0, found;
    size_t n = train_option_count();
    struct option *options = NULL;
    *action = ACT_RUN;
    train_options_default(o);
    TRY(memory_new(&options, n + 3, sizeof *options, "the options", f));
    for (size_t i = 0; i < n; i++) {
        struct train_option row = train_option_at(i);
        options[i] = (struct option){row.name, row.value_name != NULL ? required_argument : no_argument, NULL, (int)i};
    }
    options[n] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    options[n + 1] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (found == '?' || found == ':') {
            error = tool_bad_option(argv, found, f);
            goto fail;
        }
        if (found == OPTION_HELP || found == OPTION_VERSION) {
            *action = found == OPTION_HELP ? ACT_HELP : ACT_VERSION;
            goto fail;
        }
        TRY(train_option_set(o, (size_t)found, optarg, f));
    }
    if (optind < argc) FAIL(f, TABFT_USE, "%.100s: is no option; see --help", argv[optind]);
    TRY(train_options_check(o, f));
fail:
    free(options);
    return error;
}

static const char *engine_name(const struct train_options *o)
{
    static const char *const names[] = {"auto", "self", "mpi", "nccl"};
    return names[o->engine - TRAIN_ENGINE_AUTO];
}

/* ---- the run ---- */

static int find_device(const struct train_options *o, struct tensor_device *device, struct tabft_failure *f)
{
    static const char *const names[] = {"auto", "cpu", "cuda"};
    return tensor_device_find(device, names[o->device - TRAIN_DEVICE_AUTO], o->plan, tensor_device_plugin_open, f);
}

static int plan(const struct train_options *o, struct tabft_failure *f)
{
    char *text = NULL;
    struct tensor_device device;
    int error = find_device(o, &device, f);
    if (error == 0) error = train_plan(o, &device, &text, f);
    if (text != NULL) (void)fputs(text, stdout);
    free(text);
    return error;
}

/* Another rank is gone: in the watchdog's thread, while the main one may be anywhere. */
static void last_words(void *context, int rank, const char *host, const char *message)
{
    char line[2048];
    (void)context;
    file_temporaries_remove();
    if (message == NULL) return;
    int size = snprintf(line, sizeof line, "%s: rank %d (%s): %s\n", name, rank, host, message);
    if (size >= (int)sizeof line) size = (int)sizeof line - 1;
    if (size > 0 && write(STDERR_FILENO, line, (size_t)size) < 0) return; /* nobody listens */
}

static void put_failure(struct screen *screen, const struct comm *c, const struct tabft_failure *f)
{
    clear_line(screen);
    if (comm_size(c) > 1) (void)fprintf(stderr, "%s: rank %d (%s): %s\n", name, comm_rank(c), comm_host(c), f->message);
    else (void)fprintf(stderr, "%s: %s\n", name, f->message);
    (void)fflush(stderr);
}

/* Returns the exit status, or ends all ranks. */
static int run(const struct train_options *o, struct tabft_failure *f)
{
    struct screen screen = {.terminal = isatty(STDERR_FILENO) == 1, .last = time(NULL)};
    struct train_report report = {.say = say, .progress = show_progress, .context = &screen};
    struct train_result result = {.speaker = -1};
    struct tensor_device device;
    struct tabft_failure missing = {0};
    const int found = find_device(o, &device, &missing); /* said when the other ranks can be told */
    struct comm_options options = {.engine = engine_name(o),
                                   .gpus = found == 0 ? device.plugin != NULL : o->device == TRAIN_DEVICE_CUDA,
                                   .timeout_s = (int)o->comm_timeout,
                                   .last_words = last_words};
    struct comm *c = NULL;
    int error = comm_open(&c, &options, f);
    if (error == 0 && found < 0) error = tabft_fail(f, found, "%s", missing.message);
    if (error == 0) error = train_run(o, &device, c, &report, &result, f);
    clear_line(&screen);
    if (error < 0) {
        if (result.speaker < 0 || result.speaker == comm_rank(c)) put_failure(&screen, c, f);
        if (!result.agreed) comm_abort(c, tabft_exit_status(error));
    }
    comm_close(c);
    return tabft_exit_status(error);
}

int main(int argc, char **argv)
{
    struct tabft_failure f = {0};
    struct train_options o;
    enum action action;
    file_signals_install();
    /* Large blocks go back to the system when they are freed: what a step frees a validation can have, and the plan
     * holds. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    int error = read_options(argc, argv, &o, &action, &f);
    if (error == 0 && action == ACT_HELP) put_help();
    else if (error == 0 && action == ACT_VERSION) error = put_version(&f);
    else if (error == 0 && o.plan) error = plan(&o, &f);
    else if (error == 0) {
        int status = run(&o, &f);
        error = status == 0 ? 0 : -status;
        f = (struct tabft_failure){0}; /* said already */
    }
    return tool_end(name, error, &f);
}
