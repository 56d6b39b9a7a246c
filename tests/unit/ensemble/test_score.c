/* Scores against scikit-learn 1.9.1 (accuracy_score, balanced_accuracy_score, log_loss, roc_auc_score with
 * multi_class="ovr") on numbers that a small generator gives here as there. */
#include <math.h>
#include <string.h>

#include "ensemble/score.h"
#include "unit.h"

enum { ROWS = 90, CLASSES = 5 };

static int next_number(uint64_t *state)
{
    *state = (*state * 1103515245 + 12345) % 2147483648U;
    return (int)(*state / 65536);
}

static void fill(int32_t *label, double *probability, size_t n, size_t n_classes)
{
    uint64_t state = 12345;
    for (size_t i = 0; i < n; i++) label[i] = next_number(&state) % (int32_t)n_classes;
    for (size_t i = 0; i < n; i++) {
        double *p = probability + i * n_classes, sum = 0;
        for (size_t k = 0; k < n_classes; k++) p[k] = 1 + next_number(&state) % 9;
        p[label[i]] += 3;
        for (size_t k = 0; k < n_classes; k++) sum += p[k];
        for (size_t k = 0; k < n_classes; k++) p[k] /= sum;
    }
}

START_TEST(scores_are_those_of_scikit_learn)
{
    static const struct {
        size_t n_classes, n;
        double accuracy, balanced, log_loss, roc_auc;
    } expected[] = {
        {2, 50, 0.8, 0.8060897435897436, 0.49114843332938807, 0.8725961538461539},
        {3, 90, 0.6777777777777778, 0.6821654838621966, 0.8320746633781286, 0.8403252846285668},
        {5, 40, 0.575, 0.5755128205128205, 1.3135475912270873, 0.8098007546329118},
    };
    static double probability[ROWS * CLASSES];
    static int32_t label[ROWS];
    struct tabft_failure f = {0};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        size_t n = expected[i].n, n_classes = expected[i].n_classes;
        double value;
        fill(label, probability, n, n_classes);
        ck_assert_double_eq_tol(score_accuracy(probability, label, n, n_classes), expected[i].accuracy, 1e-15);
        MUST(score_balanced_accuracy(probability, label, n, n_classes, &value, &f));
        ck_assert_double_eq_tol(value, expected[i].balanced, 1e-14);
        ck_assert_double_eq_tol(score_log_loss(probability, label, n, n_classes), expected[i].log_loss, 1e-14);
        MUST(score_roc_auc(probability, label, n, n_classes, &value, &f));
        ck_assert_double_eq_tol(value, expected[i].roc_auc, 1e-14);
    }
}
END_TEST

START_TEST(certainty_costs_a_finite_loss)
{
    const double probability[4] = {1, 0, 1, 0};
    const int32_t label[2] = {0, 1};
    ck_assert_double_eq_tol(score_log_loss(probability, label, 2, 2), 18.021826694558577, 1e-12);
}
END_TEST

START_TEST(an_area_without_a_class_is_refused)
{
    const double probability[6] = {0.5, 0.3, 0.2, 0.1, 0.8, 0.1};
    const int32_t label[2] = {0, 1}, one[3] = {1, 1, 1};
    struct tabft_failure f = {0};
    double value;
    MUST_FAIL(score_roc_auc(probability, label, 2, 3, &value, &f), TABFT_NOT_HELD, "class 2 has none");
    MUST_FAIL(score_roc_auc(probability, one, 3, 2, &value, &f), TABFT_NOT_HELD, "class 1 has all");
    MUST(score_balanced_accuracy(probability, label, 2, 3, &value, &f));
    ck_assert_double_eq(value, 1);
}
END_TEST

UNIT_MAIN("score", scores_are_those_of_scikit_learn, certainty_costs_a_finite_loss, an_area_without_a_class_is_refused)
