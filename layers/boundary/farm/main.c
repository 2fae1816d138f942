/* main.c - kc-farm ROOT TO: writes the include farm before anything else is compiled. A tool of the build, not installed. */
#include "boundary/boundary.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct kc_error e = {""};
    if (argc != 3) {
        fprintf(stderr, "usage: kc-farm ROOT TO\n");
        return 2;
    }
    int code = kc_boundary_farm(argv[1], argv[2], &e);
    if (code < 0)
        fprintf(stderr, "boundary: %s\n", e.text[0] ? e.text : strerror(-code));
    return code < 0;
}
