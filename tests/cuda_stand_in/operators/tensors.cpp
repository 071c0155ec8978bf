#include "tensors.h"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>

namespace stand_in {

c10::IValue map_tensors(const c10::IValue& value, const TensorMap& map) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? c10::IValue(map(tensor)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorVector()) mapped.push_back(tensor.defined() ? map(tensor) : tensor);
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (std::optional<at::Tensor> tensor : value.toOptionalTensorList())
      mapped.push_back(tensor && tensor->defined() ? std::optional(map(*tensor)) : tensor);
    return mapped;
  }
  return value;
}

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  map_tensors(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
}

namespace {

// Copy the bits that change what the elements mean.
at::Tensor with_bits_of(const at::Tensor& tensor, at::Tensor to) {
  if (tensor.is_conj()) to._set_conj(true);
  if (tensor.is_neg()) to._set_neg(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) to.unsafeGetTensorImpl()->set_wrapped_number(true);
  return to;
}

}  // namespace

at::Tensor empty_as(const at::Tensor& wanted, c10::Device device) {
  if (wanted.is_sparse())
    return at::_sparse_coo_tensor_unsafe(empty_as(wanted._indices(), device), empty_as(wanted._values(), device), wanted.sizes(),
                                         wanted.options().device(device), wanted.is_coalesced());
  return at::empty_strided(wanted.sizes(), wanted.strides(), wanted.options().device(device).pinned_memory(false));
}

void copy_parts(const at::Tensor& to, const at::Tensor& from) {
  if (!to.is_sparse()) {
    to.copy_(from);
    return;
  }
  to._indices().copy_(from._indices());
  to._values().copy_(from._values());
}

at::Tensor on_host(const at::Tensor& tensor) {
  c10::InferenceMode off(false);  // the stream's thread writes to this tensor outside of inference mode
  if (!tensor.is_cuda()) return tensor.is_cpu() ? with_bits_of(tensor, tensor.clone()) : tensor;
  auto options = tensor.options().device(at::kCPU);
  if (tensor.is_sparse())
    return at::_sparse_coo_tensor_unsafe(on_host(tensor._indices()), on_host(tensor._values()), tensor.sizes(), options,
                                         tensor.is_coalesced());
  return with_bits_of(tensor, at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options));
}

at::Tensor as_meta(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  return with_bits_of(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta)));
}

at::Tensor as_zeros(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  auto zeros = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  return with_bits_of(tensor, zeros.zero_());
}

Access access(const at::Tensor& tensor, bool is_write) {
  Access found{{}, is_write};
  if (tensor.is_sparse()) {
    for (const at::Tensor& part : {tensor._indices(), tensor._values()})
      for (const Span& span : access(part, is_write).spans) found.spans.push_back(span);
    return found;
  }
  if (tensor.numel() == 0) return found;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size, in elements
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1 && tensor.stride(i) > 0) dims.emplace_back(tensor.stride(i), tensor.size(i));
  std::sort(dims.begin(), dims.end());
  int64_t length = 1;
  size_t inner = 0;
  for (; inner < dims.size() && dims[inner].first <= length; ++inner)  // adjacent, or overlapping as in unfold
    length = std::max(length, (dims[inner].second - 1) * dims[inner].first + length);
  std::vector<uintptr_t> starts{uintptr_t(tensor.data_ptr())};
  for (size_t i = inner; i < dims.size(); ++i) {
    std::vector<uintptr_t> further;
    for (int64_t step = 0; step < dims[i].second; ++step)
      for (uintptr_t start : starts) further.push_back(start + step * dims[i].first * tensor.itemsize());
    starts = std::move(further);
  }
  for (uintptr_t start : starts) found.spans.push_back({start, start + length * tensor.itemsize()});
  return found;
}

Stream& current_stream(c10::Device device) {
  cudaStream_t handle = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  return handle ? stream_of(handle) : default_stream(device.index());
}

void issue_or_throw(Stream& stream, Work work) { throw_if(issue(stream, std::move(work))); }

void throw_if(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::string text = cudaGetErrorString(error);
  cudaGetLastError();
  TORCH_CHECK(false, text);
}

}  // namespace stand_in
