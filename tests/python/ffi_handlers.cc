// Handlers that tests of foreign functions call.

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// Each row divided by its root mean square.
static ffi::Error Rms(float eps, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  if (x.dimensions().size() == 0) return ffi::Error::InvalidArgument("rms takes rows");
  int64_t size = x.dimensions().back();
  int64_t rows = size == 0 ? 0 : x.element_count() / size;
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x.typed_data() + row * size;
    float total = 0;
    for (int64_t i = 0; i < size; ++i) total += from[i] * from[i];
    float scale = 1 / std::sqrt(total / size + eps);
    for (int64_t i = 0; i < size; ++i) y->typed_data()[row * size + i] = from[i] * scale;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    rms, Rms, ffi::Ffi::Bind().Attr<float>("eps").Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// The numbers of the dtypes and ranks of operands, and 1 where data is aligned to 64 bytes.
static ffi::Error Types(ffi::RemainingArgs args, ffi::ResultBuffer<ffi::S32> out) {
  for (size_t i = 0; i < args.size(); ++i) {
    auto x = args.get<ffi::AnyBuffer>(i).value();
    out->typed_data()[3 * i] = static_cast<int>(x.element_type());
    out->typed_data()[3 * i + 1] = static_cast<int>(x.dimensions().size());
    out->typed_data()[3 * i + 2] = reinterpret_cast<uintptr_t>(x.untyped_data()) % 64 == 0;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    types, Types, ffi::Ffi::Bind().RemainingArgs().Ret<ffi::Buffer<ffi::S32>>());

// Attributes of every kind, as one sum.
static ffi::Error Sum(int64_t integer, double real, bool flag, std::string_view text, ffi::Span<const int32_t> array,
                      ffi::Dictionary inner, ffi::ResultBuffer<ffi::F64> out) {
  double total = integer + real + flag + text.size();
  for (int32_t x : array) total += x;
  auto found = inner.get<float>("scale");
  if (!found.has_value()) return ffi::Error::InvalidArgument("no scale");
  out->typed_data()[0] = total * *found;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    sum_attributes, Sum,
    ffi::Ffi::Bind()
        .Attr<int64_t>("integer")
        .Attr<double>("real")
        .Attr<bool>("flag")
        .Attr<std::string_view>("text")
        .Attr<ffi::Span<const int32_t>>("array")
        .Attr<ffi::Dictionary>("inner")
        .Ret<ffi::Buffer<ffi::F64>>());

// A state that counts the calls of one compiled function.
static std::atomic<int> alive{0};
struct Counter {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  std::atomic<int> calls{0};
  Counter() { ++alive; }
  ~Counter() { --alive; }
};
ffi::TypeId Counter::id = {};
ffi::TypeInfo Counter::info = ffi::MakeTypeInfo<Counter>();
extern "C" void* counter_id() { return &Counter::id; }
extern "C" void* counter_info() { return &Counter::info; }
extern "C" int counters_alive() { return alive; }

static ffi::ErrorOr<std::unique_ptr<Counter>> Make() { return std::make_unique<Counter>(); }
static ffi::Error Count(Counter* counter, ffi::ResultBufferR0<ffi::S32> out) {
  out->typed_data()[0] = ++counter->calls;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(make_counter, Make, ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    count, Count, ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ret<ffi::BufferR0<ffi::S32>>());

// Adds one where input and output are one memory; 100 where they are not.
static ffi::Error InPlace(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  float by = x.typed_data() == y->typed_data() ? 1 : 100;
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i] + by;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    in_place, InPlace, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// The squares of numbers, by tasks of a pool, through scratch memory.
static ffi::Error Squares(ffi::ThreadPool pool, ffi::ScratchAllocator scratch, ffi::Buffer<ffi::F32> x,
                          ffi::ResultBuffer<ffi::F32> y) {
  size_t count = x.element_count();
  auto memory = scratch.Allocate(count * sizeof(float), 128);
  if (!memory.has_value()) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory");
  if (reinterpret_cast<uintptr_t>(*memory) % 128) return ffi::Error::Internal("not aligned");
  float* squares = static_cast<float*>(*memory);
  std::mutex mutex;
  std::condition_variable changed;
  size_t left = count;
  for (size_t i = 0; i < count; ++i) {
    pool.Schedule([&, i] {
      squares[i] = x.typed_data()[i] * x.typed_data()[i];
      std::lock_guard<std::mutex> lock(mutex);
      if (--left == 0) changed.notify_all();
    });
  }
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return left == 0; });
  std::memcpy(y->untyped_data(), squares, count * sizeof(float));
  return pool.num_threads() > 0 ? ffi::Error::Success() : ffi::Error::Internal("no threads");
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(squares, Squares,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

// Done by another thread, after the handler has returned.
static ffi::Future Later(bool fails, ffi::ResultBuffer<ffi::S32> out) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([promise = std::move(promise), fails, data = out->typed_data()]() mutable {
    data[0] = 7;
    if (fails) {
      promise.SetError(ffi::Error::Internal("failed later"));
    } else {
      promise.SetAvailable();
    }
  }).detach();
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    later, Later, ffi::Ffi::Bind().Attr<bool>("fails").Ret<ffi::Buffer<ffi::S32>>());

// How often it was called, over all functions.
static std::atomic<int> touched{0};
extern "C" int times_touched() { return touched; }
static ffi::Error Touch(ffi::RemainingRets) {
  ++touched;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(touch, Touch, ffi::Ffi::Bind().RemainingRets());

static ffi::Error Fail(int64_t code) { return ffi::Error(static_cast<ffi::ErrorCode>(code), "as asked"); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(fail, Fail, ffi::Ffi::Bind().Attr<int64_t>("code"));

// The major-to-minor numbers of a matrix, as it lies in memory.
static ffi::Error Lies(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y, ffi::ResultBuffer<ffi::S64> dims) {
  std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  for (size_t i = 0; i < x.dimensions().size(); ++i) dims->typed_data()[i] = x.dimensions()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    lies, Lies,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::S64>>());

// A state of each run: made to prepare it, looked at to initialize it and to execute it; 1 where it is the run's own.
static std::atomic<int> prepared_alive{0};
struct Prepared {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  std::thread::id thread = std::this_thread::get_id();
  int looks = 0;
  Prepared() { ++prepared_alive; }
  ~Prepared() { --prepared_alive; }
};
ffi::TypeId Prepared::id = {};
ffi::TypeInfo Prepared::info = ffi::MakeTypeInfo<Prepared>();
extern "C" void* prepared_id() { return &Prepared::id; }
extern "C" void* prepared_info() { return &Prepared::info; }
extern "C" int prepared_left() { return prepared_alive; }

static ffi::ErrorOr<std::unique_ptr<Prepared>> StagedPrepare() { return std::make_unique<Prepared>(); }
static ffi::Error StagedInitialize(Prepared* state) {
  ++state->looks;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return ffi::Error::Success();
}
static ffi::Error Staged(Prepared* state, ffi::ResultBufferR0<ffi::S32> out) {
  out->typed_data()[0] = ++state->looks == 2;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(staged_prepare, StagedPrepare, ffi::Ffi::BindPrepare());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    staged_initialize, StagedInitialize,
    ffi::Ffi::BindInitialize().Ctx<ffi::Prepared<Prepared>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    staged, Staged,
    ffi::Ffi::Bind().Ctx<ffi::Prepared<Prepared>>().Ret<ffi::BufferR0<ffi::S32>>());

// Rows divided by their root mean square, with what the derivative needs; and the derivative.
static ffi::Error NormForward(float eps, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y,
                              ffi::ResultBuffer<ffi::F32> scales) {
  int64_t rows = scales->element_count(), size = rows == 0 ? 0 : x.element_count() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x.typed_data() + row * size;
    float total = 0;
    for (int64_t i = 0; i < size; ++i) total += from[i] * from[i];
    float scale = scales->typed_data()[row] = 1 / std::sqrt(total / size + eps);
    for (int64_t i = 0; i < size; ++i) y->typed_data()[row * size + i] = scale * from[i];
  }
  return ffi::Error::Success();
}
static ffi::Error NormBackward(ffi::Buffer<ffi::F32> scales, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> ct,
                               ffi::ResultBuffer<ffi::F32> out) {
  int64_t rows = scales.element_count(), size = rows == 0 ? 0 : x.element_count() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    float scale = scales.typed_data()[row], product = 0;
    for (int64_t i = row * size; i < (row + 1) * size; ++i) product += x.typed_data()[i] * ct.typed_data()[i];
    float along = scale * scale * scale * product / size;
    for (int64_t i = row * size; i < (row + 1) * size; ++i)
      out->typed_data()[i] = scale * ct.typed_data()[i] - along * x.typed_data()[i];
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(norm_forward, NormForward,
                              ffi::Ffi::Bind()
                                  .Attr<float>("eps")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(norm_backward, NormBackward,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

// The sum of an array among the attributes; and the length of a text in a dict of attributes.
static ffi::Error ArraySum(ffi::Span<const int32_t> array, ffi::ResultBufferR0<ffi::S32> out) {
  out->typed_data()[0] = 0;
  for (int32_t x : array) out->typed_data()[0] += x;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    array_sum, ArraySum,
    ffi::Ffi::Bind().Attr<ffi::Span<const int32_t>>("array").Ret<ffi::BufferR0<ffi::S32>>());

static ffi::Error Option(ffi::Dictionary attributes, ffi::ResultBufferR0<ffi::S32> out) {
  auto text = attributes.get<std::string_view>("text");
  if (!text.has_value()) return ffi::Error(ffi::ErrorCode::kNotFound, "no text among " + std::to_string(attributes.size()));
  out->typed_data()[0] = text->size();
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    option, Option, ffi::Ffi::Bind().Attrs().Ret<ffi::BufferR0<ffi::S32>>());

// The number of the run, and that of the device.
static ffi::Error RunIds(ffi::RunId run, int32_t device, ffi::ResultBuffer<ffi::S64> out) {
  out->typed_data()[0] = run.run_id;
  out->typed_data()[1] = device;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    run_ids, RunIds, ffi::Ffi::Bind().Ctx<ffi::RunId>().Ctx<ffi::DeviceOrdinal>().Ret<ffi::Buffer<ffi::S64>>());
