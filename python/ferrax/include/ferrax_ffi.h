/* Handlers of foreign functions in plain C.
 *
 * A handler takes a call frame with the operands, the results and the attributes of a call of
 * `ffi_call`, and gives NULL, or an error. The layout is that of XLA's foreign function interface, so
 * that a library built with this header is loaded by JAX, too. Arrays lie row by row, aligned to 64
 * bytes.
 *
 *     #include "ferrax_ffi.h"
 *
 *     fx_error *twice(fx_call_frame *frame) {
 *       FX_ANSWER_METADATA(frame);
 *       if (fx_dtype(frame, 0) != FX_F32) return fx_fail(frame, FX_INVALID_ARGUMENT, "floats, please");
 *       const float *x = fx_operand(frame, 0);
 *       float *y = fx_result(frame, 0);
 *       for (int64_t i = 0; i < fx_operand_size(frame, 0); ++i) y[i] = 2 * x[i];
 *       return NULL;
 *     }
 */

#ifndef FERRAX_FFI_H
#define FERRAX_FFI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the interface that this header has. */
#define FX_MAJOR 0
#define FX_MINOR 1

typedef struct fx_error fx_error;
typedef struct fx_context fx_context;

typedef struct fx_extension {
  size_t size;
  int kind;
  struct fx_extension *next;
} fx_extension;

typedef struct {
  size_t size;
  fx_extension *extension;
  int major, minor;
} fx_version;

enum { FX_METADATA = 1 };

typedef struct {
  size_t size;
  fx_version version;
  uint32_t traits;
  int64_t state_type;
} fx_metadata;

typedef struct {
  fx_extension base;
  fx_metadata *metadata;
} fx_metadata_extension;

/* The numbers of dtypes. */
enum {
  FX_BOOL = 1, FX_S8 = 2, FX_S16 = 3, FX_S32 = 4, FX_S64 = 5, FX_U8 = 6, FX_U16 = 7, FX_U32 = 8, FX_U64 = 9,
  FX_F16 = 10, FX_F32 = 11, FX_F64 = 12, FX_C64 = 15, FX_BF16 = 16, FX_C128 = 18,
};

typedef struct {
  size_t size;
  fx_extension *extension;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} fx_buffer;

/* Operands, or results: items are buffers. */
typedef struct {
  size_t size;
  fx_extension *extension;
  int64_t count;
  int *kinds;
  void **items;
} fx_buffers;

typedef struct {
  const char *text;
  size_t length;
} fx_span;

typedef struct {
  int dtype;
  void *value;
} fx_scalar;

typedef struct {
  int dtype;
  size_t length;
  void *data;
} fx_array;

/* Kinds of attributes: a fx_array, a fx_attributes, a fx_scalar, a fx_span. */
enum { FX_ARRAY = 1, FX_DICTIONARY = 2, FX_SCALAR = 3, FX_STRING = 4 };

/* Attributes, sorted by name. */
typedef struct {
  size_t size;
  fx_extension *extension;
  int64_t count;
  int *kinds;
  fx_span **names;
  void **items;
} fx_attributes;

typedef struct {
  size_t size;
  fx_extension *extension;
  const char *message;
  int code;
} fx_error_create;

/* The functions that a handler may call; more follow than are named here. */
typedef struct {
  size_t size;
  fx_extension *extension;
  fx_version version;
  const void *internal;
  fx_error *(*error_create)(fx_error_create *);
} fx_api;

/* When a handler is called: most only to execute. */
enum { FX_INSTANTIATE = 0, FX_PREPARE = 1, FX_INITIALIZE = 2, FX_EXECUTE = 3 };

typedef struct fx_call_frame {
  size_t size;
  fx_extension *extension;
  const fx_api *api;
  fx_context *context;
  int stage;
  fx_buffers operands;
  fx_buffers results;
  fx_attributes attributes;
  void *future;
} fx_call_frame;

/* Codes of errors. */
enum {
  FX_CANCELLED = 1, FX_UNKNOWN = 2, FX_INVALID_ARGUMENT = 3, FX_DEADLINE_EXCEEDED = 4, FX_NOT_FOUND = 5,
  FX_ALREADY_EXISTS = 6, FX_PERMISSION_DENIED = 7, FX_RESOURCE_EXHAUSTED = 8, FX_FAILED_PRECONDITION = 9,
  FX_ABORTED = 10, FX_OUT_OF_RANGE = 11, FX_UNIMPLEMENTED = 12, FX_INTERNAL = 13, FX_UNAVAILABLE = 14,
  FX_DATA_LOSS = 15, FX_UNAUTHENTICATED = 16,
};

/* Every handler begins with it: it is asked which version it was built for when it is registered. */
#define FX_ANSWER_METADATA(frame) \
  do { if (fx_answer_metadata(frame)) return NULL; } while (0)

static inline int fx_answer_metadata(fx_call_frame *frame) {
  for (fx_extension *one = frame->extension; one != NULL; one = one->next) {
    if (one->kind == FX_METADATA) {
      fx_metadata *metadata = ((fx_metadata_extension *)one)->metadata;
      metadata->version.major = FX_MAJOR;
      metadata->version.minor = FX_MINOR;
      metadata->traits = 0;
      return 1;
    }
  }
  return 0;
}

/* An error for the handler to return; the message is copied. */
static inline fx_error *fx_fail(const fx_call_frame *frame, int code, const char *message) {
  fx_error_create given = {sizeof given, NULL, message, code};
  return frame->api->error_create(&given);
}

static inline fx_buffer *fx_operand_buffer(const fx_call_frame *frame, int64_t i) {
  return (fx_buffer *)frame->operands.items[i];
}

static inline fx_buffer *fx_result_buffer(const fx_call_frame *frame, int64_t i) {
  return (fx_buffer *)frame->results.items[i];
}

/* The data of an operand, its dtype and how many elements it has. */
static inline const void *fx_operand(const fx_call_frame *frame, int64_t i) {
  return fx_operand_buffer(frame, i)->data;
}

static inline int fx_dtype(const fx_call_frame *frame, int64_t i) {
  return fx_operand_buffer(frame, i)->dtype;
}

static inline int64_t fx_operand_size(const fx_call_frame *frame, int64_t i) {
  const fx_buffer *buffer = fx_operand_buffer(frame, i);
  int64_t size = 1;
  for (int64_t d = 0; d < buffer->rank; ++d) size *= buffer->dims[d];
  return size;
}

/* Where a result is to be written. */
static inline void *fx_result(const fx_call_frame *frame, int64_t i) {
  return fx_result_buffer(frame, i)->data;
}

/* The value of a number among the attributes, if it is there and of this dtype; else NULL. */
static inline const void *fx_attribute(const fx_call_frame *frame, const char *name, int dtype) {
  const fx_attributes *all = &frame->attributes;
  for (int64_t i = 0; i < all->count; ++i) {
    const fx_span *span = all->names[i];
    if (all->kinds[i] == FX_SCALAR && span->length == strlen(name) && !memcmp(span->text, name, span->length)) {
      const fx_scalar *scalar = (const fx_scalar *)all->items[i];
      return scalar->dtype == dtype ? scalar->value : NULL;
    }
  }
  return NULL;
}

#ifdef __cplusplus
}
#endif

#endif
