/* What the files of a prediction share. Not for other files. */
#ifndef TABFT_EVAL_PREDICT_INTERNAL_H
#define TABFT_EVAL_PREDICT_INTERNAL_H

#ifndef TABFT_IN_PREDICT
#error "predict_internal.h belongs to lib/eval/predict*.c"
#endif

#include "ensemble/ensemble.h"
#include "eval/eval.h"
#include "eval/matrix.h"
#include "model/model.h"
#include "tensor/ops.h"

struct eval_predictor {
    const struct model *model;
    const struct table *train, *test;
    struct eval_options options;
    struct threads *pool;
    struct tensor_backend cpu; /* where none was given */
    const struct tensor_backend *backend;
    struct eval_columns columns;
    double *x_context;  /* [train->n_rows][columns.n], while it runs */
    int32_t *y_context; /* [train->n_rows] classes; NULL for regression */
    double *borders;    /* of regression: [model_outputs + 1] */
    struct ensemble_options fit; /* of the ensemble, which is there while it runs */
    struct ensemble *ensemble;
    struct eval_prediction head; /* labels or levels, and n_rows */
    int32_t *truth_of;           /* [test->n_labels] index into head.label; NULL: no target */
    struct eval_plan plan;
    size_t result_rows; /* that get their result at a time */
};

/* predict_labels.c */
int predict_classes(struct eval_predictor *p, struct tabft_failure *f) TABFT_MUST_CHECK;
int predict_truths(struct eval_predictor *p, struct tabft_failure *f) TABFT_MUST_CHECK;

/* predict_numbers.c: the same for regression. */
int predict_numbers(struct eval_predictor *p, struct tabft_failure *f) TABFT_MUST_CHECK;

/* predict_plan.c: fills p->plan for p->head.n_rows rows. */
int predict_plan(struct eval_predictor *p, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
