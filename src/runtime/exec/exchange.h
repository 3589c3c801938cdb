// Actions of an instruction after its body has run: it sends, receives, reduces, adds rows.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "comm/transport.h"
#include "runtime/exec/compress.h"
#include "runtime/kernels/execute.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

class Exchange {
 public:
  struct Options {
    at::Device device = at::kCPU;
    Floats floats = Floats::kOwn;
  };
  // `values`: of the slots of `program`, into which results go.
  Exchange(const Job& job, const Program& program, comm::Transport& transport,
           IdVector<SlotId, at::Tensor>& values, CompressionState& compression,
           const Options& options);

  // `given`: what the body left in the registers that are the instruction's values.
  void act(const Instruction& instruction, std::vector<at::Tensor>& given);

 private:
  at::Tensor empty(TensorId tensor, std::int64_t samples, at::Device device) const;
  void receive(const Instruction& instruction);
  void receive_part(const Instruction& instruction, at::Tensor& slot);
  void receive_value(const Instruction& instruction, at::Tensor& value);
  void receive_rows(const Instruction& instruction);
  void all_reduce(const Instruction& instruction, std::vector<at::Tensor>& given);
  void all_reduce_compressed(const Instruction& instruction, std::vector<at::Tensor>& given);
  std::vector<at::Tensor> add_up(const std::vector<at::Tensor>& values, std::uint32_t set,
                                 bool in_place);
  struct SideBySide;
  void reduce_scatter(const Instruction& instruction, std::vector<at::Tensor>& given);
  void all_gather(const Instruction& instruction, std::vector<at::Tensor>& given);
  void gather_parts(const Instruction& instruction, std::vector<at::Tensor>& given);
  void sum_rows(const Instruction& instruction, std::vector<at::Tensor>& given);

  const graph::ModelGraph& graph_;
  const Program& program_;
  comm::Transport& transport_;
  IdVector<SlotId, at::Tensor>& values_;
  CompressionState& compression_;
  Options options_;
};

}  // namespace heterog::runtime
