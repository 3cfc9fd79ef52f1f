#include <algorithm>

#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/cuda_stream.h"

namespace motley {
namespace {

// Two events on a stream and the time between them.
class Stopwatch {
 public:
  explicit Stopwatch(CudaStream& stream) : stream_(stream) {
    stream_.note(cudaEventCreate(&begin_), "event");
    stream_.note(cudaEventCreate(&end_), "event");
  }
  ~Stopwatch() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start() { stream_.note(cudaEventRecord(begin_, stream_.handle()), "event"); }
  double stop_us() {
    stream_.note(cudaEventRecord(end_, stream_.handle()), "event");
    stream_.note(cudaEventSynchronize(end_), "timed work");
    float elapsed_ms = 0;
    stream_.note(cudaEventElapsedTime(&elapsed_ms, begin_, end_), "event");
    return 1e3 * double{elapsed_ms};
  }

 private:
  CudaStream& stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

Result<double> cuda_graph_time_us(Stream& any, int repeats, const std::function<void(int)>& work) {
  CudaStream& stream = cuda_stream(any);
  for (int i = 0; i < repeats; ++i) work(i);
  stream.synchronize();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  stream.note(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeRelaxed), "capture");
  for (int i = 0; i < repeats; ++i) work(i);
  stream.note(cudaStreamEndCapture(stream.handle(), &graph), "capture");
  stream.note(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  MOTLEY_RETURN_IF_ERROR(stream.status());
  stream.note(cudaGraphLaunch(executable, stream.handle()), "graph");
  stream.synchronize();
  Stopwatch watch(stream);
  double fastest_us = 1e30;
  for (int replay = 0; replay < 3; ++replay) {
    watch.start();
    stream.note(cudaGraphLaunch(executable, stream.handle()), "graph");
    fastest_us = std::min(fastest_us, watch.stop_us());
  }
  (void)cudaGraphExecDestroy(executable);
  (void)cudaGraphDestroy(graph);
  MOTLEY_RETURN_IF_ERROR(stream.status());
  return fastest_us / repeats;
}

Result<double> cuda_copy_bytes_per_s(Stream& any) {
  CudaStream& stream = cuda_stream(any);
  constexpr size_t kBytes = size_t{4} << 30;
  MOTLEY_ASSIGN_OR_RETURN(const CudaBuffer from, CudaBuffer::allocate(kBytes));
  MOTLEY_ASSIGN_OR_RETURN(const CudaBuffer to, CudaBuffer::allocate(kBytes));
  Stopwatch watch(stream);
  double fastest_us = 1e30;
  for (int repeat = 0; repeat < 6; ++repeat) {
    watch.start();
    stream.note(
        cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream.handle()),
        "copy");
    fastest_us = std::min(fastest_us, watch.stop_us());
  }
  MOTLEY_RETURN_IF_ERROR(stream.status());
  return 2e6 * static_cast<double>(kBytes) / fastest_us;
}

}  // namespace motley
