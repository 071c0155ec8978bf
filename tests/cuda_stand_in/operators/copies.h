// The kernels of copy_ and _foreach_copy_.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace stand_in {

void run_copy(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void run_foreach_copy(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace stand_in
