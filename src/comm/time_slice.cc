#include "comm/time_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace heterog::comm {
namespace {

// The first version of what sched_setattr(2) takes; its header cannot be included with <sched.h>.
struct Attributes {
  std::uint32_t size = sizeof(Attributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(Attributes) == 48);

constexpr std::uint64_t kShortest = 100'000;  // nanoseconds

// Of the calling thread.
bool get(Attributes& attributes) {
  return syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0;
}
bool set(Attributes& attributes) { return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0; }

}  // namespace

ShortTurns::ShortTurns() {
  Attributes attributes;
  if (!get(attributes) || attributes.policy != SCHED_OTHER) return;
  const std::uint64_t before = attributes.runtime;
  attributes.runtime = kShortest;
  if (set(attributes)) before_ = before;
}

ShortTurns::~ShortTurns() {
  if (before_ == 0) return;
  Attributes attributes;
  if (!get(attributes)) return;
  attributes.runtime = before_;
  set(attributes);
}

}  // namespace heterog::comm
