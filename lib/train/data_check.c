/* What a table must be to be trained on. */
#define TABFT_IN_TRAIN_DATA
#include <math.h>

#include "train/data_internal.h"

/* Options of the other task are refused rather than ignored. */
static int check_options(const struct table *t, const struct train_options *o, struct tabft_failure *f)
{
    bool is_regression = t->task == TABLE_REGRESSION;
    struct train_options plain;
    train_options_default(&plain);
    if (o->metric != TRAIN_METRIC_AUTO && (o->metric == TRAIN_METRIC_MSE) != is_regression)
        return tabft_fail(f, TABFT_USE, "--metric: %s has a target %s; %s", t->path,
                          is_regression ? "for regression" : "of classes",
                          is_regression ? "use mse" : "use roc_auc or log_loss");
    if (!is_regression && !train_losses_equal(&o->losses, &plain.losses))
        return tabft_fail(f, TABFT_USE,
                          "%s: has a target of classes; the options --*-loss-weight and --*-loss-clip are "
                          "for regression",
                          t->path);
    if (is_regression &&
        !(o->losses.ce > 0 || o->losses.crps > 0 || o->losses.crls > 0 || o->losses.mse > 0 || o->losses.mae > 0))
        return tabft_fail(f, TABFT_USE,
                          "all of --*-loss-weight are 0, so there is no loss to lower; give one a weight");
    return 0;
}

int data_check_task(const struct table *t, const struct train_options *o, struct tabft_failure *f)
{
    if (t->task == TABLE_CLASSIFICATION || t->task == TABLE_REGRESSION) return check_options(t, o, f);
    return tabft_fail(f, TABFT_INPUT, "%s: has no target; pack it with --target COLUMN", t->path);
}

/* The least records that can be cut into context and query, and into rows held out, with every class on each side. A
 * regression's context has two at least. */
static size_t least_records(const struct table *t, const struct train_options *o, size_t n_classes, bool *with_split)
{
    size_t classes = n_classes > 2 ? n_classes : 2;
    *with_split = o->valid == NULL && o->validation_split > 0;
    if (t->task == TABLE_REGRESSION) return *with_split ? 4 : 3;
    return classes * (*with_split ? 3 : 2);
}

int data_check_records(const struct table *t, const struct train_options *o, size_t n_classes, const char *only,
                       struct tabft_failure *f)
{
    bool with_split, is_regression = t->task == TABLE_REGRESSION;
    size_t least = least_records(t, o, n_classes, &with_split);
    const char *split = with_split ? " with a validation split" : "";
    const char *also = is_regression ? "" : " and 2 classes";
    if (t->n_rows == 0)
        return tabft_fail(f, TABFT_INPUT, "%s: has 0 records; training needs at least %zu%s%s", t->path, least, split,
                          also);
    if (is_regression && t->n_rows < least)
        return tabft_fail(f, TABFT_INPUT, "%s: has %zu record%s; training needs at least %zu%s", t->path, t->n_rows,
                          t->n_rows == 1 ? "" : "s", least, split);
    if (is_regression) return 0;
    if (n_classes < 2)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: has %zu record%s and only one class (\"%s\"); training needs at least %zu records%s "
                          "and 2 classes",
                          t->path, t->n_rows, t->n_rows == 1 ? "" : "s", only, least, split);
    if (t->n_rows < least)
        return tabft_fail(f, TABFT_INPUT, "%s: has %zu records of %zu classes; training needs at least %zu%s", t->path,
                          t->n_rows, n_classes, least, split);
    return 0;
}

int data_check_target(const struct table *t, struct tabft_failure *f)
{
    const struct table_column *target = &t->target;
    size_t first = 0;
    while (first < t->n_rows && !isnan(target->value[first])) first++;
    if (first < t->n_rows)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: the target \"%s\" is missing in %zu records, first in record %zu; "
                          "leave them out",
                          t->path, target->name, target->n_missing, first + 1);
    for (size_t i = 0; i < t->n_rows; i++)
        if (isinf(target->value[i]))
            return tabft_fail(f, TABFT_INPUT, "%s: the target \"%s\" is infinite in record %zu; leave it out", t->path,
                              target->name, i + 1);
    return 0;
}

int data_check_varied(const struct table *t, struct tabft_failure *f)
{
    const double *y = t->target.value, least = 1e-8; /* TabPFN divides by no less */
    double shift = 0, squares = 0;
    for (size_t i = 0; i < t->n_rows; i++) shift += (y[i] - y[0]) / (double)t->n_rows;
    for (size_t i = 0; i < t->n_rows; i++) squares += (y[i] - y[0] - shift) * (y[i] - y[0] - shift);
    double deviation = sqrt(squares / (double)t->n_rows);
    if (!isfinite(deviation))
        return tabft_fail(f, TABFT_INPUT,
                          "%s: the target \"%s\" has no finite standard deviation; write it in a larger unit", t->path,
                          t->target.name);
    if (deviation >= least) return 0;
    if (deviation > 0)
        return tabft_fail(f, TABFT_INPUT,
                          "%s: the target \"%s\" has a standard deviation of %g, and training takes less than %g for "
                          "none; write it in a smaller unit",
                          t->path, t->target.name, deviation, least);
    return tabft_fail(f, TABFT_INPUT, "%s: the target \"%s\" is the same in all records; there is nothing to learn",
                      t->path, t->target.name);
}
