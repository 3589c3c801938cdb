// Ranks as threads of one process: tensors change hands in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace heterog::comm {

// Where the ranks of a process meet. Sends wait for their receiver, as over a network without
// buffers. Sums are made in the order of the set, so they are the same in every run.
//
// Tensors of one device change hands there: the streams of the threads that meet wait for each
// other, by events, and no thread for the device. All tensors of a call are on one device, or all
// on the CPU.
class LocalHub {
 public:
  LocalHub(std::size_t ranks, DeviceSets sets);
  ~LocalHub();
  LocalHub(const LocalHub&) = delete;
  LocalHub& operator=(const LocalHub&) = delete;

  // The end of a rank; the hub must outlive it.
  std::unique_ptr<Transport> end_of(DeviceId rank);

 private:
  class Shared;
  class End;
  struct Round;
  std::unique_ptr<Shared> shared_;
};

}  // namespace heterog::comm
