// CUDA tensors seen from the CPU: device memory is host memory, so a CPU tensor can lie over the same bytes.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>

#include "../runtime/issue.h"

namespace stand_in {

using torch::jit::Stack;
using TensorMap = std::function<at::Tensor(const at::Tensor&)>;

// Return the value with each defined tensor in it replaced.
c10::IValue map_tensors(const c10::IValue& value, const TensorMap& map);
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

// A CPU tensor over the memory of a CUDA tensor. It keeps nothing alive, as a kernel's pointer keeps nothing alive.
// A CPU tensor is copied: a kernel gets the value that it has when it is launched.
at::Tensor on_host(const at::Tensor& tensor);
// A CUDA tensor for the elements of a tensor of another device, from torch's allocator.
at::Tensor empty_as(const at::Tensor& wanted, c10::Device device);
// Copy the elements, of a sparse tensor those of its indices and values.
void copy_parts(const at::Tensor& to, const at::Tensor& from);
// A tensor of the same shape without memory; a CPU tensor stays.
at::Tensor as_meta(const at::Tensor& tensor);
// A CPU tensor of the same shape, full of zeros; a CPU tensor stays.
at::Tensor as_zeros(const at::Tensor& tensor);

// The bytes of a tensor, exactly: one span for each run of adjacent bytes.
Access access(const at::Tensor& tensor, bool is_write);

// The stream on which torch would launch a kernel of this device now.
Stream& current_stream(c10::Device device);

// Put the work into the stream. Raise c10::Error with the race, if there is one.
void issue_or_throw(Stream& stream, Work work);
void throw_if(cudaError_t error);

// Name this operator, and the line of the program that called it, as long as the object lives.
class Named {
 public:
  explicit Named(const std::string& label);
  ~Named();
  Named(const Named&) = delete;

 private:
  Place outer_;
};

}  // namespace stand_in
