#include "train/options.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"

enum kind { TEXT, COUNT, REAL, CHOICE, BYTES, FLAG, INTERVAL };

/* What an option bears on. */
enum bearing {
    RESULT, /* the weights */
    SOURCE, /* the weights, by what lies at the path */
    END,    /* how long the run lasts */
    PLACE,  /* where and how it runs; recorded, but ranks may differ in it */
    ACT     /* what to do; not recorded */
};

struct row {
    const char *name, *key; /* key: in JSON, NULL for name with underscores */
    enum kind kind;
    enum bearing bearing;
    size_t offset;
    double least, most; /* COUNT and REAL */
    bool open;          /* least and most themselves are not allowed */
    const char *choice; /* CHOICE: names in the order of the enum, from 1 */
    const char *value_name, *help;
};

#define AT(member) offsetof(struct train_options, member)
static const double WORD = 4294967295.0;

/* The order is that of --help and run.json. */
static const struct row rows[] = {
    {"model", NULL, TEXT, SOURCE, AT(model), 0, 0, false, NULL, "FILE", "base model (.safetensors)"},
    {"data", NULL, TEXT, SOURCE, AT(data), 0, 0, false, NULL, "FILE", "training table (.tbf)"},
    {"valid", NULL, TEXT, SOURCE, AT(valid), 0, 0, false, NULL, "FILE", "validation table instead of a split"},
    {"out", NULL, TEXT, PLACE, AT(out), 0, 0, false, NULL, "RUN", "folder of the run; new or empty, or --resume"},
    {"epochs", NULL, COUNT, END, AT(epochs), 1, 1e6, false, NULL, "N", "passes over the training rows [30]"},
    {"lr", "learning_rate", REAL, RESULT, AT(learning_rate), 0, 100, true, NULL, "X", "AdamW's learning rate [1e-5]"},
    {"schedule", NULL, CHOICE, RESULT, AT(schedule), 0, 0, false, "cosine|warmup|constant", "NAME",
     "cosine|warmup|constant [cosine]"},
    {"weight-decay", NULL, REAL, RESULT, AT(weight_decay), 0, 100, false, NULL, "X", "decoupled weight decay [0.01]"},
    {"clip", NULL, REAL, RESULT, AT(clip), 0, 1e30, false, NULL, "X", "largest gradient norm, 0: any [1]"},
    {"estimators", NULL, COUNT, RESULT, AT(estimators), 1, 4096, false, NULL, "E", "estimators a chunk [8]"},
    {"chunk-rows", NULL, COUNT, RESULT, AT(chunk_rows), 1, 1e12, false, NULL, "N", "rows of a chunk at most [50000]"},
    {"query-fraction", NULL, REAL, RESULT, AT(query_fraction), 0, 1, true, NULL, "F",
     "share of queries in a chunk [0.2]"},
    {"chunks-per-step", NULL, COUNT, RESULT, AT(chunks_per_step), 1, 65536, false, NULL, "K", "chunks of a step [1]"},
    {"seed", NULL, COUNT, RESULT, AT(seed), 0, 4294967295.0, false, NULL, "N", "root of all random draws [0]"},
    {"validation-split", NULL, REAL, RESULT, AT(validation_split), 0, 0.999, false, NULL, "F",
     "share of rows held out, 0: none [0.1]"},
    {"validation-frequency", NULL, COUNT, RESULT, AT(validation_frequency), 1, 1e6, false, NULL, "N",
     "epochs from one validation to the next [1]"},
    {"metric", NULL, CHOICE, RESULT, AT(metric), 0, 0, false, "auto|roc_auc|log_loss|mse", "NAME",
     "auto|roc_auc|log_loss|mse [roc_auc, mse]"},
    {"ce-loss-weight", NULL, REAL, RESULT, AT(losses.ce), 0, 1e30, false, NULL, "X",
     "regression: cross-entropy of buckets [0]"},
    {"crps-loss-weight", NULL, REAL, RESULT, AT(losses.crps), 0, 1e30, false, NULL, "X",
     "regression: ranked probability score [1]"},
    {"crls-loss-weight", NULL, REAL, RESULT, AT(losses.crls), 0, 1e30, false, NULL, "X",
     "regression: ranked logarithmic score [0]"},
    {"mse-loss-weight", NULL, REAL, RESULT, AT(losses.mse), 0, 1e30, false, NULL, "X",
     "regression: squared error of the mean [1]"},
    {"mse-loss-clip", NULL, REAL, RESULT, AT(losses.mse_clip), 0, 1e30, false, NULL, "X",
     "most of it for a row, 0: any [0]"},
    {"mae-loss-weight", NULL, REAL, RESULT, AT(losses.mae), 0, 1e30, false, NULL, "X",
     "regression: absolute error of the mean [0]"},
    {"mae-loss-clip", NULL, REAL, RESULT, AT(losses.mae_clip), 0, 1e30, false, NULL, "X",
     "most of it for a row, 0: any [0]"},
    {"patience", NULL, COUNT, RESULT, AT(patience), 0, 1e6, false, NULL, "N",
     "validations without gain to stop at, 0: never [8]"},
    {"min-delta", NULL, REAL, RESULT, AT(min_delta), 0, 1e6, false, NULL, "X", "what counts as a gain [1e-4]"},
    {"time-limit", NULL, REAL, END, AT(time_limit), 0, 1e9, false, NULL, "SECONDS",
     "end before an epoch would pass it, 0: none [0]"},
    {"recompute", NULL, CHOICE, PLACE, AT(recompute), 0, 0, false, "auto|none|block", "NAME",
     "auto|none|block: less memory, more time [auto]"},
    {"memory", NULL, BYTES, PLACE, AT(memory), 0, 0, false, NULL, "SIZE",
     "memory a rank may take, as 800M or 4G [found]"},
    {"gpu-memory", NULL, BYTES, PLACE, AT(gpu_memory), 0, 0, false, NULL, "SIZE",
     "memory of a GPU to be taken, by CUDA too [all]"},
    {"stream", NULL, FLAG, PLACE, AT(stream), 0, 0, false, NULL, NULL, "read the table from disk while training"},
    {"window", NULL, BYTES, PLACE, AT(window), 0, 0, false, NULL, "SIZE", "rows that --stream reads ahead [512M]"},
    {"threads", NULL, COUNT, PLACE, AT(threads), 0, 1024, false, NULL, "N", "threads of a rank, 0: all it may use [0]"},
    {"device", NULL, CHOICE, PLACE, AT(device), 0, 0, false, "auto|cpu|cuda", "NAME", "auto|cpu|cuda [auto]"},
    {"precision", NULL, CHOICE, PLACE, AT(precision), 0, 0, false, "auto|float32|tf32|bf16", "NAME",
     "products on GPUs: auto|float32|tf32|bf16 [bf16]"},
    {"engine", NULL, CHOICE, PLACE, AT(engine), 0, 0, false, "auto|self|mpi|nccl", "NAME",
     "what carries the ranks: auto|self|mpi|nccl [auto]"},
    {"comm-timeout", NULL, COUNT, PLACE, AT(comm_timeout), 1, 1e7, false, NULL, "SECONDS",
     "how long a silent rank is waited for [1800]"},
    {"checkpoint-every", NULL, INTERVAL, PLACE, AT(checkpoint_every), 0, 1e9, false, NULL, "N[m]",
     "steps between checkpoints, with m: minutes [10m]"},
    {"stop-timeout", NULL, COUNT, PLACE, AT(stop_timeout), 0, 1e6, false, NULL, "SECONDS",
     "how long a stop by SIGTERM may take, 0: any [300]"},
    {"ranks", NULL, COUNT, ACT, AT(ranks), 1, 1e6, false, NULL, "N", "ranks that --plan plans for [1]"},
    {"ranks-per-node", NULL, COUNT, ACT, AT(ranks_per_node), 1, 4096, false, NULL, "N",
     "of them on a node, which share the table [1]"},
    {"plan", NULL, FLAG, ACT, AT(plan), 0, 0, false, NULL, NULL, "print the memory a rank needs and end"},
    {"resume", NULL, FLAG, ACT, AT(resume), 0, 0, false, NULL, NULL, "go on with the run in --out, or begin it"},
    {"force", NULL, FLAG, ACT, AT(force), 0, 0, false, NULL, NULL, "replace the run in a used folder"},
};
enum { ROWS = sizeof rows / sizeof *rows };

void train_options_default(struct train_options *o)
{
    *o = (struct train_options){
        .epochs = 30,
        .learning_rate = 1e-5,
        .weight_decay = 0.01,
        .clip = 1,
        .estimators = 8,
        .chunk_rows = 50000,
        .query_fraction = 0.2,
        .chunks_per_step = 1,
        .validation_split = 0.1,
        .validation_frequency = 1,
        .patience = 8,
        .min_delta = 1e-4,
        .schedule = SCHEDULE_COSINE,
        .metric = TRAIN_METRIC_AUTO,
        .losses = {.crps = 1, .mse = 1},
        .recompute = TRAIN_RECOMPUTE_AUTO,
        .device = TRAIN_DEVICE_AUTO,
        .precision = TRAIN_PRECISION_AUTO,
        .engine = TRAIN_ENGINE_AUTO,
        .comm_timeout = 1800,
        .checkpoint_every = {.n = 10, .minutes = true},
        .stop_timeout = 300,
        .ranks = 1,
        .ranks_per_node = 1,
        .window = 512 << 20,
    };
}

size_t train_option_count(void) { return ROWS; }

struct train_option train_option_at(size_t i)
{
    return (struct train_option){.name = rows[i].name, .value_name = rows[i].value_name, .help = rows[i].help};
}

/* ---- texts to values ---- */

static int set_count(const struct row *r, const char *text, uint64_t *out, struct tabft_failure *f)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || (double)value < r->least || (double)value > r->most)
        return tabft_fail(f, TABFT_USE, "--%s: \"%s\" is not a whole number from %.0f to %.0f", r->name, text, r->least,
                          r->most);
    *out = value;
    return 0;
}

static int set_real(const struct row *r, const char *text, double *out, struct tabft_failure *f)
{
    char *end;
    double value = strtod(text, &end);
    bool held = end != text && *end == '\0' && strspn(text, "0123456789.eE+-") == strlen(text) && isfinite(value);
    held = held && (r->open ? value > r->least && value < r->most : value >= r->least && value <= r->most);
    if (!held)
        return tabft_fail(f, TABFT_USE, "--%s: \"%s\" is not a number %s %g and %s %g", r->name, text,
                          r->open ? "above" : "from", r->least, r->open ? "below" : "up to", r->most);
    *out = value;
    return 0;
}

static int set_bytes(const struct row *r, const char *text, uint64_t *out, struct tabft_failure *f)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : *end == 'T' ? 40 : 0;
    end += shift > 0;
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value == 0 || value > (UINT64_MAX >> (shift + 1)))
        return tabft_fail(f, TABFT_USE, "--%s: \"%s\" is not a size such as 800M or 4G", r->name, text);
    *out = value << shift;
    return 0;
}

/* Copies the i-th name (from 1) of "a|b|c"; its length, 0 behind the last. */
static size_t choice_at(const char *choices, uint64_t i, const char **name)
{
    const char *at = choices;
    for (uint64_t k = 1; k < i && at != NULL; k++) {
        at = strchr(at, '|');
        at = at == NULL ? NULL : at + 1;
    }
    *name = at;
    return at == NULL ? 0 : strcspn(at, "|");
}

static int set_choice(const struct row *r, const char *text, uint64_t *out, struct tabft_failure *f)
{
    const char *name;
    for (uint64_t i = 1;; i++) {
        size_t size = choice_at(r->choice, i, &name);
        if (size == 0) return tabft_fail(f, TABFT_USE, "--%s: \"%s\" is none of %s", r->name, text, r->choice);
        if (strlen(text) == size && strncmp(text, name, size) == 0) {
            *out = i;
            return 0;
        }
    }
}

/* "N", "Nsteps" or "Nm". */
static int set_interval(const struct row *r, const char *text, struct train_interval *out, struct tabft_failure *f)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool minutes = strcmp(end, "m") == 0;
    if (*text < '0' || *text > '9' || (*end != '\0' && !minutes && strcmp(end, "steps") != 0) || errno != 0 ||
        (double)value > r->most)
        return tabft_fail(f, TABFT_USE, "--%s: \"%s\" is neither a number of steps, such as 100, nor of minutes, such as 10m",
                          r->name, text);
    *out = (struct train_interval){.n = value, .minutes = minutes};
    return 0;
}

int train_option_set(struct train_options *o, size_t i, const char *text, struct tabft_failure *f)
{
    const struct row *r = &rows[i];
    void *at = (char *)o + r->offset;
    switch (r->kind) {
    case TEXT:
        if (*text == '\0') return tabft_fail(f, TABFT_USE, "--%s: the name is empty", r->name);
        *(const char **)at = text;
        return 0;
    case COUNT: return set_count(r, text, at, f);
    case REAL: return set_real(r, text, at, f);
    case CHOICE: return set_choice(r, text, at, f);
    case BYTES: return set_bytes(r, text, at, f);
    case FLAG: *(bool *)at = true; return 0;
    case INTERVAL: return set_interval(r, text, at, f);
    }
    return 0;
}

bool train_losses_equal(const struct train_losses *a, const struct train_losses *b)
{
    return a->ce == b->ce && a->crps == b->crps && a->crls == b->crls && a->mse == b->mse && a->mae == b->mae &&
           a->mse_clip == b->mse_clip && a->mae_clip == b->mae_clip;
}

int train_options_check(const struct train_options *o, struct tabft_failure *f)
{
    if (o->model == NULL)
        return tabft_fail(f, TABFT_USE, "--model is missing; name the base model, a .safetensors file");
    if (o->data == NULL)
        return tabft_fail(f, TABFT_USE, "--data is missing; name the training table, a .tbf file of tabft-prep");
    if (o->out == NULL && !o->plan) return tabft_fail(f, TABFT_USE, "--out is missing; name a new folder for the run");
    if (o->resume && o->force)
        return tabft_fail(f, TABFT_USE,
                          "--resume and --force: one goes on with the run, the other starts anew; give one");
    if ((double)o->seed + (double)o->epochs - 1 > WORD)
        return tabft_fail(f, TABFT_USE,
                          "--seed %" PRIu64 ": leaves no room for %" PRIu64 " epochs, whose seeds follow it up to "
                          "4294967295; use a smaller one",
                          o->seed, o->epochs);
    return 0;
}

int train_options_threads(const struct train_options *o)
{
    return o->threads > 0 ? (int)o->threads : threads_default_count();
}

/* ---- JSON ---- */

static json_t *interval_json(const struct train_interval *i)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64 "%s", i->n, i->minutes ? "m" : "");
    return json_string(text);
}

static json_t *value_json(const struct train_options *o, const struct row *r)
{
    const void *at = (const char *)o + r->offset;
    const char *name;
    size_t size;
    switch (r->kind) {
    case TEXT: return *(const char *const *)at == NULL ? json_null() : json_string(*(const char *const *)at);
    case COUNT:
    case BYTES: return json_integer((json_int_t) * (const uint64_t *)at);
    case REAL: return json_real(*(const double *)at);
    case CHOICE: size = choice_at(r->choice, *(const uint64_t *)at, &name); return json_stringn(name, size);
    case FLAG: return json_boolean(*(const bool *)at);
    case INTERVAL: return interval_json(at);
    }
    return NULL;
}

static void key_of(const struct row *r, char *key, size_t size)
{
    (void)snprintf(key, size, "%s", r->key != NULL ? r->key : r->name);
    for (char *p = key; *p != '\0'; p++)
        if (*p == '-') *p = '_';
}

int train_options_json(const struct train_options *o, bool for_result, char **out, struct tabft_failure *f)
{
    int error = 0;
    json_t *object = json_object();
    *out = NULL;
    for (size_t i = 0; i < ROWS; i++) {
        char key[64];
        if (rows[i].bearing == ACT || (for_result && rows[i].bearing == PLACE)) continue;
        key_of(&rows[i], key, sizeof key);
        if (json_object_set_new(object, key, value_json(o, &rows[i])) != 0)
            FAIL(f, TABFT_USE, "--%s: cannot be written as JSON; paths must be UTF-8", rows[i].name);
    }
    *out = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (*out == NULL) FAIL(f, TABFT_SYSTEM, "options: no memory for their JSON");
fail:
    json_decref(object);
    return error;
}

static bool may_differ(const struct train_options *o, const struct row *r)
{
    if (r->bearing == END) return r->kind != COUNT || o->schedule == SCHEDULE_CONSTANT;
    return r->bearing != RESULT;
}

int train_options_compare(const struct train_options *o, const json_t *recorded, struct tabft_failure *f)
{
    int error = 0;
    json_t *now = NULL;
    char *texts[2] = {NULL, NULL};
    for (size_t i = 0; i < ROWS; i++) {
        char key[64];
        if (may_differ(o, &rows[i])) continue;
        key_of(&rows[i], key, sizeof key);
        const json_t *then = json_object_get(recorded, key);
        now = value_json(o, &rows[i]);
        if (now == NULL) FAIL(f, TABFT_SYSTEM, "options: no memory for their JSON");
        if (then == NULL) FAIL(f, TABFT_USE, "--%s: is not recorded by the run to resume; --force starts anew", rows[i].name);
        if (!json_equal(then, now)) {
            texts[0] = json_dumps(then, JSON_ENCODE_ANY);
            texts[1] = json_dumps(now, JSON_ENCODE_ANY);
            FAIL(f, TABFT_USE, "--%s: the run to resume has %s, now it is %s; give the same, or --force to start anew",
                 rows[i].name, texts[0] != NULL ? texts[0] : "?", texts[1] != NULL ? texts[1] : "?");
        }
        json_decref(now);
        now = NULL;
    }
fail:
    json_decref(now);
    free(texts[0]);
    free(texts[1]);
    return error;
}
