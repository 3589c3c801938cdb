// Clocks, and for each block of memory the accesses that may still matter.
#include "comm/order_checker.h"

#include <fmt/format.h>

#include <algorithm>

namespace heterog::comm::fake {

void VectorClock::join(const VectorClock& other) {
  if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size());
  for (std::size_t i = 0; i < other.counts_.size(); ++i) {
    counts_[i] = std::max(counts_[i], other.counts_[i]);
  }
}

bool VectorClock::covers(const VectorClock& other) const {
  for (Actor actor = 0; actor < other.counts_.size(); ++actor) {
    if (other.counts_[actor] > of(actor)) return false;
  }
  return true;
}

std::uint64_t VectorClock::tick(Actor actor) {
  if (counts_.size() <= actor) counts_.resize(actor + 1);
  return ++counts_[actor];
}

void OrderChecker::reset() {
  const std::lock_guard lock(mutex_);
  ++generation_;
  streams_.clear();
  clocks_.clear();
  names_.clear();
  for (auto& [begin, block] : blocks_) block.accesses.clear();
  races_.clear();
  acts_ = 0;
}

void OrderChecker::watch(const void* begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  blocks_[reinterpret_cast<std::uintptr_t>(begin)].bytes = bytes;
}

Actor OrderChecker::actor_of(c10::Stream stream) {
  const auto [at, is_new] =
      streams_.try_emplace({stream.device_index(), stream.id()}, clocks_.size());
  if (is_new) {
    clocks_.emplace_back();
    names_.push_back(fmt::format("stream {} of device {}", stream.id(), stream.device_index()));
  }
  return at->second;
}

Actor OrderChecker::this_thread() {
  thread_local std::uint64_t generation = 0;
  thread_local Actor actor = 0;
  if (generation != generation_) {
    generation = generation_;
    actor = clocks_.size();
    clocks_.emplace_back();
    names_.push_back(fmt::format("thread {}", actor));
  }
  return actor;
}

VectorClock& OrderChecker::clock(Actor actor) { return clocks_[actor]; }

void OrderChecker::launch(c10::Stream stream, const std::string& what,
                          const std::vector<Touch>& touches) {
  const std::lock_guard lock(mutex_);
  const Actor actor = actor_of(stream), thread = this_thread();
  clock(actor).join(clock(thread));
  const std::uint64_t count = clock(actor).tick(actor);
  touch(actor, count, clock(actor), what, touches);
}

void OrderChecker::on_host(const std::string& what, const std::vector<Touch>& touches) {
  const std::lock_guard lock(mutex_);
  const Actor actor = this_thread();
  const std::uint64_t count = clock(actor).tick(actor);
  touch(actor, count, clock(actor), what, touches);
}

VectorClock OrderChecker::recorded(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  const Actor actor = actor_of(stream), thread = this_thread();
  clock(actor).join(clock(thread));
  return clock(actor);
}

void OrderChecker::wait(c10::Stream stream, const VectorClock& event) {
  const std::lock_guard lock(mutex_);
  clock(actor_of(stream)).join(event);
}

VectorClock OrderChecker::known() {
  const std::lock_guard lock(mutex_);
  return clock(this_thread());
}

void OrderChecker::learn(const VectorClock& what) {
  const std::lock_guard lock(mutex_);
  clock(this_thread()).join(what);
}

bool OrderChecker::knows(const VectorClock& what) {
  const std::lock_guard lock(mutex_);
  return clock(this_thread()).covers(what);
}

std::vector<std::string> OrderChecker::races() const {
  const std::lock_guard lock(mutex_);
  return races_;
}

std::uint64_t OrderChecker::acts() const {
  const std::lock_guard lock(mutex_);
  return acts_;
}

void OrderChecker::touch(Actor actor, std::uint64_t count, const VectorClock& before,
                         const std::string& what, const std::vector<Touch>& touches) {
  ++acts_;
  for (const Touch& one : touches) {
    if (one.bytes == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(one.begin);
    auto block = blocks_.upper_bound(begin);
    if (block == blocks_.begin()) continue;
    --block;
    if (begin >= block->first + block->second.bytes) continue;  // nobody asked for it
    touch_block(block->second.accesses, {begin, begin + one.bytes, one.writes, actor, count, what},
                before);
  }
}

void OrderChecker::touch_block(std::vector<Access>& accesses, const Access& now,
                               const VectorClock& before) {
  constexpr std::size_t kMostKept = 20;
  for (const Access& earlier : accesses) {
    const bool overlap = earlier.begin < now.end && now.begin < earlier.end;
    if (!overlap || !(earlier.writes || now.writes)) continue;
    if (earlier.actor == now.actor || earlier.count <= before.of(earlier.actor)) continue;
    if (races_.size() >= kMostKept) continue;
    races_.push_back(fmt::format("{} on {} {} what {} on {} {}, and neither waits for the other",
                                 now.what, names_[now.actor], now.writes ? "writes" : "reads",
                                 earlier.what, names_[earlier.actor],
                                 earlier.writes ? "writes" : "reads"));
  }
  // What comes after this act comes after all that it overrides.
  std::erase_if(accesses, [&](const Access& earlier) {
    const bool inside = now.begin <= earlier.begin && earlier.end <= now.end;
    return inside && (now.writes || (!earlier.writes && earlier.actor == now.actor));
  });
  accesses.push_back(now);
}

}  // namespace heterog::comm::fake
