/* The report on two runs: the published fields first, in their order. */
#define TABFT_IN_PARITY
#include "eval/parity_internal.h"

#include "ckpt/ckpt.h"
#include "eval/json_value.h"

bool parity_bit_identical(const struct parity *p)
{
    return p->predicted && p->same_predictions && p->weights.identical && p->losses_different == 0 &&
           p->run[0].n_steps == p->run[1].n_steps && p->run[0].n_steps > 0;
}

static json_t *number_if(bool known, double value) { return known ? eval_json_number(value) : json_null(); }

/* A row's numbers in the units of the target. */
static void add_numbers(json_t *cell, const struct parity *p, size_t row, bool *whole)
{
    const double a = p->prediction[0].mean[row], b = p->prediction[1].mean[row];
    eval_json_add(cell, "unsharded_prediction", eval_json_number(a), whole);
    eval_json_add(cell, "sharded_prediction", eval_json_number(b), whole);
    eval_json_add(cell, "abs_difference", eval_json_number(a < b ? b - a : a - b), whole);
}

static void add_probabilities(json_t *cell, const struct parity *p, const struct parity_cell *c, bool *whole)
{
    const size_t at = c->row * p->prediction[0].n_classes + c->class;
    eval_json_add(cell, "label", eval_json_text(p->prediction[0].label[c->class]), whole);
    eval_json_add(cell, "unsharded_probability", eval_json_number(p->prediction[0].probability[at]), whole);
    eval_json_add(cell, "sharded_probability", eval_json_number(p->prediction[1].probability[at]), whole);
    eval_json_add(cell, "abs_difference", eval_json_number(c->difference), whole);
}

static json_t *worst_cells(const struct parity *p, bool *whole)
{
    json_t *cells = json_array();
    for (size_t i = 0; i < p->n_worst; i++) {
        const struct parity_cell *c = &p->worst[i];
        json_t *cell = json_object();
        eval_json_add(cell, "row", eval_json_size(c->row), whole);
        if (p->is_regression) add_numbers(cell, p, c->row, whole);
        else add_probabilities(cell, p, c, whole);
        if (json_array_append_new(cells, cell) != 0) *whole = false;
    }
    return cells;
}

static json_t *losses(const struct parity *p, bool *whole)
{
    json_t *object = json_object();
    eval_json_add(object, "steps", eval_json_size(p->run[0].n_steps), whole);
    eval_json_add(object, "steps_different", eval_json_size(p->losses_different), whole);
    eval_json_add(object, "max_abs_difference", eval_json_number(p->loss_max), whole);
    return object;
}

static json_t *tolerance(const struct parity_tolerance *t, bool *whole)
{
    json_t *object = json_object();
    eval_json_add(object, "prediction_agreement", eval_json_number(t->prediction_agreement), whole);
    eval_json_add(object, "probability_max_abs_difference", eval_json_number(t->probability_max_abs_difference), whole);
    eval_json_add(object, "probability_mean_abs_difference", eval_json_number(t->probability_mean_abs_difference),
                  whole);
    eval_json_add(object, "weight_max_abs_difference", eval_json_number(t->weight_max_abs_difference), whole);
    eval_json_add(object, "bit_identical", json_boolean(t->bit_identical), whole);
    return object;
}

static json_t *digest(const struct run_record *r)
{
    char hex[65];
    ckpt_digest(r->weights, hex);
    return json_string(hex);
}

/* The fields of the report that estimator sharding was published with, which is of classification: what regression has
 * not is null there, and behind them is what it has. */
static void add_published(json_t *report, const struct parity *p, bool held, bool *whole)
{
    const struct run_record *a = &p->run[0], *b = &p->run[1];
    const bool classes = p->predicted && !p->is_regression;
    eval_json_add(report, "status", json_string(held ? "held" : "not held"), whole);
    eval_json_add(report, "gpu_name", eval_json_text(b->gpu != NULL ? b->gpu : b->cpu), whole);
    eval_json_add(report, "world_size", eval_json_size(b->world_size), whole);
    eval_json_add(report, "train_rows", eval_json_size(a->train_rows), whole);
    eval_json_add(report, "test_rows", eval_json_size(p->test_rows), whole);
    eval_json_add(report, "epochs", eval_json_size(a->epochs), whole);
    eval_json_add(report, "n_estimators", eval_json_size(a->n_estimators), whole);
    eval_json_add(report, "unsharded_accuracy", number_if(classes, p->score[0]), whole);
    eval_json_add(report, "sharded_accuracy", number_if(classes, p->score[1]), whole);
    eval_json_add(report, "prediction_agreement", number_if(p->predicted, p->agreement), whole);
    eval_json_add(report, "probability_max_abs_difference", number_if(classes, p->difference_max), whole);
    eval_json_add(report, "probability_mean_abs_difference", number_if(classes, p->difference_mean), whole);
    eval_json_add(report, "weight_max_abs_difference", number_if(p->weights.comparable, p->weights.max_abs), whole);
}

static void add_regression(json_t *report, const struct parity *p, bool *whole)
{
    eval_json_add(report, "unsharded_rmse", number_if(p->predicted, p->score[0]), whole);
    eval_json_add(report, "sharded_rmse", number_if(p->predicted, p->score[1]), whole);
    eval_json_add(report, "prediction_max_abs_difference", number_if(p->predicted, p->difference_max), whole);
    eval_json_add(report, "prediction_mean_abs_difference", number_if(p->predicted, p->difference_mean), whole);
}

/* A text of a run's record; null where it has none. */
static json_t *recorded(const struct run_record *r, const char *key)
{
    json_t *text = json_object_get(r->json, key);
    return json_is_string(text) ? json_incref(text) : json_null();
}

int parity_report(const struct parity *p, const struct parity_tolerance *t, bool held, json_t **out,
                  struct tabft_failure *f)
{
    const struct run_record *a = &p->run[0], *b = &p->run[1];
    json_t *report = json_object();
    bool whole = report != NULL;
    add_published(report, p, held, &whole);
    if (p->is_regression) add_regression(report, p, &whole);
    eval_json_add(report, "bit_identical", json_boolean(parity_bit_identical(p)), &whole);
    eval_json_add(report, "reasons", json_incref(p->reasons), &whole);
    eval_json_add(report, "tensors_different", eval_json_size(p->weights.n_different), &whole);
    eval_json_add(report, "losses", losses(p, &whole), &whole);
    eval_json_add(report, "worst_cells", worst_cells(p, &whole), &whole);
    eval_json_add(report, "unsharded_run", eval_json_text(a->path), &whole);
    eval_json_add(report, "sharded_run", eval_json_text(b->path), &whole);
    eval_json_add(report, "unsharded_world_size", eval_json_size(a->world_size), &whole);
    eval_json_add(report, "unsharded_sha256", digest(a), &whole);
    eval_json_add(report, "sharded_sha256", digest(b), &whole);
    eval_json_add(report, "gpu_libraries", recorded(b, "gpu_libraries"), &whole);
    eval_json_add(report, "libraries", recorded(b, "libraries"), &whole);
    eval_json_add(report, "tolerance", tolerance(t, &whole), &whole);
    if (!whole) {
        json_decref(report);
        return tabft_fail(f, TABFT_SYSTEM, "no memory for the report; give the job more memory");
    }
    *out = report;
    return 0;
}
