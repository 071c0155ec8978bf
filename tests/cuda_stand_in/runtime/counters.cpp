#include "counters.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>

namespace stand_in {

namespace {

struct Traffic {
  int64_t copies = 0, bytes = 0;
};
std::array<std::atomic<int64_t>, size_t(Counter::size)> values{};
std::mutex mutex;
std::map<std::pair<int, int>, Traffic> links;

}  // namespace

void count(Counter counter) { ++values[size_t(counter)]; }

int64_t counted(Counter counter) { return values[size_t(counter)]; }

void note_copy(const Link& link) {
  if (link.from == link.to) return;
  std::lock_guard lock(mutex);
  Traffic& traffic = links[{link.from, link.to}];
  ++traffic.copies;
  traffic.bytes += int64_t(link.bytes);
}

std::string copies_by_link() {
  std::lock_guard lock(mutex);
  std::string text;
  for (const auto& [link, traffic] : links)
    text += std::to_string(link.first) + " " + std::to_string(link.second) + " " + std::to_string(traffic.copies) + " " +
            std::to_string(traffic.bytes) + "\n";
  return text;
}

}  // namespace stand_in
