/* Reading a PyTorch checkpoint: archive, pickle, then a tensor at a time. */
#define TABFT_IN_CKPT
#include "ckpt/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/torch_internal.h"
#include "file/file.h"

struct torch_buffers {
    struct text text; /* metadata keys and values, each with its end */
    char **name;      /* [n_tensors] */
    void **data;      /* [n_tensors] */
    size_t n;
};

/* What is needed only while reading. */
struct reading {
    const char *path;
    struct zip *zip;
    char *pickle_text;
    struct pickle pickle;
    struct tabft_failure *f;
};

bool torch_begins(const void *bytes, size_t size) { return size >= 4 && memcmp(bytes, "PK\3\4", 4) == 0; }

/* torch.save writes these and one data/NUMBER for each storage. */
static bool known_entry(const char *name)
{
    static const char *const names[] = {"data.pkl",           "byteorder", "version", ".format_version",
                                        ".storage_alignment", ".data/serialization_id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    if (strncmp(name, "data/", 5) != 0) return false;
    const char *number = name + 5;
    return *number != '\0' && strlen(number) <= 9 && strspn(number, "0123456789") == strlen(number) &&
           (number[0] != '0' || number[1] == '\0');
}

static int check_entries(struct reading *r)
{
    int error = 0;
    char order[6];
    for (size_t i = 0; i < zip_count(r->zip); i++)
        if (!known_entry(zip_at(r->zip, i)->name))
            FAIL(r->f, TABFT_INPUT, "%s: entry %s: torch.save writes none of that name; save the checkpoint anew",
                 r->path, zip_at(r->zip, i)->name);
    struct zip_entry *e = zip_find(r->zip, "byteorder");
    if (e == NULL) goto fail; /* before PyTorch 2.1 */
    if (e->size == sizeof order) TRY(zip_get(r->zip, e, order, r->f));
    if (e->size != sizeof order || memcmp(order, "little", sizeof order) != 0)
        FAIL(r->f, TABFT_INPUT, "%s: entry byteorder: not little; save it on a little-endian machine", r->path);
fail:
    return error;
}

static int read_pickle(struct reading *r)
{
    int error = 0;
    char *place = NULL;
    struct zip_entry *e = zip_find(r->zip, "data.pkl");
    if (e == NULL) FAIL(r->f, TABFT_INPUT, "%s: no entry data.pkl; not a checkpoint of torch.save", r->path);
    if (e->size > PICKLE_SIZE_MAX)
        FAIL(r->f, TABFT_INPUT, "%s: entry data.pkl: %u bytes, more than %d; no TabPFN checkpoint has that", r->path,
             e->size, PICKLE_SIZE_MAX);
    TRY(memory_new(&r->pickle_text, e->size, 1, "a pickle", r->f));
    TRY(zip_get(r->zip, e, r->pickle_text, r->f));
    size_t size = strlen(r->path) + sizeof ": data.pkl";
    TRY(memory_new(&place, size, 1, "a name", r->f));
    (void)snprintf(place, size, "%s: data.pkl", r->path);
    TRY(pickle_read(&r->pickle, r->pickle_text, e->size, place, r->f));
fail:
    free(place);
    return error;
}

static bool is_dict(const struct pickle_value *v)
{
    return v->kind == PICKLE_DICT || v->kind == PICKLE_ORDERED_DICT;
}

/* The data of one tensor, alone in a buffer. `left`: bytes that tensors may still take. */
static int read_tensor(struct reading *r, struct ckpt_tensor *t, uint32_t value, void **data, uint64_t *left)
{
    int error = 0;
    struct torch_view view;
    void *storage = NULL, *gathered = NULL;
    TRY(torch_view(&view, t, &r->pickle, value, r->zip, r->path, r->f));
    const uint64_t bytes = t->count * ckpt_dtype_size(t->dtype); /* no more than the storage has */
    if (view.storage->size > *left)
        FAIL(r->f, TABFT_INPUT,
             "%s: tensor %.200s: the tensors' storages together have more bytes than the file; tensors that share one "
             "are not converted", r->path, t->name);
    *left -= view.storage->size;
    TRY(memory_new_aligned(&storage, view.storage->size, 1, "a storage", r->f));
    TRY(zip_get(r->zip, view.storage, storage, r->f));
    if (!view.contiguous || bytes != view.storage->size) {
        TRY(memory_new_aligned(&gathered, (size_t)bytes, 1, "a tensor", r->f));
        torch_gather(&view, t, storage, gathered);
        *data = gathered;
        gathered = NULL;
    } else {
        *data = storage;
        storage = NULL;
    }
    t->data = *data;
fail:
    free(storage);
    free(gathered);
    return error;
}

static int read_state(struct torch_file *out, struct reading *r, const struct pickle_value *state)
{
    int error = 0;
    const size_t n = state->size / 2;
    uint64_t left = zip_file_size(r->zip);
    if (n > CKPT_TENSORS_MAX) FAIL(r->f, TABFT_INPUT, "%s: more than %d tensors", r->path, CKPT_TENSORS_MAX);
    TRY(memory_new(&out->tensor, n, sizeof *out->tensor, "tensors", r->f));
    TRY(memory_new(&out->buffers->name, n, sizeof *out->buffers->name, "names", r->f));
    TRY(memory_new(&out->buffers->data, n, sizeof *out->buffers->data, "tensors", r->f));
    out->buffers->n = n;
    for (size_t i = 0; i < n; i++) {
        const struct pickle_value *key = &r->pickle.value[state->of.item[2 * i]];
        const uint32_t value = state->of.item[2 * i + 1];
        char **name = &out->buffers->name[i];
        TRY(memory_new(name, (size_t)key->size + 1, 1, "a name", r->f));
        memcpy(*name, key->of.text, key->size);
        if (r->pickle.value[value].kind != PICKLE_TENSOR)
            FAIL(r->f, TABFT_INPUT, "%s: state_dict: %.200s is %s, not a tensor", r->path, *name,
                 pickle_kind_name(r->pickle.value[value].kind));
        out->tensor[i].name = *name;
        TRY(read_tensor(r, &out->tensor[i], value, &out->buffers->data[i], &left));
    }
    out->n_tensors = n;
fail:
    return error;
}

/* Everything beside the state_dict. Keys and texts go into one growing text, so the pointers are set at the end. */
static int read_metadata(struct torch_file *out, struct reading *r, const struct pickle_value *root)
{
    int error = 0;
    struct text *text = &out->buffers->text;
    char place[256];
    const size_t n = root->size / 2;
    if (n > CKPT_METADATA_MAX) FAIL(r->f, TABFT_INPUT, "%s: more than %d keys", r->path, CKPT_METADATA_MAX);
    TRY(memory_new(&out->metadata, n, sizeof *out->metadata, "metadata", r->f));
    for (size_t i = 0; i < n; i++) {
        const struct pickle_value *key = &r->pickle.value[root->of.item[2 * i]];
        if (pickle_text_is(key, "state_dict")) continue;
        TRY(text_put(text, key->of.text, key->size, r->f));
        TRY(text_put(text, "", 1, r->f));
        (void)snprintf(place, sizeof place, "%.*s", key->size < 100 ? (int)key->size : 100, key->of.text);
        error = torch_json(text, &r->pickle, root->of.item[2 * i + 1], place, r->f);
        if (error < 0) {
            error = tabft_fail_prefix(r->f, "%s", r->path);
            goto fail;
        }
        out->n_metadata++;
    }
    const char *at = text->bytes;
    for (size_t i = 0; i < out->n_metadata; i++)
        for (int k = 0; k < 2; k++) {
            out->metadata[i][k] = at;
            at += strlen(at) + 1;
        }
fail:
    return error;
}

/* The checkpoint is a dictionary; its state_dict is there once. */
static int read_checkpoint(struct torch_file *out, struct reading *r)
{
    int error = 0;
    const struct pickle_value *root = &r->pickle.value[r->pickle.root], *state = NULL;
    if (!is_dict(root))
        FAIL(r->f, TABFT_INPUT, "%s: holds %s, not a dictionary with a state_dict", r->path,
             pickle_kind_name(root->kind));
    for (uint32_t i = 0; i < root->size; i += 2) {
        if (!pickle_text_is(&r->pickle.value[root->of.item[i]], "state_dict")) continue;
        if (state != NULL) FAIL(r->f, TABFT_INPUT, "%s: has two state_dicts", r->path);
        state = &r->pickle.value[root->of.item[i + 1]];
    }
    if (state == NULL || !is_dict(state))
        FAIL(r->f, TABFT_INPUT, "%s: has no state_dict that is a dictionary; not a checkpoint of TabPFN", r->path);
    TRY(read_metadata(out, r, root));
    TRY(read_state(out, r, state));
fail:
    return error;
}

int torch_open(struct torch_file *out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct reading r = {.path = path, .f = f};
    *out = (struct torch_file){0};
    TRY(memory_new(&out->buffers, 1, sizeof *out->buffers, "a checkpoint", f));
    TRY(zip_open(&r.zip, path, f));
    TRY(check_entries(&r));
    TRY(read_pickle(&r));
    TRY(read_checkpoint(out, &r));
    TRY(zip_finish(r.zip, f));
fail:
    pickle_clear(&r.pickle);
    free(r.pickle_text);
    zip_close(r.zip);
    if (error < 0) torch_close(out);
    return error;
}

void torch_close(struct torch_file *t)
{
    if (t->buffers != NULL) {
        for (size_t i = 0; i < t->buffers->n; i++) {
            free(t->buffers->name[i]);
            free(t->buffers->data[i]);
        }
        free(t->buffers->name);
        free(t->buffers->data);
        free(t->buffers->text.bytes);
        free(t->buffers);
    }
    free(t->tensor);
    free((void *)t->metadata);
    *t = (struct torch_file){0};
}

static int convert_safetensors(const char *in, const char *out, bool force, struct tabft_failure *f)
{
    int error = 0;
    struct ckpt *c = NULL;
    struct ckpt_tensor *tensor = NULL;
    const char *(*metadata)[2] = NULL;
    TRY(ckpt_open(&c, in, f));
    TRY(memory_new(&tensor, ckpt_count(c), sizeof *tensor, "tensors", f));
    TRY(memory_new(&metadata, ckpt_metadata_count(c), sizeof *metadata, "metadata", f));
    for (size_t i = 0; i < ckpt_count(c); i++) tensor[i] = *ckpt_at(c, i);
    for (size_t i = 0; i < ckpt_metadata_count(c); i++) ckpt_metadata_at(c, i, &metadata[i][0], &metadata[i][1]);
    TRY(ckpt_write(out, force, tensor, ckpt_count(c), metadata, ckpt_metadata_count(c), f));
fail:
    free((void *)metadata);
    free(tensor);
    ckpt_close(c);
    return error;
}

int ckpt_convert(const char *in, const char *out, bool force, struct tabft_failure *f)
{
    int error = 0;
    struct file_reader *r = NULL;
    struct torch_file t = {0};
    unsigned char head[4] = {0};
    TRY(file_reader_open(&r, in, f));
    if (file_reader_size(r) >= sizeof head) TRY(file_reader_get(r, 0, head, sizeof head, f));
    if (!torch_begins(head, sizeof head)) {
        TRY(convert_safetensors(in, out, force, f));
    } else {
        TRY(torch_open(&t, in, f));
        TRY(ckpt_write(out, force, t.tensor, t.n_tensors, t.metadata, t.n_metadata, f));
    }
fail:
    file_reader_close(r);
    torch_close(&t);
    return error;
}
