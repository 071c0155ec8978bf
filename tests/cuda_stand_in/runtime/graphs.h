// Captures and graphs. A capture records what is issued to its streams; a launch of the graph issues it again.
//
// The rules are those of the CUDA Runtime API: Stream Management and Graph Management. A stream joins a capture when it
// waits for an event that a captured stream recorded. A graph of n streams is replayed in the stream of its launch, for
// the stream in which the capture began, and in n - 1 streams of its own.
#pragma once
#include <map>
#include <thread>

#include "issue.h"

namespace stand_in {

using GetMoment = std::function<std::shared_ptr<Moment>()>;
using SetMoment = std::function<void(std::shared_ptr<Moment>)>;

// Work, or a recorded event, or a wait for one. An external event is recorded and awaited outside of the graph too.
struct Node {
  Stream* stream;
  std::optional<Work> work;
  std::shared_ptr<Moment> recorded, awaited;
  SetMoment external_record;
  GetMoment external_wait;
};

struct Graph {
  Stream* origin;
  std::vector<Node> nodes;
  size_t size() const;
};

// A capture that goes on. Callers of its functions hold the lock of issue.h.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  Capture(Stream& origin, cudaStreamCaptureMode mode);

  cudaError_t add_work(Stream& stream, Work work);
  void add_record(Stream& stream, const std::shared_ptr<Moment>& moment);
  cudaError_t add_wait(Stream& stream, const std::shared_ptr<Moment>& moment);
  cudaError_t add_external(Node node);
  // Let all streams go, and return the graph in `graph`.
  cudaError_t end(Stream& stream, std::shared_ptr<Graph>& graph);

  const uint64_t id;
  const cudaStreamCaptureMode mode;
  const std::thread::id thread;
  bool is_invalid = false;

 private:
  bool is_joined();

  std::shared_ptr<Graph> graph_;
  std::map<Stream*, Clock> clocks_;  // the number of the last node of each stream that precedes the next one
};

cudaError_t wait_in_capture(Stream& stream, const std::shared_ptr<Moment>& moment);
// Return the error of a call that a capture forbids, which makes the capture invalid, or cudaSuccess.
cudaError_t refuse_in_capture(Stream& stream);
cudaError_t refuse_in_capture(const Moment& moment);
// For calls that may wait for captured work, such as cudaMalloc. It depends on the mode of this thread.
cudaError_t refuse_unsafe();

// A graph that can be launched. A launch begins when the one before has ended.
class GraphExec {
 public:
  explicit GraphExec(std::shared_ptr<const Graph> graph);
  cudaError_t launch(Stream& stream);

 private:
  cudaError_t replay(const Node& node, Stream& stream);

  std::shared_ptr<const Graph> graph_;
  std::map<Stream*, Stream*> streams_;  // the stream that replays a captured one
  std::map<const Moment*, std::shared_ptr<Moment>> moments_;
  std::shared_ptr<Moment> last_;
};

}  // namespace stand_in
