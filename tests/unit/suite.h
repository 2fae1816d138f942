/* suite.h - the end of a Check program's main(). */
#ifndef KC_TESTS_SUITE_H
#define KC_TESTS_SUITE_H

#include <check.h>

/* Run the suite and free it; the exit status. */
static inline int suite_run(Suite *s)
{
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
