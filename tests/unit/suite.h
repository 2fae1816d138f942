/* suite.h - the end of a Check program's main(). */
#ifndef KC_TESTS_SUITE_H
#define KC_TESTS_SUITE_H

#include <check.h>
#include <errno.h>
#include <string.h>

/* Run the suite and free it; the exit status. What is tested runs itself again as another kc (screen/child.c): here that is this
 * program, which then must not run its tests, and so itself, again and again. */
static inline int suite_run(Suite *s)
{
    if (strcmp(program_invocation_short_name, "kc") == 0)
        return 0;
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
