#include "graphs.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "devices.h"

namespace stand_in {

namespace {

std::atomic<uint64_t> captures_begun{0};
std::set<Capture*>& going_on() {
  static auto* const all = new std::set<Capture*>;
  return *all;
}
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.is_invalid = true;
  return fail(error);
}

}  // namespace

size_t Graph::size() const {
  return std::count_if(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.work || node.external_record || node.external_wait;
  });
}

Capture::Capture(Stream& origin, cudaStreamCaptureMode mode)
    : id(++captures_begun), mode(mode), thread(std::this_thread::get_id()), graph_(std::make_shared<Graph>()) {
  graph_->origin = &origin;
  clocks_[&origin];
}

cudaError_t Capture::add_work(Stream& stream, Work work) {
  if (is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
  graph_->nodes.push_back({&stream, std::move(work)});
  clocks_[&stream].set(stream.number, graph_->nodes.size());
  return cudaSuccess;
}

void Capture::add_record(Stream& stream, const std::shared_ptr<Moment>& moment) {
  moment->capture = shared_from_this();
  moment->clock = clocks_[&stream];
  graph_->nodes.push_back({&stream, std::nullopt, moment});
}

cudaError_t Capture::add_wait(Stream& stream, const std::shared_ptr<Moment>& moment) {
  if (is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
  stream.capture = shared_from_this();
  clocks_[&stream].join(moment->clock);
  graph_->nodes.push_back({&stream, std::nullopt, nullptr, moment});
  return cudaSuccess;
}

cudaError_t Capture::add_external(Node node) {
  if (is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
  Stream& stream = *node.stream;
  graph_->nodes.push_back(std::move(node));
  clocks_[&stream].set(stream.number, graph_->nodes.size());
  return cudaSuccess;
}

bool Capture::is_joined() {
  Clock& end = clocks_[graph_->origin];
  return std::all_of(clocks_.begin(), clocks_.end(), [&](auto& each) {
    int number = each.first->number;
    return end.of(number) >= each.second.of(number);
  });
}

cudaError_t Capture::end(Stream& stream, std::shared_ptr<Graph>& graph) {
  if (&stream != graph_->origin) return invalidate(*this, cudaErrorStreamCaptureUnmatched);
  if (mode != cudaStreamCaptureModeRelaxed && thread != std::this_thread::get_id())
    return invalidate(*this, cudaErrorStreamCaptureWrongThread);
  auto self = shared_from_this();  // the streams may be its last owners
  for (auto& each : clocks_) each.first->capture.reset();
  going_on().erase(this);
  if (is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (!is_joined()) return fail(cudaErrorStreamCaptureUnjoined);
  graph = graph_;
  return cudaSuccess;
}

cudaError_t wait_in_capture(Stream& stream, const std::shared_ptr<Moment>& moment) {
  if (!moment->capture) return invalidate(*stream.capture, cudaErrorStreamCaptureIsolation);
  if (!going_on().count(moment->capture.get())) {
    if (stream.capture) stream.capture->is_invalid = true;
    return fail(cudaErrorCapturedEvent);
  }
  if (stream.capture && stream.capture != moment->capture) {
    stream.capture->is_invalid = true;
    return invalidate(*moment->capture, cudaErrorStreamCaptureMerge);
  }
  if (stream.is_default) return invalidate(*moment->capture, cudaErrorStreamCaptureImplicit);
  return moment->capture->add_wait(stream, moment);
}

cudaError_t refuse_in_capture(Stream& stream) {
  auto lock = lock_order();
  return stream.capture ? invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t refuse_in_capture(const Moment& moment) {
  auto lock = lock_order();
  return moment.capture ? invalidate(*moment.capture, cudaErrorCapturedEvent) : cudaSuccess;
}

cudaError_t refuse_unsafe() {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  auto lock = lock_order();
  cudaError_t found = cudaSuccess;
  for (Capture* capture : going_on()) {
    bool is_global = mode_of_thread == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    bool is_own = capture->mode != cudaStreamCaptureModeRelaxed && capture->thread == std::this_thread::get_id();
    if (is_global || is_own) found = invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return found;
}

GraphExec::GraphExec(std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {
  for (const Node& node : graph_->nodes) {
    Stream*& own = streams_[node.stream];
    if (!own && node.stream != graph_->origin) own = &stream_of(create_stream(node.stream->device, 0));
  }
}

cudaError_t GraphExec::replay(const Node& node, Stream& stream) {
  if (node.work) return put(stream, *node.work);
  if (node.external_record) return node.external_record(record(stream)), cudaSuccess;
  if (node.recorded) return moments_[node.recorded.get()] = record(stream), cudaSuccess;
  auto moment = node.external_wait ? node.external_wait() : moments_[node.awaited.get()];
  return moment ? wait(stream, moment) : cudaSuccess;
}

cudaError_t GraphExec::launch(Stream& stream) {
  if (cudaError_t error = refuse_in_capture(stream)) return error;  // as a child of another graph
  if (stream.device != graph_->origin->device) return fail(cudaErrorInvalidValue);
  count(Counter::graph_launches);
  if (last_) wait(stream, last_);
  streams_[graph_->origin] = &stream;
  auto start = record(stream);
  for (auto& [captured, own] : streams_)
    if (own != &stream) wait(*own, start);
  cudaError_t error = cudaSuccess;
  for (const Node& node : graph_->nodes) {
    error = replay(node, *streams_[node.stream]);
    if (error != cudaSuccess) break;
  }
  for (auto& [captured, own] : streams_)
    if (own != &stream) wait(stream, record(*own));
  last_ = record(stream);
  return error;
}

}  // namespace stand_in

using namespace stand_in;

struct CUgraph_st {
  std::shared_ptr<Graph> graph;
};
struct CUgraphExec_st {
  GraphExec exec;
};

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Stream& stream = stream_of(handle);
  auto lock = lock_order();
  if (stream.is_default) return fail(cudaErrorStreamCaptureUnsupported);
  if (stream.capture) return fail(cudaErrorIllegalState);
  stream.capture = std::make_shared<Capture>(stream, mode);
  going_on().insert(stream.capture.get());
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  Stream& stream = stream_of(handle);
  auto lock = lock_order();
  if (!stream.capture) return fail(cudaErrorIllegalState);
  std::shared_ptr<Graph> found;
  cudaError_t error = stream.capture->end(stream, found);
  if (found) *graph = new CUgraph_st{found};
  return error;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  Stream& stream = stream_of(handle);
  auto lock = lock_order();
  *status = !stream.capture              ? cudaStreamCaptureStatusNone
            : stream.capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const void**, size_t* number) {
  cudaStreamIsCapturing(handle, status);
  Stream& stream = stream_of(handle);
  auto lock = lock_order();
  if (id) *id = stream.capture ? stream.capture->id : 0;
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (number) *number = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{GraphExec(graph->graph)};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) { return exec->exec.launch(stream_of(stream)); }

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

// The number of nodes is all that torch asks for.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* number) {
  if (nodes) return fail(cudaErrorNotSupported, "the CUDA stand-in does not hand out a graph's nodes");
  *number = graph->graph->size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

}  // extern "C"
