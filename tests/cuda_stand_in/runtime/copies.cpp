// Copies and fills. As in CUDA, a copy with pageable memory keeps the host waiting, and the others do not.
#include <cstring>
#include <memory>

#include "devices.h"
#include "graphs.h"
#include "memory.h"

namespace stand_in {

namespace {

Access access(const void* at, size_t bytes, bool is_write) {
  return {{{uintptr_t(at), uintptr_t(at) + bytes}}, is_write};
}

// The bytes are read at once, and written when the stream gets there.
// The host first waits for the stream, as the driver may do before it stages the bytes. No program may rely on this
// wait, so the vector clocks do not know of it.
cudaError_t from_pageable(void* to, const void* from, size_t bytes, Stream& stream) {
  count(Counter::host_waits);
  stream.drain();
  auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
  return issue(stream, {"copy from pageable memory", {access(to, bytes, true)}, [=] {
                          memcpy(to, staged->data(), bytes);
                        }});
}

cudaError_t to_pageable(void* to, const void* from, size_t bytes, Stream& stream) {
  cudaError_t error = issue(stream, {"copy to pageable memory", {access(from, bytes, false)}, [=] {
                                       memcpy(to, from, bytes);
                                     }});
  return error == cudaSuccess ? host_wait(stream) : error;
}

int place_of(const std::optional<Allocation>& memory) { return memory && memory->is_device ? memory->device : kHost; }

cudaError_t copy(void* to, const void* from, size_t bytes, Stream& stream) {
  if (bytes == 0) return cudaSuccess;
  count(Counter::copies);
  std::optional<Allocation> source = allocation_at(uintptr_t(from)), target = allocation_at(uintptr_t(to));
  Link link{place_of(source), place_of(target), bytes};
  if (source && target)
    return issue(stream, {"copy", {access(from, bytes, false), access(to, bytes, true)}, [=] { memmove(to, from, bytes); }, true, link});
  if (cudaError_t error = refuse_in_capture(stream)) return error;
  note_copy(link);
  if (!source && !target) {
    cudaError_t error = host_wait(stream);
    memcpy(to, from, bytes);
    return error;
  }
  count(Counter::pageable_copies);
  return source ? to_pageable(to, from, bytes, stream) : from_pageable(to, from, bytes, stream);
}

cudaError_t fill(void* at, int value, size_t bytes, Stream& stream) {
  if (bytes == 0) return cudaSuccess;
  return issue(stream, {"fill", {access(at, bytes, true)}, [=] { memset(at, value, bytes); }});
}

}  // namespace

}  // namespace stand_in

using namespace stand_in;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, bytes, stream_of(stream));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, stream_of(stream));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (cudaError_t error = refuse_unsafe()) return error;
  cudaError_t error = copy(to, from, bytes, stream_of(nullptr));
  return error == cudaSuccess ? host_wait(stream_of(nullptr)) : error;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row) {
    auto* source = static_cast<const char*>(from) + row * from_pitch;
    cudaError_t error = copy(static_cast<char*>(to) + row * to_pitch, source, width, stream_of(stream));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  return fill(at, value, bytes, stream_of(stream));
}

cudaError_t cudaMemset(void* at, int value, size_t bytes) { return fill(at, value, bytes, stream_of(nullptr)); }

}  // extern "C"
