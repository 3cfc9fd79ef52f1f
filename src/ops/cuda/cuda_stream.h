// The stream of the CUDA backend, as its ops see it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "tensor/stream.h"

namespace motley {

class CudaStream final : public Stream, private ArenaBlockSource {
 public:
  static Result<std::unique_ptr<CudaStream>> create(Context& context, int device);
  ~CudaStream() override;

  MemorySpace space() const override { return MemorySpace::kDevice; }
  void synchronize() override;

  cudaStream_t handle() const { return stream_; }
  int multiprocessors() const { return multiprocessors_; }
  int compute_capability() const { return compute_capability_; }  // 90 for 9.0

  // Keeps the first error; `what` is a literal that names the op.
  void note(cudaError_t error, const char* what);
  // To be called after each launch.
  void check_launch(const char* op) { note(cudaGetLastError(), op); }
  Status status() const;

  // Copies `items` to device memory in stream order: valid for ops submitted before the enclosing
  // Arena::Scope of scratch() ends.
  template <typename T>
  const T* upload(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T>);
    return reinterpret_cast<const T*>(
        upload_filled(items.size_bytes(), [items](const UploadPlace& place) {
          if (!items.empty()) std::memcpy(place.host, items.data(), items.size_bytes());
        }));
  }

  // For items that hold device addresses of each other: `fill` gets the place that they will have
  // on the device and the bytes to write.
  struct UploadPlace {
    std::byte* host;
    const std::byte* device;
  };
  template <typename Fill>
  const std::byte* upload_filled(size_t bytes, Fill fill) {
    const UploadPlace place = reserve_upload(bytes);
    fill(place);
    finish_upload(place, bytes);
    return place.device;
  }

 private:
  CudaStream(Context& context, int device) : Stream(context, this), device_(device) {}
  Status open();
  UploadPlace reserve_upload(size_t bytes);
  void finish_upload(const UploadPlace& place, size_t bytes);
  std::byte* allocate(size_t bytes) override;
  void release(std::byte* data, size_t bytes) override;

  int device_;
  int multiprocessors_ = 0;
  int compute_capability_ = 0;
  cudaStream_t stream_ = nullptr;
  std::byte* ring_host_ = nullptr;  // pinned
  std::byte* ring_device_ = nullptr;
  size_t ring_used_ = 0;
  std::vector<std::byte> large_upload_;  // one that is larger than the ring
  cudaError_t error_ = cudaSuccess;
  const char* error_op_ = "";
};

// Every stream that reaches a CUDA op was made by create_cuda_stream.
inline CudaStream& cuda_stream(Stream& stream) {
  return static_cast<CudaStream&>(stream);
}

}  // namespace motley
