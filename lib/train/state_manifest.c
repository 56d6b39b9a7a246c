/* The manifest of a checkpoint as JSON, both ways, and whether it belongs to this run. */
#include <config.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/table.h"
#include "train/state_internal.h"

/* ---- writing ---- */

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }
static json_t *count(uint64_t n) { return json_integer((json_int_t)n); }

static json_t *progress_json(const struct state_manifest *m)
{
    const struct progress *p = &m->progress;
    return json_pack("{so so sb so so so so so so so so so so}", "epoch", count(p->epoch), "position",
                     count(p->position), "checked", p->checked, "step", count(p->step), "n_steps", count(p->n_steps),
                     "skipped", count(p->skipped), "epoch_loss", number(p->epoch_loss), "epoch_steps",
                     count(p->epoch_steps), "seconds", number(m->seconds), "best", number(p->best), "initial",
                     number(p->initial), "best_epoch", count(p->best_epoch), "waited", count(p->waited));
}

static json_t *slices_json(const struct state_manifest *m)
{
    json_t *slices = json_array();
    for (size_t i = 0; i < m->n_slices; i++) {
        char hex[2 * STATE_DIGEST + 1] = "";
        for (size_t k = 0; k < STATE_DIGEST; k++) (void)snprintf(hex + 2 * k, 3, "%02x", m->slice[i].digest[k]);
        (void)json_array_append_new(slices, json_pack("{so so ss}", "begin", count(m->slice[i].begin), "end",
                                                      count(m->slice[i].end), "digest", hex));
    }
    return slices;
}

int state_manifest_write(const struct trainer *t, const struct state_manifest *m, char **text, struct tabft_failure *f)
{
    int error = 0;
    char *options = NULL;
    json_t *root = NULL;
    *text = NULL;
    TRY(train_options_json(t->o, true, &options, f));
    root = json_pack("{si ss ss ss ss so so so so sb so so so}", "schema", STATE_VERSION, "version", PACKAGE_VERSION,
                     "isa", t->backend.isa, "base_model_sha256", t->base_digest, "train_digest", t->data.table->digest,
                     "valid_digest", t->data.valid == NULL ? json_null() : json_string(t->data.valid->digest),
                     "options", json_loads(options, 0, NULL), "n_parameters", count(m->n_parameters), "optimiser_steps",
                     count(m->optimiser_steps), "has_best", m->has_best, "metrics_bytes", count(m->metrics_bytes),
                     "progress", progress_json(m), "slices", slices_json(m));
    if (root != NULL) *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (*text == NULL) FAIL(f, TABFT_SYSTEM, "the checkpoint: no memory for its manifest");
fail:
    free(options);
    json_decref(root);
    return error;
}

/* ---- reading ---- */

/* Where a field is missing or wrong `bad` names it; the first stays. */
struct fields {
    const json_t *object;
    const char *bad;
};

static const json_t *field(struct fields *s, const char *key)
{
    const json_t *value = json_object_get(s->object, key);
    if (value == NULL && s->bad == NULL) s->bad = key;
    return value;
}

static uint64_t get_count(struct fields *s, const char *key, uint64_t most)
{
    const json_t *value = field(s, key);
    bool held = json_is_integer(value) && json_integer_value(value) >= 0 &&
                (uint64_t)json_integer_value(value) <= most;
    if (!held && s->bad == NULL) s->bad = key;
    return held ? (uint64_t)json_integer_value(value) : 0;
}

static double get_number(struct fields *s, const char *key)
{
    const json_t *value = field(s, key);
    if (value != NULL && !json_is_number(value) && !json_is_null(value) && s->bad == NULL) s->bad = key;
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool get_flag(struct fields *s, const char *key)
{
    const json_t *value = field(s, key);
    if (value != NULL && !json_is_boolean(value) && s->bad == NULL) s->bad = key;
    return json_is_true(value);
}

static void check_kind(struct fields *s, const char *key, json_type type)
{
    const json_t *value = field(s, key);
    if (value != NULL && json_typeof(value) != type && s->bad == NULL) s->bad = key;
}

static void read_progress(struct fields *s, struct state_manifest *m)
{
    struct progress *p = &m->progress;
    const uint64_t most = INT64_MAX;
    *p = (struct progress){
        .epoch = get_count(s, "epoch", UINT32_MAX),
        .position = get_count(s, "position", most),
        .checked = get_flag(s, "checked"),
        .step = get_count(s, "step", most),
        .n_steps = get_count(s, "n_steps", most),
        .skipped = get_count(s, "skipped", most),
        .epoch_loss = get_number(s, "epoch_loss"),
        .epoch_steps = get_count(s, "epoch_steps", most),
        .best = get_number(s, "best"),
        .initial = get_number(s, "initial"),
        .best_epoch = get_count(s, "best_epoch", UINT32_MAX),
        .waited = get_count(s, "waited", most),
    };
    m->seconds = get_number(s, "seconds");
    if (!(m->seconds >= 0) && s->bad == NULL) s->bad = "seconds";
}

static bool read_digest(const json_t *value, uint8_t digest[STATE_DIGEST])
{
    const char *hex = json_string_value(value);
    if (hex == NULL || strlen(hex) != 2 * STATE_DIGEST || strspn(hex, "0123456789abcdef") != 2 * STATE_DIGEST)
        return false;
    for (size_t i = 0; i < STATE_DIGEST; i++) {
        unsigned byte;
        (void)sscanf(hex + 2 * i, "%2x", &byte);
        digest[i] = (uint8_t)byte;
    }
    return true;
}

/* The slices follow one another and hold all parameters; the first has some, for it holds the metrics. */
static int read_slices(struct state_manifest *m, struct fields *s, struct tabft_failure *f)
{
    int error = 0;
    const json_t *slices = field(s, "slices");
    size_t n = json_array_size(slices), at = 0;
    if (n == 0 || n > STATE_SLICES_MAX) {
        if (s->bad == NULL) s->bad = "slices";
        return 0;
    }
    TRY(memory_new(&m->slice, n, sizeof *m->slice, "the slices of a checkpoint", f));
    m->n_slices = n;
    for (size_t i = 0; i < n && s->bad == NULL; i++) {
        struct fields one = {.object = json_array_get(slices, i)};
        struct state_slice *slice = &m->slice[i];
        slice->begin = get_count(&one, "begin", m->n_parameters);
        slice->end = get_count(&one, "end", m->n_parameters);
        bool held = read_digest(json_object_get(one.object, "digest"), slice->digest) && one.bad == NULL &&
                    slice->begin == at && slice->end >= at && (i > 0 || slice->end > at);
        if (!held) s->bad = "slices";
        at = slice->end;
    }
    if (at != m->n_parameters && s->bad == NULL) s->bad = "slices";
fail:
    return error;
}

int state_manifest_read(struct state_manifest *m, const char *place, const char *text, size_t size,
                        struct tabft_failure *f)
{
    int error = 0;
    json_error_t wrong;
    *m = (struct state_manifest){.root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &wrong)};
    if (m->root == NULL) FAIL(f, TABFT_INPUT, "%s: is no JSON: %s", place, wrong.text);
    struct fields s = {.object = m->root};
    if (get_count(&s, "schema", INT64_MAX) != STATE_VERSION)
        FAIL(f, TABFT_INPUT, "%s: is not of a version that this program knows", place);
    static const char *const texts[] = {"version", "isa", "base_model_sha256", "train_digest"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_kind(&s, texts[i], JSON_STRING);
    check_kind(&s, "options", JSON_OBJECT);
    (void)field(&s, "valid_digest");
    m->n_parameters = get_count(&s, "n_parameters", (uint64_t)1 << 48);
    m->optimiser_steps = get_count(&s, "optimiser_steps", INT64_MAX);
    m->metrics_bytes = get_count(&s, "metrics_bytes", (uint64_t)1 << 40);
    m->has_best = get_flag(&s, "has_best");
    struct fields progress = {.object = field(&s, "progress")};
    read_progress(&progress, m);
    if (s.bad == NULL) s.bad = progress.bad;
    TRY(read_slices(m, &s, f));
    if (s.bad != NULL) FAIL(f, TABFT_INPUT, "%s: its \"%s\" is missing or cannot be", place, s.bad);
    return 0;
fail:
    state_manifest_clear(m);
    return error;
}

void state_manifest_clear(struct state_manifest *m)
{
    free(m->slice);
    json_decref(m->root);
    *m = (struct state_manifest){0};
}

/* ---- the same run? ---- */

static int same(const struct state_manifest *m, const char *key, const char *what, const char *now,
                const char *remedy, struct tabft_failure *f)
{
    const char *then = json_string_value(json_object_get(m->root, key));
    if (then == NULL && now == NULL) return 0;
    if (then != NULL && now != NULL && strcmp(then, now) == 0) return 0;
    return tabft_fail(f, TABFT_USE, "the run to resume has another %s: then %.80s, now %.80s; %s, or --force to start anew",
                      what, then != NULL ? then : "none", now != NULL ? now : "none", remedy);
}

int state_manifest_match(const struct state_manifest *m, const struct trainer *t, struct tabft_failure *f)
{
    int error = 0;
    const char *valid = t->data.valid == NULL ? NULL : t->data.valid->digest;
    TRY(same(m, "version", "version of tabft-train", PACKAGE_VERSION, "use that one", f));
    if (t->backend.vectors.host) TRY(same(m, "isa", "instruction set", t->backend.isa, "set TABFT_ISA to it", f));
    else TRY(same(m, "isa", "device or --precision", t->backend.isa, "use these", f));
    TRY(same(m, "base_model_sha256", "base model (--model, SHA-256)", t->base_digest, "name that one", f));
    TRY(same(m, "train_digest", "training table (--data, digest)", t->data.table->digest, "name that one", f));
    TRY(same(m, "valid_digest", "validation table (--valid, digest)", valid, "name that one", f));
    TRY(train_options_compare(t->o, json_object_get(m->root, "options"), f));
    uint64_t begun = m->progress.epoch + (m->progress.position > 0);
    if (begun > t->o->epochs)
        FAIL(f, TABFT_USE, "--epochs: %" PRIu64 " are done or begun already; give as many or more", begun);
    if (m->n_parameters != t->n_parameters)
        FAIL(f, TABFT_INPUT, "the checkpoint has %zu parameters, the model %zu", m->n_parameters, t->n_parameters);
fail:
    return error;
}
