#include "eval/describe.h"

#include <string.h>

#include "eval/json_value.h"

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

/* Copies whole numbers above `more_than` from a config under names of ours. */
static void copy_number(json_t *to, const char *as, const json_t *from, const char *key, json_int_t more_than)
{
    const json_t *value = json_object_get(from, key);
    if (json_is_integer(value) && json_integer_value(value) > more_than)
        (void)json_object_set_new(to, as, json_integer(json_integer_value(value)));
}

int describe_checkpoint(const struct ckpt *c, json_t **out, struct tabft_failure *f)
{
    int error = 0;
    json_t *root = json_object(), *head = json_object(), *limits = json_object(), *dtypes = json_object(),
           *others = json_array();
    json_t *architecture = NULL, *config = NULL, *inference = NULL, *license = NULL;
    uint64_t parameters = 0;
    bool whole = root != NULL;
    TRY(metadata_json(c, "architecture_name", &architecture, f));
    TRY(metadata_json(c, "config", &config, f));
    TRY(metadata_json(c, "inference_config", &inference, f));
    TRY(metadata_json(c, "license", &license, f));
    for (size_t i = 0; i < ckpt_count(c); i++) {
        const struct ckpt_tensor *t = ckpt_at(c, i);
        const char *name = ckpt_dtype_name(t->dtype);
        parameters += t->count;
        (void)json_object_set_new(
            dtypes, name, json_integer(json_integer_value(json_object_get(dtypes, name)) + (json_int_t)t->count));
    }
    for (size_t i = 0; i < ckpt_metadata_count(c); i++) {
        const char *key, *value;
        ckpt_metadata_at(c, i, &key, &value);
        (void)json_array_append_new(others, eval_json_text(key));
    }
    copy_number(head, "classes", config, "max_num_classes", 1);
    copy_number(head, "buckets", config, "num_buckets", 1);
    copy_number(limits, "classes", inference, "MAX_NUMBER_OF_CLASSES", 0);
    copy_number(limits, "features", inference, "MAX_NUMBER_OF_FEATURES", 0);
    copy_number(limits, "rows", inference, "MAX_NUMBER_OF_SAMPLES", 0);
    eval_json_add(root, "schema", json_integer(1), &whole);
    eval_json_add(root, "path", eval_json_text(ckpt_path(c)), &whole);
    eval_json_add(root, "bytes", eval_json_size((size_t)ckpt_file_size(c)), &whole);
    eval_json_add(root, "tensors", eval_json_size(ckpt_count(c)), &whole);
    eval_json_add(root, "parameters", eval_json_size((size_t)parameters), &whole);
    eval_json_add(root, "parameters_by_dtype", json_incref(dtypes), &whole);
    eval_json_add(root, "architecture", architecture != NULL ? json_incref(architecture) : json_null(), &whole);
    eval_json_add(root, "head", json_incref(head), &whole);
    eval_json_add(root, "limits", json_incref(limits), &whole);
    eval_json_add(root, "config", config != NULL ? json_incref(config) : json_null(), &whole);
    eval_json_add(root, "inference_config", inference != NULL ? json_incref(inference) : json_null(), &whole);
    eval_json_add(root, "metadata", json_incref(others), &whole);
    if (license != NULL) eval_json_add(root, "license", json_incref(license), &whole);
    if (!whole) FAIL(f, TABFT_SYSTEM, "no memory for a description; give the job more memory");
    *out = json_incref(root);
fail:
    json_decref(architecture);
    json_decref(config);
    json_decref(inference);
    json_decref(license);
    json_decref(others);
    json_decref(dtypes);
    json_decref(limits);
    json_decref(head);
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
