/* oom.h - the parts of oom.c that are decided from their arguments alone. */
#ifndef KC_RESOURCE_OOM_H
#define KC_RESOURCE_OOM_H

#include "resource.h"

/* Whom a record of /dev/kmsg says that the kernel killed for want of memory; 0: nobody. Such a record is
 * "priority,number,time,flags;text" (Documentation/ABI/testing/dev-kmsg), and one that a program wrote into the log, which
 * may say anything, has a facility above 0 in its priority. */
pid_t oom_named(const char *record);

/* Where a counter of kills was read. */
enum oom_counter { OOM_COUNTER_NONE, OOM_COUNTER_GROUP, OOM_COUNTER_MACHINE };

/* Fill in level and evidence of victims that are not certain yet: `rise` is by how much the counter rose beyond those that
 * are. */
void oom_judge_rest(struct kc_oom_victim *victims, size_t count, enum oom_counter counter, uint64_t rise);

#endif
