// copy_, which torch computes by a kernel where the runtime's copy does not do.
#include "copies.h"

#include <ATen/TensorIterator.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDAGuard.h>

#include "operators.h"
#include "tensors.h"

namespace stand_in {

namespace {

// Whether torch leaves this copy to the runtime (ATen/native/cuda/Copy.cu, copy_device_to_device).
bool is_runtimes(const at::Tensor& to, const at::Tensor& from) {
  if (!to.is_cuda() || !from.is_cuda()) return true;
  auto iter = at::TensorIteratorConfig()
                  .add_output(to)
                  .add_const_input(from)
                  .resize_outputs(false)
                  .check_all_same_dtype(false)
                  .check_all_same_device(false)
                  .build();
  bool is_same_meaning = to.scalar_type() == from.scalar_type() && to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg();
  if (is_same_meaning && iter.is_contiguous()) return true;
  return to.device() != from.device() && !at::cuda::get_p2p_access(from.device().index(), to.device().index());
}

void put_into(Stream& stream, const at::Tensor& to, const at::Tensor& from) {
  Link link{from.device().index(), to.device().index(), to.nbytes()};
  Work work{"aten::copy_", {access(from, false), access(to, true)}, nullptr, false, link};
  work.run = [to = on_host(to), from = on_host(from)] {
    at::AutoDispatchBelowADInplaceOrView guard;
    to.copy_(from);
  };
  issue_or_throw(stream, std::move(work));
}

// The kernel's order of waits, as in copy_device_to_device: the streams of both devices wait for each other.
void copy_by_kernel(const at::Tensor& to, const at::Tensor& from) {
  c10::cuda::CUDAGuard guard(from.device());
  bool is_across = to.device() != from.device();
  if (is_across) {
    Stream& waiting = current_stream(from.device());
    throw_if(wait(waiting, record(current_stream(to.device()))));
  }
  put_into(current_stream(from.device()), to, from);
  if (is_across) throw_if(wait(current_stream(to.device()), record(current_stream(from.device()))));
}

}  // namespace

void run_copy(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Named named("aten::copy_");
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor to = (*stack)[stack->size() - 3].toTensor(), from = (*stack)[stack->size() - 2].toTensor();
  bool is_non_blocking = stack->back().toBool();
  torch::jit::drop(*stack, 3);
  if (from._is_zerotensor()) to.zero_();
  else if (is_runtimes(to, from)) at::native::copy_(to, from, is_non_blocking);
  else if (to.numel() > 0) copy_by_kernel(to, from.expand_as(to));
  stack->emplace_back(to);
}

void run_foreach_copy(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::vector<at::Tensor> to = (*stack)[stack->size() - 3].toTensorVector();
  std::vector<at::Tensor> from = (*stack)[stack->size() - 2].toTensorVector();
  bool is_non_blocking = stack->back().toBool(), is_on_one_device = true;
  for (size_t i = 0; i < to.size() && i < from.size(); ++i)
    is_on_one_device &= to[i].device() == to[0].device() && from[i].device() == to[0].device();
  if (is_on_one_device) return run_operator(op, stack);
  Named named("aten::_foreach_copy_");
  TORCH_CHECK(to.size() == from.size(), "Tensor lists must have the same number of tensors, got ", to.size(), " and ", from.size());
  at::AutoDispatchBelowADInplaceOrView guard;
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], is_non_blocking);
  torch::jit::drop(*stack, 3);
}

}  // namespace stand_in
