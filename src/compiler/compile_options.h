// Options of the compiler: how plans of a cluster are compiled, whatever the strategy.
#pragma once

#include <cstdint>

namespace heterog::compiler {

struct CompileOptions {
  // All collectives one after another, as HeteroG §6.2 says of NCCL. Off: only those that share a
  // device (decision 6).
  enum class Collectives : std::uint8_t {
    kPerDevice,
    kSerial
  } collectives = Collectives::kPerDevice;
};

}  // namespace heterog::compiler
