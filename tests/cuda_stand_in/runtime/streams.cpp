#include "streams.h"

#include <thread>

#include "devices.h"

namespace stand_in {

void Moment::reach() {
  std::lock_guard lock(mutex_);
  is_reached_ = true;
  at_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void Moment::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_reached_; });
}

bool Moment::is_reached() {
  std::lock_guard lock(mutex_);
  return is_reached_;
}

std::chrono::steady_clock::time_point Moment::reached_at() {
  std::lock_guard lock(mutex_);
  return at_;
}

Stream::Stream(int device, int number, int priority, bool is_default)
    : device(device),
      number(number),
      priority(priority),
      is_default(is_default),
      name("cuda:" + std::to_string(device) + (is_default ? " default stream" : " stream " + std::to_string(number))) {}

void Stream::push(std::function<void()> run, bool is_work) {
  std::lock_guard lock(mutex_);
  if (!has_thread_) {
    has_thread_ = true;
    std::thread([this] { work(); }).detach();  // it lives as long as the process, like the stream
  }
  tasks_.push_back({std::move(run), is_work});
  ++pushed_;
  changed_.notify_all();
}

bool Stream::is_idle() {
  std::lock_guard lock(mutex_);
  return done_ == pushed_;
}

void Stream::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&, until = pushed_] { return done_ >= until; });
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !tasks_.empty(); });
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    double seconds = task.is_work ? lag_s + device_lag_s(device) : 0;
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    task.run();
    task.run = nullptr;  // what it holds is freed before the host may go on
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

std::atomic<double>& device_lag_s(int device) {
  static std::atomic<double> lags[kMaxDevices];
  return lags[device];
}

}  // namespace stand_in
