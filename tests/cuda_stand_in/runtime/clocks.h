// Vector clocks: the work of all streams that has finished before another piece of work runs.
//
// The rules are those of dpbench/simulator/streams.py. A stream has a number. Each piece of work in it has a tick.
// A clock holds, for each stream, the last tick that is known to have finished. The host has a clock too.
#pragma once
#include <stddef.h>

#include <cstdint>
#include <vector>

namespace stand_in {

using Tick = uint64_t;

class Clock {
 public:
  Tick of(int stream) const { return size_t(stream) < ticks_.size() ? ticks_[stream] : 0; }
  void set(int stream, Tick tick);
  void join(const Clock& other);

 private:
  std::vector<Tick> ticks_;
};

// The clocks of all streams and of the host. Callers hold the lock of issue.h.
class StreamOrder {
 public:
  // Return the tick of the stream's next piece of work.
  Tick launch(int stream);
  Clock now(int stream);
  void wait(int stream, const Clock& clock);
  void host_wait(const Clock& clock);
  bool precedes(int earlier_stream, Tick tick, int later_stream);

 private:
  Clock& clock_of(int stream);

  Tick last_ = 0;
  Clock host_;
  uint64_t host_version_ = 1;
  std::vector<Clock> clocks_;
  std::vector<uint64_t> host_seen_;
};

}  // namespace stand_in
