// What is behind a Store: for the sources that hand it to c10d.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "runtime/store.h"

namespace heterog::runtime {

struct Store::Impl {
  c10::intrusive_ptr<c10d::Store> store;
  std::string server;  // for messages; empty: this process alone
};

// The first line of an exception of LibTorch, without its place in the source and its backtrace.
std::string one_line(const std::exception& error);

}  // namespace heterog::runtime
