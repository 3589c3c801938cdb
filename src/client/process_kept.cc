// With LibTorch.
#include "client/process_kept.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

namespace heterog::client {

struct ProcessKept::Settings {
  int threads = at::get_num_threads();
  caffe2::TypeMeta floats = at::get_default_dtype();
};

ProcessKept::ProcessKept(Begins begins) : settings_(std::make_unique<const Settings>()) {
  if (begins == Begins::kAsProgram) at::set_default_dtype(caffe2::TypeMeta::Make<float>());
}

ProcessKept::~ProcessKept() {
  at::set_default_dtype(settings_->floats);
  at::set_num_threads(settings_->threads);
}

}  // namespace heterog::client
