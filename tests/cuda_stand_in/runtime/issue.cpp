#include "issue.h"

#include <map>
#include <optional>

#include "devices.h"
#include "graphs.h"
#include "memory.h"

namespace stand_in {

namespace {

struct State {
  std::mutex mutex;
  StreamOrder order;
  ShadowMemory shadow{order};
  std::vector<Stream*> streams;  // by number; never freed, because their threads outlive the program's end
  std::map<int, Stream*> defaults;
  std::vector<std::string> races;
  bool are_raised = true;
  std::map<uintptr_t, Clock> guards;  // of freed blocks that streams still use
};

State& state() {
  static State* const the_state = new State;
  return *the_state;
}

thread_local std::optional<Span> block_being_freed;

Stream* new_stream(int device, int priority, bool is_default) {
  State& s = state();
  s.streams.push_back(new Stream(device, int(s.streams.size()), priority, is_default));
  return s.streams.back();
}

std::string unreachable(const Stream& stream, const Work& work) {
  for (const Access& access : work.accesses) {
    for (const Span& span : access.spans) {
      if (span.start >= span.stop) continue;
      std::optional<Allocation> found = allocation_at(span.start);
      if (!found || span.stop > found->span.stop)
        return work.label + " on " + stream.name + " touches memory that is not allocated";
      if (!work.reaches_peers && found->is_device && !has_access(stream.device, found->device))
        return work.label + " on " + stream.name + " touches memory of cuda:" + std::to_string(found->device) +
               " without peer access";
    }
  }
  return "";
}

void run_safely(const std::string& label, const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& error) {
    std::string text = error.what();
    fail_later(label + ": " + text.substr(0, text.find('\n')));  // torch adds lines of addresses
  }
}

}  // namespace

Place& current_place() {
  thread_local Place place;
  return place;
}

cudaError_t issue(Stream& stream, Work work) {
  block_being_freed.reset();
  const Place& place = current_place();
  if (!place.label.empty()) work.label = place.label;
  if (!place.where.empty()) work.where = place.where;
  {
    auto lock = lock_order();
    if (stream.capture) return stream.capture->add_work(stream, std::move(work));
  }
  cudaError_t error = put(stream, std::move(work));
  if (error == cudaSuccess) count(Counter::works);
  return error;
}

cudaError_t put(Stream& stream, Work work) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (std::string text = unreachable(stream, work); !text.empty()) return fail(cudaErrorIllegalAddress, text);
  auto launch = std::make_shared<Launch>(Launch{work.label, work.where, stream.name, stream.number, 0});
  for (const Access& access : work.accesses) {
    std::optional<std::string> race = s.shadow.find_race(access, *launch);
    if (!race) continue;
    s.races.push_back(*race);
    if (s.are_raised) return fail(cudaErrorUnknown, *race);
  }
  if (work.link) note_copy(*work.link);
  launch->tick = s.order.launch(stream.number);
  for (const Access& access : work.accesses) s.shadow.add(access, launch);
  stream.push([label = work.label, run = std::move(work.run)] { run_safely(label, run); }, true);
  return cudaSuccess;
}

std::shared_ptr<Moment> record(Stream& stream) {
  auto moment = std::make_shared<Moment>();
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (stream.capture) return stream.capture->add_record(stream, moment), moment;
  moment->clock = s.order.now(stream.number);
  if (block_being_freed) s.guards[block_being_freed->start].join(moment->clock);
  stream.push([moment] { moment->reach(); }, false);
  return moment;
}

cudaError_t wait(Stream& stream, const std::shared_ptr<Moment>& moment) {
  block_being_freed.reset();
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (stream.capture || moment->capture) return wait_in_capture(stream, moment);
  s.order.wait(stream.number, moment->clock);
  stream.push([moment] { moment->wait(); }, false);
  return cudaSuccess;
}

std::unique_lock<std::mutex> lock_order() { return std::unique_lock(state().mutex); }

void join(Stream& stream, const Clock& clock) {
  std::lock_guard lock(state().mutex);
  state().order.wait(stream.number, clock);
}

Clock now(Stream& stream) {
  std::lock_guard lock(state().mutex);
  return state().order.now(stream.number);
}

cudaError_t host_wait(Stream& stream) {
  block_being_freed.reset();
  if (cudaError_t error = refuse_in_capture(stream)) return error;
  Clock clock = now(stream);
  count(Counter::host_waits);
  stream.drain();
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.order.host_wait(clock);
  return take_late_error();
}

cudaError_t host_wait(Moment& moment) {
  block_being_freed.reset();
  if (cudaError_t error = refuse_in_capture(moment)) return error;
  count(Counter::host_waits);
  moment.wait();
  host_saw(moment);
  return take_late_error();
}

cudaError_t host_wait_for_device(int device) {
  cudaError_t error = cudaSuccess;
  for (Stream* stream : streams_of(device)) {
    cudaError_t found = host_wait(*stream);
    if (found != cudaSuccess) error = found;
  }
  return error;
}

void host_saw(const Moment& moment) {
  std::lock_guard lock(state().mutex);
  state().order.host_wait(moment.clock);
}

Stream& stream_of(cudaStream_t handle) {
  // 0 and 1 are the legacy default stream of the current device, 2 is its per-thread one.
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return default_stream(current_device());
  return *reinterpret_cast<Stream*>(handle);
}

Stream& default_stream(int device) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  Stream*& found = s.defaults[device];
  if (!found) found = new_stream(device, 0, true);
  return *found;
}

std::vector<Stream*> streams_of(int device) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  std::vector<Stream*> found;
  for (Stream* stream : s.streams)
    if (stream->device == device) found.push_back(stream);
  return found;
}

cudaStream_t create_stream(int device, int priority) {
  std::lock_guard lock(state().mutex);
  return reinterpret_cast<cudaStream_t>(new_stream(device, priority, false));
}

void forget_memory(Span span) {
  std::lock_guard lock(state().mutex);
  state().shadow.forget(span);
}

void free_requested(Span span) { block_being_freed = span; }

void free_completed(Span span) {
  block_being_freed.reset();
  State& s = state();
  std::lock_guard lock(s.mutex);
  auto guard = s.guards.find(span.start);
  if (guard == s.guards.end()) return;
  s.shadow.forget(span, guard->second);
  s.guards.erase(guard);
}

std::vector<std::string> take_races() {
  std::lock_guard lock(state().mutex);
  return std::move(state().races);
}

void raise_races(bool are_raised) {
  std::lock_guard lock(state().mutex);
  state().are_raised = are_raised;
}

}  // namespace stand_in
