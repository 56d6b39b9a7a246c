/* What differs between two loaded files, tensor by tensor. */
#ifndef TABFT_CKPT_COMPARE_H
#define TABFT_CKPT_COMPARE_H

#include "ckpt/ckpt.h"

enum ckpt_difference_kind {
    CKPT_SAME,   /* bit for bit */
    CKPT_VALUES, /* same shape and dtype */
    CKPT_FORM,   /* other shape or dtype; values were not compared */
    CKPT_ONLY_IN_A,
    CKPT_ONLY_IN_B
};

struct ckpt_difference {
    const struct ckpt_tensor *a, *b; /* NULL where the file has none of that name; point into the two files */
    enum ckpt_difference_kind kind;
    uint64_t n_different; /* elements whose bits differ */
    double max_abs;       /* largest |a - b|; NaN where one of two that differ is not finite */
    uint64_t worst;       /* the element where it is */
};

struct ckpt_comparison {
    size_t n;                       /* names in either file, sorted */
    struct ckpt_difference *tensor; /* [n] */
    size_t n_different;             /* tensors not CKPT_SAME */
    bool comparable;                /* same names, shapes and dtypes */
    double max_abs;                 /* over all tensors compared; NaN wins */
    bool same_metadata;             /* same keys with same values, in any order */
    bool identical;                 /* all tensors CKPT_SAME and same_metadata */
};

/* Compares two files of ckpt_open. The result points into them. Errors: TABFT_SYSTEM. */
int ckpt_compare(const struct ckpt *a, const struct ckpt *b, struct ckpt_comparison *out,
                 struct tabft_failure *f) TABFT_MUST_CHECK;
void ckpt_comparison_clear(struct ckpt_comparison *c);

/* Checks a file of ckpt_open against the SHA-256 recorded beside it: PATH.sha256 as `sha256sum PATH` writes it, or, for
 * a model.safetensors, "model_sha256" of the run.json in its folder. *where = the name of what was found
 * ("PATH.sha256", "run.json"), NULL where nothing is recorded. Errors: TABFT_INPUT where it is not that file or the
 * record is unreadable. *where is static storage or NULL. */
int ckpt_check_digest(const struct ckpt *c, const char **where, struct tabft_failure *f) TABFT_MUST_CHECK;

#endif
