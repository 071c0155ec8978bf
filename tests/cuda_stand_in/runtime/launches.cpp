// Kernels: torch registers them by name, and the stand-in has none but the one that sleeps.
#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "counters.h"
#include "devices.h"
#include "issue.h"

struct dim3 {
  unsigned x, y, z;
};

namespace stand_in {

namespace {

std::map<const void*, std::string>& names() {
  static auto* const all = new std::map<const void*, std::string>;
  return *all;
}
std::mutex names_mutex;

std::string name_of(const void* kernel) {
  std::lock_guard lock(names_mutex);
  auto found = names().find(kernel);
  if (found == names().end()) return "an unknown kernel";
  int status = 0;
  char* readable = abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? readable : found->second;
  free(readable);
  return name;
}

// torch.cuda._sleep counts cycles; a cycle is half a nanosecond, as on a GPU of 2 GHz.
cudaError_t sleep_in(Stream& stream, int64_t cycles) {
  return issue(stream, {"sleep", {}, [=] { std::this_thread::sleep_for(std::chrono::nanoseconds(cycles / 2)); }});
}

cudaError_t launch(const void* kernel, void** arguments, cudaStream_t stream) {
  std::string name = name_of(kernel);
  if (name.find("spin_kernel") != std::string::npos) return sleep_in(stream_of(stream), **(int64_t**)arguments);
  return fail(cudaErrorNotSupported, "the CUDA stand-in has no kernel " + name);
}

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local Configuration pushed;

}  // namespace

}  // namespace stand_in

using namespace stand_in;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, void*, void*, void*, void*, int*) {
  std::lock_guard lock(names_mutex);
  names()[host_function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  pushed = {grid, block, shared_bytes, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared_bytes = pushed.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(const void** kernel, const void* host_function) {
  *kernel = host_function;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
  return launch(kernel, arguments, stream);
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
  return launch(kernel, arguments, stream);
}

struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
cudaError_t cudaLaunchKernelExC(const LaunchConfiguration* configuration, const void* kernel, void** arguments) {
  return launch(kernel, arguments, configuration->stream);
}

}  // extern "C"
