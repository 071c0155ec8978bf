#include "replacements.h"

#include <map>

namespace stand_in {

namespace {

// native_dropout(input, p, train) and the generator of randoms.h.
void dropout(Stack& stack) {
  at::Tensor input = stack[0].toTensor();
  double p = stack[1].toDouble();
  bool is_training = !stack[2].isBool() || stack[2].toBool();
  at::Generator generator = stack[3].toGenerator();
  at::Tensor mask = at::ones_like(input, input.options().dtype(at::kBool));
  if (is_training) mask.bernoulli_(1 - p, generator);
  at::Tensor output = is_training ? (p == 1 ? at::zeros_like(input) : input * mask / (1 - p)) : input.clone();
  stack = {output, mask};
}

const std::map<std::string, Replacement>& replacements() {
  static const std::map<std::string, Replacement> all{
      {"aten::native_dropout", dropout},
  };
  return all;
}

}  // namespace

const Replacement* replacement_of(const c10::OperatorHandle& op) {
  auto found = replacements().find(op.operator_name().name);
  return found == replacements().end() ? nullptr : &found->second;
}

}  // namespace stand_in
