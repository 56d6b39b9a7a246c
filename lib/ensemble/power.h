/* The Yeo-Johnson power transform with a standardisation behind it: for columns (reshape_power.c) and for targets. */
#ifndef TABFT_ENSEMBLE_POWER_H
#define TABFT_ENSEMBLE_POWER_H

#include <stddef.h>

struct power {
    double lambda;
    double fill;        /* for gaps, on the scale of the transformed values */
    double mean, scale; /* of the transformed values */
    double last_fill;   /* for what is not finite after that */
};

/* Fits to n values, gaps among them ignored; at least one must be there. scratch[2 * n]. Lambda maximises the
 * likelihood as scipy's bounded search does (to about 1e-8). */
void power_fit(struct power *p, const double *value, size_t n, double *scratch);

double power_apply(const struct power *p, double x);   /* a gap becomes the fill */
double power_inverse(const struct power *p, double y); /* NaN where no x has that y */

#endif
