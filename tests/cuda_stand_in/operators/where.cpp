// The line of the program that called an operator: the innermost one outside torch, or the autograd node.
#include <Python.h>
#include <frameobject.h>
#include <torch/csrc/autograd/function.h>

#include "tensors.h"

namespace stand_in {

namespace {

bool is_inside_torch(const std::string& file) {
  return file.find("/site-packages/torch/") != std::string::npos || file.rfind("<", 0) == 0;
}

std::string line_of(PyFrameObject* frame) {
  PyCodeObject* code = PyFrame_GetCode(frame);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const char* function = PyUnicode_AsUTF8(code->co_name);
  std::string line;
  if (file && function && !is_inside_torch(file))
    line = std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(frame)) + " in " + function;
  PyErr_Clear();
  Py_DECREF(code);
  return line;
}

std::string python_line() {
  if (!Py_IsInitialized() || _Py_IsFinalizing()) return "";
  PyGILState_STATE state = PyGILState_Ensure();
  std::string line;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame && line.empty()) {
    line = line_of(frame);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  PyGILState_Release(state);
  return line;
}

std::string where() {
  auto node = torch::autograd::get_current_node();
  std::string line = python_line();
  if (!node) return line;
  return node->name() + (line.empty() ? "" : " of " + line);
}

}  // namespace

Named::Named(const std::string& label) : outer_(current_place()) {
  if (outer_.label.empty()) current_place() = {label, where()};
}

Named::~Named() { current_place() = outer_; }

}  // namespace stand_in
