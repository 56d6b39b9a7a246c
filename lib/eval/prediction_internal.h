/* The columns of a table of predictions. Not for other files. */
#ifndef TABFT_EVAL_PREDICTION_INTERNAL_H
#define TABFT_EVAL_PREDICTION_INTERNAL_H

#ifndef TABFT_IN_PREDICTION_FILES
#error "prediction_internal.h belongs to lib/eval/prediction_*.c"
#endif

enum { ROW, LABEL, FIRST_CLASS };          /* columns of classification */
enum { TARGET = 1, MEAN, FIRST_QUANTILE }; /* of regression, behind ROW */
#define PREDICTION_QUANTILE "quantile_"    /* and the level */

#endif
