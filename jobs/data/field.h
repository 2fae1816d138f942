/* field.h - what a training file is called in a message. */
#ifndef KC_JOBS_DATA_FIELD_H
#define KC_JOBS_DATA_FIELD_H

#include <stdint.h>
#include <stdio.h>

/* data.train where it is the only one of the list, else data.train[2]. */
static inline const char *field_of_train(uint32_t files, uint32_t file, char room[40])
{
    if (files == 1)
        return "data.train";
    snprintf(room, 40, "data.train[%u]", file);
    return room;
}

#endif
