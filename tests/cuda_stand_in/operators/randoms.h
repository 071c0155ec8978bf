// Random numbers: the state is that of torch's CUDA generators, the numbers are a CPU generator's.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include "tensors.h"

namespace stand_in {

// What an operator draws its numbers from: a CPU generator, seeded in the stream by seed and offset of the device's.
struct Draw {
  at::Generator generator;
  at::PhiloxCudaState state;

  void seed() const;
  // Seed and offset that a captured operator reads from the device's memory, where each replay writes them anew.
  std::vector<Access> accesses() const;
};

// If the operator draws random numbers, put the generator into `arguments`, and advance the offset of the device's.
// So saved and restored states repeat their numbers.
std::optional<Draw> draw_from_device(const c10::OperatorHandle& op, c10::Device device, Stack& arguments, const Stack& outputs);

}  // namespace stand_in
