// Exact counts of what the host did, by kind, and of the bytes that each link carried.
#pragma once
#include <cstdint>
#include <string>

namespace stand_in {

// `programs_events` and `programs_waits` are the part that Python asked for; the others are torch's own.
enum class Counter {
  works,
  copies,
  pageable_copies,
  events_recorded,
  programs_events,
  waits,
  programs_waits,
  record_streams,
  event_queries,
  host_waits,
  mallocs,
  graph_launches,
  size
};

void count(Counter counter);
int64_t counted(Counter counter);

constexpr int kHost = -1;
// A copy between two devices, or between the host and a device.
struct Link {
  int from, to;
  size_t bytes;
};
void note_copy(const Link& link);
// The copies of each link so far, one a line: "from to copies bytes".
std::string copies_by_link();

}  // namespace stand_in
