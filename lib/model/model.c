#define TABFT_MODEL_ROOM
#include "model/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/model_internal.h"

/* Every architecture there is. */
static const struct model_architecture *const architectures[] = {&model_tabpfn_v2, &model_tabpfn_v2_5,
                                                                 &model_tabpfn_v2_6, &model_tabpfn_v3,
                                                                 &model_tabpfn_v3_5};
enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures, NAME_SIZE = 256 };

static int find_architecture(const struct model_architecture **out, const char *name, struct tabft_failure *f)
{
    char known[NAME_SIZE] = "";
    if (strcmp(name, "base") == 0) name = model_tabpfn_v2_5.name; /* as v2.5's own checkpoints say */
    for (size_t i = 0; i < N_ARCHITECTURES; i++) {
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", architectures[i]->name);
        if (strcmp(architectures[i]->name, name) != 0) continue;
        *out = architectures[i];
        return 0;
    }
    return tabft_fail(f, TABFT_INPUT, "architecture \"%.60s\" is not one that TabFT knows; it knows %s", name, known);
}

int model_config_over(json_t **out, const char *published, const json_t *config, struct tabft_failure *f)
{
    *out = json_loads(published, 0, NULL);
    if (*out != NULL && (config == NULL || json_object_update(*out, (json_t *)config) == 0)) return 0;
    json_decref(*out);
    *out = NULL;
    return tabft_fail(f, TABFT_SYSTEM, "no memory for a config");
}

int model_config_size(const json_t *config, const char *key, size_t least, size_t most, size_t *out,
                      struct tabft_failure *f)
{
    const json_t *value = json_object_get(config, key);
    if (!json_is_integer(value)) return tabft_fail(f, TABFT_INPUT, "config: %s is not a whole number", key);
    const json_int_t n = json_integer_value(value);
    if (n < (json_int_t)least || n > (json_int_t)most)
        return tabft_fail(f, TABFT_INPUT, "config: %s is %lld; it must be from %zu to %zu", key, (long long)n, least,
                          most);
    *out = (size_t)n;
    return 0;
}

/* ---- parameters ---- */

int model_declare(struct model *m, enum model_draw draw, size_t rows, size_t columns, struct tabft_failure *f,
                  const char *name, ...)
{
    int error = 0;
    char text[NAME_SIZE], *copy = NULL;
    va_list list;
    va_start(list, name);
    (void)vsnprintf(text, sizeof text, name, list);
    va_end(list);
    if (m->n_all_parameters == m->parameters_room) {
        const size_t room = m->parameters_room == 0 ? 64 : 2 * m->parameters_room;
        TRY(memory_grow(&m->parameters, room, sizeof *m->parameters, "the parameters", f));
        TRY(memory_grow(&m->draws, room, sizeof *m->draws, "the parameters", f));
        m->parameters_room = room;
    }
    size_t count = rows;
    if (columns != 0 && !size_mul(rows, columns, &count)) count = SIZE_MAX;
    struct model_parameter p = {
        .rank = columns == 0 ? 1 : 2, .shape = {rows, columns}, .offset = m->n_all_values, .count = count};
    if (!size_add(m->n_all_values, count, &m->n_all_values))
        FAIL(f, TABFT_INPUT, "config: a network of this size does not fit this machine");
    TRY(memory_copy_string(&copy, text, f));
    p.name = copy;
    m->draws[m->n_all_parameters] = draw;
    m->parameters[m->n_all_parameters++] = p;
fail:
    return error;
}

/* ---- opening ---- */

/* Config to parameters. */
static int build(struct model *m, const char *architecture, const json_t *config, enum model_task task, json_t **whole,
                 struct tabft_failure *f)
{
    int error = 0;
    TRY(find_architecture(&m->architecture, architecture, f));
    TRY(m->architecture->configure(&m->config, config, whole, f));
    if (m->config.both_tasks) m->config.task = task == MODEL_REGRESSION ? task : MODEL_CLASSIFICATION;
    TRY(m->architecture->declare(m, f));
    m->n_parameters = m->n_all_parameters;
    m->n_values = m->n_all_values;
    if (m->architecture->declare_idle != NULL) TRY(m->architecture->declare_idle(m, f));
fail:
    return error;
}

static int make_room(struct model *m, struct tabft_failure *f)
{
    return memory_new_aligned(&m->values, m->n_all_values, sizeof *m->values, "the weights", f);
}

static int parse(json_t **out, const char *text, const char *what, struct tabft_failure *f)
{
    json_error_t e;
    *out = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    if (*out == NULL) return tabft_fail(f, TABFT_INPUT, "%s is not JSON: %.100s", what, e.text);
    return 0;
}

static int add_metadata(struct model *m, const char *key, const char *value, struct tabft_failure *f)
{
    int error = memory_grow(&m->metadata, m->n_metadata + 1, sizeof *m->metadata, "the metadata", f);
    if (error < 0) return error;
    struct model_metadata *d = &m->metadata[m->n_metadata];
    *d = (struct model_metadata){NULL, NULL};
    m->n_metadata++;
    error = memory_copy_string(&d->key, key, f);
    return error < 0 ? error : memory_copy_string(&d->value, value, f);
}

static int remember_inference_config(struct model *m, const struct ckpt *c, struct tabft_failure *f)
{
    const char *text = ckpt_metadata(c, "inference_config");
    return text == NULL ? 0 : memory_copy_string(&m->inference_config, text, f);
}

/* What a file's metadata say. parsed: name, config and whole config, the caller's to free whatever comes. */
static int read_metadata(struct model *m, const struct ckpt *c, enum model_task task, json_t *parsed[3],
                         struct tabft_failure *f)
{
    int error = 0;
    const char *architecture = ckpt_metadata(c, "architecture_name"), *config = ckpt_metadata(c, "config");
    if (config == NULL) FAIL(f, TABFT_INPUT, "metadata has no config; is this a TabPFN checkpoint?");
    if (architecture == NULL) architecture = "\"tabpfn_v2\""; /* v2's own checkpoints name none */
    TRY(parse(&parsed[0], architecture, "metadata architecture_name", f));
    TRY(parse(&parsed[1], config, "metadata config", f));
    if (!json_is_string(parsed[0])) FAIL(f, TABFT_INPUT, "metadata architecture_name is not a string");
    if (!json_is_object(parsed[1])) FAIL(f, TABFT_INPUT, "metadata config is not an object");
    TRY(build(m, json_string_value(parsed[0]), parsed[1], task, &parsed[2], f));
fail:
    return error;
}

static int open_checked(struct model *m, const struct ckpt *c, struct ckpt *moved, enum model_task task,
                        json_t *parsed[3], struct tabft_failure *f)
{
    int error = 0;
    TRY(read_metadata(m, c, task, parsed, f));
    TRY(make_room(m, f));
    TRY(model_load(m, c, moved, f));
    TRY(remember_inference_config(m, c, f));
    for (size_t i = 0; i < ckpt_metadata_count(c); i++) {
        const char *key, *value;
        ckpt_metadata_at(c, i, &key, &value);
        TRY(add_metadata(m, key, value, f));
    }
fail:
    return error;
}

/* moved: c itself, whose tensors are forgotten, or NULL. */
static int open_from(struct model **out, const struct ckpt *c, struct ckpt *moved, enum model_task task,
                     struct tabft_failure *f)
{
    struct model *m = NULL;
    json_t *parsed[3] = {NULL, NULL, NULL};
    int error = memory_new(&m, 1, sizeof *m, "a model", f);
    if (error == 0) error = open_checked(m, c, moved, task, parsed, f);
    if (error < 0) (void)tabft_fail_prefix(f, "%s", ckpt_path(c));
    for (int i = 0; i < 3; i++) json_decref(parsed[i]);
    if (error < 0) model_close(m);
    else *out = m;
    return error;
}

int model_open(struct model **out, const struct ckpt *c, enum model_task task, struct tabft_failure *f)
{
    return open_from(out, c, NULL, task, f);
}

int model_open_moving(struct model **out, struct ckpt *c, enum model_task task, struct tabft_failure *f)
{
    return open_from(out, c, c, task, f);
}

/* One task's share of a summary. */
static int summarise_task(const struct ckpt *c, enum model_task task, struct model_summary *out,
                          struct tabft_failure *f)
{
    int error = 0;
    struct model *m = NULL;
    json_t *parsed[3] = {NULL, NULL, NULL};
    TRY(memory_new(&m, 1, sizeof *m, "a model", f));
    TRY(read_metadata(m, c, task, parsed, f));
    out->architecture = m->architecture->name;
    if (m->config.task == MODEL_CLASSIFICATION) out->classes = model_outputs(m);
    else out->buckets = model_outputs(m);
    out->parameters[m->config.task] = m->n_values;
fail:
    for (int i = 0; i < 3; i++) json_decref(parsed[i]);
    model_close(m);
    return error;
}

int model_summarise(const struct ckpt *c, struct model_summary *out, struct tabft_failure *f)
{
    *out = (struct model_summary){0};
    int error = summarise_task(c, MODEL_CLASSIFICATION, out, f);
    if (error == 0) error = summarise_task(c, MODEL_REGRESSION, out, f); /* the same again where it has one head */
    return error;
}

int model_init(struct model **out, const char *architecture, const char *config_json, uint64_t seed,
               struct tabft_failure *f)
{
    int error = 0;
    struct model *m = NULL;
    json_t *config = NULL, *whole = NULL;
    char *text = NULL, quoted[NAME_SIZE];
    TRY(memory_new(&m, 1, sizeof *m, "a model", f));
    if (config_json != NULL) {
        TRY(parse(&config, config_json, "the config", f));
        if (!json_is_object(config)) FAIL(f, TABFT_INPUT, "the config is not a JSON object");
    }
    TRY(build(m, architecture, config, MODEL_ANY_TASK, &whole, f));
    TRY(make_room(m, f));
    TRY(model_load_borders(m, NULL, f));
    model_draw_values(m, seed);
    text = json_dumps(whole, JSON_SORT_KEYS);
    if (text == NULL) FAIL(f, TABFT_SYSTEM, "no memory for a config");
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", m->architecture->name);
    TRY(add_metadata(m, "architecture_name", quoted, f));
    TRY(add_metadata(m, "config", text, f));
    *out = m;
    m = NULL;
fail:
    free(text);
    json_decref(config);
    json_decref(whole);
    model_close(m);
    return error;
}

int model_write(const struct model *m, const float *values, const char *path, bool force, struct tabft_failure *f)
{
    int error = 0;
    struct ckpt_tensor *tensors = NULL;
    const char *(*metadata)[2] = NULL;
    const size_t n_weights = m->n_all_parameters, n = n_weights + m->n_constants + m->n_extras;
    TRY(memory_new(&tensors, n, sizeof *tensors, "the checkpoint", f));
    TRY(memory_new(&metadata, m->n_metadata, sizeof *metadata, "the checkpoint", f));
    for (size_t i = 0; i < n_weights; i++) {
        const struct model_parameter *p = &m->parameters[i];
        tensors[i] = (struct ckpt_tensor){.name = p->name,
                                          .dtype = CKPT_F32,
                                          .rank = p->rank,
                                          .shape = {p->shape[0], p->shape[1]},
                                          .count = p->count,
                                          .data = (i < m->n_parameters ? values : m->values) + p->offset};
    }
    for (size_t i = 0; i < m->n_constants; i++) {
        const struct model_constant *c = &m->constants[i];
        tensors[n_weights + i] = (struct ckpt_tensor){
            .name = c->name, .dtype = CKPT_F32, .rank = 1, .shape = {c->count}, .count = c->count, .data = c->values};
    }
    for (size_t i = 0; i < m->n_extras; i++) tensors[n_weights + m->n_constants + i] = m->extras[i].tensor;
    for (size_t i = 0; i < m->n_metadata; i++) {
        metadata[i][0] = m->metadata[i].key;
        metadata[i][1] = m->metadata[i].value;
    }
    TRY(ckpt_write(path, force, tensors, n, (const char *const(*)[2])metadata, m->n_metadata, f));
fail:
    free(tensors);
    free(metadata);
    return error;
}

void model_close(struct model *m)
{
    if (m == NULL) return;
    for (size_t i = 0; i < m->n_all_parameters; i++) free((char *)m->parameters[i].name);
    for (size_t i = 0; i < m->n_metadata; i++) {
        free(m->metadata[i].key);
        free(m->metadata[i].value);
    }
    for (size_t i = 0; i < m->n_extras; i++) {
        free(m->extras[i].name);
        free(m->extras[i].data);
    }
    model_free_constants(m);
    free(m->parameters);
    free(m->draws);
    free(m->values);
    free(m->metadata);
    free(m->inference_config);
    free(m->extras);
    free(m->borders);
    free(m);
}

const char *model_architecture(const struct model *m) { return m->architecture->name; }
const char *model_inference_config(const struct model *m) { return m->inference_config; }
enum model_task model_task(const struct model *m) { return m->config.task; }
size_t model_outputs(const struct model *m)
{
    return m->config.task == MODEL_CLASSIFICATION ? m->config.max_classes : m->config.buckets;
}
size_t model_parameters(const struct model *m) { return m->n_values; }
size_t model_parameter_count(const struct model *m) { return m->n_parameters; }
size_t model_weight_bytes(const struct model *m) { return m->n_all_values * sizeof *m->values; }
const struct model_parameter *model_parameter_at(const struct model *m, size_t i) { return &m->parameters[i]; }
const float *model_borders(const struct model *m) { return m->borders; }
const float *model_values(const struct model *m) { return m->values; }
float *model_values_mutable(struct model *m) { return m->values; }
