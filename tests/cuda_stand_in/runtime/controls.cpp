// What the tests ask of the stand-in, by ctypes (control.py).
#include <cstring>

#include "counters.h"
#include "devices.h"
#include "issue.h"

using namespace stand_in;

namespace {

size_t write_text(const std::string& all, char* text, size_t bytes) {
  size_t length = std::min(bytes, all.size());
  memcpy(text, all.data(), length);
  return length;
}

}  // namespace

extern "C" {

void stand_in_lag_device(int device, double seconds_per_task) { device_lag_s(device) = seconds_per_task; }
void stand_in_lag_stream(cudaStream_t stream, int device, double seconds_per_task) {
  (stream ? stream_of(stream) : default_stream(device)).lag_s = seconds_per_task;
}
void stand_in_allow_peers(int are_allowed) { allow_peers(are_allowed); }
void stand_in_limit_peers(int count) { limit_peers(count); }
void stand_in_raise_races(int are_raised) { raise_races(are_raised); }
int64_t stand_in_counter(int counter) { return counted(Counter(counter)); }

// Write the races found since the last call, one a line, and return the length of the text.
size_t stand_in_take_races(char* text, size_t bytes) {
  std::string all;
  for (const std::string& race : take_races()) all += race + "\n";
  return write_text(all, text, bytes);
}

// Write the copies of each link (counters.h), and return the length of the text.
size_t stand_in_copies(char* text, size_t bytes) { return write_text(copies_by_link(), text, bytes); }

// Let all streams finish, so that no task runs while the process ends.
void stand_in_finish() {
  for (int device = 0; device < device_count(); ++device) host_wait_for_device(device);
}

}  // extern "C"
