// The tables of actions that a policy or a search chooses among for each group: HeteroG's M+4
// (§4.1.2), and a wider one of sets of devices.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::space {

// Which actions there are.
enum class ActionTable : std::uint8_t {
  kHeterog,  // each device alone, even and proportional replicas on all: M + 4
  kSets,     // those, and balanced replicas on sets of devices
};

// Which devices run a group, and how they share the batch.
enum class Placement : std::uint8_t {
  kSingle,        // one device has the whole batch
  kEven,          // all devices, equal shares
  kProportional,  // all devices, shares in proportion to speed
  kBalanced,      // a set of devices, shares with which they compute for equally long
};

using SetId = Id<struct SetTag>;  // a set of an ActionSpace

// One row of the table, by what it decides. A further choice is a further member, with a default
// that means what was meant before.
struct Action {
  Placement placement = Placement::kSingle;
  DeviceId device;  // of kSingle; else invalid
  // How the gradients of replicas are summed. A single device aggregates nothing: kAllReduce there.
  decide::SyncMethod sync = decide::SyncMethod::kAllReduce;
  SetId set = {};  // of kBalanced; else invalid
  friend auto operator<=>(const Action&, const Action&) = default;
};

// The row of an action. Of the width of every id: clusters have more devices than a byte counts.
using ActionId = Id<struct ActionTag>;

// The actions on all devices, in the order of their rows.
inline constexpr std::array<Action, 4> kReplicated = {
    {{Placement::kEven, {}, decide::SyncMethod::kParameterServer},
     {Placement::kEven, {}, decide::SyncMethod::kAllReduce},
     {Placement::kProportional, {}, decide::SyncMethod::kParameterServer},
     {Placement::kProportional, {}, decide::SyncMethod::kAllReduce}}};

// The actions of one problem. First each device alone, in the order of the cluster, then
// kReplicated, then, of kSets, each set by parameter server and by all-reduce: trained weights are
// laid out by this order. Who wants an action asks for it by what it decides, and for what a row
// decides by its id:
//
//   const ActionSpace actions(problem);
//   const ActionId even = actions.id({.placement = Placement::kEven});   // EV-AR
//   actions[even].sync                                                   // all-reduce
//   actions.decision(even)                                               // for the compiler
//
// The problem has to outlive it.
class ActionSpace {
 public:
  explicit ActionSpace(const cost::Problem& problem, ActionTable table = ActionTable::kHeterog);
  std::size_t size() const { return actions_.size(); }
  IdRange<ActionId> ids() const { return id_range<ActionId>(size()); }
  const Action& operator[](ActionId id) const { return actions_[id]; }
  // The row of an action, which must be one of the table.
  ActionId id(const Action& action) const;
  ActionId single(DeviceId device) const { return id({.device = device}); }
  std::string name(ActionId id) const;  // "v100-0/gpu0", "EV-PS", "2 x T4-AR"
  const decide::UnitDecision& decision(ActionId id) const { return decisions_[id]; }
  // The sets: all devices, those of a type, those of the fastest types, those of a machine; of two
  // and more devices, each once. None of kHeterog.
  IdRange<SetId> sets() const { return id_range<SetId>(set_replicas_.size()); }
  const std::vector<decide::Replica>& replicas(SetId set) const { return set_replicas_[set]; }
  // One action per group.
  decide::Strategy strategy(std::span<const ActionId> actions) const;

 private:
  void add(const Action& action);
  void add_sets();

  const cost::Problem& problem_;
  IdVector<ActionId, Action> actions_;
  IdVector<ActionId, decide::UnitDecision> decisions_;
  std::map<Action, ActionId> ids_;
  IdVector<SetId, std::vector<decide::Replica>> set_replicas_;
  IdVector<SetId, std::string> set_names_;
};

}  // namespace heterog::space
