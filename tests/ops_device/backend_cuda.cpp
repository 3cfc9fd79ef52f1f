#include "ops/cuda/cuda_backend.h"
#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Stream> stream, CudaDeviceInfo info)
      : stream_(std::move(stream)), info_(std::move(info)) {}

  OpTable table(NumericProfile profile) override { return cuda_op_table(profile); }
  Stream& stream() override { return *stream_; }
  std::byte* allocate(size_t bytes) override {
    Result<CudaBuffer> buffer = CudaBuffer::allocate(bytes == 0 ? 1 : bytes);
    buffers_.push_back(std::move(buffer).value());
    return buffers_.back().data();
  }
  void release_all() override {
    stream_->synchronize();
    buffers_.clear();
  }
  void upload(std::byte* target, const void* source, size_t bytes) override {
    note(cuda_upload(target, {static_cast<const std::byte*>(source), bytes}));
  }
  void download(void* target, const std::byte* source, size_t bytes) override {
    note(cuda_download({static_cast<std::byte*>(target), bytes}, source));
  }
  Status status() override { return error_.is_ok() ? cuda_stream_status(*stream_) : error_; }
  double time_us(int repeats, const std::function<void(int)>& work) override {
    Result<double> time = cuda_graph_time_us(*stream_, repeats, work);
    if (!time.is_ok()) note(time.status());
    return time.is_ok() ? time.value() : 0.0;
  }
  double copy_bytes_per_s() override {
    Result<double> rate = cuda_copy_bytes_per_s(*stream_);
    if (!rate.is_ok()) note(rate.status());
    return rate.is_ok() ? rate.value() : 1.0;
  }
  std::string description() override {
    return info_.name + ", sm_" + std::to_string(info_.compute_major) +
           std::to_string(info_.compute_minor) + ", " + std::to_string(info_.multiprocessors) +
           " multiprocessors, L2 " + std::to_string(info_.l2_bytes >> 20) + " MiB";
  }

 private:
  void note(const Status& status) {
    if (error_.is_ok()) error_ = status;
  }

  std::unique_ptr<Stream> stream_;
  CudaDeviceInfo info_;
  std::vector<CudaBuffer> buffers_;
  Status error_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(Context& context) {
  MOTLEY_ASSIGN_OR_RETURN(CudaDeviceInfo info, cuda_device_info(0));
  MOTLEY_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, create_cuda_stream(context, 0));
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(std::move(stream), std::move(info)));
}

}  // namespace motley::ops_device
