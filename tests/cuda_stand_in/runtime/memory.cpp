#include "memory.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>

#include "devices.h"
#include "graphs.h"

namespace stand_in {

namespace {

struct Table {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> allocations;
  size_t used_bytes[kMaxDevices] = {};
};

Table& table() {
  static Table* const the_table = new Table;
  return *the_table;
}

constexpr size_t kPage = 4096;

size_t rounded(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* map_pages(size_t bytes) {
  void* at = mmap(nullptr, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

void add(void* at, size_t bytes, int device, bool is_device) {
  uintptr_t start = uintptr_t(at);
  table().allocations[start] = Allocation{{start, start + bytes}, device, is_device};
}

// Take the allocation that starts here out of the table.
std::optional<Allocation> take(void* at) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto found = t.allocations.find(uintptr_t(at));
  if (found == t.allocations.end()) return std::nullopt;
  Allocation taken = found->second;
  t.allocations.erase(found);
  if (taken.is_device) t.used_bytes[taken.device] -= taken.span.stop - taken.span.start;
  return taken;
}

}  // namespace

std::optional<Allocation> allocation_at(uintptr_t address) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto after = t.allocations.upper_bound(address);
  if (after == t.allocations.begin()) return std::nullopt;
  const Allocation& found = std::prev(after)->second;
  return address < found.span.stop ? std::optional(found) : std::nullopt;
}

}  // namespace stand_in

using namespace stand_in;

extern "C" {

// New memory is full of 0xff, which is NaN: a read of memory that no task has written shows in the numbers.
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (cudaError_t error = refuse_unsafe()) return error;
  count(Counter::mallocs);
  int device = current_device();
  if (!device_count()) return fail(cudaErrorNoDevice);
  Table& t = table();
  std::lock_guard lock(t.mutex);
  *pointer = t.used_bytes[device] + bytes <= kDeviceBytes ? map_pages(bytes) : nullptr;
  if (!*pointer) return fail(cudaErrorMemoryAllocation);
  memset(*pointer, 0xff, bytes);
  t.used_bytes[device] += bytes;
  add(*pointer, bytes, device, true);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (!pointer) return cudaSuccess;
  if (cudaError_t error = refuse_unsafe()) return error;
  std::optional<Allocation> found = allocation_at(uintptr_t(pointer));
  if (!found || !found->is_device) return fail(cudaErrorInvalidValue);
  cudaError_t error = host_wait_for_device(found->device);  // cudaFree waits for the device
  take(pointer);
  forget_memory(found->span);
  munmap(pointer, rounded(found->span.stop - found->span.start));
  return error;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  std::lock_guard lock(table().mutex);
  *free_bytes = kDeviceBytes - table().used_bytes[current_device()];
  *total = kDeviceBytes;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (cudaError_t error = refuse_unsafe()) return error;
  *pointer = map_pages(bytes);
  if (!*pointer) return fail(cudaErrorMemoryAllocation);
  std::lock_guard lock(table().mutex);
  add(*pointer, bytes, current_device(), false);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (cudaError_t error = refuse_unsafe()) return error;
  std::optional<Allocation> taken = take(pointer);
  if (!taken) return fail(cudaErrorInvalidValue);
  for (int device = 0; device < device_count(); ++device) host_wait_for_device(device);
  forget_memory(taken->span);
  munmap(pointer, rounded(taken->span.stop - taken->span.start));
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  if (allocation_at(uintptr_t(pointer))) return fail(cudaErrorHostMemoryAlreadyRegistered);
  std::lock_guard lock(table().mutex);
  add(pointer, bytes, current_device(), false);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  std::optional<Allocation> taken = take(pointer);
  if (!taken) return fail(cudaErrorInvalidValue);
  forget_memory(taken->span);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::optional<Allocation> found = allocation_at(uintptr_t(pointer));
  *attributes = {};
  attributes->hostPointer = const_cast<void*>(pointer);
  if (!found) return cudaSuccess;
  attributes->type = found->is_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = found->device;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (found->is_device) attributes->hostPointer = nullptr;
  return cudaSuccess;
}

}  // extern "C"
