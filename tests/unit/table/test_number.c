#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "table/number.h"
#include "unit.h"

static locale_t c_locale;

static uint64_t bits_of(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, 8);
    return bits;
}

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Scans all of `text` and gives its double; -1 where it is no number or too large. */
static int read_double(const char *text, double *v)
{
    struct number n, m;
    char padded[512] = "";
    const char *end = number_scan(text, '.', &n);
    strncat(padded, text, sizeof padded - NUMBER_PADDING - 1);
    const char *padded_end = number_scan_padded(padded, '.', &m);
    ck_assert_msg((end == NULL) == (padded_end == NULL), "%s: padded and not differ", text);
    if (end == NULL || *end != '\0') return -1;
    ck_assert_msg(end - text == padded_end - padded && m.mantissa == n.mantissa && m.exponent == n.exponent &&
                      m.n_digits == n.n_digits && m.negative == n.negative && m.integer == n.integer,
                  "%s: padded and not differ", text);
    return number_double(&n, text, end, '.', c_locale, v) ? 0 : -1;
}

static void same_as_strtod(const char *text)
{
    double v, want = strtod(text, NULL);
    ck_assert_msg(read_double(text, &v) == (isfinite(want) ? 0 : -1), "%s is not taken", text);
    if (isfinite(want))
        ck_assert_msg(bits_of(v) == bits_of(want), "%s: %016" PRIx64 ", not %016" PRIx64, text, bits_of(v),
                      bits_of(want));
}

START_TEST(hard_cases_have_every_bit_right)
{
    static const struct {
        const char *text;
        uint64_t bits;
    } cases[] = {
        {"742.0000186", 0x4087300009c07322},
        {"552.0000190", 0x4081400009f62307},
        {"446.234", 0x407be3be76c8b439},
        {"432.00984", 0x407b00284dfce315},
        {"556.834", 0x408166ac083126e9},
        {"242.744", 0x406e57ced916872b},
        {"2.1652246340916461e-123", 0x2676e6bf2e548982},
        {"3.8574760250721440e-188", 0x19057bd86c825070},
        {"6.2018354592213925e-283", 0x05570e3ad994ed36},
        {"3.9384114208735532e-140", 0x22fe0434d2af2f13},
        {"0.000000000000000000002718281", 0x3ba9ac6671a7a5d2},
        {"0.1", 0x3fb999999999999a},
        {"-0.0", 0x8000000000000000},
        {"4.9406564584124654e-324", 1},
        {"2.2250738585072014e-308", 0x0010000000000000},
        {"1.7976931348623157e308", 0x7fefffffffffffff},
        {"123456789012345678", 0x437b69b4ba630f35},
        {"1e23", 0x44b52d02c7e14af6},
        {"9007199254740993.0", 0x4340000000000000},
        {"15582152.500000000000909494701772928237", 0x416db87910000000},
        {"9007199254740992.99999999999999999999999", 0x4340000000000000},
        {"9007199254740993.00000000000000000000001", 0x4340000000000001},
        {"2.2250738585072011e-308", 0x000fffffffffffff},
        {"2.4703282292062327e-324", 0},
        {"2.4703282292062328e-324", 1},
        {"0e999999999999", 0},
        {"1e-999999999999", 0},
        {".5", 0x3fe0000000000000},
        {"5.", 0x4014000000000000},
        {"+1", 0x3ff0000000000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double v;
        ck_assert_msg(read_double(cases[i].text, &v) == 0, "%s is not taken", cases[i].text);
        ck_assert_msg(bits_of(v) == cases[i].bits, "%s: %016" PRIx64, cases[i].text, bits_of(v));
    }
}
END_TEST

START_TEST(what_is_no_number_is_not_taken)
{
    static const char *const cases[] = {"",
                                        "-",
                                        "+",
                                        ".",
                                        "-.",
                                        "1e",
                                        "1e+",
                                        "e5",
                                        "007",
                                        "00.5",
                                        "-01",
                                        "0x10",
                                        "1_0",
                                        "--1",
                                        "1..2",
                                        "nan",
                                        "1.7976931348623159e308",
                                        "1e400"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double v;
        ck_assert_msg(read_double(cases[i], &v) == -1, "%s is taken for a number", cases[i]);
    }
}
END_TEST

START_TEST(random_decimals_are_as_strtod_has_them)
{
    uint64_t state = 1;
    char text[128];
    for (int i = 0; i < 400000; i++) {
        uint64_t a = next_random(&state), b = next_random(&state);
        uint64_t mantissa = a >> b % 60;
        switch (i % 4) {
        case 0:
            (void)snprintf(text, sizeof text, "%s%" PRIu64 "e%d", b >> 63 ? "-" : "", mantissa,
                           (int)(b >> 8 & 1023) - 511);
            break;
        case 1: (void)snprintf(text, sizeof text, "%" PRIu64 ".%" PRIu64, mantissa % 1000, b >> (a & 31)); break;
        case 2:
            (void)snprintf(text, sizeof text, "%.*e", (int)(a % 25),
                           (double)mantissa * pow(10, (double)(b & 511) - 300));
            break;
        default: { /* the midpoint between two doubles, a bit below and above */
            double v;
            uint64_t bits = a & 0x7fcfffffffffffff;
            memcpy(&v, &bits, 8);
            (void)snprintf(text, sizeof text, "%.*e", (int)(15 + b % 6), v);
        }
        }
        if (text[0] == '0' && text[1] >= '0' && text[1] <= '9') continue;
        same_as_strtod(text);
    }
}
END_TEST

START_TEST(every_power_of_ten_is_right)
{
    uint64_t state = 7;
    char text[64];
    for (int e = -345; e <= 310; e++) {
        for (int i = 0; i < 200; i++) {
            (void)snprintf(text, sizeof text, "%" PRIu64 "e%d", i == 0 ? 1 : next_random(&state) >> i % 50, e - i % 20);
            same_as_strtod(text);
        }
    }
}
END_TEST

START_TEST(integers_are_exact)
{
    static const struct {
        const char *text;
        bool fits;
        int64_t v;
    } cases[] = {{"9223372036854775807", true, INT64_MAX},
                 {"-9223372036854775808", true, INT64_MIN},
                 {"9223372036854775808", false, 0},
                 {"-9223372036854775809", false, 0},
                 {"18446744073709551616", false, 0},
                 {"99999999999999999999", false, 0},
                 {"-0", true, 0},
                 {"9007199254740993", true, 9007199254740993},
                 {"1690000000000000007", true, 1690000000000000007}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct number n;
        int64_t v = 0;
        const char *end = number_scan(cases[i].text, '.', &n);
        ck_assert(end != NULL && *end == '\0' && n.integer);
        ck_assert_msg(number_int64(&n, &v) == cases[i].fits && v == cases[i].v, "%s: %" PRId64, cases[i].text, v);
        char text[NUMBER_PRINT_MAX];
        if (cases[i].fits && v != 0) {
            number_print_int64(v, text);
            ck_assert_str_eq(text, cases[i].text);
        }
    }
}
END_TEST

START_TEST(printed_numbers_read_back)
{
    static const struct {
        double v;
        const char *text, *label;
    } cases[] = {{1, "1.0", "1"},
                 {-0.0, "-0.0", "0"},
                 {0.1, "0.1", "0.1"},
                 {1e23, "1e+23", "1e+23"},
                 {123456, "123456.0", "123456"},
                 {(double)0.1f, "0.10000000149011612", "0.10000000149011612"},
                 {(double)INFINITY, "inf", "inf"},
                 {-2.5, "-2.5", "-2.5"},
                 {5e-324, "5e-324", "5e-324"}};
    char text[NUMBER_PRINT_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(number_print_double(cases[i].v, c_locale, text), strlen(text));
        ck_assert_str_eq(text, cases[i].text);
        ck_assert_uint_eq(number_print_label(cases[i].v, c_locale, text), strlen(text));
        ck_assert_str_eq(text, cases[i].label);
    }
    uint64_t state = 3;
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = next_random(&state);
        double v, back;
        memcpy(&v, &bits, 8);
        if (!isfinite(v)) continue;
        number_print_double(v, c_locale, text);
        ck_assert(strpbrk(text, ".e") != NULL);
        ck_assert_msg(read_double(text, &back) == 0 && bits_of(back) == bits, "%s", text);
    }
}
END_TEST

START_TEST(a_decimal_comma_is_a_point)
{
    struct number n;
    double v;
    const char *text = "-0,50000000000000000000000000000000000001;";
    const char *end = number_scan(text, ',', &n);
    ck_assert(end != NULL && *end == ';');
    ck_assert(number_double(&n, text, end, ',', c_locale, &v) && v == -0.5);
}
END_TEST

__attribute__((constructor)) static void open_locale(void)
{
    struct tabft_failure f = {0};
    if (number_locale(&c_locale, &f) < 0) abort();
}

UNIT_MAIN("table/number", hard_cases_have_every_bit_right, what_is_no_number_is_not_taken,
          random_decimals_are_as_strtod_has_them, every_power_of_ten_is_right, integers_are_exact,
          printed_numbers_read_back, a_decimal_comma_is_a_point)
