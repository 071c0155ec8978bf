#include "devices.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "issue.h"

namespace stand_in {

namespace {

thread_local int the_current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_text;
std::mutex late_mutex;
std::string late_text;
std::atomic<bool> used[kMaxDevices], enabled[kMaxDevices][kMaxDevices];
std::atomic<bool> peers_are_allowed{true};
std::atomic<int> most_peers{8};  // CUDA C++ Programming Guide, Peer-to-Peer Memory Access

int count_devices() {
  const char* wanted = getenv("DPBENCH_CUDA_DEVICES");
  int count = wanted ? atoi(wanted) : 2;
  if (count < 0 || count > kMaxDevices) count = 0;
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return count;
  int seen = 0;
  for (const char* at = visible; *at >= '0' && *at <= '9'; ++at) {  // as in CUDA, the first invalid entry ends the list
    char* end;
    if (strtol(at, &end, 10) >= count) break;
    ++seen;
    at = end;
    if (*at != ',') break;
  }
  return seen;
}

bool is_device(int device) { return 0 <= device && device < device_count(); }

}  // namespace

int device_count() {
  static const int count = count_devices();
  return count;
}

int current_device() { return the_current_device; }
bool is_in_use(int device) { return used[device]; }
bool can_access(int device, int peer) { return device != peer && peers_are_allowed; }
void enable_access(int device, int peer, bool is_enabled) { enabled[device][peer] = is_enabled; }
bool has_access(int device, int peer) { return device == peer || enabled[device][peer]; }

void limit_peers(int count) { most_peers = count; }

void allow_peers(bool are_allowed) {
  peers_are_allowed = are_allowed;
  if (are_allowed) return;
  for (auto& row : enabled)
    for (auto& is_enabled : row) is_enabled = false;
}

cudaError_t fail(cudaError_t error, const std::string& text) {
  last_error = error;
  last_text = text;
  return error;
}

void fail_later(const std::string& text) {
  fprintf(stderr, "the CUDA stand-in: %s\n", text.c_str());
  std::lock_guard lock(late_mutex);
  if (late_text.empty()) late_text = text;
}

cudaError_t take_late_error() {
  std::lock_guard lock(late_mutex);
  if (late_text.empty()) return cudaSuccess;
  std::string text;
  text.swap(late_text);
  return fail(cudaErrorLaunchFailure, text);
}

}  // namespace stand_in

using namespace stand_in;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return *count ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  if (!device_count()) return fail(cudaErrorNoDevice);
  *device = the_current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  the_current_device = device;
  used[device] = true;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return fail(cudaErrorInvalidDevice);
  *can = can_access(device, peer);
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (!is_device(peer) || !can_access(the_current_device, peer)) return fail(cudaErrorInvalidDevice);
  if (has_access(the_current_device, peer)) return fail(cudaErrorPeerAccessAlreadyEnabled);
  if (std::count(enabled[the_current_device], enabled[the_current_device] + kMaxDevices, true) >= most_peers)
    return fail(cudaErrorTooManyPeers);
  enable_access(the_current_device, peer, true);
  return cudaSuccess;
}

// The values are an A100's, as far as torch reads them.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  cudaDeviceProp p{};
  snprintf(p.name, sizeof p.name, "dpbench CUDA stand-in");
  p.uuid[0] = char(device + 1);
  p.totalGlobalMem = kDeviceBytes;
  p.sharedMemPerBlock = 48 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = 8;
  p.textureAlignment = p.surfaceAlignment = 512;
  p.texturePitchAlignment = 32;
  p.multiProcessorCount = 108;
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.streamPrioritiesSupported = 1;
  p.pciBusID = device + 1;
  p.asyncEngineCount = 3;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = 40 << 20;
  p.maxThreadsPerMultiProcessor = 2048;
  p.sharedMemPerMultiprocessor = 164 << 10;
  p.managedMemory = p.cooperativeLaunch = 1;
  p.sharedMemPerBlockOptin = 163 << 10;
  p.maxBlocksPerMultiProcessor = 32;
  p.reservedSharedMemPerBlock = 1 << 10;
  *properties = p;
  return cudaSuccess;
}

// Attributes by their number in CUDA's documentation; all others are 0.
cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  switch (attribute) {
    case 1: *value = 1024; break;         // threads per block
    case 8: *value = 48 << 10; break;     // shared memory per block
    case 10: *value = 32; break;          // warp size
    case 16: *value = 108; break;         // multiprocessors
    case 39: *value = 2048; break;        // threads per multiprocessor
    case 75: *value = 8; break;           // compute capability
    case 97: *value = 163 << 10; break;   // shared memory per block, opt-in
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  snprintf(text, bytes, "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

// The driver's functions by name. `status` is 0 for a function that was found.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long, int* status) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  *function = driver ? dlsym(driver, name) : nullptr;
  if (status) *status = *function ? 0 : 1;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorPeerAccessAlreadyEnabled: return "cudaErrorPeerAccessAlreadyEnabled";
    case cudaErrorTooManyPeers: return "cudaErrorTooManyPeers";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
    default: return "cudaErrorUnknown";
  }
}

// torch puts this text into the exception, so it carries the reason.
const char* cudaGetErrorString(cudaError_t error) {
  if (error != cudaSuccess && !last_text.empty()) return last_text.c_str();
  switch (error) {
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorTooManyPeers: return "peer mapping resources exhausted";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge: return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched: return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
    default: return cudaGetErrorName(error);
  }
}

}  // extern "C"
