/* screen_picture.h - a screen as a picture: what `make pictures` shows in README is what the golden screens are compared with. */
#ifndef KC_TESTS_SCREEN_PICTURE_H
#define KC_TESTS_SCREEN_PICTURE_H

#include "console/screen/canvas.h"

/* The screen as SVG; owned by the caller, NULL: no memory. Dots of braille and lines of frames are drawn, not left to a font. */
char *screen_picture(const struct canvas *c);

#endif
