// The kernels that take the place of torch's CUDA kernels.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace stand_in {

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace stand_in
