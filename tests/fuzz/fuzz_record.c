/* What a verdict reads of a run. The first byte says which file the rest is: run.json, metrics.jsonl or a file of tolerances;
 * where it is the first, metrics.jsonl is what follows a line "---". */
#include <stdlib.h>
#include <string.h>

#include "eval/parity.h"
#include "eval/run_record.h"
#include "fuzz.h"

static const char whole_run[] =
    "{\"schema\":1,\"model_sha256\":\"00\",\"base_model_sha256\":\"11\",\"cpu\":\"c\",\"world_size\":1,"
    "\"train\":{\"path\":\"t.tbf\",\"digest\":\"22\",\"rows\":3,\"labels\":[\"a\",\"b\"]},"
    "\"options\":{\"epochs\":1,\"estimators\":2,\"seed\":0}}";

static void read_run(const uint8_t *run, size_t run_size, const uint8_t *metrics, size_t metrics_size)
{
    struct tabft_failure f = {0};
    struct run_record r = {0};
    /* The length of a header, and the header. */
    static const char weights[] = "\10\0\0\0\0\0\0\0{}      ";
    char folder[128];
    (void)fuzz_file("run.json", run, run_size);
    (void)fuzz_file("metrics.jsonl", metrics, metrics_size);
    const char *path = fuzz_file("model.safetensors", weights, sizeof weights - 1);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (!fuzz_taken(run_record_open(&r, folder, &f), &f)) return;
    fuzz_hold(r.model_sha256 != NULL && r.base_model_sha256 != NULL && r.cpu != NULL && r.train_path != NULL &&
                  r.train_digest != NULL && json_is_array(r.labels) && json_is_object(r.options) && r.n_estimators > 0,
              "a record that is taken has all its fields");
    fuzz_hold(r.n_steps <= metrics_size, "a step has a line");
    run_record_clear(&r);
}

static void read_tolerance(const uint8_t *data, size_t size)
{
    struct tabft_failure f = {0};
    struct parity_tolerance t;
    if (!fuzz_taken(parity_tolerance_read(fuzz_file("tolerance.json", data, size), &t, &f), &f)) return;
    fuzz_hold(t.prediction_agreement >= 0 && t.probability_max_abs_difference >= 0 && t.probability_mean_abs_difference >= 0 &&
                  t.weight_max_abs_difference >= 0,
              "a bound that is taken is a number");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const uint8_t *rest = data + 1;
    size--;
    if (data[0] == 't') {
        read_tolerance(rest, size);
    } else if (data[0] == 'm') {
        read_run((const uint8_t *)whole_run, sizeof whole_run - 1, rest, size);
    } else {
        const uint8_t *cut = memmem(rest, size, "\n---\n", 5);
        const size_t run_size = cut != NULL ? (size_t)(cut - rest) : size;
        const size_t behind = cut != NULL ? run_size + 5 : size;
        read_run(rest, run_size, rest + behind, size - behind);
    }
    return 0;
}
