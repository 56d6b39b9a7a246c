#include <check.h>
#include <string.h>

#include "base/failure.h"
#include "unit.h"

START_TEST(first_failure_wins)
{
    struct tabft_failure f = {0};
    ck_assert_int_eq(tabft_fail(&f, TABFT_INPUT, "a: %d", 7), TABFT_INPUT);
    ck_assert_int_eq(tabft_fail(&f, TABFT_SYSTEM, "b"), TABFT_SYSTEM);
    ck_assert_int_eq(f.code, TABFT_INPUT);
    ck_assert_str_eq(f.message, "a: 7");
    ck_assert_int_eq(tabft_fail_prefix(&f, "x.tbf"), TABFT_INPUT);
    ck_assert_str_eq(f.message, "x.tbf: a: 7");
}
END_TEST

START_TEST(control_bytes_are_masked)
{
    struct tabft_failure f = {0};
    (void)tabft_fail(&f, TABFT_INPUT, "%s", "a\x1b[31m\nb\x7f");
    ck_assert_str_eq(f.message, "a?[31m?b?");
}
END_TEST

START_TEST(long_messages_are_cut_not_overrun)
{
    struct tabft_failure f = {0};
    char text[2 * TABFT_MESSAGE_SIZE];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)tabft_fail(&f, TABFT_INPUT, "%s", text);
    ck_assert_uint_eq(strlen(f.message), TABFT_MESSAGE_SIZE - 1);
}
END_TEST

START_TEST(exit_statuses_are_pinned)
{
    const int pairs[][2] = {{TABFT_OK, 0}, {TABFT_NOT_HELD, 1}, {TABFT_USE, 2}, {TABFT_INPUT, 3}, {TABFT_SYSTEM, 4}, {TABFT_PEER, 5}, {TABFT_STOPPED, 75}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) ck_assert_int_eq(tabft_exit_status(pairs[i][0]), pairs[i][1]);
}
END_TEST

UNIT_MAIN("base/failure", first_failure_wins, control_bytes_are_masked, long_messages_are_cut_not_overrun, exit_statuses_are_pinned)
