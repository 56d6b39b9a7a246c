#include "eval/describe.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "ensemble/limits.h"
#include "eval/json_value.h"
#include "model/model.h"

enum { TEXT_MAX = 1 << 24 /* bytes of a JSON text in metadata */ };

/* The JSON value that a checkpoint keeps as text under a key. *out NULL where it has none. */
static int metadata_json(const struct ckpt *c, const char *key, json_t **out, struct tabft_failure *f)
{
    int error = 0;
    const char *text = ckpt_metadata(c, key);
    json_error_t where;
    *out = NULL;
    if (text == NULL) return 0;
    if (strlen(text) > TEXT_MAX)
        FAIL(f, TABFT_INPUT, "%s: metadata %s has more than %d bytes", ckpt_path(c), key, TEXT_MAX);
    *out = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &where);
    if (*out == NULL) FAIL(f, TABFT_INPUT, "%s: metadata %s is not JSON: %s", ckpt_path(c), key, where.text);
fail:
    return error;
}

static json_t *limit(size_t n) { return n == SIZE_MAX ? json_null() : eval_json_size(n); }

/* The tables that the network was made for; classes only of one that tells them. */
static int add_limits(json_t *root, const struct ckpt *c, bool classifies, bool *whole, struct tabft_failure *f)
{
    int error = 0;
    const char *inference = ckpt_metadata(c, "inference_config");
    struct ensemble_limits l;
    TRY(ensemble_limits(ckpt_metadata(c, "architecture_name"), inference, &l, f));
    json_t *limits = json_object();
    if (classifies) eval_json_add(limits, "classes", limit(l.classes), whole);
    eval_json_add(limits, "features", limit(l.columns), whole);
    eval_json_add(limits, "rows", limit(l.rows), whole);
    eval_json_add(root, "limits", limits, whole);
    eval_json_add(root, "limits_from",
                  json_string(inference != NULL ? "inference_config" : "TabPFN's preset for the architecture"), whole);
fail:
    return error;
}

/* What kind of network it is. A file that is none of ours is described all the same. */
static int add_network(json_t *root, const struct ckpt *c, bool *whole, struct tabft_failure *f)
{
    int error = 0;
    static const char *const tasks[] = {[MODEL_CLASSIFICATION] = "classification", [MODEL_REGRESSION] = "regression"};
    struct model_summary s = {0};
    struct tabft_failure why = {0};
    json_t *head = json_object(), *names = json_array(), *trained = json_object();
    error = model_summarise(c, &s, &why);
    if (error < 0 && error != TABFT_INPUT) FAIL(f, error, "%s", why.message);
    for (int t = MODEL_CLASSIFICATION; t <= MODEL_REGRESSION; t++) {
        if (s.parameters[t] == 0) continue;
        *whole &= json_array_append_new(names, json_string(tasks[t])) == 0;
        eval_json_add(trained, tasks[t], eval_json_size(s.parameters[t]), whole);
    }
    if (s.classes > 0) eval_json_add(head, "classes", eval_json_size(s.classes), whole);
    if (s.buckets > 0) eval_json_add(head, "buckets", eval_json_size(s.buckets), whole);
    eval_json_add(root, "tasks", json_incref(names), whole);
    eval_json_add(root, "head", json_incref(head), whole);
    eval_json_add(root, "trained_parameters", json_incref(trained), whole);
    if (error < 0) {
        eval_json_add(root, "network", json_null(), whole);
        eval_json_add(root, "no_network_because", eval_json_text(why.message), whole);
        eval_json_add(root, "limits", json_object(), whole);
        error = 0;
        goto fail;
    }
    eval_json_add(root, "network", json_string(s.architecture), whole);
    TRY(add_limits(root, c, s.classes > 0, whole, f));
fail:
    json_decref(head);
    json_decref(names);
    json_decref(trained);
    return error;
}

/* Terms that are recorded in the file, in whatever field; "license" is null where there are none. */
static void add_licence(json_t *root, const struct ckpt *c, bool *whole)
{
    for (size_t i = 0; i < ckpt_metadata_count(c); i++) {
        const char *key, *value;
        ckpt_metadata_at(c, i, &key, &value);
        if (strncasecmp(key, "licen", 5) != 0) continue;
        json_t *parsed = json_loads(value, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
        eval_json_add(root, key, parsed != NULL ? parsed : eval_json_text(value), whole);
    }
    if (json_object_get(root, "license") == NULL) eval_json_add(root, "license", json_null(), whole);
}

static void add_sizes(json_t *root, const struct ckpt *c, bool *whole)
{
    uint64_t numbers = 0;
    json_t *dtypes = json_object();
    for (size_t i = 0; i < ckpt_count(c); i++) {
        const struct ckpt_tensor *t = ckpt_at(c, i);
        const char *name = ckpt_dtype_name(t->dtype);
        const json_int_t before = json_integer_value(json_object_get(dtypes, name));
        numbers += t->count;
        eval_json_add(dtypes, name, json_integer(before + (json_int_t)t->count), whole);
    }
    eval_json_add(root, "path", eval_json_text(ckpt_path(c)), whole);
    eval_json_add(root, "bytes", eval_json_size((size_t)ckpt_file_size(c)), whole);
    eval_json_add(root, "tensors", eval_json_size(ckpt_count(c)), whole);
    eval_json_add(root, "parameters", eval_json_size((size_t)numbers), whole);
    eval_json_add(root, "parameters_by_dtype", dtypes, whole);
}

int describe_checkpoint(const struct ckpt *c, json_t **out, struct tabft_failure *f)
{
    int error = 0;
    json_t *root = json_object(), *keys = json_array();
    json_t *architecture = NULL, *config = NULL, *inference = NULL;
    bool whole = root != NULL && keys != NULL;
    TRY(metadata_json(c, "architecture_name", &architecture, f));
    TRY(metadata_json(c, "config", &config, f));
    TRY(metadata_json(c, "inference_config", &inference, f));
    for (size_t i = 0; i < ckpt_metadata_count(c); i++) {
        const char *key, *value;
        ckpt_metadata_at(c, i, &key, &value);
        whole &= json_array_append_new(keys, eval_json_text(key)) == 0;
    }
    eval_json_add(root, "schema", json_integer(1), &whole);
    add_sizes(root, c, &whole);
    eval_json_add(root, "architecture", architecture != NULL ? json_incref(architecture) : json_null(), &whole);
    TRY(add_network(root, c, &whole, f));
    add_licence(root, c, &whole);
    eval_json_add(root, "config", config != NULL ? json_incref(config) : json_null(), &whole);
    eval_json_add(root, "inference_config", inference != NULL ? json_incref(inference) : json_null(), &whole);
    eval_json_add(root, "metadata", json_incref(keys), &whole);
    if (!whole) FAIL(f, TABFT_SYSTEM, "no memory for a description; give the job more memory");
    *out = json_incref(root);
fail:
    json_decref(architecture);
    json_decref(config);
    json_decref(inference);
    json_decref(keys);
    json_decref(root);
    return error;
}

const char *describe_difference(enum ckpt_difference_kind kind)
{
    static const char *const names[] = {"same", "values", "form", "only in a", "only in b"};
    return names[kind];
}

static json_t *describe_tensor(const struct ckpt_difference *d, bool *whole)
{
    json_t *entry = json_object();
    eval_json_add(entry, "name", eval_json_text(d->a != NULL ? d->a->name : d->b->name), whole);
    eval_json_add(entry, "kind", json_string(describe_difference(d->kind)), whole);
    if (d->kind != CKPT_VALUES) return entry;
    eval_json_add(entry, "max_abs_difference", eval_json_number(d->max_abs), whole);
    eval_json_add(entry, "element", eval_json_size((size_t)d->worst), whole);
    eval_json_add(entry, "values_different", eval_json_size((size_t)d->n_different), whole);
    eval_json_add(entry, "values", eval_json_size((size_t)d->a->count), whole);
    return entry;
}

static json_t *describe_file(const struct ckpt *c, bool *whole)
{
    char digest[65];
    json_t *file = json_object();
    ckpt_digest(c, digest);
    eval_json_add(file, "path", eval_json_text(ckpt_path(c)), whole);
    eval_json_add(file, "sha256", json_string(digest), whole);
    return file;
}

json_t *describe_comparison(const struct ckpt_comparison *d, const struct ckpt *a, const struct ckpt *b)
{
    json_t *root = json_object(), *tensors = json_array();
    bool whole = root != NULL;
    for (size_t i = 0; i < d->n; i++)
        if (d->tensor[i].kind != CKPT_SAME &&
            json_array_append_new(tensors, describe_tensor(&d->tensor[i], &whole)) != 0)
            whole = false;
    eval_json_add(root, "schema", json_integer(1), &whole);
    eval_json_add(root, "status", json_string(d->identical ? "same" : "different"), &whole);
    eval_json_add(root, "bit_identical", json_boolean(d->identical), &whole);
    eval_json_add(root, "max_abs_difference", d->comparable ? eval_json_number(d->max_abs) : json_null(), &whole);
    eval_json_add(root, "same_tensors", json_boolean(d->comparable), &whole);
    eval_json_add(root, "same_metadata", json_boolean(d->same_metadata), &whole);
    eval_json_add(root, "a", describe_file(a, &whole), &whole);
    eval_json_add(root, "b", describe_file(b, &whole), &whole);
    eval_json_add(root, "tensors", tensors, &whole);
    if (whole) return root;
    json_decref(root);
    return NULL;
}
