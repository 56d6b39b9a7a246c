/* tabft-eval report: a page about runs. */
#include <getopt.h>

#include "eval_verbs.h"
#include "report/report.h"
#include "tool.h"

int eval_report_run(int argc, char **argv, struct tabft_failure *f)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'}, {"force", no_argument, NULL, 'f'}, {0}};
    int error = 0, found;
    const char *output = NULL;
    bool force = false;
    while ((found = getopt_long(argc, argv, ":o:", options, NULL)) != -1) {
        switch (found) {
        case 'o': output = optarg; break;
        case 'f': force = true; break;
        default: return tool_bad_option(argv, found, f);
        }
    }
    if (output == NULL || argc == optind)
        FAIL(f, TABFT_USE, "report: needs folders of runs and -o REPORT.html; see --help");
    TRY(report_write((const char *const *)(argv + optind), (size_t)(argc - optind), output, force, f));
fail:
    return error;
}
