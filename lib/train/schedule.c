#include "train/schedule.h"

#include <math.h>

double schedule_factor(enum schedule_kind kind, size_t step, size_t total)
{
    if (kind == SCHEDULE_CONSTANT) return 1;
    size_t warm = (size_t)(0.1 * (double)total);
    if (step > total) step = total;
    if (step < warm) return (double)step / (double)warm;
    if (kind == SCHEDULE_WARMUP) return 1;
    double length = total > warm ? (double)(total - warm) : 1;
    double factor = 0.5 * (1 + cos(M_PI * ((double)(step - warm) / length)));
    return factor > 0 ? factor : 0;
}
