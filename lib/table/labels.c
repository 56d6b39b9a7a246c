#include "table/labels.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "table/number.h"

struct label {
    const char *text;
    double value; /* 0 where labels are no numbers */
};

static int compare(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    if (x->value < y->value) return -1;
    if (x->value > y->value) return 1;
    return strcmp(x->text, y->text);
}

static bool value_of(const char *text, locale_t c, double *v)
{
    struct number n;
    bool infinite = strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0;
    if (infinite) *v = *text == '-' ? (double)-INFINITY : (double)INFINITY;
    if (infinite) return true;
    const char *end = number_scan(text, '.', &n);
    return end != NULL && *end == '\0' && strlen(text) <= NUMBER_TEXT_MAX && number_double(&n, text, end, '.', c, v);
}

int labels_sort(const char **label, size_t n, locale_t c, struct tabft_failure *f)
{
    int error = 0;
    struct label *sorted = NULL;
    bool numbers = true;
    if (n == 0) return 0;
    TRY(memory_new(&sorted, n, sizeof *sorted, "labels", f));
    for (size_t i = 0; i < n; i++) {
        sorted[i].text = label[i];
        numbers = numbers && value_of(label[i], c, &sorted[i].value);
    }
    for (size_t i = 0; i < n && !numbers; i++) sorted[i].value = 0;
    qsort(sorted, n, sizeof *sorted, compare);
    for (size_t i = 0; i < n; i++) label[i] = sorted[i].text;
fail:
    free(sorted);
    return error;
}
