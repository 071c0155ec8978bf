// What a collective computes, without threads: from the parts of all ranks to the bytes that one rank receives.
#pragma once
#include <stddef.h>

#include <vector>

namespace stand_in {

enum class Collective { broadcast, reduce, all_reduce, reduce_scatter, all_gather };

// A rank's arguments, with NCCL's numbers of types and operations. `count` is NCCL's, for the smaller buffer.
struct Part {
  Collective kind;
  const void* from;
  void* to;
  size_t count;
  int type, op, root;
};

const char* name_of(Collective kind);
size_t sent_bytes(const Part& part, int ranks, int rank);
size_t received_bytes(const Part& part, int ranks, int rank);
bool receives_from(const Part& part, int rank, int other);
// Write what `rank` receives to `result`.
void compute(const std::vector<Part>& parts, int rank, void* result);

}  // namespace stand_in
