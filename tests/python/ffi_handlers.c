/* A handler in plain C: `by` times an array of floats. */

#include "ferrax_ffi.h"

fx_error *scaled(fx_call_frame *frame) {
  FX_ANSWER_METADATA(frame);
  if (fx_dtype(frame, 0) != FX_F32) return fx_fail(frame, FX_INVALID_ARGUMENT, "scaled takes float32");
  const float *by = fx_attribute(frame, "by", FX_F32);
  if (by == NULL) return fx_fail(frame, FX_NOT_FOUND, "scaled takes a float32 `by`");
  const float *x = fx_operand(frame, 0);
  float *y = fx_result(frame, 0);
  for (int64_t i = 0; i < fx_operand_size(frame, 0); ++i) y[i] = *by * x[i];
  return NULL;
}
