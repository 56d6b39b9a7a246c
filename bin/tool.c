#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "eval/json_value.h"
#include "file/file.h"

void tool_version(const char *name)
{
    printf("%s (TabFT) %s\n"
           "Licence: Apache-2.0 <https://www.apache.org/licenses/LICENSE-2.0>\n"
           "There is NO WARRANTY, to the extent permitted by law.\n",
           name, PACKAGE_VERSION);
}

int tool_end(const char *name, int error, struct tabft_failure *f)
{
    /* What failed comes first, but a verdict that could not be printed is none. */
    struct tabft_failure later = {0};
    int closed = file_stdout_close(&later);
    if (closed < 0 && (error >= 0 || error == TABFT_NOT_HELD)) {
        error = closed;
        *f = later;
    }
    if (error < 0 && f->message[0] != '\0') (void)fprintf(stderr, "%s: %s\n", name, f->message);
    return tabft_exit_status(error);
}

int tool_main(const struct tool *tool, int argc, char **argv)
{
    struct tabft_failure f = {0};
    int error = 0;
    file_signals_install();
    opterr = 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            (void)fputs(tool->help, stdout);
            return tool_end(tool->name, 0, &f);
        }
        if (strcmp(argv[i], "--version") == 0) {
            tool_version(tool->name);
            return tool_end(tool->name, 0, &f);
        }
    }
    const struct tool_verb *verb = tool->verbs;
    while (argc > 1 && verb->name != NULL && strcmp(argv[1], verb->name) != 0) verb++;
    if (argc < 2) error = tabft_fail(&f, TABFT_USE, "no verb given; try %s --help", tool->name);
    else if (verb->name == NULL)
        error = tabft_fail(&f, TABFT_USE, "%.100s: no such verb; try %s --help", argv[1], tool->name);
    else error = verb->run(argc - 1, argv + 1, &f);
    return tool_end(tool->name, error, &f);
}

int tool_bad_option(char **argv, int found, struct tabft_failure *f)
{
    const char *last = argv[optind - 1];
    if (found == ':') return tabft_fail(f, TABFT_USE, "%.100s: needs a value; see --help", last);
    return tabft_fail(f, TABFT_USE, "%.100s: no such option for %s; see --help", last, argv[0]);
}

int tool_integer(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out,
                 struct tabft_failure *f)
{
    int error = 0;
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < min || value > max)
        FAIL(f, TABFT_USE, "%s %.100s: a whole number from %llu to %llu is needed", option, text,
             (unsigned long long)min, (unsigned long long)max);
    *out = value;
fail:
    return error;
}

int tool_bytes(const char *option, const char *text, uint64_t *out, struct tabft_failure *f)
{
    int error = 0;
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    static const char units[] = "KMGT";
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    int shift = unit != NULL ? 10 * (int)(unit - units + 1) : 0;
    bool whole = *end == '\0' || (unit != NULL && end[1] == '\0');
    if (text[0] < '0' || text[0] > '9' || !whole || errno != 0 || value == 0 || value > UINT64_MAX >> shift)
        FAIL(f, TABFT_USE, "%s %.100s: a number of bytes is needed, as 800M or 4G", option, text);
    *out = (uint64_t)value << shift;
fail:
    return error;
}

void tool_put_text(FILE *to, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++)
        (void)fputc(*p < 0x20 || *p == 0x7f ? '?' : *p, to);
}

int tool_put_json(json_t *root, bool whole, struct tabft_failure *f)
{
    int error = 0;
    if (root == NULL || !whole) FAIL(f, TABFT_SYSTEM, "no memory for the JSON text; give the job more memory");
    /* A failed write shows when stdout is closed. */
    eval_json_put(stdout, root);
fail:
    json_decref(root);
    return error;
}
