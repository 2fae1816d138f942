/* How a role looks: readable on its ground, and meant by letters and weight where there is no colour. Contrast is that of WCAG
 * 2.1; what the 256 colours are is xterm's. */
#include "suite.h"

#include "console/screen/theme.h"

#include <math.h>

static double part(int level)
{
    const double c = level / 255.0;
    return c <= 0.03928 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

static double luminance(int number)
{
    static const int cube[6] = {0, 95, 135, 175, 215, 255};
    if (number >= 232)
        return part(8 + 10 * (number - 232));
    number -= 16;
    return 0.2126 * part(cube[number / 36]) + 0.7152 * part(cube[number / 6 % 6]) + 0.0722 * part(cube[number % 6]);
}

START_TEST(with_256_colours_all_is_readable_on_its_ground)
{
    for (int role = 0; role < ROLES; role++) {
        const struct paint dark = theme_paint("dark", 256, (enum role)role), light = theme_paint("light", 256, (enum role)role);
        ck_assert(dark.ink < 0 || dark.ink >= 16); /* below it is what the person's terminal makes of it */
        ck_assert_msg(dark.ink < 0 || (luminance(dark.ink) + 0.05) / 0.05 >= 4.5, "role %d", role);
        ck_assert(light.ink < 0 || light.ink >= 16);
        ck_assert_msg(light.ink < 0 || 1.05 / (luminance(light.ink) + 0.05) >= 4.5, "role %d", role);
    }
}
END_TEST

START_TEST(a_terminal_gets_no_colour_that_it_lacks)
{
    static const int depths[] = {0, 2, 8, 16, 88, 256};
    static const char *const themes[] = {"dark", "light", "mono"};
    for (size_t t = 0; t < 3; t++)
        for (size_t d = 0; d < 6; d++)
            for (int role = 0; role < ROLES; role++) {
                const struct paint p = theme_paint(themes[t], depths[d], (enum role)role);
                ck_assert_int_lt(p.ink, depths[d] ? depths[d] : 1);
                ck_assert(p.ink < 0 || (t < 2 && depths[d] >= 8));
            }
}
END_TEST

/* What is bad is told from what is ordinary without colour as well, and so is where the cursor stands. */
START_TEST(without_colour_weight_tells)
{
    const struct paint normal = theme_paint("mono", 256, ROLE_NORMAL);
    ck_assert(!normal.bold && !normal.reverse);
    ck_assert(theme_paint("mono", 256, ROLE_BAD).bold);
    ck_assert(theme_paint("mono", 256, ROLE_WARN).bold);
    ck_assert(theme_paint("mono", 256, ROLE_CURSOR).reverse);
    ck_assert(theme_paint("mono", 256, ROLE_TITLE).reverse);
}
END_TEST

START_TEST(good_warn_and_bad_are_three_colours)
{
    static const int depths[] = {8, 16, 256};
    for (size_t d = 0; d < 3; d++)
        for (int light = 0; light < 2; light++) {
            const char *theme = light ? "light" : "dark";
            const short good = theme_paint(theme, depths[d], ROLE_GOOD).ink, warn = theme_paint(theme, depths[d], ROLE_WARN).ink,
                        bad = theme_paint(theme, depths[d], ROLE_BAD).ink;
            ck_assert(good != warn && warn != bad && bad != good);
            ck_assert(!light || warn % 8 != 3 || warn >= 16); /* yellow on white */
        }
}
END_TEST

/* Where a font has no braille, half blocks stand for it: which of the upper and the lower half has a dot. */
START_TEST(braille_becomes_half_blocks)
{
    static const struct {
        uint32_t braille, block;
    } cases[] = {{0x2800, ' '}, {0x2801, 0x2580}, {0x2810, 0x2580}, {0x2804, 0x2584}, {0x2880, 0x2584}, {0x2841, 0x2588},
                 {0x28ff, 0x2588}, {'x', 'x'}, {0x2900, 0x2900}};
    struct canvas c;
    ck_assert_int_eq(canvas_new(&c, 1, 10, false), 0);
    c.blocks = true;
    struct canvas part = canvas_part(&c, 0, 0, 1, 10);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        canvas_put(&part, 0, (int)i, ROLE_CURVE, cases[i].braille, '*');
        ck_assert_uint_eq(c.cell[i].code, cases[i].block);
    }
    canvas_free(&c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("theme");
    TCase *c = tcase_create("theme");
    tcase_add_test(c, with_256_colours_all_is_readable_on_its_ground);
    tcase_add_test(c, a_terminal_gets_no_colour_that_it_lacks);
    tcase_add_test(c, without_colour_weight_tells);
    tcase_add_test(c, good_warn_and_bad_are_three_colours);
    tcase_add_test(c, braille_becomes_half_blocks);
    suite_add_tcase(s, c);
    return suite_run(s);
}
