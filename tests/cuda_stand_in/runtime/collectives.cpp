#include "collectives.h"

#include <stdint.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace stand_in {

namespace {

// bfloat16 is the upper half of a float.
struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  BFloat16(float value) {
    uint32_t all;
    memcpy(&all, &value, 4);
    bits = uint16_t((all + 0x7fff + ((all >> 16) & 1)) >> 16);
  }
  operator float() const {
    uint32_t all = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &all, 4);
    return value;
  }
};

size_t bytes_of(int type) {
  static constexpr size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return bytes[type];
}

template <typename T>
T combined(T a, T b, int op) {
  switch (op) {
    case 1: return T(a * b);
    case 2: return std::max(a, b);
    case 3: return std::min(a, b);
    default: return T(a + b);  // sum and average
  }
}

template <typename T>
void reduce_as(const std::vector<Part>& parts, size_t first, size_t count, T* result) {
  const int op = parts[0].op;
  for (size_t i = 0; i < count; ++i) {
    T total = static_cast<const T*>(parts[0].from)[first + i];
    for (size_t rank = 1; rank < parts.size(); ++rank)
      total = combined<T>(total, static_cast<const T*>(parts[rank].from)[first + i], op);
    result[i] = op == 4 ? T(total / T(parts.size())) : total;
  }
}

void reduce(const std::vector<Part>& parts, size_t first, size_t count, void* result) {
  switch (parts[0].type) {
    case 0: return reduce_as(parts, first, count, static_cast<int8_t*>(result));
    case 1: return reduce_as(parts, first, count, static_cast<uint8_t*>(result));
    case 2: return reduce_as(parts, first, count, static_cast<int32_t*>(result));
    case 3: return reduce_as(parts, first, count, static_cast<uint32_t*>(result));
    case 4: return reduce_as(parts, first, count, static_cast<int64_t*>(result));
    case 5: return reduce_as(parts, first, count, static_cast<uint64_t*>(result));
    case 6: return reduce_as(parts, first, count, static_cast<_Float16*>(result));
    case 7: return reduce_as(parts, first, count, static_cast<float*>(result));
    case 8: return reduce_as(parts, first, count, static_cast<double*>(result));
    case 9: return reduce_as(parts, first, count, static_cast<BFloat16*>(result));
    default: throw std::runtime_error("NCCL: unknown type");
  }
}

}  // namespace

const char* name_of(Collective kind) {
  static constexpr const char* names[] = {"broadcast", "reduce", "all-reduce", "reduce-scatter", "all-gather"};
  return names[int(kind)];
}

size_t sent_bytes(const Part& part, int ranks, int rank) {
  if (part.kind == Collective::broadcast && rank != part.root) return 0;
  return part.count * bytes_of(part.type) * (part.kind == Collective::reduce_scatter ? ranks : 1);
}

size_t received_bytes(const Part& part, int ranks, int rank) {
  if (part.kind == Collective::reduce && rank != part.root) return 0;
  if (part.kind == Collective::broadcast && rank == part.root && part.from == part.to) return 0;
  return part.count * bytes_of(part.type) * (part.kind == Collective::all_gather ? ranks : 1);
}

bool receives_from(const Part& part, int rank, int other) {
  if (rank == other) return false;
  if (part.kind == Collective::broadcast) return other == part.root;
  return part.kind != Collective::reduce || rank == part.root;
}

void compute(const std::vector<Part>& parts, int rank, void* result) {
  const Part& part = parts[rank];
  size_t bytes = part.count * bytes_of(part.type);
  switch (part.kind) {
    case Collective::broadcast: memcpy(result, parts[part.root].from, bytes); return;
    case Collective::reduce_scatter: return reduce(parts, part.count * rank, part.count, result);
    case Collective::all_gather:
      for (size_t other = 0; other < parts.size(); ++other) memcpy(static_cast<char*>(result) + other * bytes, parts[other].from, bytes);
      return;
    default: return reduce(parts, 0, part.count, result);
  }
}

}  // namespace stand_in
