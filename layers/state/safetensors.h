/* safetensors.h - reads a safetensors file (format of huggingface/safetensors: u64 little-endian header length, JSON
 * header, one buffer without holes). Checks everything before the first value is read: lengths, offsets, duplicate
 * names. */
#ifndef KC_STATE_SAFETENSORS_H
#define KC_STATE_SAFETENSORS_H

#include "tensors.h"

/* -EBADMSG not a whole safetensors file: e has expected and found lengths or the tensor; else -errno. */
int kc_safetensors_open(const char *path, struct kc_tensor_file *out, struct kc_error *e);

#endif
