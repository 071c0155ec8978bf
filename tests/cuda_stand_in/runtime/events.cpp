// CUDA's streams and events.
#include <dlfcn.h>

#include <cstring>

#include "counters.h"
#include "devices.h"
#include "issue.h"

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<stand_in::Moment> last;
  unsigned flags;

  std::shared_ptr<stand_in::Moment> moment() {
    std::lock_guard lock(mutex);
    return last;
  }
};

using namespace stand_in;

namespace {

// Whether a program called, through torch's Python binding. The others are torch's engine, operators and allocators.
bool is_a_programs(void* return_address) {
  Dl_info info;
  return dladdr(return_address, &info) && info.dli_fname && strstr(info.dli_fname, "libtorch_python");
}

cudaError_t record_event(cudaEvent_t event, cudaStream_t stream, void* return_address) {
  count(Counter::events_recorded);
  if (is_a_programs(return_address)) count(Counter::programs_events);
  auto moment = record(stream_of(stream));
  std::lock_guard lock(event->mutex);
  event->last = moment;
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  *stream = create_stream(current_device(), priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

// As in CUDA, work of the stream goes on. The thread stays too.
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream_of(stream).priority;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Stream& stream = stream_of(handle);
  Clock clock = now(stream);
  if (!stream.is_idle()) return fail(cudaErrorNotReady);
  Moment seen;
  seen.clock = clock;
  host_saw(seen);
  return take_late_error();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return host_wait(stream_of(stream)); }

cudaError_t cudaDeviceSynchronize() { return host_wait_for_device(current_device()); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  count(Counter::waits);
  if (is_a_programs(__builtin_return_address(0))) count(Counter::programs_waits);
  if (auto moment = event->moment()) wait(stream_of(stream), moment);
  return cudaSuccess;
}

using HostFunction = void (*)(void*);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, HostFunction function, void* data) {
  return issue(stream_of(stream), {"host function", {}, [=] { function(data); }});
}

using StreamCallback = void (*)(cudaStream_t, cudaError_t, void*);
cudaError_t cudaStreamAddCallback(cudaStream_t stream, StreamCallback function, void* data, unsigned) {
  return issue(stream_of(stream), {"host function", {}, [=] { function(stream, cudaSuccess, data); }});
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->flags = flags;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record_event(event, stream, __builtin_return_address(0));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return record_event(event, stream, __builtin_return_address(0));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  count(Counter::event_queries);
  auto moment = event->moment();
  if (!moment) return cudaSuccess;
  if (!moment->is_reached()) return fail(cudaErrorNotReady);
  // torch's allocators ask too, to reuse memory. Whether they learn that an event has passed is luck, so their questions
  // order nothing but the reuse of the block (issue.h).
  if (is_a_programs(__builtin_return_address(0))) host_saw(*moment);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  auto moment = event->moment();
  return moment ? host_wait(*moment) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  auto from = start->moment(), to = end->moment();
  if (!from || !to || (start->flags | end->flags) & cudaEventDisableTiming) return fail(cudaErrorInvalidResourceHandle);
  if (!from->is_reached() || !to->is_reached()) return fail(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(to->reached_at() - from->reached_at()).count();
  return cudaSuccess;
}

// A capture begins and ends, so that a program can ask whether there is one. Work in it is refused (issue.cpp).
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream_of(stream).is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const void**, size_t* number) {
  cudaStreamIsCapturing(stream, status);
  if (id) *id = stream_of(stream).number + 1;
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (number) *number = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream_of(stream).is_capturing = true;
  return cudaSuccess;
}

// There is no graph; torch raises an error.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream_of(stream).is_capturing = false;
  *graph = nullptr;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

}  // extern "C"
