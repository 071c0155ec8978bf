// Random numbers: the state is that of torch's CUDA generators, the numbers are a CPU generator's.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "tensors.h"

namespace stand_in {

// If the operator draws random numbers, put a CPU generator into `arguments` whose seed follows from the seed and the
// offset of the device's generator, and advance that offset. So saved and restored states repeat their numbers.
void draw_from_device(const c10::OperatorHandle& op, c10::Device device, Stack& arguments, const Stack& outputs);

}  // namespace stand_in
