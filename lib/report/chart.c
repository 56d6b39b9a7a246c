/* Lines over two axes, as SVG inside the page. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "report/report_internal.h"

enum {
    WIDTH = 760,
    HEIGHT = 300,
    LEFT = 70,
    RIGHT = 15,
    TOP = 12,
    BOTTOM = 42,
    MOST_POINTS = 500, /* of a line: more do not show */
    N_TICKS = 6
};

/* Okabe and Ito, Color Universal Design (2008), less the yellow that does not show on white. */
static const char *const colour[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"};
static const char *const dashes[] = {"none", "7 3", "2 3", "9 3 2 3"};
enum { N_COLOURS = sizeof colour / sizeof *colour, N_DASHES = sizeof dashes / sizeof *dashes };

const char *chart_colour(size_t i) { return colour[i % N_COLOURS]; }
const char *chart_dashes(size_t i) { return dashes[i / N_COLOURS % N_DASHES]; }

struct axis {
    double low, high, step; /* of ticks: 1, 2 or 5 times a power of ten */
};

static struct axis axis_of(double low, double high)
{
    const double size = fmax(fabs(low), fabs(high));
    if (!(high - low > 1e-9 * size)) { /* too close for ticks between */
        const double around = size > 1e-300 ? size * 0.05 : 1;
        low -= around;
        high += around;
    }
    const double rough = (high - low) / N_TICKS, power = pow(10, floor(log10(rough))), times = rough / power;
    const double step = power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
    return (struct axis){floor(low / step) * step, ceil(high / step) * step, step};
}

static double place_x(const struct axis *a, double x)
{
    return LEFT + (x - a->low) / (a->high - a->low) * (WIDTH - LEFT - RIGHT);
}
static double place_y(const struct axis *a, double y)
{
    return HEIGHT - BOTTOM - (y - a->low) / (a->high - a->low) * (HEIGHT - TOP - BOTTOM);
}

/* Of more points than are drawn: means of as many neighbours as it takes, in which what is no number does not count. */
static int thin(const struct series *s, struct series *to, struct tabft_failure *f)
{
    int error = 0;
    const size_t each = (s->n + MOST_POINTS - 1) / MOST_POINTS;
    TRY(memory_new(&to->point, s->n / each + 1, sizeof *to->point, "a chart", f));
    for (size_t from = 0; from < s->n; from += each) {
        const size_t end = s->n - from < each ? s->n : from + each;
        double x = 0, y = 0;
        size_t n = 0;
        for (size_t i = from; i < end; i++) {
            if (!isfinite(s->point[i].x) || !isfinite(s->point[i].y)) continue;
            x += s->point[i].x;
            y += s->point[i].y;
            n++;
        }
        to->point[to->n++] = n > 0 ? (struct point){x / (double)n, y / (double)n}
                                   : (struct point){(double)NAN, (double)NAN};
    }
fail:
    return error;
}

static void put_axes(struct page *p, const struct chart *c, const struct axis *x, const struct axis *y)
{
    const int right = WIDTH - RIGHT, bottom = HEIGHT - BOTTOM;
    for (double v = y->low; v <= y->high + y->step / 2; v += y->step) {
        const double at = place_y(y, v);
        page_put(p, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>", LEFT, at, right, at);
        page_put(p, "<text class=\"right\" x=\"%d\" y=\"%.1f\">%.5g</text>\n", LEFT - 6, at + 4,
                 fabs(v) < y->step / 1e6 ? 0 : v);
    }
    for (double v = x->low; v <= x->high + x->step / 2; v += x->step) {
        const double at = place_x(x, v);
        page_put(p, "<line class=\"axis\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", at, bottom, at, bottom + 4);
        page_put(p, "<text class=\"middle\" x=\"%.1f\" y=\"%d\">%.6g</text>\n", at, bottom + 17,
                 fabs(v) < x->step / 1e6 ? 0 : v);
    }
    page_put(p, "<line class=\"axis\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", LEFT, bottom, right, bottom);
    page_put(p, "<text class=\"middle\" x=\"%d\" y=\"%d\">%s</text>", (LEFT + right) / 2, HEIGHT - 6, c->x);
    page_put(p, "<text class=\"middle\" transform=\"translate(14 %d) rotate(-90)\">%s</text>\n", (TOP + bottom) / 2,
             c->y);
}

/* A line for each run of finite points; a point alone is a dot. */
static void put_line(struct page *p, const struct series *s, size_t i, const struct axis *x, const struct axis *y)
{
    for (size_t from = 0; from < s->n;) {
        size_t end = from;
        while (end < s->n && isfinite(s->point[end].x) && isfinite(s->point[end].y)) end++;
        if (end == from + 1) {
            page_put(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", place_x(x, s->point[from].x),
                     place_y(y, s->point[from].y), chart_colour(i));
        } else if (end > from) {
            page_put(p, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" stroke-dasharray=\"%s\" points=\"",
                     chart_colour(i), chart_dashes(i));
            for (size_t k = from; k < end; k++)
                page_put(p, "%.1f,%.1f ", place_x(x, s->point[k].x), place_y(y, s->point[k].y));
            page_put(p, "\"/>\n");
        }
        from = end > from ? end : from + 1;
    }
}

int chart_put(struct page *p, const struct chart *c, struct tabft_failure *f)
{
    int error = 0;
    struct series *line = NULL;
    double low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY;
    TRY(memory_new(&line, c->n, sizeof *line, "a chart", f));
    for (size_t i = 0; i < c->n; i++) {
        if (c->series[i] == NULL || c->series[i]->n == 0) continue;
        TRY(thin(c->series[i], &line[i], f));
        for (size_t k = 0; k < line[i].n; k++) {
            const struct point at = line[i].point[k];
            if (!isfinite(at.x) || !isfinite(at.y)) continue;
            low_x = fmin(low_x, at.x);
            high_x = fmax(high_x, at.x);
            low_y = fmin(low_y, at.y);
            high_y = fmax(high_y, at.y);
        }
    }
    if (!isfinite(high_x - low_x) || !isfinite(high_y - low_y)) goto fail; /* nothing to draw */
    const struct axis x = axis_of(low_x, high_x), y = axis_of(low_y, high_y);
    page_put(p, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", WIDTH, HEIGHT, c->title);
    put_axes(p, c, &x, &y);
    for (size_t i = 0; i < c->n; i++) put_line(p, &line[i], i, &x, &y);
    page_put(p, "</svg>\n");
fail:
    for (size_t i = 0; line != NULL && i < c->n; i++) free(line[i].point);
    free(line);
    return error;
}
