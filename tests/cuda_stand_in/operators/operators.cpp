// One kernel for all operators that torch registers for CUDA.
//
//   at once:              shapes by torch's meta kernels, outputs from the caching allocator, a look for races
//   when the stream is there:  numbers by torch's CPU kernel, on CPU tensors over the same memory
//
// An operator whose output shapes depend on the data waits for its stream, as it does on CUDA.
#include "operators.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>

#include "randoms.h"
#include "replacements.h"
#include "shapes.h"

namespace stand_in {

namespace {

// What an operator's call consists of, apart from its outputs.
struct Call {
  const c10::OperatorHandle& op;
  Stack arguments;
  c10::Device device;
};

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

bool takes_host_indices(const c10::IValue& value) { return value.isOptionalTensorList(); }

// torch's sparse CUDA kernels wait for the host too, because they count elements.
bool has_sparse(const Stack& arguments) {
  bool found = false;
  for (const c10::IValue& value : arguments) for_each_tensor(value, [&](const at::Tensor& tensor) { found |= tensor.is_sparse(); });
  return found;
}

// Return the device of the call. Raise if its tensors are on several, as torch's CUDA kernels do.
c10::Device common_device(const c10::OperatorHandle& op, const Stack& arguments) {
  std::optional<c10::Device> found;
  const char* text = "Expected all tensors to be on the same device, but found at least two devices, ";
  for (const c10::IValue& value : arguments) {
    if (value.isDevice() && value.toDevice().is_cuda() && value.toDevice().has_index()) found = value.toDevice();
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.is_cuda()) return;
      TORCH_CHECK(!found || *found == tensor.device(), text, *found, " and ", tensor.device(), "! (in ", op.operator_name().name, ")");
      found = tensor.device();
    });
  }
  if (!found) return c10::Device(at::kCUDA, c10::cuda::current_device());
  for (const c10::IValue& value : arguments) {
    if (takes_host_indices(value)) continue;
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      TORCH_CHECK(!tensor.is_cpu() || tensor.dim() == 0, text, *found, " and cpu! (in ", op.operator_name().name, ")");
    });
  }
  return *found;
}

// Give each written argument the shape that the operator gave it in `shaped`.
void resize_written(const Call& call, const Stack& shaped) {
  const auto& schema = call.op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    if (!is_written(schema[i]) || !call.arguments[i].isTensor()) continue;
    at::Tensor real = call.arguments[i].toTensor();
    const at::Tensor& wanted = shaped[i].toTensor();
    if (real.defined() && real.sizes() != wanted.sizes()) real.resize_(wanted.sizes());
  }
}

// Return the argument that an output is an alias of.
std::optional<size_t> argument_of(const c10::FunctionSchema& schema, size_t output) {
  const c10::AliasInfo* alias = schema.returns()[output].alias_info();
  if (!alias) return std::nullopt;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* other = schema.arguments()[i].alias_info();
    if (other && other->beforeSets() == alias->beforeSets()) return i;
  }
  return std::nullopt;
}

Stack real_outputs(const Call& call, const Stack& shaped) {
  Stack outputs;
  for (size_t i = 0; i < shaped.size(); ++i) {
    if (auto argument = argument_of(call.op.schema(), i)) outputs.push_back(call.arguments[*argument]);
    else
      outputs.push_back(map_tensors(shaped[i], [&](const at::Tensor& wanted) { return empty_as(wanted, call.device); }));
  }
  return outputs;
}

std::vector<Access> accesses_of(const Call& call, const Stack& outputs, const std::optional<Draw>& draw) {
  std::vector<Access> found;
  if (draw) found = draw->accesses();
  const auto& schema = call.op.schema();
  for (size_t i = 0; i < call.arguments.size(); ++i)
    for_each_tensor(call.arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.is_cuda()) found.push_back(access(tensor, is_written(schema.arguments()[i])));
    });
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!argument_of(schema, i))
      for_each_tensor(outputs[i], [&](const at::Tensor& tensor) { found.push_back(access(tensor, true)); });
  return found;
}

// What a task computes with. `draw` seeds the generator among the arguments.
struct HostArguments {
  Stack stack;
  std::optional<Draw> draw;
};

HostArguments arguments_on_host(const Call& call, const Stack& outputs) {
  Stack result;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const c10::IValue& value = call.arguments[i];
    if (value.isDevice()) result.emplace_back(c10::Device(at::kCPU));
    else if (call.op.schema().arguments()[i].name() == "pin_memory") result.emplace_back();
    else result.push_back(map_tensors(value, on_host));
  }
  std::optional<Draw> draw = draw_from_device(call.op, call.device, result, outputs);
  return {std::move(result), std::move(draw)};
}

// Copy the numbers that the CPU kernel returned to where the outputs lie.
void deliver(const c10::FunctionSchema& schema, const Stack& computed, const Stack& places) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (argument_of(schema, i)) continue;
    std::vector<at::Tensor> from, to;
    for_each_tensor(computed[i], [&](const at::Tensor& tensor) { from.push_back(tensor); });
    for_each_tensor(places[i], [&](const at::Tensor& tensor) { to.push_back(tensor); });
    TORCH_CHECK(from.size() == to.size(), "the CPU kernel returned another number of tensors");
    for (size_t j = 0; j < to.size(); ++j) {
      if (from[j].numel() == 0) continue;  // in eval, CPU's batch norm keeps no statistics where CUDA's leaves them unset
      TORCH_CHECK(from[j].sizes() == to[j].sizes(), "the CPU kernel returned ", from[j].sizes(), ", expected ", to[j].sizes());
      copy_parts(to[j], from[j]);
    }
  }
}

// Replace the written sparse arguments: the CPU kernel gave its own tensors other indices and values.
void renew_written(const Call& call, const Stack& host_arguments) {
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (!is_written(call.op.schema().arguments()[i]) || !call.arguments[i].isTensor()) continue;
    at::Tensor written = call.arguments[i].toTensor();
    if (!written.is_sparse()) continue;
    at::Tensor fresh = empty_as(host_arguments[i].toTensor(), call.device), from = host_arguments[i].toTensor();
    issue_or_throw(current_stream(call.device), {call.op.operator_name().name, {access(fresh, true)}, [to = on_host(fresh), from] {
                                                   at::AutoDispatchBelowADInplaceOrView guard;
                                                   copy_parts(to, from);
                                                 }, false});
    written.copy_(fresh);
  }
}

void compute(const c10::OperatorHandle& op, Stack& stack, const std::optional<Draw>& draw) {
  at::AutoDispatchBelowADInplaceOrView guard;
  if (draw) draw->seed();
  if (const Replacement* replacement = replacement_of(op)) (*replacement)(stack);
  else op.callBoxed(stack);
}

void launch(const Call& call, const Stack& outputs) {
  Stack places;
  for (size_t i = 0; i < outputs.size(); ++i) places.push_back(map_tensors(outputs[i], on_host));
  HostArguments arguments = arguments_on_host(call, outputs);
  Work work{call.op.operator_name().name, accesses_of(call, outputs, arguments.draw), nullptr, false};
  work.run = [op = call.op, arguments, places] {
    Stack stack = arguments.stack;  // a graph runs this many times
    compute(op, stack, arguments.draw);
    deliver(op.schema(), stack, places);
  };
  issue_or_throw(current_stream(call.device), std::move(work));
}

// Compute in the stream, wait for it, and return outputs of the shapes that came out.
Stack launch_and_wait(const Call& call) {
  auto computed = std::make_shared<Stack>();
  HostArguments arguments = arguments_on_host(call, {});
  Work work{call.op.operator_name().name, accesses_of(call, {}, arguments.draw), nullptr, false};
  work.run = [op = call.op, arguments, computed] {
    *computed = arguments.stack;
    compute(op, *computed, arguments.draw);
  };
  Stream& stream = current_stream(call.device);
  issue_or_throw(stream, std::move(work));
  throw_if(host_wait(stream));
  renew_written(call, arguments.stack);
  Stack outputs = real_outputs(call, *computed), places;
  std::vector<Access> written;
  for (size_t i = 0; i < outputs.size(); ++i) {
    places.push_back(map_tensors(outputs[i], on_host));
    if (argument_of(call.op.schema(), i)) continue;
    for_each_tensor(outputs[i], [&](const at::Tensor& tensor) { written.push_back(access(tensor, true)); });
  }
  issue_or_throw(stream, {call.op.operator_name().name, written, [op = call.op, computed, places] {
                            at::AutoDispatchBelowADInplaceOrView guard;
                            deliver(op.schema(), *computed, places);
                          }, false});
  return outputs;
}

}  // namespace

void run_operator(const c10::OperatorHandle& op, Stack* stack) {
  Named named(op.operator_name().name);
  at::AutoDispatchBelowADInplaceOrView guard;
  size_t count = op.schema().arguments().size();
  Stack arguments(stack->end() - count, stack->end());
  Call call{op, arguments, common_device(op, arguments)};
  c10::DeviceGuard device_guard(call.device);
  Stack shaped_arguments = arguments;
  std::optional<Stack> shaped = has_sparse(arguments) ? std::nullopt : shapes_of(op, shaped_arguments);
  Stack outputs;
  if (shaped) {
    resize_written(call, shaped_arguments);
    outputs = real_outputs(call, *shaped);
    launch(call, outputs);
  } else {
    outputs = launch_and_wait(call);
  }
  stack->erase(stack->end() - count, stack->end());
  stack->insert(stack->end(), outputs.begin(), outputs.end());
}

}  // namespace stand_in
