/* export.h - what the formats of an export share. */
#ifndef KC_STATE_EXPORT_H
#define KC_STATE_EXPORT_H

#include "pair.h"
#include "state.h"

/* Without slashes at its end. -EINVAL, -ENAMETOOLONG. */
int kc_export_name_of(const char *name, char out[3072], struct kc_error *e);
/* A folder that is asked for may be there, but empty. -ENOTEMPTY. */
int kc_export_free_folder(const struct kc_storage *st, const char *folder, struct kc_error *e);
/* Make the folder that `folder` is written as until it is whole; what: "export", "import". -EEXIST it is there. */
int kc_export_begin(const struct kc_storage *st, const char *folder, const char *what, char tmp[4096], struct kc_error *e);
/* What is written as `tmp` is whole: sync, if it is a folder, and give it its name, durably. */
int kc_export_settle(const struct kc_storage *st, const char *tmp, const char *name, bool folder, struct kc_error *e);
/* export_llmc.c: the file `path`. */
int kc_export_llmc(const struct kc_storage *st, const struct kc_side *s, const struct kc_export *c, const char *path,
                   struct kc_export_info *out, struct kc_error *e);

#endif
