#define TABFT_MODEL_ROOM
#include "model/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
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

/* Standard normal by Box-Muller, in float64. */
static double draw_normal(struct random_mt *g)
{
    const double u = random_mt_double(g), v = random_mt_double(g);
    return sqrt(-2.0 * log1p(-u)) * cos(2.0 * 3.14159265358979323846 * v);
}

static float draw_value(struct random_mt *g, enum model_draw draw, double bound)
{
    switch (draw) {
    case MODEL_DRAW_ONE: return 1.0f;
    case MODEL_DRAW_NORMAL: return (float)draw_normal(g);
    case MODEL_DRAW_SMALL:
    case MODEL_DRAW_UNIT:
    case MODEL_DRAW_WAVES: return (float)(draw_normal(g) * bound);
    case MODEL_DRAW_FAN_IN:
    case MODEL_DRAW_XAVIER: return (float)((2.0 * random_mt_double(g) - 1.0) * bound);
    default: return 0.0f;
    }
}

void model_draw_values(struct model *m, uint64_t seed)
{
    struct random_mt g;
    random_mt_seed(&g, (uint32_t)(seed ^ seed >> 32));
    double fan_in = 1;
    for (size_t i = 0; i < m->n_all_parameters; i++) {
        const struct model_parameter *p = &m->parameters[i];
        if (p->rank == 2) fan_in = (double)p->shape[1]; /* a bias follows its weight and has its bound */
        double bound = 1.0 / sqrt(fan_in);
        if (m->draws[i] == MODEL_DRAW_SMALL) bound = 0.02;
        if (m->draws[i] == MODEL_DRAW_WAVES) bound = 2;
        if (m->draws[i] == MODEL_DRAW_XAVIER) bound = sqrt(6.0 / (double)(p->shape[0] + p->shape[1]));
        for (size_t j = 0; j < p->count; j++) m->values[p->offset + j] = draw_value(&g, m->draws[i], bound);
    }
}

/* ---- opening ---- */

/* Config to parameters with room for their values. */
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
    TRY(memory_new_aligned(&m->values, m->n_all_values, sizeof *m->values, "the weights", f));
fail:
    return error;
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

static int check_shape(const struct model_parameter *p, const struct ckpt_tensor *t, struct tabft_failure *f)
{
    bool same = t->rank == p->rank;
    for (int d = 0; d < p->rank && same; d++) same = t->shape[d] == p->shape[d];
    if (same) return 0;
    if (p->rank == 1)
        return tabft_fail(f, TABFT_INPUT, "tensor %s: its shape is not [%zu] as the config says", p->name, p->shape[0]);
    return tabft_fail(f, TABFT_INPUT, "tensor %s: its shape is not [%zu, %zu] as the config says", p->name, p->shape[0],
                      p->shape[1]);
}

static int find_source(const struct model *m, const struct model_parameter *p, const struct ckpt *c,
                       struct model_source *out, struct tabft_failure *f)
{
    int error = 0;
    *out = (struct model_source){.tensor = ckpt_find(c, p->name), .row = p->shape[1], .column = 1};
    if (out->tensor != NULL) TRY(check_shape(p, out->tensor, f));
    else if (m->architecture->older != NULL) TRY(m->architecture->older(m, p, c, out, f));
    TRY(model_check_numbers(p->name, out->tensor, f));
fail:
    return error;
}

/* from [n_all_parameters]: the tensor that each came from. */
static int copy_weights(struct model *m, const struct ckpt *c, const struct ckpt_tensor **from, struct tabft_failure *f)
{
    for (size_t i = 0; i < m->n_all_parameters; i++) {
        const struct model_parameter *p = &m->parameters[i];
        const size_t rows = p->rank == 1 ? 1 : p->shape[0], columns = p->rank == 1 ? p->shape[0] : p->shape[1];
        struct model_source source;
        int error = find_source(m, p, c, &source, f);
        if (error < 0) return error;
        float *to = m->values + p->offset;
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < columns; j++)
                *to++ = (float)ckpt_value(source.tensor, source.first + r * source.row + j * source.column);
        from[i] = source.tensor;
    }
    return 0;
}

static bool is_among(const struct ckpt_tensor *const *from, size_t n, const struct ckpt_tensor *t)
{
    for (size_t i = 0; i < n; i++)
        if (from[i] == t) return true;
    return false;
}

/* A criterion travels with its network (TabPFN reads a regressor's); anything else that the network does not have is a
 * mistake. */
static int copy_extras(struct model *m, const struct ckpt *c, const struct ckpt_tensor *const *from,
                       struct tabft_failure *f)
{
    int error = 0;
    TRY(memory_new(&m->extras, ckpt_count(c), sizeof *m->extras, "the weights", f));
    for (size_t i = 0; i < ckpt_count(c); i++) {
        const struct ckpt_tensor *t = ckpt_at(c, i);
        if (is_among(from, m->n_all_parameters, t) || model_constant(m, t->name) != NULL) continue;
        if (strncmp(t->name, "criterion.", 10) != 0)
            FAIL(f, TABFT_INPUT, "tensor %.200s is not one of a %s network", t->name, m->architecture->name);
        struct model_extra *e = &m->extras[m->n_extras++];
        const size_t bytes = t->count * ckpt_dtype_size(t->dtype);
        e->tensor = *t;
        TRY(memory_copy_string(&e->name, t->name, f));
        TRY(memory_new(&e->data, bytes, 1, "the weights", f));
        if (bytes > 0) memcpy(e->data, t->data, bytes);
        e->tensor.name = e->name;
        e->tensor.data = e->data;
    }
fail:
    return error;
}

/* A regressor's buckets: those of the file's criterion, or, from v3 on, the network's own. c NULL: there is no file. */
static int copy_borders(struct model *m, const struct ckpt *c, struct tabft_failure *f)
{
    int error = 0;
    const struct ckpt_tensor *t = c == NULL ? NULL : ckpt_find(c, "criterion.borders");
    const char *const own_name = m->architecture->borders;
    const float *own = own_name != NULL ? model_constant(m, own_name) : NULL;
    const char *name = t != NULL ? "criterion.borders" : own_name;
    const size_t n = m->config.buckets;
    if (m->config.task == MODEL_CLASSIFICATION || (t == NULL && own == NULL)) return 0;
    if (n < 2 || (t != NULL && (t->rank != 1 || t->count != n + 1)))
        FAIL(f, TABFT_INPUT, "tensor %s: its shape is not [%zu], the config's buckets and one", name, n + 1);
    if (t != NULL && t->data == NULL) FAIL(f, TABFT_USE, "tensor %s: only the header was loaded", name);
    TRY(memory_new(&m->borders, n + 1, sizeof *m->borders, "the weights", f));
    for (size_t k = 0; k <= n; k++) {
        m->borders[k] = t != NULL ? (float)ckpt_value(t, k) : own[k];
        const bool ascends = k == 0 || (k == 1 || k == n ? m->borders[k] > m->borders[k - 1]
                                                         : m->borders[k] >= m->borders[k - 1]);
        if (!isfinite(m->borders[k]) || !ascends)
            FAIL(f, TABFT_INPUT, "tensor %s: border %zu, %g, is not a number above the one before it", name, k,
                 (double)m->borders[k]);
    }
fail:
    return error;
}

static int remember_inference_config(struct model *m, const struct ckpt *c, struct tabft_failure *f)
{
    const char *text = ckpt_metadata(c, "inference_config");
    return text == NULL ? 0 : memory_copy_string(&m->inference_config, text, f);
}

static int open_checked(struct model *m, const struct ckpt *c, enum model_task task, json_t **parsed,
                        struct tabft_failure *f)
{
    int error = 0;
    const char *architecture = ckpt_metadata(c, "architecture_name"), *config = ckpt_metadata(c, "config");
    json_t **const name = &parsed[0], **const sizes = &parsed[1], **const whole = &parsed[2];
    const struct ckpt_tensor **from = NULL;
    if (config == NULL) FAIL(f, TABFT_INPUT, "metadata has no config; is this a TabPFN checkpoint?");
    if (architecture == NULL) architecture = "\"tabpfn_v2\""; /* v2's own checkpoints name none */
    TRY(parse(name, architecture, "metadata architecture_name", f));
    TRY(parse(sizes, config, "metadata config", f));
    if (!json_is_string(*name)) FAIL(f, TABFT_INPUT, "metadata architecture_name is not a string");
    if (!json_is_object(*sizes)) FAIL(f, TABFT_INPUT, "metadata config is not an object");
    TRY(build(m, json_string_value(*name), *sizes, task, whole, f));
    TRY(memory_new(&from, m->n_all_parameters, sizeof *from, "the weights", f));
    TRY(copy_weights(m, c, from, f));
    TRY(model_copy_constants(m, c, f));
    TRY(copy_extras(m, c, from, f));
    TRY(copy_borders(m, c, f));
    TRY(remember_inference_config(m, c, f));
    for (size_t i = 0; i < ckpt_metadata_count(c); i++) {
        const char *key, *value;
        ckpt_metadata_at(c, i, &key, &value);
        TRY(add_metadata(m, key, value, f));
    }
fail:
    free(from);
    return error;
}

int model_open(struct model **out, const struct ckpt *c, enum model_task task, struct tabft_failure *f)
{
    struct model *m = NULL;
    json_t *parsed[3] = {NULL, NULL, NULL};
    int error = memory_new(&m, 1, sizeof *m, "a model", f);
    if (error == 0) error = open_checked(m, c, task, parsed, f);
    if (error < 0) (void)tabft_fail_prefix(f, "%s", ckpt_path(c));
    for (int i = 0; i < 3; i++) json_decref(parsed[i]);
    if (error < 0) model_close(m);
    else *out = m;
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
    TRY(copy_borders(m, NULL, f));
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
