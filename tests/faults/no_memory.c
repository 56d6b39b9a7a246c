/* R11: every allocation that the readers and writers make fails once, alone and with all that follow it: TABFT_SYSTEM with a
 * message each time, nothing left under a final or a temporary name, and with --enable-asan nothing leaked. Allocations go
 * through base/memory.h and the C library's strdup, which the linker (--wrap) brings here. Those inside jansson are left
 * out: it gives a parse error for some of them, so that "not JSON" may be said where memory was short. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/torch.h"
#include "eval/eval.h"
#include "file/file.h"
#include "model/model.h"
#include "table/prep.h"
#include "table/table.h"
#include "unit.h"

static struct tabft_failure f;

/* ---- allocations ---- */

static unsigned long asked, fails_from, fails_until; /* 0: none */

static bool refused(void)
{
    asked++;
    return fails_from > 0 && asked >= fails_from && asked <= fails_until;
}

void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
int __real_posix_memalign(void **p, size_t alignment, size_t size);
char *__real_strdup(const char *text);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
int __wrap_posix_memalign(void **p, size_t alignment, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_calloc(size_t n, size_t size) { return refused() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t size) { return refused() ? NULL : __real_realloc(p, size); }
int __wrap_posix_memalign(void **p, size_t alignment, size_t size)
{
    return refused() ? 12 : __real_posix_memalign(p, alignment, size);
}
char *__wrap_strdup(const char *text) { return refused() ? NULL : __real_strdup(text); }

/* ---- what is done ---- */

static void line(void *context, bool warning, const char *text) { (void)context, (void)warning, (void)text; }
static const struct prep_say say = {line, NULL};
static const char csv[] = "n,x,t,b,y\n1,0.5,red,true,u\n-7,,blue,false,v\n3000000000,1e300,,true,u\n4,2,red,,v\n";

static int pack(const char *input)
{
    const struct pack_options options = {.input = &input,
                                         .n_inputs = 1,
                                         .output = "out",
                                         .point = '.',
                                         .target = "y",
                                         .block_bytes = PACK_BLOCK_BYTES};
    return prep_pack(&options, NULL, &say, &f);
}
static int pack_text(void) { return pack("in.csv"); }
static int pack_gzip(void) { return pack("in.csv.gz"); }
static int merge(void)
{
    static const char *const twice[] = {"table.tbf", "table.tbf"};
    return prep_merge(twice, 2, "out", false, NULL, &say, &f);
}
static int print(void) { return prep_cat("table.tbf", "out", false, NULL, &f); }
static int verify(void) { return prep_verify("table.tbf", NULL, &f); }
static int divide(void)
{
    const struct split_options o = {
        .input = "table.tbf", .train = "out", .test = "test.tbf", .force = true, .rows = 1, .seed = 1};
    const int error = prep_split(&o, NULL, &say, &f);
    /* The first of two files may be there when the second fails, and is whole. */
    if (error != 0) (void)unlink("out");
    (void)unlink("test.tbf");
    return error;
}
static int describe(void)
{
    char *text = NULL;
    const int error = prep_info("table.tbf", true, &text, &f);
    free(text);
    return error;
}
static int load(void)
{
    struct table *t = NULL;
    const int error = table_open(&t, "table.tbf", NULL, &f);
    table_close(t);
    return error;
}
static int load_column(void)
{
    struct table *t = NULL;
    double value[4];
    int error = table_open_parts(&t, "table.tbf", NULL, &f);
    if (error == 0) error = table_read_column(t, 2, NULL, value, &f);
    table_close(t);
    return error;
}
static int convert(void) { return ckpt_convert(unit_data("ckpt/odd.ckpt"), "out", false, &f); }
static int convert_again(void) { return ckpt_convert(unit_data("ckpt/odd.safetensors"), "out", false, &f); }
static int make_model(void)
{
    static const char config[] = "{\"emsize\": 32, \"nlayers\": 1, \"nhead\": 2, \"features_per_group\": 3, "
                                 "\"num_thinking_rows\": 4, \"max_num_classes\": 10}";
    struct model *m = NULL;
    int error = model_init(&m, "tabpfn_v2_6", config, 1, &f);
    if (error == 0) error = model_write(m, model_values(m), "out", false, &f);
    model_close(m);
    return error;
}
static int predict_rows(void)
{
    struct ckpt *c = NULL;
    struct model *m = NULL;
    struct table *t = NULL;
    struct eval_prediction p = {0};
    const struct eval_options options = {.n_estimators = 1, .seed = 1};
    int error = ckpt_open(&c, "model.safetensors", &f);
    if (error == 0) error = model_open(&m, c, MODEL_CLASSIFICATION, &f);
    if (error == 0) error = table_open(&t, "table.tbf", NULL, &f);
    if (error == 0) error = eval_predict(m, t, t, &options, NULL, &p, &f);
    if (error == 0) error = eval_prediction_write(&p, "out", false, "{}", NULL, &f);
    eval_prediction_clear(&p);
    if (error == 0) error = eval_prediction_open("out", NULL, &p, &f);
    if (error != 0) (void)unlink("out"); /* it may be the reading that failed */
    eval_prediction_clear(&p);
    table_close(t);
    model_close(m);
    ckpt_close(c);
    return error;
}

/* ---- every one of their allocations ---- */

static void enter_folder(void)
{
    char folder[] = "/tmp/tabft-no-memory-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    MUST(file_write_all("in.csv", false, csv, sizeof csv - 1, &f));
    ck_assert_int_eq(system("gzip -nc in.csv >in.csv.gz"), 0);
    MUST(pack_text());
    ck_assert_int_eq(rename("out", "table.tbf"), 0);
    MUST(make_model());
    ck_assert_int_eq(rename("out", "model.safetensors"), 0);
}

static void leave_folder(void)
{
    char folder[4096], command[5000];
    ck_assert_ptr_nonnull(getcwd(folder, sizeof folder));
    ck_assert_int_eq(chdir("/"), 0);
    (void)snprintf(command, sizeof command, "rm -rf -- '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static void nothing_is_left(unsigned long n)
{
    DIR *folder = opendir(".");
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
        ck_assert_msg(strcmp(e->d_name, "out") != 0 && strstr(e->d_name, ".tmp") == NULL, "request %lu: %s is left", n, e->d_name);
    ck_assert_int_eq(closedir(folder), 0);
}

/* Where a report alone lacks a detail, the file is what it is without a failure. */
static bool out_is_right(void)
{
    void *bytes[2] = {NULL, NULL};
    size_t size[2] = {0, 1};
    const bool same = file_read_all("out", 1 << 24, &bytes[0], &size[0], &f) == 0 &&
                      file_read_all("right", 1 << 24, &bytes[1], &size[1], &f) == 0 && size[0] == size[1] &&
                      memcmp(bytes[0], bytes[1], size[0]) == 0;
    free(bytes[0]);
    free(bytes[1]);
    return same;
}

/* `thin`: of many requests the first all, then one in `thin` more each time. */
static void starve(int (*work)(void), unsigned long thin)
{
    unsigned long tried = 0;
    enter_folder();
    MUST(work());
    (void)rename("out", "right");
    for (int all = 0; all < 2; all++) {
        bool met = true;
        for (unsigned long n = 1; met; n += 1 + (thin > 0 ? n / thin : 0)) {
            asked = 0;
            fails_from = n;
            fails_until = all ? ~0ul : n;
            const int error = work();
            met = asked >= n;
            fails_from = 0;
            if (!met) {
                ck_assert_msg(error == 0, "without a failure: %d %s", error, f.message);
            } else if (error == 0) {
                ck_assert_msg(out_is_right(), "request %lu does not show, but in the file", n);
            } else {
                ck_assert_msg(error == TABFT_SYSTEM, "request %lu%s: %d %s", n, all ? " and all after it" : "", error, f.message);
                ck_assert_msg(strstr(f.message, "memory") != NULL, "request %lu: %s", n, f.message);
                nothing_is_left(n);
                tried++;
            }
            f = (struct tabft_failure){0};
            (void)unlink("out");
        }
    }
    ck_assert_uint_ge(tried, 10);
    leave_folder();
}

#define STARVE(name, work, thin)                                                                                       \
    START_TEST(name)                                                                                                   \
    {                                                                                                                  \
        starve(work, thin);                                                                                            \
    }                                                                                                                  \
    END_TEST
STARVE(packing, pack_text, 0)
STARVE(unpacking_gzip, pack_gzip, 0)
STARVE(merging, merge, 0)
STARVE(printing, print, 0)
STARVE(verifying, verify, 0)
STARVE(splitting, divide, 0)
STARVE(describing, describe, 0)
STARVE(loading, load, 0)
STARVE(loading_a_column, load_column, 0)
STARVE(converting, convert, 0)
STARVE(converting_again, convert_again, 0)
STARVE(making_a_model, make_model, 0)
STARVE(predicting, predict_rows, 4)

UNIT_MAIN("no memory", packing, unpacking_gzip, merging, printing, verifying, splitting, describing, loading, loading_a_column,
          converting, converting_again, making_a_model, predicting)
