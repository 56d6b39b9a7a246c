/* What may differ between two runs. */
#include <stdlib.h>
#include <string.h>

#include "eval/parity.h"
#include "file/file.h"

enum { TOLERANCE_MAX = 1 << 16 };

static int take_bound(const json_t *object, const char *path, const char *key, double *out, struct tabft_failure *f)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) || !(json_number_value(value) >= 0))
        return tabft_fail(f, TABFT_INPUT,
                          "%s: needs a number \"%s\" of 0 or more; tabft-eval(1) says which fields there are", path,
                          key);
    *out = json_number_value(value);
    return 0;
}

static int read_tolerance(const char *path, struct parity_tolerance *t, struct tabft_failure *f)
{
    int error = 0;
    void *text = NULL;
    size_t size;
    json_error_t where;
    json_t *object = NULL;
    TRY(file_read_all(path, TOLERANCE_MAX, &text, &size, f));
    object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (object == NULL)
        FAIL(f, TABFT_INPUT, "%s:%d:%d: not JSON: %s; mend it", path, where.line, where.column, where.text);
    TRY(take_bound(object, path, "prediction_agreement", &t->prediction_agreement, f));
    TRY(take_bound(object, path, "probability_max_abs_difference", &t->probability_max_abs_difference, f));
    TRY(take_bound(object, path, "probability_mean_abs_difference", &t->probability_mean_abs_difference, f));
    TRY(take_bound(object, path, "weight_max_abs_difference", &t->weight_max_abs_difference, f));
    const json_t *bits = json_object_get(object, "bit_identical");
    t->bit_identical = json_is_true(bits);
    if (json_object_size(object) != (bits != NULL ? 5 : 4) || (bits != NULL && !json_is_boolean(bits)))
        FAIL(f, TABFT_INPUT, "%s: has a field that is no tolerance; see tabft-eval(1)", path);
fail:
    json_decref(object);
    free(text);
    return error;
}

int parity_tolerance_read(const char *name, struct parity_tolerance *out, struct tabft_failure *f)
{
    if (strcmp(name, "exact") == 0) {
        *out = (struct parity_tolerance){1, 0, 0, 0, true};
        return 0;
    }
    if (strcmp(name, "published") == 0) {
        *out = (struct parity_tolerance){0.9975, 0.0120, 0.00037, 5.5e-5, false};
        return 0;
    }
    return read_tolerance(name, out, f);
}
