/* Checkpoints that are damaged: cut at every byte and with each byte changed, in the manifest and in a slice, and manifests that lie
 * in spite of right checksums. The one before is taken, or the run refused; never a crash, never other values. */
#include <dirent.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/vectors_far.h"
#include "comm/reduce.h"
#include "file/file.h"
#include "table/table.h"
#include "tbf/tbf.h"
#include "train/state.h"
#include "unit.h"

enum { PARAMETERS = 64, PARAMETERS_MANY = 200100, OLDER = 5, NEWER = 6 };

/* In memory where it can be: each case syncs some files. */
static char folder[64], older[64], newer[64], said[4096];

static struct train_options options;
static struct table table = {.path = "train.tbf", .digest = "0123"};
static struct trainer trainer;
static struct train_result result;
static struct vectors_far far;

static void remember(void *context, const char *line)
{
    (void)context;
    (void)snprintf(said, sizeof said, "%s", line);
}

static const struct train_report report = {.say = remember};

static void fill(float *values, uint64_t seed)
{
    struct random_pcg g;
    random_pcg_seed(&g, seed);
    for (size_t i = 0; i < trainer.n_parameters; i++) values[i] = (float)random_pcg_double(&g);
}

/* The same where the trainer has them. */
static void fill_there(float *values, uint64_t seed)
{
    static float from[PARAMETERS_MANY];
    struct tabft_failure f = {0};
    const struct vectors *v = &trainer.vectors;
    fill(from, seed);
    v->copy_in(v->state, values, from, trainer.n_parameters * sizeof *from);
    MUST(v->finish(v->state, &f));
}

/* Weights, moments and best weights follow from the step. */
static void fill_all(uint64_t step)
{
    struct optimiser_state o = optimiser_state(trainer.optimiser);
    fill_there(trainer.values, 4 * step);
    fill_there(o.moment1, 4 * step + 1);
    fill_there(o.moment2, 4 * step + 2);
    fill_there(trainer.best, 4 * step + 3);
    optimiser_set_steps(trainer.optimiser, step);
}

static void must_be_of(uint64_t step)
{
    static float want[PARAMETERS_MANY], is[PARAMETERS_MANY];
    struct tabft_failure f = {0};
    struct optimiser_state o = optimiser_state(trainer.optimiser);
    const struct vectors *v = &trainer.vectors;
    const size_t bytes = trainer.n_parameters * sizeof *is;
    float *const there[] = {trainer.values, o.moment1, o.moment2, trainer.best};
    for (size_t i = 0; i < 4; i++) {
        v->copy_out(v->state, is, there[i], bytes);
        MUST(v->finish(v->state, &f));
        fill(want, 4 * step + i);
        ck_assert_mem_eq(is, want, bytes);
    }
    ck_assert_uint_eq(o.steps, step);
}

static void open_folder(void)
{
    struct tabft_failure f = {0};
    MUST(run_folder_open(&trainer.folder, folder, RUN_FOLDER_RESUME, NULL, NULL, &f));
}

static void save(uint64_t step, char name[64])
{
    struct tabft_failure f = {0};
    struct progress p = {.step = step, .epoch = 1, .position = step, .best = 0.5, .initial = NAN, .n_steps = 9};
    fill_all(step);
    MUST(run_folder_start(trainer.folder, &f));
    MUST(run_folder_log(trainer.folder, "{\"kind\":\"step\"}", &f));
    MUST(state_save(&trainer, &p, &f));
    (void)snprintf(name, 64, "%s", trainer.kept);
    run_folder_close(trainer.folder);
    trainer.folder = NULL;
}

/* Two checkpoints of `n` parameters, on the host or in memory that it cannot read. */
static void start_on(bool on_host, size_t n)
{
    struct tabft_failure f = {0};
    void *memory;
    (void)snprintf(folder, sizeof folder, "%s/tabft-state-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    train_options_default(&options);
    options.out = folder;
    trainer = (struct trainer){.o = &options, .report = &report, .result = &result, .run_path = folder, .resume = true,
                               .n_parameters = n, .slice_end = n, .base_digest = "4567", .data.table = &table,
                               .backend.isa = "avx2"};
    const struct vectors *v = &trainer.vectors;
    if (on_host) vectors_host(&trainer.vectors, NULL);
    else vectors_far(&trainer.vectors, &far, NULL);
    MUST(v->memory_new(v->state, &memory, n * sizeof(float), "w", &f));
    trainer.values = memory;
    MUST(v->memory_new(v->state, &memory, n * sizeof(float), "b", &f));
    trainer.best = memory;
    MUST(optimiser_open(&trainer.optimiser, v, n, &f));
    MUST(reduce_open(&trainer.reduce, NULL, v, 1, n, &f));
    open_folder();
    save(OLDER, older);
    open_folder();
    save(NEWER, newer);
}

static void start(void) { start_on(true, PARAMETERS); }

static void finish(void)
{
    struct tabft_failure f = {0};
    char path[128];
    state_clear(&trainer);
    for (const char *const *name = (const char *const[]){"metrics.jsonl.partial", NULL}; *name != NULL; name++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, *name);
        (void)unlink(path);
    }
    ck_assert_int_eq(rmdir(folder), 0);
    trainer.vectors.memory_free(trainer.vectors.state, trainer.values);
    trainer.vectors.memory_free(trainer.vectors.state, trainer.best);
    optimiser_close(trainer.optimiser);
    reduce_close(trainer.reduce);
    MUST(trainer.vectors.finish(trainer.vectors.state, &f));
}

/* What --resume makes of the folder as it is: the step, or 0 and the failure in *f. */
static uint64_t resume(struct tabft_failure *f)
{
    struct progress p = {0};
    bool found = false;
    fill_all(99);
    said[0] = '\0';
    result = (struct train_result){.speaker = -1};
    open_folder();
    int code = state_resume(&trainer, &p, &found, f);
    run_folder_close(trainer.folder);
    trainer.folder = NULL;
    if (code < 0) {
        must_be_of(99);
        return 0;
    }
    ck_assert(found);
    must_be_of(p.step);
    ck_assert_double_eq(p.best, 0.5);
    ck_assert(isnan(p.initial));
    ck_assert_uint_eq(p.position, p.step);
    return p.step;
}

static void path_of(char path[160], const char *name, const char *file)
{
    (void)snprintf(path, 160, "%s/%s/%s", folder, name, file);
}

static void put(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

static const char *const files[] = {"manifest.tbf", "slice-0000-of-0001.tbf"};

/* Damage to the newest: the one before is taken, and it is said whose damage it is. */
static void must_fall_back(const char *what, const char *file, size_t at)
{
    struct tabft_failure f = {0};
    uint64_t step = resume(&f);
    ck_assert_msg(step == OLDER, "%s %s at %zu: step %d: %s", file, what, at, (int)step, f.message);
    ck_assert_msg(strstr(said, "resumes after step 5 of 9") != NULL, "%s", said);
}

START_TEST(whole_ones_are_taken)
{
    struct tabft_failure f = {0};
    start();
    ck_assert_uint_eq(resume(&f), NEWER);
    ck_assert_str_eq(trainer.kept, newer);
    void *text;
    size_t size;
    char path[160];
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl.partial", folder);
    MUST(file_read_all(path, 100, &text, &size, &f));
    ck_assert_uint_eq(size, 16);
    free(text);
    finish();
}
END_TEST

START_TEST(memory_of_a_gpu_is_saved_and_filled)
{
    struct tabft_failure f = {0};
    start_on(false, PARAMETERS_MANY);
    ck_assert_uint_eq(resume(&f), NEWER);
    finish();
}
END_TEST

START_TEST(every_cut_and_flip_is_seen)
{
    start();
    for (size_t i = 0; i < 2; i++) {
        struct tabft_failure f = {0};
        char path[160];
        void *data;
        size_t size;
        path_of(path, newer, files[i]);
        MUST(file_read_all(path, 1 << 20, &data, &size, &f));
        unsigned char *bytes = data;
        for (size_t at = 0; at < size; at++) {
            bytes[at] ^= (unsigned char)(1 << at % 8);
            put(path, bytes, size);
            must_fall_back("changed", files[i], at);
            bytes[at] ^= (unsigned char)(1 << at % 8);
            put(path, bytes, at);
            must_fall_back("cut", files[i], at);
        }
        put(path, bytes, size);
        ck_assert_uint_eq(resume(&f), NEWER);
        /* Missing: a checkpoint without its manifest is none; one without a slice is damaged. */
        ck_assert_int_eq(unlink(path), 0);
        must_fall_back("removed", files[i], 0);
        put(path, bytes, size);
        free(data);
    }
    finish();
}
END_TEST

START_TEST(slices_are_not_exchanged)
{
    struct tabft_failure f = {0};
    void *a, *b;
    size_t a_size, b_size;
    char path[160], other[160];
    start();
    for (size_t i = 0; i < 2; i++) {
        path_of(path, newer, files[i]);
        path_of(other, older, files[i]);
        MUST(file_read_all(path, 1 << 20, &a, &a_size, &f));
        MUST(file_read_all(other, 1 << 20, &b, &b_size, &f));
        put(path, b, b_size);
        must_fall_back("exchanged", files[i], 0);
        put(path, a, a_size);
        free(a);
        free(b);
    }
    finish();
}
END_TEST

START_TEST(none_that_is_whole_is_refused)
{
    struct tabft_failure f = {0};
    char path[160];
    start();
    path_of(path, newer, files[0]);
    put(path, "x", 1);
    path_of(path, older, files[1]);
    ck_assert_int_eq(truncate(path, 100), 0);
    ck_assert_uint_eq(resume(&f), 0);
    ck_assert_int_eq(f.code, TABFT_INPUT);
    ck_assert_ptr_nonnull(strstr(f.message, "none of its 2 checkpoints can be read; the newest: "));
    ck_assert_ptr_nonnull(strstr(f.message, "manifest.tbf: is not a .tbf file"));
    ck_assert_ptr_nonnull(strstr(f.message, "--force starts anew"));
    finish();
}
END_TEST

/* A manifest with right checksums around this text. */
static void put_manifest(const char *path, const char *text, size_t size)
{
    struct tabft_failure f = {0};
    struct tbf_writer *w;
    struct tbf_codec *c;
    struct tbf_record record = {.type = TBF_TYPES_TRAIN, .version = 1, .data = text, .size = size};
    MUST(tbf_codec_open(&c, 1, &f));
    MUST(tbf_writer_open(&w, path, true, NULL, &f));
    MUST(tbf_writer_put(w, c, &record, &f));
    MUST(tbf_writer_close(w, &f));
    tbf_codec_close(c);
}

static char *get_manifest(const char *path, size_t *size)
{
    struct tabft_failure f = {0};
    struct tbf_reader *r;
    struct tbf_codec *c;
    struct tbf_record record;
    void *data;
    MUST(tbf_codec_open(&c, 1, &f));
    MUST(tbf_reader_open(&r, path, &f));
    MUST(tbf_reader_get(r, c, 0, &record, &data, &f));
    char *text = calloc(record.size + 1, 1);
    memcpy(text, record.data, record.size);
    *size = record.size;
    free(data);
    tbf_reader_close(r);
    tbf_codec_close(c);
    return text;
}

/* Names, numbers and structure changed at random. It is damage, another run, or a change of what only this file knows. */
START_TEST(manifests_that_lie)
{
    enum { ROUNDS = 2000 };
    static const char *const words[] = {"-1", "0", "1", "63", "65", "1e300", "null", "true", "[]", "{}", "\"\"", "9223372036854775807",
                                        "18446744073709551616", "\"begin\"", "1.5"};
    struct tabft_failure f = {0};
    struct random_pcg g;
    char path[160];
    size_t size, outcomes[3] = {0};
    start();
    random_pcg_seed(&g, 7);
    path_of(path, newer, files[0]);
    char *text = get_manifest(path, &size), *changed = calloc(size + 64, 1);
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = size;
        memcpy(changed, text, size + 1);
        if (round % 2 == 0) {
            /* A value in the place of another. */
            size_t at = (size_t)random_pcg_integer(&g, 0, (int64_t)size);
            const char *colon = strchr(text + at, ':'), *word = words[random_pcg_integer(&g, 0, sizeof words / sizeof *words)];
            if (colon == NULL) continue;
            size_t begin = (size_t)(colon - text) + 1, end = begin + strcspn(text + begin, ",}]");
            n = begin + strlen(word);
            memcpy(changed + begin, word, strlen(word));
            memcpy(changed + n, text + end, size - end + 1);
            n += size - end;
        } else {
            for (int k = 0; k <= round % 4; k++)
                changed[random_pcg_integer(&g, 0, (int64_t)size)] = (char)random_pcg_integer(&g, 0, 256);
        }
        put_manifest(path, changed, n);
        uint64_t step;
        struct progress p = {0};
        bool found = false;
        fill_all(99);
        open_folder();
        f = (struct tabft_failure){0};
        int code = state_resume(&trainer, &p, &found, &f);
        run_folder_close(trainer.folder);
        trainer.folder = NULL;
        step = p.step;
        ck_assert_msg(code == 0 || code == TABFT_USE, "%d: %s\n%s", code, f.message, changed);
        /* Whatever it says, weights are those of a checkpoint. */
        if (code == 0) {
            static float want[PARAMETERS];
            bool is_older = strcmp(trainer.kept, older) == 0;
            ck_assert(!is_older || step == OLDER);
            fill(want, 4 * (is_older ? OLDER : NEWER));
            ck_assert_mem_eq(trainer.values, want, sizeof want);
            outcomes[is_older]++;
        } else {
            outcomes[2]++;
        }
    }
    for (size_t i = 0; i < 3; i++) ck_assert_uint_gt(outcomes[i], 50);
    free(text);
    free(changed);
    finish();
}
END_TEST

UNIT_MAIN("state", whole_ones_are_taken, memory_of_a_gpu_is_saved_and_filled, every_cut_and_flip_is_seen,
          slices_are_not_exchanged, none_that_is_whole_is_refused, manifests_that_lie)
