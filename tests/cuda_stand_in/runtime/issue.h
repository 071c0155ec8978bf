// Issue work to streams: the one place that knows the order of all work, and looks for races.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "../include/cuda_runtime_api.h"
#include "counters.h"
#include "shadow.h"
#include "streams.h"

namespace stand_in {

// Work for a stream. `reaches_peers` is false for a kernel: it may touch another device's memory only with peer access.
struct Work {
  std::string label;
  std::vector<Access> accesses;
  std::function<void()> run;
  bool reaches_peers = true;
  std::optional<Link> link = std::nullopt;  // of a copy
  std::string where = "an unknown line";
};

// What this thread is doing, for the text of a race. An empty label leaves the name of the CUDA call.
struct Place {
  std::string label, where;
};
Place& current_place();

// Put the work into the stream, or into the graph that the stream's capture makes.
// Raise a race, a range without memory, or a missing peer access as an error of this call; then nothing is put in.
cudaError_t issue(Stream& stream, Work work);
// As `issue`, for work that a graph has: its label and line are those of the capture.
cudaError_t put(Stream& stream, Work work);
std::shared_ptr<Moment> record(Stream& stream);
cudaError_t wait(Stream& stream, const std::shared_ptr<Moment>& moment);
// The lock of all order, for captures (graphs.h).
std::unique_lock<std::mutex> lock_order();
// Let one piece of work in each stream come after the clocks of those that it names. Used by NCCL.
void join(Stream& stream, const Clock& clock);
Clock now(Stream& stream);
// Let the host wait. Return an error that a task has left, or that a capture forbids it.
cudaError_t host_wait(Stream& stream);
cudaError_t host_wait(Moment& moment);
cudaError_t host_wait_for_device(int device);
// Note that the host has seen the moment pass.
void host_saw(const Moment& moment);

Stream& stream_of(cudaStream_t handle);
Stream& default_stream(int device);
std::vector<Stream*> streams_of(int device);
cudaStream_t create_stream(int device, int priority);

void forget_memory(Span span);
// torch's allocator was asked to free a block. Events recorded next by this thread say when it may be reused.
void free_requested(Span span);
void free_completed(Span span);

// Races found so far, and whether a race is raised too.
std::vector<std::string> take_races();
void raise_races(bool are_raised);

}  // namespace stand_in
