/* Packed tables and predictions with every bit flipped (R1) and cut at every byte (R3): nothing is taken for a table but
 * what is one. What does not read the cells may take a file whose cells are damaged, and then tells the same of it. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eval/eval.h"
#include "file/file.h"
#include "table/prep.h"
#include "table/table.h"
#include "unit.h"

static struct tabft_failure f;

static void line(void *context, bool warning, const char *text) { (void)context, (void)warning, (void)text; }
static const struct prep_say say = {line, NULL};

static void enter_folder(void)
{
    char folder[] = "/tmp/tabft-attack-tables-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static void leave_folder(void)
{
    char folder[4096], command[5000];
    ck_assert_ptr_nonnull(getcwd(folder, sizeof folder));
    ck_assert_int_eq(chdir("/"), 0);
    (void)snprintf(command, sizeof command, "rm -rf -- '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* One column of each kind, with gaps, and labels. */
static void pack_table(const char *path)
{
    static const char text[] = "n,x,t,b,y\n1,0.5,red,true,u\n-7,,blue,false,v\n3000000000,1e300,,true,u\n";
    static const char *const input = "in.csv";
    MUST(file_write_all(input, true, text, sizeof text - 1, &f));
    const struct pack_options options = {.input = &input,
                                         .n_inputs = 1,
                                         .output = path,
                                         .force = true,
                                         .point = '.',
                                         .target = "y",
                                         .block_bytes = PACK_BLOCK_BYTES};
    MUST(prep_pack(&options, NULL, &say, &f));
}

static void write_prediction(const char *path)
{
    static char first[] = "u", second[] = "v";
    char *label[] = {first, second};
    double probability[] = {0.25, 0.75, 1, 0, 0.5, 0.5};
    int32_t truth[] = {0, 1, EVAL_NO_LABEL};
    const struct eval_prediction p = {
        .n_rows = 3, .n_classes = 2, .n_labels = 2, .label = label, .probability = probability, .truth = truth};
    MUST(eval_prediction_write(&p, path, true, "{}", NULL, &f));
}

/* ---- every reader ---- */

static int read_all_cells(const char *path)
{
    struct table *t = NULL;
    const int error = table_open(&t, path, NULL, &f);
    table_close(t);
    return error;
}
static int verify(const char *path) { return prep_verify(path, NULL, &f); }
static int print(const char *path) { return prep_cat(path, "cat.csv", true, NULL, &f); }
static int merge(const char *path)
{
    const char *const twice[] = {path, path};
    return prep_merge(twice, 2, "merged.tbf", true, NULL, &say, &f);
}
static int divide(const char *path)
{
    const struct split_options o = {
        .input = path, .train = "train.tbf", .test = "test.tbf", .force = true, .rows = 1, .seed = 1};
    return prep_split(&o, NULL, &say, &f);
}
static int read_prediction(const char *path)
{
    struct eval_prediction p = {0};
    const int error = eval_prediction_open(path, NULL, &p, &f);
    eval_prediction_clear(&p);
    return error;
}

typedef int reader(const char *path);
static reader *const table_readers[] = {read_all_cells, verify, print, merge, divide, NULL};
static reader *const prediction_readers[] = {read_all_cells, verify, print, read_prediction, NULL};

/* What is told of a table without its cells; NULL where it is refused. */
static char *description(const char *path)
{
    char *text = NULL;
    const int error = prep_info(path, true, &text, &f);
    ck_assert_msg(error == 0 || error == TABFT_INPUT, "info: %d %s", error, f.message);
    f = (struct tabft_failure){0};
    return text;
}

/* All of them refuse what is at `path`, naming it, and leave nothing. */
static void all_refuse(reader *const *readers, const char *path, const char *what)
{
    static const char *const outputs[] = {"cat.csv", "merged.tbf", "train.tbf", "test.tbf"};
    for (size_t i = 0; readers[i] != NULL; i++) {
        const int error = readers[i](path);
        ck_assert_msg(error == TABFT_INPUT, "%s: reader %zu gave %d: %s", what, i, error, f.message);
        ck_assert_msg(strncmp(f.message, path, strlen(path)) == 0, "%s: %s", what, f.message);
        f = (struct tabft_failure){0};
    }
    struct stat status;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        ck_assert_msg(stat(outputs[i], &status) != 0, "%s: %s is left", what, outputs[i]);
}

static void forget_outputs(void)
{
    ck_assert_int_eq(system("rm -f cat.csv merged.tbf train.tbf test.tbf"), 0);
}

static void damage(void (*make)(const char *path), reader *const *readers)
{
    uint8_t *bytes;
    size_t size, told = 0;
    char what[48];
    enter_folder();
    make("a.tbf");
    for (size_t i = 0; readers[i] != NULL; i++) ck_assert_msg(readers[i]("a.tbf") == 0, "%s", f.message);
    forget_outputs();
    MUST(file_read_all("a.tbf", 1 << 20, (void **)&bytes, &size, &f));
    MUST(file_write_all("b.tbf", true, bytes, size, &f));
    char *whole = description("b.tbf");
    const int file = open("b.tbf", O_WRONLY);
    ck_assert_int_ge(file, 0);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        const uint8_t flipped = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        ck_assert_int_eq(pwrite(file, &flipped, 1, (off_t)(bit / 8)), 1);
        (void)snprintf(what, sizeof what, "bit %zu of byte %zu", bit % 8, bit / 8);
        all_refuse(readers, "b.tbf", what);
        char *text = description("b.tbf");
        if (text != NULL) {
            ck_assert_msg(strcmp(text, whole) == 0, "%s changes what is told: %s", what, text);
            told++;
        }
        free(text);
        ck_assert_int_eq(pwrite(file, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    ck_assert_uint_lt(told, 8 * size); /* schema, statistics and index are read */
    for (size_t left = size; left-- > 0;) {
        ck_assert_int_eq(ftruncate(file, (off_t)left), 0);
        (void)snprintf(what, sizeof what, "cut after %zu bytes", left);
        all_refuse(readers, "b.tbf", what);
        ck_assert_ptr_null(description("b.tbf"));
    }
    ck_assert_int_eq(close(file), 0);
    free(whole);
    free(bytes);
    leave_folder();
}

START_TEST(tables) { damage(pack_table, table_readers); }
END_TEST

START_TEST(predictions) { damage(write_prediction, prediction_readers); }
END_TEST

/* ---- inputs of pack that can be told to be cut ---- */

static void cut_input(const char *input, const char *command)
{
    uint8_t *bytes;
    size_t size;
    const struct pack_options options = {
        .input = &input, .n_inputs = 1, .output = "out.tbf", .force = true, .point = '.', .block_bytes = PACK_BLOCK_BYTES};
    enter_folder();
    ck_assert_int_eq(system(command), 0);
    MUST(prep_pack(&options, NULL, &say, &f));
    ck_assert_int_eq(unlink("out.tbf"), 0);
    MUST(file_read_all(input, 1 << 20, (void **)&bytes, &size, &f));
    for (size_t left = size; left-- > 0;) {
        struct stat status;
        MUST(file_write_all(input, true, bytes, left, &f));
        const int error = prep_pack(&options, NULL, &say, &f);
        ck_assert_msg(error == TABFT_INPUT, "cut after %zu of %zu bytes: %d %s", left, size, error, f.message);
        ck_assert_msg(stat("out.tbf", &status) != 0, "cut after %zu bytes: a file is left", left);
        f = (struct tabft_failure){0};
    }
    free(bytes);
    leave_folder();
}

START_TEST(cut_gzip) { cut_input("in.csv.gz", "printf 'a,b\\n1,2\\n3,4\\n' | gzip -n >in.csv.gz"); }
END_TEST

START_TEST(cut_npy)
{
    cut_input("in.npy", "{ printf '\\223NUMPY\\001\\000v\\000'; "
              "printf \"%-117s\\n\" \"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }\"; "
              "head -c 48 /dev/zero; } >in.npy");
}
END_TEST

UNIT_MAIN("damaged tables", tables, predictions, cut_gzip, cut_npy)
