// Streams are threads: each runs its tasks in order, apart from the host and from the other streams.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "clocks.h"

namespace stand_in {

class Capture;

// The end of the work that a stream had when an event was recorded on it.
class Moment {
 public:
  void reach();
  void wait();
  bool is_reached();
  std::chrono::steady_clock::time_point reached_at();

  Clock clock;
  std::shared_ptr<Capture> capture;  // of a moment in a captured stream; no stream ever reaches it

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false;
  std::chrono::steady_clock::time_point at_;
};

class Stream {
 public:
  Stream(int device, int number, int priority, bool is_default);

  // Append a task. `is_work` tasks, kernels and copies, are slowed by the stream's lag.
  void push(std::function<void()> run, bool is_work);
  bool is_idle();
  // Let the host wait until all tasks of now have run.
  void drain();

  const int device, number, priority;
  const bool is_default;
  const std::string name;
  std::atomic<double> lag_s{0};
  std::shared_ptr<Capture> capture;  // under the lock of issue.h

 private:
  void work();

  struct Task {
    std::function<void()> run;
    bool is_work;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  uint64_t pushed_ = 0, done_ = 0;
  bool has_thread_ = false;
};

// Seconds by which each task of a device is slowed, besides the lag of its stream.
std::atomic<double>& device_lag_s(int device);

}  // namespace stand_in
