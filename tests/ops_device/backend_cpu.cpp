#include <chrono>
#include <cstdlib>
#include <cstring>

#include "ops/cpu/cpu_backend.h"
#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(Context& context, CpuIsa isa) : stream_(context), isa_(isa) {}

  OpTable table(NumericProfile profile) override { return cpu_op_table(isa_, profile); }
  Stream& stream() override { return stream_; }
  std::byte* allocate(size_t bytes) override {
    buffers_.push_back(AlignedBuffer::allocate(bytes == 0 ? 1 : bytes).value());
    return buffers_.back().data();
  }
  void release_all() override { buffers_.clear(); }
  void upload(std::byte* target, const void* source, size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void download(void* target, const std::byte* source, size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  Status status() override { return Status::ok(); }
  double time_us(int repeats, const std::function<void(int)>& work) override {
    work(0);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) work(i);
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - start;
    return elapsed.count() / repeats;
  }
  double copy_bytes_per_s() override {
    constexpr size_t kBytes = size_t{512} << 20;
    constexpr int64_t kPiece = int64_t{1} << 20;
    AlignedBuffer from = AlignedBuffer::allocate(kBytes).value();
    AlignedBuffer to = AlignedBuffer::allocate(kBytes).value();
    const double us = time_us(5, [&](int) {
      stream_.threads().parallel_for(kBytes / kPiece, 1, [&](int, int64_t begin, int64_t end) {
        std::memcpy(to.data() + begin * kPiece, from.data() + begin * kPiece,
                    static_cast<size_t>((end - begin) * kPiece));
      });
    });
    return 2.0 * kBytes / us * 1e6;
  }
  std::string description() override { return "cpu/" + std::string(cpu_isa_name(isa_)); }

 private:
  HostStream stream_;
  CpuIsa isa_;
  std::vector<AlignedBuffer> buffers_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(Context& context) {
  const char* wanted = std::getenv("MOTLEY_CPU");
  MOTLEY_ASSIGN_OR_RETURN(const CpuIsa isa, choose_cpu_isa(wanted == nullptr ? "" : wanted));
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(context, isa));
}

}  // namespace motley::ops_device
