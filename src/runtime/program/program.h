// Program of one device for a step of a plan: a flat list of instructions in four queues.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/csr.h"
#include "base/ids.h"
#include "comm/device_sets.h"
#include "compiler/plan.h"
#include "cost/problem.h"

namespace heterog::runtime {

// A place for a value in the memory of a rank: a tensor that stays (parameter, optimizer state,
// buffer), an input of the step, or a buffer of the plan.
using SlotId = Id<struct SlotTag>;
using InstructionId = Id<struct InstructionTag>;
// A value inside a body, known there alone.
using Register = std::uint32_t;
inline constexpr Register kNoRegister = 0xffffffff;

// Each queue is worked off in the order of the plan's dispatch sequence by a thread of its own, and
// blocks on its head alone (decision 8). Lanes of messages (program/lanes.h) may have a thread
// each: nothing but their waits orders the instructions of two lanes.
enum class Queue : std::uint8_t { kCompute, kSend, kReceive, kCollective };
inline constexpr std::size_t kQueueCount = 4;

// Samples [begin, end) of what the registers hold, along one dimension seen as outer × rest.
struct Cut {
  std::uint8_t dim = 0;
  std::int64_t outer = 1;
  std::int64_t held = 0;   // samples of the whole
  std::int64_t begin = 0;  // counted from the first that is held
  std::int64_t count = 0;
};

// One step of a body.
struct BodyStep {
  enum class Kind : std::uint8_t {
    kLoad,  // slot → register
    kCall,  // op on registers, parallel to graph.inputs(op) → registers, parallel to its outputs
    kRandom,  // the same for an op that draws random numbers
    kLists,   // `ops`, alike but for their tensors, as one call of a kernel that takes lists; in,
              // out: those of one op after another
    kCut,     // one register → one
    kJoin,    // registers side by side along cut.dim → one
    kZeros,   // nothing → zeros of the shape of `tensor` at `samples`
    kScale,   // register × factor → register
    kAdd,     // the sum of registers → register; the first may be overwritten
    kStore,   // register → slot
    kRows,    // rows [begin, end) along axis 0 of a register → register
    kStoreRows,  // register → rows [begin, end) of what the slot holds
    kCapture,    // register → `capture` of the program
  };
  Kind kind = Kind::kLoad;
  // kAdd: into the first; kStore: into the memory of what the slot holds; kCall: nobody reads the
  // first register after this step, nor the slot that it was loaded from, but those who read now
  bool in_place = false;
  OpId op;          // kCall, kRandom; kLists: the first
  TensorId tensor;  // kZeros
  SlotId slot;      // kLoad, kStore; kCall: what the first register was loaded from, if it was
  std::int64_t begin = 0;  // kCall, kRandom, kZeros, kLists: samples [begin, end) of the slice
  std::int64_t end = 0;
  std::int64_t rows = 0;         // kCall: of an update by rows, so many are this device's
  std::vector<OpId> ops;         // kLists
  std::vector<SlotId> replaced;  // kLists, and kCall of a batch normalisation: parallel to `in`,
                                 // where it was loaded from if the next value is stored there and
                                 // nobody reads this one any more
  std::uint32_t capture = 0;
  Cut cut;
  double factor = 1;
  std::vector<Register> in;
  std::vector<Register> out;   // kNoRegister: nobody wants it
  std::vector<Register> dead;  // after this step nobody reads them
};

// The action of an instruction once its body has run.
enum class Action : std::uint8_t {
  kNone,
  kSend,           // `values[0]` to `peer`
  kReceive,        // from `peer` into `slots[0]`
  kAllReduce,      // `values` over `set`, into `slots`
  kReduceScatter,  // `values` over `set`: of the sums, its own rows into `slots`
  kAllGather,      // `values` over `set`, each with its own rows in place: all others into these
  kGatherParts,    // `values` over `set`, of each its own rows alone: the wholes into `slots`
  kSendRows,       // the rows of `values[0]` that are not zero
  kReceiveRows,    // packed, into `slots[0]`
  kGatherRows,     // the packed rows of `values[0]` of every member, into `slots[0]`
  kAddRows,        // the packed rows in the next `packed` of `values`, and the rest, which came
                   // whole, added to `values[0]`, into `slots[0]`
};

// How a gradient among an instruction's values travels. Of one that is cut into rows by servers,
// the first of these: each cut is compressed by itself.
struct CompressedValue {
  TensorId tensor;
  std::int64_t first_row = 0;
  cost::Compression compression = {};
};

struct Instruction {
  TaskId task;
  Queue queue = Queue::kCompute;
  std::uint32_t lane = 0;  // of kSend, kReceive
  Action action = Action::kNone;
  bool in_place = false;  // kAllReduce, kReduceScatter, kAddRows: `values` may be overwritten
  DeviceId peer;
  std::uint32_t set = 0;  // of Job::sets
  // kReduceScatter, kAllGather, kGatherParts, of each value: member i has rows [cuts[i], cuts[i +
  // 1]) along axis 0.
  std::vector<comm::Cuts> cuts;
  std::size_t part = 0;  // of these, the index of this device among the members
  // kReceive: what arrives, at `samples` samples. Rows: the gradient.
  TensorId tensor;
  std::int64_t samples = 0;
  std::int64_t rows = 0;       // rows that are packed: so many, the last ones zero; kReceive: so
                               // many rows along axis 0 are all that comes, 0: the whole
  std::int64_t first_row = 0;  // kReceive into what stays: the first of these
  std::uint32_t packed = 0;    // kAddRows: values that are packed rows
  std::int64_t own = 0;        // kAddRows: which of the packed ones are this device's own
  bool own_is_packed = false;  // kAddRows: they are among them, and replaced
  bool resident = false;       // kReceive, kAllGather: into the memory of what stays
  // kSend, kReceive, kAllReduce, kReduceScatter: parallel to the values, or empty: none is.
  std::vector<CompressedValue> compressed;
  std::vector<BodyStep> body;
  std::uint32_t registers = 0;  // of the body
  std::vector<Register> values;
  std::vector<SlotId> slots;
  std::uint32_t waits_for = 0;       // instructions of other queues and lanes
  std::vector<InstructionId> wakes;  // of other queues and lanes, that wait for this one
  std::vector<SlotId> reads;         // one reference less each, once it has ended
  std::vector<SlotId> drops;         // written here and read by nobody
};

struct Slot {
  enum class Kind : std::uint8_t { kResident, kInput, kBuffer };
  Kind kind = Kind::kBuffer;
  TensorId tensor;
  std::uint32_t readers = 0;  // kBuffer: instructions that read it in a step
  // kResident: rows [begin, end) along axis 0 are all that is kept; both 0 of what is kept whole.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool is_part() const { return end > 0; }
};

// A value of the step that somebody outside wants: the loss and what else the graph calls an
// output, the gradients. What this rank holds of it, times `weight`, is to be added to what the
// others hold if it is partial; else it is what it says of the samples [begin, end). Of a gradient
// that is dealt by rows it is `rows` of them alone, from `first_row` on.
struct Capture {
  TensorId tensor;
  double weight = 1;
  bool partial = false;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;  // 0: all
};

struct Program {
  DeviceId device;
  IdVector<SlotId, Slot> slots;
  IdVector<InstructionId, Instruction> instructions;  // in the order of dispatch
  std::array<std::vector<InstructionId>, kQueueCount> queues;
  IdVector<TensorId, SlotId> slot_of;  // residents and inputs; invalid for all others
  std::vector<Capture> captures;
};

// A plan made ready to run on all its devices: make_job() splits its tasks, in the order of
// dispatch, into the instructions of each device. Without tensors: every rank makes the same job,
// takes the program of its device and compares the rest by its hash.
//
//   Job job = make_job(problem, plan, simulated.dispatch, {}, "plan.json");
//   job.programs[device].queues[queue]    instructions, each a body and an action
//   job.programs[device].slots            where values lie: instructions load and store them
//   job.sets[instruction.set]             the members of a collective
struct Job {
  std::shared_ptr<const cost::Problem> problem;
  comm::DeviceSets sets;
  IdVector<DeviceId, Program> programs;
};

// The loss, and what else the graph calls an output that takes no tensor's place.
bool is_looked_at(const graph::ModelGraph& graph, TensorId tensor);

struct JobOptions {
  bool capture_gradients = false;  // for verification: keeps them to the end of the step
};

// `dispatch`: all tasks of the plan, each after those that it waits for. Throws an input error
// (prefixed by `source`) if it is not so, or if the graph holds what cannot be run.
Job make_job(std::shared_ptr<const cost::Problem> problem, const compiler::Plan& plan,
             std::span<const TaskId> dispatch, const JobOptions& options,
             const std::string& source);

}  // namespace heterog::runtime
