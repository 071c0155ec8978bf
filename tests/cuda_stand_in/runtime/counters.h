// Exact counts of what the host did, by kind.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>

namespace stand_in {

enum class Counter { works, copies, pageable_copies, events_recorded, waits, event_queries, host_waits, mallocs, size };

inline std::array<std::atomic<int64_t>, size_t(Counter::size)>& counters() {
  static std::array<std::atomic<int64_t>, size_t(Counter::size)> values{};
  return values;
}

inline void count(Counter counter) { ++counters()[size_t(counter)]; }

}  // namespace stand_in
