// Finds accesses to one memory by different streams of which neither comes before the other: vector
// clocks of streams, events and host threads (Lamport's happens-before; FastTrack keeps less).
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace heterog::comm::fake {

// Who does things one after another: a stream or a host thread.
using Actor = std::size_t;

// For each actor, how many of its acts have happened before.
class VectorClock {
 public:
  std::uint64_t of(Actor actor) const { return actor < counts_.size() ? counts_[actor] : 0; }
  void join(const VectorClock& other);
  bool covers(const VectorClock& other) const;
  std::uint64_t tick(Actor actor);

 private:
  std::vector<std::uint64_t> counts_;
};

// Bytes that an act reads or writes.
struct Touch {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

// What a device's streams and the threads that use them do, as it is called for. An act of a stream
// comes after what the launching thread knew, after the stream's earlier acts, and after the events
// that the stream waits for. A thread knows what it has waited for; threads tell each other nothing
// but by what is said here.
class OrderChecker {
 public:
  void reset();

  // Memory that is watched; it keeps what was done to it when it changes hands.
  void watch(const void* begin, std::size_t bytes);

  void launch(c10::Stream stream, const std::string& what, const std::vector<Touch>& touches);
  void on_host(const std::string& what, const std::vector<Touch>& touches);
  // What an event behind all that the stream was given says.
  VectorClock recorded(c10::Stream stream);
  void wait(c10::Stream stream, const VectorClock& event);
  // What the calling thread knows, and what it learns.
  VectorClock known();
  void learn(const VectorClock& clock);
  bool knows(const VectorClock& clock);

  // "add_ on stream 2 writes what mm on stream 1 reads, and neither waits for the other"
  std::vector<std::string> races() const;
  std::uint64_t acts() const;

 private:
  struct Access {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool writes = false;
    Actor actor = 0;
    std::uint64_t count = 0;
    std::string what;
  };
  Actor actor_of(c10::Stream stream);
  Actor this_thread();
  VectorClock& clock(Actor actor);
  void touch(Actor actor, std::uint64_t count, const VectorClock& before, const std::string& what,
             const std::vector<Touch>& touches);
  void touch_block(std::vector<Access>& accesses, const Access& now, const VectorClock& before);

  mutable std::mutex mutex_;
  std::uint64_t generation_ = 1;
  std::map<std::pair<int, std::int64_t>, Actor> streams_;
  std::vector<VectorClock> clocks_;
  std::vector<std::string> names_;
  struct Block {
    std::size_t bytes = 0;
    std::vector<Access> accesses;
  };
  std::map<std::uintptr_t, Block> blocks_;
  std::vector<std::string> races_;
  std::uint64_t acts_ = 0;
};

}  // namespace heterog::comm::fake
