// The CUDA backend: ops on one device, queued on one stream.
//
// Activations are float32 in both profiles; the fast profile rounds them to bfloat16 where they
// enter the tensor cores. Weights and caches live in device memory. For the fast kernels weight
// planes and their row strides must be multiples of 16 bytes (cudaMalloc gives the former); other
// alignments take a slower kernel with the same contract.
// Errors: set-up returns Status; an op never fails visibly, the first error stays on the stream
// (cuda_stream_status) and later results are not to be used. Thread rule: as Stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "ops/op_table.h"

namespace motley {

struct CudaDeviceInfo {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
  int64_t l2_bytes = 0;
};

// kNotFound without such a device, kUnsupported when the driver or the device is too old.
Result<CudaDeviceInfo> cuda_device_info(int device);

// A stream on `device` with its own device scratch and upload ring.
Result<std::unique_ptr<Stream>> create_cuda_stream(Context& context, int device);

// The first error on `stream` (made by create_cuda_stream), or ok. Does not wait.
Status cuda_stream_status(const Stream& stream);

OpTable cuda_op_table(NumericProfile profile);

// Owning device memory, 256-byte aligned.
class CudaBuffer {
 public:
  CudaBuffer() = default;
  // kResourceExhausted when the device refuses.
  static Result<CudaBuffer> allocate(size_t bytes);

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Synchronous copies to and from device memory; they wait for all work on the device.
Status cuda_upload(std::byte* device, std::span<const std::byte> host);
Status cuda_download(std::span<std::byte> host, const std::byte* device);

// Mean device time of work(0) .. work(repeats - 1): captured into one graph after a first plain
// run, replayed three times, the fastest replay counts. Work may not wait or grow scratch memory.
Result<double> cuda_graph_time_us(Stream& stream, int repeats,
                                  const std::function<void(int)>& work);

// Bytes read plus written per second by a device-to-device copy of 4 GiB.
Result<double> cuda_copy_bytes_per_s(Stream& stream);

}  // namespace motley
