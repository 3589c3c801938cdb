// Settings of PyTorch for the whole process, which our work changes for a while and puts back.
#pragma once

#include <ATen/Context.h>
#include <ATen/Parallel.h>

namespace heterog::client {

// Puts the caller's number of threads and type of floats back.
class ProcessKept {
 public:
  ProcessKept() : threads_(at::get_num_threads()), floats_(at::get_default_dtype()) {}
  ~ProcessKept() {
    at::set_default_dtype(floats_);
    at::set_num_threads(threads_);
  }
  ProcessKept(const ProcessKept&) = delete;
  ProcessKept& operator=(const ProcessKept&) = delete;

 private:
  int threads_;
  caffe2::TypeMeta floats_;
};

}  // namespace heterog::client
