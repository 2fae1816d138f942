/* version.h - the version of all three programs. kc and kcd talk only when theirs are equal. */
#ifndef KC_BASE_VERSION_H
#define KC_BASE_VERSION_H

#define KC_VERSION "0.1.0"

#endif
