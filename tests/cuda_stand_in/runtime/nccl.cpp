// NCCL between the devices of one process. The parts of a collective meet on their streams and wait for each other.
//
// What is ordered is only what the data makes necessary: a rank that receives comes after the earlier work of the ranks
// that it receives from.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "collectives.h"
#include "devices.h"
#include "graphs.h"

namespace stand_in {

namespace {

// A collective in which all ranks have to take part.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks), parts(ranks) {}

  // Wait until all ranks have called this as often as this one. Return false if the collective was given up.
  bool wait_for_all() {
    std::unique_lock lock(mutex_);
    uint64_t goal = (arrived_++ / ranks_ + 1) * ranks_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return arrived_ >= goal || is_given_up_; });
    return !is_given_up_;
  }

  void give_up() {
    std::lock_guard lock(mutex_);
    is_given_up_ = true;
    changed_.notify_all();
  }

 private:
  const uint64_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t arrived_ = 0;
  bool is_given_up_ = false;

 public:
  std::vector<Part> parts;
};

struct Clique {
  int ranks;
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings;  // of which some ranks have not yet been issued
  std::map<uint64_t, int> missing;
};

}  // namespace

}  // namespace stand_in

using namespace stand_in;

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank, device;
  uint64_t next = 0;
};

namespace stand_in {

namespace {

struct Call {
  ncclComm* comm;
  Part part;
  Stream* stream;
  std::shared_ptr<Meeting> meeting;
  Clock before;
};
thread_local std::vector<Call> group;
thread_local int group_depth = 0;
thread_local std::string last_text;

// Find the meeting of the communicator's next collective, or begin it.
std::shared_ptr<Meeting> join_meeting(Call& call) {
  Clique& clique = *call.comm->clique;
  std::lock_guard lock(clique.mutex);
  uint64_t number = call.comm->next++;
  auto& meeting = clique.meetings[number];
  if (!meeting) {
    meeting = std::make_shared<Meeting>(clique.ranks);
    clique.missing[number] = clique.ranks;
  }
  meeting->parts[call.comm->rank] = call.part;
  auto found = meeting;
  if (--clique.missing[number] == 0) {
    clique.meetings.erase(number);
    clique.missing.erase(number);
  }
  return found;
}

void take_part(const std::shared_ptr<Meeting>& meeting, int rank) {
  if (!meeting->wait_for_all()) return;
  const Part& mine = meeting->parts[rank];
  std::vector<char> result(received_bytes(mine, int(meeting->parts.size()), rank));
  if (!result.empty()) compute(meeting->parts, rank, result.data());
  if (!meeting->wait_for_all()) return;  // now all have read what others sent
  if (!result.empty()) memcpy(mine.to, result.data(), result.size());
}

int issue_call(Call& call) {
  const int rank = call.comm->rank, ranks = call.comm->clique->ranks;
  for (Call& other : group)
    if (other.meeting == call.meeting && receives_from(call.part, rank, other.comm->rank)) join(*call.stream, other.before);
  std::vector<Access> accesses;
  auto add = [&](const void* at, size_t bytes, bool is_write) {
    if (at && bytes) accesses.push_back({{{uintptr_t(at), uintptr_t(at) + bytes}}, is_write});
  };
  add(call.part.from, sent_bytes(call.part, ranks, rank), false);
  add(call.part.to, received_bytes(call.part, ranks, rank), true);
  cudaError_t error = issue(*call.stream, {std::string("NCCL ") + name_of(call.part.kind), accesses,
                                           [meeting = call.meeting, rank] { take_part(meeting, rank); }});
  if (error == cudaSuccess) return 0;
  last_text = cudaGetErrorString(error);
  call.meeting->give_up();
  return 1;
}

int issue_group() {
  for (Call& call : group) {
    if (refuse_in_capture(*call.stream) == cudaSuccess) continue;
    last_text = "the CUDA stand-in captures no collectives";
    group.clear();
    return 1;
  }
  for (Call& call : group) {
    call.meeting = join_meeting(call);
    call.before = now(*call.stream);
  }
  int result = 0;
  for (Call& call : group)
    if (int error = issue_call(call)) result = error;
  group.clear();
  return result;
}

int add_call(ncclComm* comm, Part part, cudaStream_t stream) {
  int current = current_device();
  cudaSetDevice(comm->device);
  group.push_back({comm, part, &stream_of(stream), nullptr, {}});
  cudaSetDevice(current);
  return group_depth ? 0 : issue_group();
}

}  // namespace

}  // namespace stand_in

extern "C" {

int ncclGetVersion(int* version) { return *version = 23007, 0; }
const char* ncclGetErrorString(int error) { return error ? last_text.c_str() : "no error"; }
const char* ncclGetLastError(ncclComm*) { return last_text.c_str(); }

int ncclCommInitAll(ncclComm** comms, int ranks, const int* devices) {
  auto clique = std::make_shared<Clique>();
  clique->ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) comms[rank] = new ncclComm{clique, rank, devices ? devices[rank] : rank};
  return 0;
}

int ncclCommDestroy(ncclComm*) { return 0; }
int ncclCommAbort(ncclComm*) { return 0; }
int ncclCommCount(const ncclComm* comm, int* ranks) { return *ranks = comm->clique->ranks, 0; }
int ncclCommUserRank(const ncclComm* comm, int* rank) { return *rank = comm->rank, 0; }
int ncclCommGetAsyncError(ncclComm*, int* error) { return *error = 0; }

int ncclGroupStart() { return ++group_depth, 0; }
int ncclGroupEnd() { return --group_depth ? 0 : issue_group(); }

int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, ncclComm* comm, cudaStream_t stream) {
  return add_call(comm, {Collective::broadcast, from, to, count, type, 0, root}, stream);
}
int ncclBcast(void* buffer, size_t count, int type, int root, ncclComm* comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
int ncclReduce(const void* from, void* to, size_t count, int type, int op, int root, ncclComm* comm, cudaStream_t stream) {
  return add_call(comm, {Collective::reduce, from, to, count, type, op, root}, stream);
}
int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, ncclComm* comm, cudaStream_t stream) {
  return add_call(comm, {Collective::all_reduce, from, to, count, type, op, 0}, stream);
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, ncclComm* comm, cudaStream_t stream) {
  return add_call(comm, {Collective::reduce_scatter, from, to, count, type, op, 0}, stream);
}
int ncclAllGather(const void* from, void* to, size_t count, int type, ncclComm* comm, cudaStream_t stream) {
  return add_call(comm, {Collective::all_gather, from, to, count, type, 0, 0}, stream);
}

}  // extern "C"
