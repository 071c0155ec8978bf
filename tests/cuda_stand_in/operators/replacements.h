// Operators for which torch has a CUDA kernel and no CPU kernel, written in terms of others.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "tensors.h"

namespace stand_in {

// Takes the arguments off the stack, and puts the outputs there; all of them are CPU tensors.
using Replacement = std::function<void(Stack&)>;

const Replacement* replacement_of(const c10::OperatorHandle& op);

}  // namespace stand_in
