/* The ways to reshape a column, each in its file; step_reshape.c lists them. */
#ifndef TABFT_ENSEMBLE_RESHAPE_H
#define TABFT_ENSEMBLE_RESHAPE_H

#include "ensemble/ensemble_internal.h"

extern const struct reshape reshape_squashing, reshape_squashing_max10;
extern const struct reshape reshape_power, reshape_safepower, reshape_robust;
extern const struct reshape reshape_quantile_coarse, reshape_quantile, reshape_quantile_fine;
extern const struct reshape reshape_quantile_extrapolate;

#endif
