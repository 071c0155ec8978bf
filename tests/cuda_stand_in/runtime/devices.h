// The devices of the process, and the error state of its threads.
#pragma once
#include <string>

#include "../include/cuda_runtime_api.h"

namespace stand_in {

constexpr int kMaxDevices = 64;
constexpr size_t kDeviceBytes = size_t(16) << 30;

// The number of devices: DPBENCH_CUDA_DEVICES, or the part that CUDA_VISIBLE_DEVICES leaves.
int device_count();
int current_device();
// Whether the device was used, so that it has what CUDA calls a primary context.
bool is_in_use(int device);
bool can_access(int device, int peer);
void enable_access(int device, int peer, bool is_enabled);
bool has_access(int device, int peer);
// Allow or forbid peer access between devices from now on.
void allow_peers(bool are_allowed);
// Let a device have this many peers at most from now on.
void limit_peers(int count);

// Note the error for this thread's cudaGetLastError, and return it. `text` is what cudaGetErrorString says of it.
cudaError_t fail(cudaError_t error, const std::string& text = "");
// Note an error of a task. The next call that waits for a device returns it, once.
void fail_later(const std::string& text);
// Return the error that a task left, if there is one.
cudaError_t take_late_error();

}  // namespace stand_in
