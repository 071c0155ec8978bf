// Put our kernels in the place of torch's CUDA kernels. It happens when this library is loaded.
#include <ATen/ops/record_stream_native.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/library.h>

#include <set>

#include "../runtime/counters.h"
#include "../runtime/issue.h"
#include "copies.h"
#include "operators.h"

namespace stand_in {

namespace {

// torch's own kernels of these run no CUDA kernel: they make memory, views, or wait for the host.
const std::set<std::string> kept{
    "aten::empty", "aten::empty_strided", "aten::resize_", "aten::set_",
    "aten::_local_scalar_dense", "aten::is_set_to", "aten::_efficientzerotensor", "aten::is_pinned", "aten::_pin_memory",
    "aten::_use_cudnn_ctc_loss", "aten::_has_same_storage_numel", "aten::_fused_sdp_choice",
};

// Operators that torch composes of others, and that choose other parts on CUDA.
const std::vector<std::string> composed{"aten::convolution", "aten::convolution_backward"};

bool makes_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& output : schema.returns())
    if (output.alias_info() && !output.alias_info()->isWrite()) return true;
  return false;
}

bool is_replaced(const c10::OperatorName& name) {
  if (name.name.rfind("aten::", 0) != 0 || kept.count(name.name)) return false;
  return !makes_view(c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str()).schema());
}

class SilentHandler : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  count(Counter::record_streams);
  at::native::record_stream_cuda(tensor, stream);
}

torch::CppFunction kernel_of(const std::string& name) {
  if (name == "aten::record_stream") return torch::CppFunction(record_stream);
  if (name == "aten::_foreach_copy_") return torch::CppFunction::makeFromBoxedFunction<run_foreach_copy>();
  return torch::CppFunction::makeFromBoxedFunction<run_operator>();
}

void register_all(torch::Library& library) {
  SilentHandler silent;  // torch warns of kernels that are replaced
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNamesForDispatchKey(c10::DispatchKey::CUDA))
    if (is_replaced(name)) library.impl(toString(name).c_str(), kernel_of(name.name));
  for (const std::string& name : composed)
    if (!dispatcher.findSchemaOrThrow(name.c_str(), "").hasKernelForDispatchKey(c10::DispatchKey::CUDA))
      library.impl(name.c_str(), kernel_of(name));
  library.impl("aten::copy_", torch::CppFunction::makeFromBoxedFunction<run_copy>());
}

// torch composes its other sparse kernels of these and of dense ones.
void register_sparse(torch::Library& library) {
  SilentHandler silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  const std::set<std::string> replaced{"aten::_coalesce", "aten::add", "aten::add_", "aten::mul", "aten::mul_",
                                       "aten::addmm", "aten::addmm_", "aten::mm", "aten::bmm"};
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNamesForDispatchKey(c10::DispatchKey::SparseCUDA))
    if (replaced.count(name.name)) library.impl(toString(name).c_str(), kernel_of(name.name));
}

// Tell the runtime of blocks that torch's allocator gets back: it decides by events when they may be used again.
void follow_allocator(const c10::CachingDeviceAllocator::TraceEntry& entry) {
  using Entry = c10::CachingDeviceAllocator::TraceEntry;
  Span block{entry.addr_, entry.addr_ + entry.size_};
  if (entry.action_ == Entry::FREE_REQUESTED) free_requested(block);
  if (entry.action_ == Entry::FREE_COMPLETED) free_completed(block);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) { register_all(library); }

TORCH_LIBRARY_IMPL(aten, SparseCUDA, library) { register_sparse(library); }

extern "C" void stand_in_follow_allocator() { c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(follow_allocator); }

}  // namespace stand_in
