/* Sines and cosines for one instruction set; included by kernels_template_internal.h alone, for its lanes. */
#ifndef SIMD_WIDTH
#error "kernels_fourier_internal.h is included by kernels_template_internal.h only"
#endif

struct circle {
    vec sine, cosine;
};

/* Beyond what the reduction below keeps exact. */
static void circle_far(vec x, struct circle *out)
{
    for (int i = 0; i < SIMD_WIDTH; i++) {
        out->sine[i] = sinf(x[i]);
        out->cosine[i] = cosf(x[i]);
    }
}

/* Both of x to 1e-7. x less the nearest multiple of pi / 2, which is subtracted in three parts, the first two short
 * enough for exact products; polynomials of what is left; then its quarter of the circle. */
INLINE struct circle circle_at(vec x)
{
    const float magic = 12582912.0f; /* as in v_exp2: a number behind it is rounded to a whole one */
    struct circle c;
    const vec most = v_abs(x);
    bool far = false;
    for (int i = 0; i < SIMD_WIDTH; i++) far |= !(most[i] < 8192.0f);
    if (far) {
        circle_far(x, &c);
        return c;
    }
    const vec shifted = v_fma(x, v_splat(0.636619772f), v_splat(magic)), n = shifted - magic;
    const vec_int quarter = (vec_int)shifted;
    vec r = x - n * 1.5703125f;
    r -= n * 4.837512969970703125e-4f;
    r = v_fma(n, v_splat(-7.54978995489188216e-8f), r);
    const vec s = r * r;
    vec sine = v_fma(v_splat(-1.9515295891e-4f), s, v_splat(8.3321608736e-3f));
    sine = v_fma(v_fma(sine, s, v_splat(-1.6666654611e-1f)) * s, r, r);
    vec cosine = v_fma(v_splat(2.443315711809948e-5f), s, v_splat(-1.388731625493765e-3f));
    cosine = v_fma(v_fma(cosine, s, v_splat(4.166664568298827e-2f)), s * s, v_fma(v_splat(-0.5f), s, v_splat(1.0f)));
    const vec_int swapped = (quarter & 1) != 0;
    c.sine = v_select(swapped, cosine, sine);
    c.cosine = v_select(swapped, sine, cosine);
    c.sine = (vec)((vec_int)c.sine ^ ((quarter & 2) << 30));
    c.cosine = (vec)((vec_int)c.cosine ^ (((quarter + 1) & 2) << 30));
    return c;
}

static void fourier(size_t numbers, size_t frequencies, const float *x, const float *frequency, float *y)
{
    for (size_t j = 0; j < frequencies; j += SUM_LANES) {
        struct lanes sine = {0}, cosine = {0};
        for (size_t i = 0; i < numbers; i++) {
            const struct lanes w = lanes_load(frequency + i * frequencies + j, frequencies - j);
            for (int l = 0; l < SUM_VECS; l++) {
                const struct circle c = circle_at(w.v[l] * x[i]);
                sine.v[l] += c.sine;
                cosine.v[l] += c.cosine;
            }
        }
        lanes_store(y + j, &sine, frequencies - j);
        lanes_store(y + frequencies + j, &cosine, frequencies - j);
    }
}

static void fourier_backward(size_t numbers, size_t frequencies, const float *x, const float *frequency,
                             const float *dy, float *d)
{
    for (size_t j = 0; j < frequencies; j += SUM_LANES) {
        const struct lanes by_sine = lanes_load(dy + j, frequencies - j),
                           by_cosine = lanes_load(dy + frequencies + j, frequencies - j);
        for (size_t i = 0; i < numbers; i++) {
            const size_t at = i * frequencies + j;
            const struct lanes w = lanes_load(frequency + at, frequencies - j);
            struct lanes g = lanes_load(d + at, frequencies - j);
            for (int l = 0; l < SUM_VECS; l++) {
                const struct circle c = circle_at(w.v[l] * x[i]);
                g.v[l] += x[i] * (c.cosine * by_sine.v[l] - c.sine * by_cosine.v[l]);
            }
            lanes_store(d + at, &g, frequencies - j);
        }
    }
}
