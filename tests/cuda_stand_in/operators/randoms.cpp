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

at::Generator seeded_by(at::Generator generator, uint64_t drawn) {
  std::lock_guard lock(generator.mutex());
  uint64_t offset = generator.get_offset();
  generator.set_offset(offset + drawn);
  return at::detail::createCPUGenerator(generator.current_seed() * 0x9e3779b97f4a7c15 + offset);
}

}  // namespace

void draw_from_device(const c10::OperatorHandle& op, c10::Device device, Stack& arguments, const Stack& outputs) {
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() != "generator" && op.operator_name().name != "aten::native_dropout") continue;
    bool is_given = arguments[i].isGenerator();
    at::Generator generator = is_given ? arguments[i].toGenerator() : at::globalContext().defaultGenerator(device);
    TORCH_CHECK(generator.device().is_cuda(), "Expected a 'cuda' device type for generator but found '", generator.device().type(), "'");
    at::Generator host = seeded_by(generator, numbers_drawn(arguments, outputs));
    if (schema[i].name() == "generator") arguments[i] = host;
    else arguments.emplace_back(host);  // the replacement of native_dropout takes it as one argument more
    return;
  }
}

}  // namespace stand_in
