// Where ops run and what they may use while running.
//
// Every op takes a Stream. On a device, work is queued and the call returns; on the CPU an op may
// finish before it returns. Either way results are valid only after synchronize() or in a later op
// on the same stream. Thread rule: one thread submits.
#pragma once

#include "base/arena.h"
#include "base/context.h"
#include "base/thread_pool.h"
#include "tensor/tensor_view.h"

namespace motley {

class Stream {
 public:
  virtual ~Stream() = default;
  virtual MemorySpace space() const = 0;
  // Waits until everything submitted is done.
  virtual void synchronize() = 0;

  Context& context() { return context_; }
  ThreadPool& threads() { return context_.threads; }
  // Scratch in the stream's own memory space, released by Arena::Scope.
  Arena& scratch() { return scratch_; }

 protected:
  // Scratch comes from host memory, or from `scratch_source`, which outlives the stream.
  explicit Stream(Context& context, ArenaBlockSource* scratch_source = nullptr)
      : context_(context), scratch_(scratch_source) {}

 private:
  Context& context_;
  Arena scratch_;
};

class HostStream final : public Stream {
 public:
  explicit HostStream(Context& context) : Stream(context) {}
  MemorySpace space() const override { return MemorySpace::kHost; }
  void synchronize() override {}
};

// A view of scratch memory, valid until the enclosing Arena::Scope of `stream` ends.
inline TensorView scratch_view(Stream& stream, DType dtype, Shape shape) {
  void* data =
      stream.scratch().allocate_bytes(static_cast<size_t>(shape.elements() * dtype_bytes(dtype)));
  return make_view(data, dtype, shape, stream.space());
}

}  // namespace motley
