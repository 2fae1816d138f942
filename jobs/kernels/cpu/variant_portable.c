/* variant_portable.c - the kernels for any processor: vectors of four. */
#define VARIANT_NAME "portable"
#define VARIANT_TABLE kernels_portable
#include "variant.h"
