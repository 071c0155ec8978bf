#include "shapes.h"

#include <ATen/core/LegacyTypeDispatch.h>

namespace stand_in {

namespace {

bool shapes_depend_on_data(const c10::OperatorHandle& op, const Stack& arguments) {
  if (op.operator_name().name == "aten::index" && arguments[1].isOptionalTensorList()) {
    for (std::optional<at::Tensor> index : arguments[1].toOptionalTensorList())
      if (index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte)) return true;
    return false;
  }
  return op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
}

Stack moved(const Stack& arguments, const TensorMap& map, c10::Device device) {
  Stack result;
  for (const c10::IValue& value : arguments) {
    if (value.isDevice()) result.emplace_back(device);
    else if (value.isGenerator()) result.emplace_back();  // a generator of another device would be refused
    else result.push_back(map_tensors(value, map));
  }
  return result;
}

}  // namespace

std::optional<Stack> shapes_of(const c10::OperatorHandle& op, Stack& arguments) {
  if (shapes_depend_on_data(op, arguments)) return std::nullopt;
  at::AutoDispatchBelowADInplaceOrView guard;
  if (op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
    try {
      Stack on_meta = moved(arguments, as_meta, at::kMeta), outputs = on_meta;
      op.callBoxedForDispatchKey(c10::DispatchKey::Meta, outputs);
      arguments = on_meta;
      return outputs;
    } catch (const c10::NotImplementedError&) {  // a part of it has no kernel for shapes
    }
  }
  try {
    Stack zeros = moved(arguments, as_zeros, at::kCPU), outputs = zeros;
    op.callBoxed(outputs);
    arguments = zeros;
    return outputs;
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace stand_in
