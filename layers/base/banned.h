/* banned.h - functions that this project does not use; naming one is a compile error. Included by every file through the
 * compiler's -include, so that no file can forget it. */
#ifndef KC_BANNED_H
#define KC_BANNED_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#pragma GCC poison sprintf vsprintf strcpy strcat strtok atoi atol atof system localtime gmtime tmpnam mktemp gets
#endif
