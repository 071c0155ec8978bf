// CUDA's streams and events.
#include <dlfcn.h>

#include <cstring>

#include "devices.h"
#include "graphs.h"

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<stand_in::Moment> last;
  unsigned flags;

  std::shared_ptr<stand_in::Moment> moment() {
    std::lock_guard lock(mutex);
    return last;
  }
  void set(std::shared_ptr<stand_in::Moment> moment) {
    std::lock_guard lock(mutex);
    last = std::move(moment);
  }
};

using namespace stand_in;

namespace {

// Whether a program called, through torch's Python binding. The others are torch's engine, operators and allocators.
bool is_a_programs(void* return_address) {
  Dl_info info;
  return dladdr(return_address, &info) && info.dli_fname && strstr(info.dli_fname, "libtorch_python");
}

cudaError_t record_event(cudaEvent_t event, cudaStream_t handle, unsigned flags, void* return_address) {
  count(Counter::events_recorded);
  if (is_a_programs(return_address)) count(Counter::programs_events);
  Stream& stream = stream_of(handle);
  if (flags & cudaEventRecordExternal) {
    auto lock = lock_order();
    if (!stream.capture) return fail(cudaErrorIllegalState);
    Node node{&stream};
    node.external_record = [event](auto moment) { event->set(std::move(moment)); };
    return stream.capture->add_external(std::move(node));
  }
  event->set(record(stream));
  return cudaSuccess;
}

cudaError_t wait_external(Stream& stream, cudaEvent_t event) {
  auto lock = lock_order();
  if (!stream.capture) return fail(cudaErrorIllegalState);
  Node node{&stream};
  node.external_wait = [event] { return event->moment(); };
  return stream.capture->add_external(std::move(node));
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
  if (cudaError_t error = refuse_in_capture(stream)) return error;
  Clock clock = now(stream);
  if (!stream.is_idle()) return fail(cudaErrorNotReady);
  Moment seen;
  seen.clock = clock;
  host_saw(seen);
  return take_late_error();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return host_wait(stream_of(stream)); }

cudaError_t cudaDeviceSynchronize() {
  if (cudaError_t error = refuse_unsafe()) return error;
  return host_wait_for_device(current_device());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  count(Counter::waits);
  if (is_a_programs(__builtin_return_address(0))) count(Counter::programs_waits);
  if (flags & cudaEventWaitExternal) return wait_external(stream_of(stream), event);
  auto moment = event->moment();
  return moment ? wait(stream_of(stream), moment) : cudaSuccess;
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
  return record_event(event, stream, cudaEventRecordDefault, __builtin_return_address(0));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return record_event(event, stream, flags, __builtin_return_address(0));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  count(Counter::event_queries);
  if (cudaError_t error = refuse_unsafe()) return error;
  auto moment = event->moment();
  if (!moment) return cudaSuccess;
  if (cudaError_t error = refuse_in_capture(*moment)) return error;
  if (!moment->is_reached()) return fail(cudaErrorNotReady);
  // torch's allocators ask too, to reuse memory. Whether they learn that an event has passed is luck, so their questions
  // order nothing but the reuse of the block (issue.h).
  if (is_a_programs(__builtin_return_address(0))) host_saw(*moment);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (cudaError_t error = refuse_unsafe()) return error;
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

}  // extern "C"
