#include "shadow.h"

#include <algorithm>

namespace stand_in {

namespace {

std::string described(const Launch& launch) {
  return launch.label + " on " + launch.stream_name + " at " + launch.where;
}

std::string race(const char* kind, const Launch& earlier, const Launch& later) {
  return std::string(kind) + " race: " + described(later) + " is not ordered after " + described(earlier) + "; " +
         later.stream_name + " must wait for " + earlier.stream_name + ", or record_stream must keep the memory";
}

}  // namespace

std::optional<std::string> ShadowMemory::find_race(const Access& access, const Launch& launch) {
  for (const Span& span : access.spans) {
    for (auto cell = first_touching(span.start); cell != cells_.end() && cell->first < span.stop; ++cell) {
      const LaunchPtr& write = cell->second.write;
      if (write && !is_before(*write, launch)) return race(access.is_write ? "write-write" : "write-read", *write, launch);
      if (!access.is_write) continue;
      for (const LaunchPtr& read : cell->second.reads)
        if (!is_before(*read, launch)) return race("read-write", *read, launch);
    }
  }
  return std::nullopt;
}

void ShadowMemory::add(const Access& access, const LaunchPtr& launch) {
  for (const Span& span : access.spans) {
    if (span.start >= span.stop) continue;
    cut(span.start);
    cut(span.stop);
    if (access.is_write) {  // it replaces the accesses that it covers
      cells_.erase(cells_.lower_bound(span.start), cells_.lower_bound(span.stop));
      cells_[span.start] = Cell{span.stop, launch, {}};
      continue;
    }
    uintptr_t at = span.start;
    for (auto cell = cells_.lower_bound(span.start); cell != cells_.end() && cell->first < span.stop; ++cell) {
      if (at < cell->first) cells_[at] = Cell{cell->first, nullptr, {launch}};
      at = cell->second.stop;
      auto& reads = cell->second.reads;
      auto same = std::find_if(reads.begin(), reads.end(), [&](auto& read) { return read->stream == launch->stream; });
      if (same == reads.end()) reads.push_back(launch);
      else *same = launch;
    }
    if (at < span.stop) cells_[at] = Cell{span.stop, nullptr, {launch}};
  }
}

void ShadowMemory::forget(Span span, const Clock& clock) {
  cut(span.start);
  cut(span.stop);
  auto covered = [&](const LaunchPtr& launch) { return launch && clock.of(launch->stream) >= launch->tick; };
  for (auto cell = cells_.lower_bound(span.start); cell != cells_.end() && cell->first < span.stop; ++cell) {
    if (covered(cell->second.write)) cell->second.write = nullptr;
    auto& reads = cell->second.reads;
    reads.erase(std::remove_if(reads.begin(), reads.end(), covered), reads.end());
  }
}

void ShadowMemory::forget(Span span) {
  cut(span.start);
  cut(span.stop);
  cells_.erase(cells_.lower_bound(span.start), cells_.lower_bound(span.stop));
}

void ShadowMemory::cut(uintptr_t at) {
  auto cell = first_touching(at);
  if (cell == cells_.end() || cell->first >= at) return;
  Cell tail = cell->second;
  cell->second.stop = at;
  cells_[at] = std::move(tail);
}

// The first cell that ends behind `start`.
ShadowMemory::Cells::iterator ShadowMemory::first_touching(uintptr_t start) {
  auto cell = cells_.upper_bound(start);
  if (cell != cells_.begin()) {
    auto before = std::prev(cell);
    if (before->second.stop > start) return before;
  }
  return cell;
}

}  // namespace stand_in
