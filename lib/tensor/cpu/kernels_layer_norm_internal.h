/* Layer normalisation for one instruction set; included by kernels_template_internal.h alone, for its lanes. */
#ifndef SIMD_WIDTH
#error "kernels_layer_norm_internal.h is included by kernels_template_internal.h only"
#endif

/* Sets numbers from `count` on to 0. */
INLINE void lanes_cut(struct lanes *l, size_t count)
{
    if (count >= SUM_LANES) return;
    float whole[SUM_LANES];
    for (int i = 0; i < SUM_VECS; i++) v_store(whole + i * SIMD_WIDTH, l->v[i]);
    for (size_t i = count; i < SUM_LANES; i++) whole[i] = 0.0f;
    for (int i = 0; i < SUM_VECS; i++) l->v[i] = v_load(whole + i * SIMD_WIDTH);
}

struct moments {
    float mean, inverse; /* 1 / sqrt(variance + epsilon) */
};

/* In two passes: numbers far from zero keep their variance. */
INLINE struct moments moments_of(size_t width, float epsilon, const float *x)
{
    struct lanes sum = {0}, squares = {0};
    for (size_t j = 0; j < width; j += SUM_LANES) {
        struct lanes a = lanes_load(x + j, width - j);
        for (int l = 0; l < SUM_VECS; l++) sum.v[l] += a.v[l];
    }
    const float mean = lanes_sum(&sum) / (float)width;
    for (size_t j = 0; j < width; j += SUM_LANES) {
        struct lanes a = lanes_load(x + j, width - j);
        for (int l = 0; l < SUM_VECS; l++) a.v[l] -= mean;
        lanes_cut(&a, width - j);
        for (int l = 0; l < SUM_VECS; l++) squares.v[l] = v_fma(a.v[l], a.v[l], squares.v[l]);
    }
    return (struct moments){mean, 1.0f / sqrtf(lanes_sum(&squares) / (float)width + epsilon)};
}

static void layer_norm(size_t rows, size_t width, float epsilon, const float *x, float *y)
{
    for (size_t i = 0; i < rows; i++, x += width, y += width) {
        const struct moments m = moments_of(width, epsilon, x);
        for (size_t j = 0; j < width; j += SUM_LANES) {
            struct lanes a = lanes_load(x + j, width - j);
            for (int l = 0; l < SUM_VECS; l++) a.v[l] = (a.v[l] - m.mean) * m.inverse;
            lanes_store(y + j, &a, width - j);
        }
    }
}

/* With n = (x - mean) / deviation: dx = (dy - mean(dy) - n mean(dy n)) / deviation. */
static void layer_norm_backward(size_t rows, size_t width, float epsilon, const float *x, const float *dy, float *dx,
                                bool add_to)
{
    for (size_t i = 0; i < rows; i++, x += width, dy += width, dx += width) {
        const struct moments m = moments_of(width, epsilon, x);
        struct lanes sum = {0}, along = {0};
        for (size_t j = 0; j < width; j += SUM_LANES) {
            struct lanes a = lanes_load(x + j, width - j), d = lanes_load(dy + j, width - j);
            for (int l = 0; l < SUM_VECS; l++) {
                sum.v[l] += d.v[l];
                along.v[l] = v_fma((a.v[l] - m.mean) * m.inverse, d.v[l], along.v[l]);
            }
        }
        const float mean = lanes_sum(&sum) / (float)width, back = lanes_sum(&along) / (float)width;
        for (size_t j = 0; j < width; j += SUM_LANES) {
            struct lanes a = lanes_load(x + j, width - j), d = lanes_load(dy + j, width - j), old = {0};
            if (add_to) old = lanes_load(dx + j, width - j);
            for (int l = 0; l < SUM_VECS; l++)
                a.v[l] = old.v[l] + (d.v[l] - mean - (a.v[l] - m.mean) * m.inverse * back) * m.inverse;
            lanes_store(dx + j, &a, width - j);
        }
    }
}
