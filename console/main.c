/* main.c - kc. */
#include "console.h"

int main(int argc, char **argv)
{
    return kc_console_main(argc, argv);
}
