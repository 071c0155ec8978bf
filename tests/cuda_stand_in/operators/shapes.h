// The shapes of an operator's outputs, found at once, before its stream computes the numbers.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "tensors.h"

namespace stand_in {

// Run the operator on tensors without memory, or on zeros if it has no such kernel. Return the outputs, and change
// `arguments` to the tensors it ran on, whose shapes tell whether an argument was resized.
// Return nothing if the shapes depend on the data.
std::optional<Stack> shapes_of(const c10::OperatorHandle& op, Stack& arguments);

}  // namespace stand_in
