/* The shape of the sums: splits, nodes, covers, stack depth, against brute force over all runs of small trees. */
#include <string.h>

#include "comm/tree.h"
#include "unit.h"

START_TEST(splits_at_the_largest_power_of_two_below)
{
    ck_assert_uint_eq(tree_split(0, 2), 1);
    ck_assert_uint_eq(tree_split(0, 3), 2);
    ck_assert_uint_eq(tree_split(0, 4), 2);
    ck_assert_uint_eq(tree_split(0, 5), 4);
    ck_assert_uint_eq(tree_split(8, 11), 10);
    ck_assert_uint_eq(tree_split(0, 1000), 512);
}
END_TEST

/* All nodes of the tree over [b, e) are marked in nodes[begin][end]. */
static void mark(bool nodes[40][41], size_t b, size_t e)
{
    nodes[b][e] = true;
    if (e - b < 2) return;
    mark(nodes, b, tree_split(b, e));
    mark(nodes, tree_split(b, e), e);
}

START_TEST(covers_are_nodes_that_touch_and_are_few)
{
    for (size_t n = 1; n <= 40; n++) {
        static bool nodes[40][41];
        memset(nodes, 0, sizeof nodes);
        mark(nodes, 0, n);
        for (size_t b = 0; b < n; b++)
            for (size_t e = b + 1; e <= n; e++) {
                ck_assert(tree_is_node(n, b, e) == nodes[b][e]);
                struct tree_node cover[TREE_COVER_MAX];
                const size_t count = tree_cover(n, b, e, cover);
                size_t at = b;
                for (size_t i = 0; i < count; i++) {
                    ck_assert_uint_eq(cover[i].begin, at);
                    ck_assert(nodes[cover[i].begin][cover[i].end]);
                    at = cover[i].end;
                }
                ck_assert_uint_eq(at, e);
                ck_assert_uint_le(count, 12);
                ck_assert_uint_ge(tree_stack_depth(n, b, e), count);
            }
    }
    struct tree_node cover[TREE_COVER_MAX];
    ck_assert_uint_eq(tree_cover(7, 3, 3, cover), 0);
    ck_assert(!tree_is_node(7, 6, 8));
}
END_TEST

/* Memory is tight: what one rank holds. */
START_TEST(few_partial_sums)
{
    ck_assert_uint_eq(tree_stack_depth(1, 0, 1), 1);
    ck_assert_uint_eq(tree_stack_depth(2, 0, 2), 1);
    ck_assert_uint_eq(tree_stack_depth(4, 0, 4), 2);
    ck_assert_uint_eq(tree_stack_depth(8, 0, 8), 3);
    ck_assert_uint_eq(tree_stack_depth(8, 4, 8), 2);
    ck_assert_uint_eq(tree_stack_depth(1024, 0, 1024), 10);
    ck_assert_uint_eq(tree_stack_depth(5, 5, 5), 0);
}
END_TEST

UNIT_MAIN("comm/tree", splits_at_the_largest_power_of_two_below, covers_are_nodes_that_touch_and_are_few,
          few_partial_sums)
