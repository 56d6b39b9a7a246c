#include "eval/run_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "eval/run_files.h"

enum { WORD_BITS = 32 };

/* ---- run.json ---- */

static int text_at(const char *path, const json_t *object, const char *key, const char **out, struct tabft_failure *f)
{
    *out = json_string_value(json_object_get(object, key));
    if (*out == NULL) return tabft_fail(f, TABFT_INPUT, "%s: no text \"%s\" in it; not a run's record", path, key);
    return 0;
}

static int size_at(const char *path, const json_t *object, const char *key, size_t *out, struct tabft_failure *f)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return tabft_fail(f, TABFT_INPUT, "%s: no whole number \"%s\" in it; not a run's record", path, key);
    *out = (size_t)json_integer_value(value);
    return 0;
}

static int take_fields(struct run_record *r, const char *path, struct tabft_failure *f)
{
    int error = 0;
    size_t seed;
    const json_t *train = json_object_get(r->json, "train");
    r->options = json_object_get(r->json, "options");
    r->labels = json_object_get(train, "labels");
    TRY(text_at(path, r->json, "model_sha256", &r->model_sha256, f));
    TRY(text_at(path, r->json, "base_model_sha256", &r->base_model_sha256, f));
    TRY(text_at(path, r->json, "cpu", &r->cpu, f));
    if (json_object_get(r->json, "gpu_name") != NULL) TRY(text_at(path, r->json, "gpu_name", &r->gpu, f));
    TRY(size_at(path, r->json, "world_size", &r->world_size, f));
    TRY(text_at(path, train, "path", &r->train_path, f));
    TRY(text_at(path, train, "digest", &r->train_digest, f));
    TRY(size_at(path, train, "rows", &r->train_rows, f));
    if (!json_is_array(r->labels)) FAIL(f, TABFT_INPUT, "%s: no list \"labels\" in it; not a run's record", path);
    TRY(size_at(path, r->options, "epochs", &r->epochs, f));
    TRY(size_at(path, r->options, "estimators", &r->n_estimators, f));
    TRY(size_at(path, r->options, "seed", &seed, f));
    if (seed >> WORD_BITS != 0 || r->n_estimators < 1)
        FAIL(f, TABFT_INPUT, "%s: seed or estimators out of range; copy the run again", path);
    r->seed = (uint32_t)seed;
fail:
    return error;
}

static int read_run(struct run_record *r, struct tabft_failure *f)
{
    int error = 0;
    char *path = NULL;
    TRY(run_file_name(&path, r->path, "run.json", f));
    TRY(run_json_read(&r->json, path, f));
    TRY(take_fields(r, path, f));
fail:
    free(path);
    return error;
}

/* ---- metrics.jsonl ---- */

struct losses {
    struct run_record *r;
    size_t room;
};

/* One line; those of kind "step" count. */
static int take_line(void *context, const char *path, size_t number, const char *kind, const json_t *line,
                     struct tabft_failure *f)
{
    int error = 0;
    struct losses *l = context;
    struct run_record *r = l->r;
    const json_t *step = json_object_get(line, "step"), *loss = json_object_get(line, "loss");
    if (strcmp(kind, "step") != 0) return 0;
    if (!json_is_integer(step) || json_integer_value(step) != (json_int_t)r->n_steps + 1)
        FAIL(f, TABFT_INPUT, "%s:%zu: step %zu is due here; the log is not whole", path, number, r->n_steps + 1);
    if (r->n_steps == l->room) {
        l->room = l->room > 0 ? 2 * l->room : 256;
        TRY(memory_grow(&r->loss, l->room, sizeof *r->loss, "losses", f));
    }
    r->loss[r->n_steps++] = json_is_number(loss) ? json_number_value(loss) : NAN;
fail:
    return error;
}

static int read_metrics(struct run_record *r, struct tabft_failure *f)
{
    int error = 0;
    char *path = NULL;
    struct losses losses = {.r = r};
    TRY(run_file_name(&path, r->path, "metrics.jsonl", f));
    TRY(run_log_read(path, false, take_line, &losses, f));
fail:
    free(path);
    return error;
}

int run_record_open(struct run_record *out, const char *path, struct tabft_failure *f)
{
    int error = 0;
    struct run_record r = {0};
    char *weights = NULL;
    TRY(memory_copy_string(&r.path, path, f));
    TRY(read_run(&r, f));
    TRY(read_metrics(&r, f));
    TRY(run_file_name(&weights, path, "model.safetensors", f));
    TRY(ckpt_open(&r.weights, weights, f));
    *out = r;
    r = (struct run_record){0};
fail:
    free(weights);
    run_record_clear(&r);
    return error;
}

void run_record_clear(struct run_record *r)
{
    ckpt_close(r->weights);
    json_decref(r->json);
    free(r->loss);
    free(r->path);
    *r = (struct run_record){0};
}
