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

at::Tensor sum_of(const at::Tensor& gates, const at::Tensor& hidden, const c10::IValue& bias, const c10::IValue& hidden_bias) {
  at::Tensor sum = gates + hidden;
  for (const c10::IValue* value : {&bias, &hidden_bias})
    if (value->isTensor() && value->toTensor().defined()) sum = sum + value->toTensor();
  return sum;
}

at::Tensor or_zeros(const c10::IValue& value, const at::Tensor& like) {
  return value.isTensor() && value.toTensor().defined() ? value.toTensor() : at::zeros_like(like);
}

at::Tensor slope_of_sigmoid(const at::Tensor& value) { return (1 - value) * value; }

// (input gates, hidden gates, cell, input bias, hidden bias) -> (hidden state, cell, workspace)
void lstm_cell(Stack& stack) {
  std::vector<at::Tensor> gates = sum_of(stack[0].toTensor(), stack[1].toTensor(), stack[3], stack[4]).chunk(4, 1);
  at::Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), out = gates[3].sigmoid();
  at::Tensor next = forget * stack[2].toTensor() + in * cell;
  stack = {out * next.tanh(), next, at::cat({in, forget, cell, out}, 1)};
}

// (gradient of the hidden state, of the cell, old cell, new cell, workspace, has bias) -> gradients of (gates, cell, bias)
void lstm_cell_backward(Stack& stack) {
  std::vector<at::Tensor> gates = stack[4].toTensor().chunk(4, 1);
  at::Tensor in = gates[0], forget = gates[1], cell = gates[2], out = gates[3];
  at::Tensor squashed = stack[3].toTensor().tanh();
  at::Tensor of_hidden = or_zeros(stack[0], squashed);
  at::Tensor of_cell = of_hidden * out * (1 - squashed * squashed) + or_zeros(stack[1], squashed);
  at::Tensor of_gates = at::cat({of_cell * cell * slope_of_sigmoid(in), of_cell * stack[2].toTensor() * slope_of_sigmoid(forget),
                                 of_cell * in * (1 - cell * cell), of_hidden * squashed * slope_of_sigmoid(out)}, 1);
  at::Tensor of_bias = stack[5].toBool() ? of_gates.sum(0) : at::Tensor();
  stack = {of_gates, of_cell * forget, of_bias};
}

// (input gates, hidden gates, hidden state, input bias, hidden bias) -> (hidden state, workspace)
void gru_cell(Stack& stack) {
  bool has_bias = stack[3].isTensor() && stack[3].toTensor().defined();
  auto input = has_bias ? stack[0].toTensor() + stack[3].toTensor() : stack[0].toTensor();
  auto hidden = has_bias ? stack[1].toTensor() + stack[4].toTensor() : stack[1].toTensor();
  std::vector<at::Tensor> i = input.chunk(3, 1), h = hidden.chunk(3, 1);
  at::Tensor reset = (i[0] + h[0]).sigmoid(), update = (i[1] + h[1]).sigmoid(), fresh = (i[2] + reset * h[2]).tanh();
  at::Tensor old = stack[2].toTensor();
  stack = {fresh + update * (old - fresh), at::cat({reset, update, fresh, old, h[2]}, 1)};
}

// (gradient, workspace, has bias) -> gradients of (input gates, hidden gates, hidden state, input bias, hidden bias)
void gru_cell_backward(Stack& stack) {
  std::vector<at::Tensor> kept = stack[1].toTensor().chunk(5, 1);
  at::Tensor grad = stack[0].toTensor(), reset = kept[0], update = kept[1], fresh = kept[2], old = kept[3], hidden = kept[4];
  at::Tensor of_update = grad * (old - fresh) * slope_of_sigmoid(update);
  at::Tensor of_fresh = grad * (1 - update) * (1 - fresh * fresh);
  at::Tensor of_reset = of_fresh * hidden * slope_of_sigmoid(reset);
  at::Tensor of_input = at::cat({of_reset, of_update, of_fresh}, 1), of_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  bool has_bias = stack[2].toBool();
  stack = {of_input, of_hidden, grad * update, has_bias ? of_input.sum(0) : at::Tensor(), has_bias ? of_hidden.sum(0) : at::Tensor()};
}

const std::map<std::string, Replacement>& replacements() {
  static const std::map<std::string, Replacement> all{
      {"aten::native_dropout", dropout},
      {"aten::_thnn_fused_lstm_cell", lstm_cell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
      {"aten::_thnn_fused_gru_cell", gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
  };
  return all;
}

}  // namespace

const Replacement* replacement_of(const c10::OperatorHandle& op) {
  auto found = replacements().find(op.operator_name().name);
  return found == replacements().end() ? nullptr : &found->second;
}

}  // namespace stand_in
