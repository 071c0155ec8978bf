// Who wrote and who read each byte last, and whether a wait orders the next access after them.
//
// The rules are those of dpbench/simulator/races.py. The bytes lie in disjoint cells. A strided access is a list of
// spans, so the answer is exact.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clocks.h"

namespace stand_in {

struct Span {
  uintptr_t start, stop;
};

struct Access {
  std::vector<Span> spans;
  bool is_write;
};

// One piece of work in a stream. `where` is the source line that issued it, or the autograd node.
struct Launch {
  std::string label, where, stream_name;
  int stream;
  Tick tick;
};
using LaunchPtr = std::shared_ptr<const Launch>;

class ShadowMemory {
 public:
  explicit ShadowMemory(StreamOrder& order) : order_(order) {}

  // Return the text of a race between `launch` and an earlier access, if there is one.
  std::optional<std::string> find_race(const Access& access, const Launch& launch);
  void add(const Access& access, const LaunchPtr& launch);
  // Forget the accesses to these bytes that `clock` covers.
  void forget(Span span, const Clock& clock);
  // Forget all accesses to these bytes.
  void forget(Span span);

 private:
  struct Cell {
    uintptr_t stop;
    LaunchPtr write;
    std::vector<LaunchPtr> reads;
  };
  using Cells = std::map<uintptr_t, Cell>;

  void cut(uintptr_t at);
  Cells::iterator first_touching(uintptr_t start);
  bool is_before(const Launch& earlier, const Launch& later) {
    return order_.precedes(earlier.stream, earlier.tick, later.stream);
  }

  StreamOrder& order_;
  Cells cells_;
};

}  // namespace stand_in
