/* What a run asks of CUDA, on the emulation that counts it: one allocation of the GPU's memory, and within a step none at
 * all, no copy but of the next item's inputs and of a few numbers, and no wait but those that are listed here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "cuda_runtime_api.h"
#include "table/table.h"
#include "tensor/cuda/cuda.h"
#include "train/train.h"
#include "unit_backend.h"

enum { COLUMNS = 3, ROWS = 42, CHUNK_ROWS = 14, ESTIMATORS = 2, EPOCHS = 2, STEPS = 2 * EPOCHS };

const void *tabft_device(void);

static int open_emulation(const struct tensor_device_plugin **out, char path[PLUGIN_PATH_MAX], struct tabft_failure *f)
{
    (void)f;
    (void)snprintf(path, PLUGIN_PATH_MAX, "the emulation");
    *out = tabft_device();
    return 0;
}

static void write_table(const char *path)
{
    static double value[COLUMNS + 1][ROWS];
    static const char *const names[] = {"a", "b", "c", "y"}, *const labels[] = {"no", "yes"};
    struct table_column column[COLUMNS + 1] = {0};
    struct tabft_failure f = {0};
    for (size_t c = 0; c <= COLUMNS; c++) {
        for (size_t i = 0; i < ROWS; i++) value[c][i] = c == COLUMNS ? (double)(i % 2) : sin((double)(i * COLUMNS + c));
        column[c] = (struct table_column){.name = names[c], .kind = TABLE_FLOAT, .value = value[c]};
    }
    column[COLUMNS].kind = TABLE_INTEGER;
    column[COLUMNS].n_dictionary = 2;
    column[COLUMNS].dictionary = labels;
    const struct table_output output = {.n_rows = ROWS,
                                        .n_columns = COLUMNS + 1,
                                        .column = column,
                                        .target = COLUMNS,
                                        .task = TABLE_CLASSIFICATION,
                                        .provenance = "{}"};
    MUST(table_write(path, false, &output, NULL, &f));
}

/* What was counted when each step was done. */
struct steps {
    struct emulation_counts at[STEPS];
    size_t n;
};

static void note(void *context, const char *line)
{
    struct steps *s = context;
    (void)line;
    ck_assert_uint_lt(s->n, STEPS);
    s->at[s->n++] = emulation_counted();
}

/* 3 chunks an epoch, 2 of them a step: every other step has one chunk, so another sum over items. */
static void run(const char *model, struct steps *steps)
{
    char folder[] = "/tmp/tabft-step-XXXXXX", data[64], out[64], command[64];
    struct tabft_failure f = {0};
    struct tensor_device device;
    struct train_options o;
    struct train_result result;
    const struct train_report report = {.progress = note, .context = steps};
    ck_assert(setenv("CUDA_EMULATION_LATE", "1", 1) == 0 && setenv("CUDA_EMULATION_PROTECT", "1", 1) == 0);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(data, sizeof data, "%s/train.tbf", folder);
    (void)snprintf(out, sizeof out, "%s/run", folder);
    write_table(data);
    train_options_default(&o);
    o.model = unit_data(model);
    o.data = data;
    o.out = out;
    o.epochs = EPOCHS;
    o.estimators = ESTIMATORS;
    o.chunk_rows = CHUNK_ROWS;
    o.chunks_per_step = 2;
    o.validation_split = 0;
    o.threads = 1;
    MUST(tensor_device_find(&device, "cuda", false, open_emulation, &f));
    MUST(train_run(&o, &device, NULL, &report, &result, &f));
    ck_assert_uint_eq(steps->n, STEPS);
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* An item: its inputs come in pinned memory, filled while the items before are computed; its loss and the sums of its
 * gradient's squares go out, 8 bytes for 1,024 parameters; the host waits for them, and for its sum, when the GPU has all of
 * the next item to do: only the last one of a step leaves it idle. A step: the same sums of its gradient, which the host
 * turns into the factor that clips it, and the end. */
enum { INPUTS = 5, WAITS_OF_ITEM = 2, WAITS_OF_STEP = 3 };

START_TEST(a_step_takes_no_memory_and_copies_little)
{
    struct steps s = {.n = 0};
    run("reference/v2_6_cls.model.safetensors", &s);
    ck_assert_uint_eq(s.at[STEPS - 1].allocations, 1);
    for (size_t i = 1; i < STEPS; i++) {
        const struct emulation_counts *a = &s.at[i - 1], *b = &s.at[i];
        const uint64_t items = (i % 2 == 0 ? 2 : 1) * ESTIMATORS;
        ck_assert_uint_eq(b->allocations, a->allocations);
        ck_assert_uint_eq(b->pinned, a->pinned);
        ck_assert_uint_eq(b->frees, a->frees);
        ck_assert_uint_le(b->waits - a->waits, items * WAITS_OF_ITEM + WAITS_OF_STEP);
        ck_assert_uint_le(b->idle - a->idle, 1 + WAITS_OF_STEP);
        ck_assert_uint_le(b->copies_in - a->copies_in, items * INPUTS);
        ck_assert_uint_le(b->bytes_in - a->bytes_in, items * CHUNK_ROWS * (COLUMNS + 13) * sizeof(float));
        ck_assert_uint_le(b->copies_out - a->copies_out, 2 * items + 1);
        ck_assert_uint_le(b->bytes_out - a->bytes_out, (items + 1) * 512);
    }
}
END_TEST

/* What a validation or a prediction starts leaves the host free. */
START_TEST(forward_calls_start_without_waiting)
{
    static float x[ROWS * COLUMNS], y[ROWS], logits[2][ROWS * 16];
    struct tabft_failure f = {0};
    struct ckpt *c;
    struct model *m;
    struct tensor_backend b;
    struct model_run *kept, *whole;
    const struct model_input input = {
        .shape = {CHUNK_ROWS, ROWS - CHUNK_ROWS, COLUMNS}, .x = x, .y_context = y, .queries_alone = true};
    for (size_t i = 0; i < ROWS * COLUMNS; i++) x[i] = sinf((float)i);
    for (size_t i = 0; i < ROWS; i++) y[i] = (float)(i % 2);
    MUST(ckpt_open(&c, unit_data("reference/v2_6_cls.model.safetensors"), &f));
    MUST(model_open(&m, c, MODEL_CLASSIFICATION, &f));
    ck_assert_uint_le(model_outputs(m), 16);
    unit_gpu_open(&b, TENSOR_FLOAT32);
    float *values = unit_floats(&b, model_values(m), model_parameters(m));
    MUST(model_run_open_kept(&kept, m, input.shape, &b, &f));
    MUST(model_run_open(&whole, m, input.shape, MODEL_RECOMPUTE_NONE, false, &b, &f));
    for (int again = 0; again < 3; again++) {
        const struct emulation_counts before = emulation_counted();
        MUST(model_keep_context(kept, values, &input, &f));
        MUST(model_forward_start(kept, values, &input, &f));
        MUST(model_forward_start(whole, values, &input, &f));
        const struct emulation_counts after = emulation_counted();
        if (again > 0) ck_assert_uint_eq(after.allocations, before.allocations); /* cuBLAS's workspace */
        ck_assert_uint_eq(after.waits, before.waits);
        ck_assert_uint_eq(after.pinned + after.frees, before.pinned + before.frees);
        MUST(model_forward_finish(kept, logits[0], &f));
        MUST(model_forward_finish(whole, logits[1], &f));
        ck_assert_mem_eq(logits[0], logits[1], input.shape.n_query * model_outputs(m) * sizeof(float));
        for (size_t i = 0; i < ROWS * COLUMNS; i++) x[i] *= 1.25f; /* the inputs are free again */
    }
    model_run_close(kept);
    model_run_close(whole);
    unit_floats_free(&b, values);
    b.close(b.state);
    model_close(m);
    ckpt_close(c);
}
END_TEST

UNIT_MAIN("train/cuda_step", a_step_takes_no_memory_and_copies_little, forward_calls_start_without_waiting)
