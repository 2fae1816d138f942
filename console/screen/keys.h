/* keys.h - the keys of the screen, from keys.def. */
#ifndef KC_CONSOLE_SCREEN_KEYS_H
#define KC_CONSOLE_SCREEN_KEYS_H

enum key_id {
#define KEY(id, code, second, function, shown, help) KEY_ID_##id,
#include "console/keys.def"
#undef KEY
    KEY_IDS
};
struct key_row {
    const char *shown, *help;
    int code[3];
};
extern const struct key_row key_rows[KEY_IDS];
/* KEY_IDS: no such key. */
enum key_id key_find(int code);

#endif
