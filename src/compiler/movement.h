// Brings what an op reads to the device that runs it: local, resharded, reduced, or fetched once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "compiler/compile_options.h"
#include "compiler/layout.h"
#include "compiler/plan_builder.h"
#include "compiler/rows.h"
#include "compiler/sections.h"
#include "cost/collective.h"
#include "cost/problem.h"

namespace heterog::compiler {

// A value, or some samples of it, on a device: the task that brings it there (invalid: it was there
// before the step) and the buffer that holds it (invalid: static memory).
struct Source {
  TaskId task;
  BufferId buffer;
};

// The state of a compilation: where every tensor is, as tasks are emitted in topological order. To
// emit an op is to bring what it reads to where it runs, and to note what it leaves there:
//
//   Movement movement(problem, layout, options, builder);
//   for (OpId op : forward_and_backward) movement.run(op);
//   movement.set_reduced(gradient, movement.all_reduce(gradient, movement.instances(…), …));
//   for (const graph::UpdateChain& chain : chains) movement.update(chain);
//
//   first_task_[op], first_buffer_[tensor]   of instance 0; the others follow one another
//   pieces_at_[tensor, device]               samples of it that were brought to the device
//   reduced_[tensor]                         where its total is, once it was added up
//   resident_[tensor, device]                bytes of it that are there before the step
//   readers_at_[tensor, device]              who read its old value there: updates wait for them
class Movement {
 public:
  Movement(const cost::Problem& problem, const Layout& layout, const CompileOptions& options,
           PlanBuilder& builder);

  // What is emitted from its beginning on belongs to this section.
  void begin_section(const Section& section) { sections_.push_back(section); }
  const std::vector<Section>& sections() const { return sections_; }
  Marks marks() const;
  // Brings this compilation's state to where consecutive sections of `other`, a compilation for the
  // same problem, brought that one; its tasks and buffers have new names here.
  void replay(const Movement& other, std::span<const Section> sections, const Marks& end,
              const PlanBuilder::Names& names);
  // True if all that the section says of where tensors are has a name here.
  bool can_replay(const Section& section, const Marks& end, const PlanBuilder::Names& names) const;

  // Emits the compute tasks of `op`, one an instance, with everything that they read.
  void run(OpId op);
  // Emits the update tasks of a parameter, one a device of its home's `update` layout.
  void update(const graph::UpdateChain& chain);

  // Where a reduced value is, after fetches of it or a gradient aggregation.
  struct Location {
    DeviceId device;
    Source source;
  };
  bool is_reduced(TensorId tensor) const { return reduced_[tensor] != kNone; }
  void set_reduced(TensorId tensor, std::vector<Location> locations);

  // The producer's instances as locations. What adds partial values up takes these, all and in this
  // order: the weights of a mean are the shares of the batch that they were made from.
  std::vector<Location> instances(TensorId base, OpId producer) const;
  // What the latest task carries beside its first tensor.
  void carry_too(TaskId task, TensorId tensor) { builder_.carry(task, {tensor, is_mean(tensor)}); }

  // Emits one collective over the locations. In place: the locations' buffers then hold the result.
  enum class InPlace : std::uint8_t { kNo, kYes };
  std::vector<Location> all_reduce(TensorId tensor, std::span<const Location> locations,
                                   Bytes bytes, InPlace in_place);
  // Emits transfers of all locations to `root` and a sum there; returns the result's location.
  Location sum_at(TensorId tensor, std::span<const Location> locations, Bytes bytes, DeviceId root,
                  TaskKind transfer_kind, InPlace in_place);
  // The same for gradients that travel as rows. `root` is one of the locations; `rows`: those of
  // each, parallel to them.
  Location sum_rows_at(TensorId tensor, std::span<const Location> locations,
                       std::span<const SparseRows> rows, DeviceId root, InPlace in_place);
  // In place of an all-reduce: one all-gather of as many rows from each device (short ones are
  // padded), which every device then adds to its own gradient.
  std::vector<Location> gather_rows(TensorId tensor, std::span<const Location> locations,
                                    const SparseRows& rows, InPlace in_place);

  // Emits a transfer; the destination's buffer is allocated unless `bytes_at_destination` is 0.
  struct Transfer {
    TaskKind kind = TaskKind::kTransfer;
    OpId op;
    TensorId tensor;
    DeviceId source;
    DeviceId destination;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Bytes bytes = 0;
    Bytes bytes_at_destination = 0;
    Encoding encoding = Encoding::kDense;
    std::int64_t rows = 0;  // kRows: their number
    // What is sent is an addend: of a mean, times its weight.
    bool weighted = false;
    double weight = 1;
  };
  Source transfer(const Transfer& spec, const Source& from);

  // Tasks on `device` that read the value that `tensor` (a parameter, buffer, …) had before the
  // step.
  void wait_for_readers(TensorId tensor, DeviceId device, TaskId writer);

  // Devices on which something reads a tensor that stays between steps, or writes it, ascending.
  std::vector<DeviceId> keepers(TensorId tensor) const;
  // Where the next value of a tensor that stays is made, or put together from slices; nowhere if
  // the chain that makes it is left out.
  std::vector<Location> replaced(TensorId next) const;

  // The task that makes a parameter's new value on the first device of its update.
  TaskId updater_task(TensorId parameter) const {
    return instance_task(problem_.folded->updater[parameter], 0);
  }
  TaskId instance_task(OpId op, std::size_t instance) const {
    return TaskId(first_task_[op].value() + instance);
  }
  // Bytes of tensors that are there before the step, per device.
  void add_static_memory(Plan& plan) const;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Piece {  // samples [begin, end) of a carried tensor on a device
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Source source;
    std::uint32_t next = kNone;
    std::size_t cell = 0;
  };
  struct PastReader {
    TaskId task;
    std::uint32_t next = kNone;
    std::size_t cell = 0;
  };
  struct Kept {
    std::size_t cell = 0;
    Bytes bytes = 0;
  };

  std::uint32_t instance_on(LayoutId layout, DeviceId device) const {
    return instance_on_[layout.value() * devices_ + device.value()];
  }
  std::size_t cell(TensorId tensor, DeviceId device) const {
    return tensor.value() * devices_ + device.value();
  }
  void note_reader(TensorId tensor, DeviceId device, TaskId reader);
  void add_reader(std::size_t cell, TaskId reader);
  void keep(std::size_t cell, Bytes bytes);
  // Emits the transfers, merges and reductions that instance `instance` of a task on `layout` needs
  // to read `read`, and appends what it then reads to `sources`.
  struct Reader {
    OpId op;  // for the record in transfers
    LayoutId layout;
    std::size_t instance = 0;
  };
  void fetch(const Reader& reader, const graph::Read& read, std::vector<Source>& sources);
  void fetch_all(OpId op, LayoutId layout, std::span<const graph::Read> reads);
  void read_all(TaskId task, std::size_t instance);
  // Where instance i of an op finds what it reads, if each read is the output of instance i of its
  // producer or was there before the step: what most ops do. Else nothing.
  struct Direct {
    TaskId first_task;
    BufferId first_buffer;
    std::uint32_t buffers_per_instance = 0;
  };
  bool reads_directly(LayoutId layout, std::span<const graph::Read> reads);
  void read_direct(TaskId task, std::size_t instance);
  void replace(TensorId tensor, DeviceId device, Bytes bytes, TaskId writer);
  Source instance_source(TensorId base, OpId producer, std::size_t instance) const;
  void add_piece(std::size_t cell, std::int64_t begin, std::int64_t end, const Source& source);
  void fetch_slice(const graph::Read& read, const Slice& slice, std::vector<Source>& sources);
  void fetch_missing(const graph::Read& read, const Slice& slice, std::vector<Piece>& pieces);
  Source merge(TensorId tensor, const Slice& slice, std::span<const Piece> pieces);
  void fetch_same(TensorId tensor, OpId reader, std::span<const Location> locations,
                  DeviceId device, std::vector<Source>& sources);
  void fetch_external(const graph::Read& read, OpId op, const Slice& slice,
                      std::vector<Source>& sources);
  void keep_external(TensorId tensor, const Slice& slice);
  void reduce(const graph::Read& read, LayoutId readers);
  cost::CollectiveCost collective(const std::vector<DeviceId>& devices, Bytes bytes);
  TaskId add_collective(TensorId tensor, const std::vector<DeviceId>& devices,
                        const cost::CollectiveCost& cost, Bytes bytes,
                        TaskKind kind = TaskKind::kAllReduce);
  TaskId add_rows(TensorId tensor, DeviceId device, Bytes rows);
  Location added(TaskId sum, TensorId tensor, const Location& own, InPlace in_place);
  bool holds_samples(const graph::Read& read) const;
  bool is_mean(TensorId tensor) const {
    return problem_.splits->rules[tensor].kind == graph::SplitKind::kMean;
  }
  // The part of the batch that an instance of the op was given.
  double share(OpId op, std::size_t instance) const {
    return static_cast<double>(layout_.op_slices(op)[instance].size()) /
           static_cast<double>(problem_.batch);
  }
  void allocate_outputs(OpId op, std::size_t instance, TaskId task, const Slice& slice);

  const cost::Problem& problem_;
  const graph::ModelGraph& graph_;
  const Layout& layout_;
  const CompileOptions& options_;
  PlanBuilder& builder_;
  std::size_t devices_;

  std::vector<std::uint32_t> instance_on_;     // [layout][device] → instance or kNone
  IdVector<OpId, TaskId> first_task_;          // instances follow one another
  IdVector<TensorId, BufferId> first_buffer_;  // of instance 0
  IdVector<OpId, std::uint32_t> buffers_per_instance_;
  std::vector<std::uint32_t> pieces_at_;  // [tensor][device] → latest piece
  std::vector<Piece> pieces_;
  IdVector<TensorId, std::uint32_t> reduced_;  // index into reduced_locations_
  std::vector<std::vector<Location>> reduced_locations_;
  std::vector<TensorId> reduced_tensors_;  // parallel to reduced_locations_
  std::vector<std::uint32_t> readers_at_;  // [tensor][device] → latest reader
  std::vector<PastReader> readers_;
  std::vector<Bytes> resident_;  // [tensor][device], before the step
  std::vector<Kept> kept_;       // what raised it, in order
  std::vector<Section> sections_;
  // Ring and hierarchical, of each device set seen.
  std::map<std::vector<DeviceId>, std::pair<cost::AllReduceShape, cost::AllReduceShape>> shapes_;
  std::vector<std::vector<Source>> sources_;  // scratch, one an instance
  std::vector<Direct> direct_;                // scratch, one a read with a producer
};

// Seconds to read `operands` tensors of `bytes` and write one, on a device.
Nanoseconds combine_duration(const cluster::DeviceType& type, int operands, Bytes bytes,
                             cluster::OpClass op_class);

}  // namespace heterog::compiler
