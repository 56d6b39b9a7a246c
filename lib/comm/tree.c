#include "comm/tree.h"

size_t tree_split(size_t begin, size_t end)
{
    size_t half = 1;
    while (half < end - begin - half) half *= 2;
    return begin + half;
}

bool tree_is_node(size_t n, size_t begin, size_t end)
{
    if (begin >= end || end > n) return false;
    size_t b = 0, e = n;
    while (b != begin || e != end) {
        if (e - b < 2) return false;
        size_t middle = tree_split(b, e);
        if (end <= middle) e = middle;
        else if (begin >= middle) b = middle;
        else return false;
    }
    return true;
}

size_t tree_cover(size_t n, size_t begin, size_t end, struct tree_node cover[TREE_COVER_MAX])
{
    /* A depth-first walk with its own stack: a node inside the run is taken whole, one that straddles its edge is
     * split. */
    struct tree_node stack[TREE_COVER_MAX];
    size_t depth = 0, count = 0;
    if (begin >= end || n == 0) return 0;
    stack[depth++] = (struct tree_node){0, n};
    while (depth > 0) {
        struct tree_node node = stack[--depth];
        if (node.end <= begin || node.begin >= end) continue;
        if (node.begin >= begin && node.end <= end) {
            cover[count++] = node;
            continue;
        }
        size_t middle = tree_split(node.begin, node.end);
        stack[depth++] = (struct tree_node){middle, node.end};
        stack[depth++] = (struct tree_node){node.begin, middle};
    }
    return count;
}

size_t tree_stack_depth(size_t n, size_t begin, size_t end)
{
    struct tree_node stack[TREE_COVER_MAX];
    size_t depth = 0, most = 0;
    for (size_t leaf = begin; leaf < end; leaf++) {
        if (depth > 0 && tree_is_node(n, stack[depth - 1].begin, leaf + 1)) stack[depth - 1].end = leaf + 1;
        else stack[depth++] = (struct tree_node){leaf, leaf + 1};
        if (depth > most) most = depth;
        while (depth > 1 && tree_is_node(n, stack[depth - 2].begin, stack[depth - 1].end)) {
            stack[depth - 2].end = stack[depth - 1].end;
            depth--;
        }
    }
    return most;
}
