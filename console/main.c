/* main.c - kc. */
#include "console.h"

#include "screen/child.h"

int main(int argc, char **argv)
{
    child_allow();
    return kc_console_main(argc, argv);
}
