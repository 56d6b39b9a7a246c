/* What the unit tests share: a main over Check test functions, and the failure that must not have happened. */
#ifndef TABFT_TESTS_UNIT_H
#define TABFT_TESTS_UNIT_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/failure.h"

/* Seconds of a test at most. */
#ifndef UNIT_TIMEOUT
#define UNIT_TIMEOUT 240
#endif

/* Runs the named tests (START_TEST functions) as one suite; exit 0 when all pass. */
#define UNIT_MAIN(name, ...)                                                                                           \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        const TTest *const tests[] = {__VA_ARGS__};                                                                    \
        Suite *suite = suite_create(name);                                                                             \
        TCase *tcase = tcase_create("all");                                                                            \
        tcase_set_timeout(tcase, UNIT_TIMEOUT);                                                                                \
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);                     \
        suite_add_tcase(suite, tcase);                                                                                 \
        SRunner *runner = srunner_create(suite);                                                                       \
        srunner_run_all(runner, CK_NORMAL);                                                                            \
        int failed = srunner_ntests_failed(runner);                                                                    \
        srunner_free(runner);                                                                                          \
        return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;                                                              \
    }

/* The call must succeed; its failure message is shown otherwise. Needs a local `struct tabft_failure f`. */
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        int must_code = (call);                                                                                        \
        ck_assert_msg(must_code == 0, "%s: %d %s", #call, must_code, f.message);                                       \
    } while (0)

/* The call must fail with `expected`, with `text` in its message. Clears f. */
#define MUST_FAIL(call, expected, text)                                                                                \
    do {                                                                                                               \
        int must_code = (call);                                                                                        \
        ck_assert_msg(must_code == (expected), "%s: %d instead of %d: %s", #call, must_code, (expected), f.message);   \
        ck_assert_msg(strstr(f.message, text) != NULL, "%s: \"%s\" has no \"%s\"", #call, f.message, text);            \
        f = (struct tabft_failure){0};                                                                                 \
    } while (0)

/* A file of tests/data; static storage, overwritten by the next call but seven. */
static inline const char *unit_data(const char *name)
{
    static char paths[8][4096];
    static unsigned next;
    char *path = paths[next++ % 8];
    const char *folder = getenv("TABFT_DATA");
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder ? folder : "tests/data", name);
    return path;
}

#endif
