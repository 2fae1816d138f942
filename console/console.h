/* console.h - kc: what a person or a script types. Everything it shows comes from files under $KC_HOME and from the
 * board, mapped read-only; what changes a job goes as a request to kcd. Its death never touches a job. */
#ifndef KC_CONSOLE_H
#define KC_CONSOLE_H

/* All of kc: a verb runs in batch mode; without one the screen opens, if both ends are a terminal. Returns the exit
 * code (KC_EXIT_TABLE in supervisor/protocol.h). */
int kc_console_main(int argc, char **argv);

#endif
