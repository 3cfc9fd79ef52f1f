#include "ops/cuda/cuda_stream.h"

#include <string>

#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/small_upload.h"

namespace motley {
namespace {

constexpr size_t kRingBytes = size_t{8} << 20;
constexpr size_t kRingAlignment = 256;

Status cuda_error(const char* what, cudaError_t error) {
  const std::string message = std::string("cuda: ") + what + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) return resource_exhausted(message);
  return io_error(message);
}

}  // namespace

Result<CudaDeviceInfo> cuda_device_info(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return unsupported("cuda: the driver is older than CUDA 13.0; update the NVIDIA driver");
  }
  if (error != cudaSuccess || device < 0 || device >= count) {
    return not_found("cuda: no device " + std::to_string(device) + " (" + std::to_string(count) +
                     " found)");
  }
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, device);
      status != cudaSuccess) {
    return cuda_error("cudaGetDeviceProperties", status);
  }
  CudaDeviceInfo info;
  info.name = properties.name;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.l2_bytes = properties.l2CacheSize;
  if (info.compute_major < 8) {
    return unsupported("cuda: " + info.name + " has compute capability " +
                       std::to_string(info.compute_major) + "." +
                       std::to_string(info.compute_minor) + "; 8.0 or newer is needed");
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (const cudaError_t status = cudaSetDevice(device); status != cudaSuccess) {
    return cuda_error("cudaSetDevice", status);
  }
  if (const cudaError_t status = cudaMemGetInfo(&free_bytes, &total_bytes); status != cudaSuccess) {
    return cuda_error("cudaMemGetInfo", status);
  }
  info.free_bytes = static_cast<int64_t>(free_bytes);
  return info;
}

Result<std::unique_ptr<CudaStream>> CudaStream::create(Context& context, int device) {
  MOTLEY_ASSIGN_OR_RETURN(const CudaDeviceInfo info, cuda_device_info(device));
  std::unique_ptr<CudaStream> stream(new CudaStream(context, device));
  stream->multiprocessors_ = info.multiprocessors;
  stream->compute_capability_ = 10 * info.compute_major + info.compute_minor;
  MOTLEY_RETURN_IF_ERROR(stream->open());
  return stream;
}

Status CudaStream::open() {
  note(cudaSetDevice(device_), "cudaSetDevice");
  note(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  void* memory = nullptr;
  note(cudaMallocHost(&memory, kRingBytes), "pinned upload ring");
  ring_host_ = static_cast<std::byte*>(memory);
  memory = nullptr;
  note(cudaMalloc(&memory, kRingBytes), "device upload ring");
  ring_device_ = static_cast<std::byte*>(memory);
  return status();
}

CudaStream::~CudaStream() {
  // Errors at tear-down have no one left to act on them.
  if (stream_ != nullptr) {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }
  (void)cudaFreeHost(ring_host_);
  (void)cudaFree(ring_device_);
}

void CudaStream::synchronize() {
  note(cudaStreamSynchronize(stream_), "synchronize");
  ring_used_ = 0;  // what was uploaded has been used; a graph is captured with all of the ring
}

void CudaStream::note(cudaError_t error, const char* what) {
  if (error == cudaSuccess || error_ != cudaSuccess) return;
  error_ = error;
  error_op_ = what;
}

Status CudaStream::status() const {
  return error_ == cudaSuccess ? Status::ok() : cuda_error(error_op_, error_);
}

CudaStream::UploadPlace CudaStream::reserve_upload(size_t bytes) {
  const size_t rounded = (bytes + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
  if (rounded > kRingBytes) {
    large_upload_.resize(bytes);
    return {large_upload_.data(), static_cast<std::byte*>(scratch().allocate_bytes(bytes))};
  }
  if (ring_used_ + rounded > kRingBytes) {
    synchronize();  // once per 8 MiB of uploads
  }
  const UploadPlace place{ring_host_ + ring_used_, ring_device_ + ring_used_};
  ring_used_ += rounded;
  return place;
}

void CudaStream::finish_upload(const UploadPlace& place, size_t bytes) {
  if (bytes <= cuda::kSmallUploadBytes) {
    if (bytes == 0) return;
    cuda::launch_small_upload(stream_, const_cast<std::byte*>(place.device), place.host, bytes);
    return check_launch("upload");
  }
  // Memory that is not pinned has been read when this returns.
  note(cudaMemcpyAsync(const_cast<std::byte*>(place.device), place.host, bytes,
                       cudaMemcpyHostToDevice, stream_),
       "upload");
}

std::byte* CudaStream::allocate(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  note(error, "scratch");
  return error == cudaSuccess ? static_cast<std::byte*>(memory) : nullptr;
}

void CudaStream::release(std::byte* data, size_t /*bytes*/) {
  note(cudaFree(data), "release scratch");  // waits for work that still uses it
}

Result<std::unique_ptr<Stream>> create_cuda_stream(Context& context, int device) {
  MOTLEY_ASSIGN_OR_RETURN(std::unique_ptr<CudaStream> stream, CudaStream::create(context, device));
  return std::unique_ptr<Stream>(std::move(stream));
}

Status cuda_stream_status(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).status();
}

void CudaBuffer::Free::operator()(std::byte* data) const {
  (void)cudaFree(data);
}

Result<CudaBuffer> CudaBuffer::allocate(size_t bytes) {
  CudaBuffer buffer;
  if (bytes == 0) return buffer;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();  // a refused allocation is not sticky
    return cuda_error("cudaMalloc", error).with_context(std::to_string(bytes) + " bytes");
  }
  buffer.data_.reset(static_cast<std::byte*>(memory));
  buffer.size_ = bytes;
  return buffer;
}

Status cuda_upload(std::byte* device, std::span<const std::byte> host) {
  const cudaError_t error = cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice);
  return error == cudaSuccess ? Status::ok() : cuda_error("copy to the device", error);
}

Status cuda_download(std::span<std::byte> host, const std::byte* device) {
  // Also waits for streams that do not synchronise with the default one.
  cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) {
    error = cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost);
  }
  return error == cudaSuccess ? Status::ok() : cuda_error("copy from the device", error);
}

}  // namespace motley
