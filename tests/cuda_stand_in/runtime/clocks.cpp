#include "clocks.h"

#include <algorithm>

namespace stand_in {

void Clock::set(int stream, Tick tick) {
  if (ticks_.size() <= size_t(stream)) ticks_.resize(stream + 1);
  ticks_[stream] = tick;
}

void Clock::join(const Clock& other) {
  if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
  for (size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

Tick StreamOrder::launch(int stream) {
  clock_of(stream).set(stream, ++last_);
  return last_;
}

Clock StreamOrder::now(int stream) { return clock_of(stream); }

void StreamOrder::wait(int stream, const Clock& clock) { clock_of(stream).join(clock); }

void StreamOrder::host_wait(const Clock& clock) {
  host_.join(clock);
  ++host_version_;
}

bool StreamOrder::precedes(int earlier_stream, Tick tick, int later_stream) {
  return earlier_stream == later_stream || clock_of(later_stream).of(earlier_stream) >= tick;
}

// The clock of a stream, joined with the host's.
Clock& StreamOrder::clock_of(int stream) {
  if (clocks_.size() <= size_t(stream)) {
    clocks_.resize(stream + 1);
    host_seen_.resize(stream + 1);
  }
  if (host_seen_[stream] != host_version_) {
    clocks_[stream].join(host_);
    host_seen_[stream] = host_version_;
  }
  return clocks_[stream];
}

}  // namespace stand_in
