/* What parity.c finds and parity_report.c tells. Not for other rooms. */
#ifndef TABFT_EVAL_PARITY_INTERNAL_H
#define TABFT_EVAL_PARITY_INTERNAL_H

#ifndef TABFT_IN_PARITY
#error "parity_internal.h belongs to lib/eval/parity*.c"
#endif

#include "ckpt/compare.h"
#include "eval/eval.h"
#include "eval/parity.h"
#include "eval/run_record.h"

enum { PARITY_WORST = 5 };

/* Predictions of regression that are so close, in standard deviations of the training targets, agree. */
#define PARITY_CLOSE 0.01

/* A cell of the two probability matrices, or a row's predicted numbers (class 0). */
struct parity_cell {
    size_t row, class;
    double difference;
};

struct parity {
    struct run_record run[2]; /* base, other */
    struct eval_prediction prediction[2];
    bool predicted; /* both, with the same classes */
    bool is_regression;
    double score[2];                        /* accuracy, or the root of the mean squared error */
    double agreement;                       /* share of rows of the same predicted class, or closer than PARITY_CLOSE */
    double difference_max, difference_mean; /* of probabilities, or of numbers in standard deviations of the targets */
    bool same_predictions;                  /* bit for bit */
    struct parity_cell worst[PARITY_WORST];
    size_t n_worst;
    struct ckpt_comparison weights;
    size_t losses_different; /* steps whose losses differ in a bit */
    double loss_max;
    size_t test_rows;
    json_t *reasons; /* against the verdict */
};

/* Weights, probabilities and all losses. */
bool parity_bit_identical(const struct parity *p);

/* The report; the caller owns *out. Errors: TABFT_SYSTEM. */
int parity_report(const struct parity *p, const struct parity_tolerance *t, bool held, json_t **out,
                  struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
