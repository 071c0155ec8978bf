// Device memory and pinned memory: both are host memory, and the stand-in knows which is which.
#pragma once
#include <optional>

#include "shadow.h"

namespace stand_in {

struct Allocation {
  Span span;
  int device;
  bool is_device;
};

// Return the allocation with this byte. Pageable memory has none.
std::optional<Allocation> allocation_at(uintptr_t address);

}  // namespace stand_in
