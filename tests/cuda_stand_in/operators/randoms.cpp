#include "randoms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace stand_in {

namespace {

// CUDA's offsets are multiples of 4.
uint64_t numbers_drawn(const Stack& arguments, const Stack& outputs) {
  int64_t elements = 0;
  for (const Stack* values : {&arguments, &outputs})
    for (const c10::IValue& value : *values)
      for_each_tensor(value, [&](const at::Tensor& tensor) { elements = std::max(elements, tensor.numel()); });
  return (uint64_t(elements) + 3) / 4 * 4 + 4;
}

Span eight_bytes(const void* at) { return {uintptr_t(at), uintptr_t(at) + 8}; }

}  // namespace

void Draw::seed() const {
  uint64_t seed = state.captured_ ? uint64_t(*state.seed_.ptr) : state.seed_.val;
  uint64_t offset = state.captured_ ? uint64_t(*state.offset_.ptr) + state.offset_intragraph_ : state.offset_.val;
  at::Generator(generator).set_current_seed(seed * 0x9e3779b97f4a7c15 + offset);
}

std::vector<Access> Draw::accesses() const {
  if (!state.captured_) return {};
  return {{{eight_bytes(state.seed_.ptr), eight_bytes(state.offset_.ptr)}, false}};
}

std::optional<Draw> draw_from_device(const c10::OperatorHandle& op, c10::Device device, Stack& arguments, const Stack& outputs) {
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() != "generator" && op.operator_name().name != "aten::native_dropout") continue;
    bool is_given = arguments[i].isGenerator();
    at::Generator generator = is_given ? arguments[i].toGenerator() : at::globalContext().defaultGenerator(device);
    TORCH_CHECK(generator.device().is_cuda(), "Expected a 'cuda' device type for generator but found '", generator.device().type(), "'");
    std::lock_guard lock(generator.mutex());
    auto state = at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(numbers_drawn(arguments, outputs));
    Draw draw{at::detail::createCPUGenerator(), state};
    if (schema[i].name() == "generator") arguments[i] = draw.generator;
    else arguments.emplace_back(draw.generator);  // the replacement of native_dropout takes it as one argument more
    return draw;
  }
  return std::nullopt;
}

}  // namespace stand_in
