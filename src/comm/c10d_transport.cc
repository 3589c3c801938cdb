// Calls of a backend, each with an end, and collectives of what a backend has.
#include "comm/c10d_transport.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "base/check.h"
#include "comm/bounded_calls.h"
#include "comm/c10d_view.h"
#include "comm/lifelines.h"
#include "tensors/torch_error.h"

namespace heterog::comm {

namespace {

using Clock = BoundedCalls::Clock;
using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// What it takes, after a backend has failed, until it is known which peer is gone.
constexpr std::chrono::milliseconds kToldBy{2000};
// Our time-out is the first to pass: it knows more to say than the backend's.
constexpr std::chrono::milliseconds kBackendSlack{5000};
// Who has waited for a collective so long says so, and before a quarter of the time-out has passed.
constexpr std::chrono::milliseconds kSaysSo{500};

// The memory of a contiguous value, whatever its dtype and shape.
at::Tensor bytes_of(const at::Tensor& value) { return value.view({-1}).view(at::kByte); }

// Whether all backends add these as ATen does. They have no sum of other dtypes, or, of bools, one
// of bytes.
bool is_summed(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16 ||
         type == at::kInt || type == at::kLong;
}

at::Tensor sum_of(const std::vector<at::Tensor>& addends) {
  at::Tensor sum = addends[0].clone();
  for (std::size_t i = 1; i < addends.size(); ++i) sum.add_(addends[i]);
  return sum;
}

// Ranks that a backend connects, in the order of their ids.
struct CollectiveGroup {
  std::vector<DeviceId> members;
  int own = 0;  // index of this rank
  c10::intrusive_ptr<c10d::Backend> backend;
  std::int64_t calls = 0;  // collectives so far

  int size() const { return static_cast<int>(members.size()); }
  int index_of(DeviceId rank) const {
    const auto at = std::lower_bound(members.begin(), members.end(), rank);
    ENSURE(at != members.end() && *at == rank);
    return static_cast<int>(at - members.begin());
  }
};

using Start = std::function<Works(c10d::Backend& backend)>;

// Calls are started one at a time in the whole process: a backend is made for calls by one thread,
// and all backends note what they start in one table of c10d's (its flight recorder), which takes
// no lock for that.
std::mutex starting;

// Owns all that it touches: it may be left behind.
std::function<void()> call_of(const std::shared_ptr<CollectiveGroup>& group, Start start) {
  return [group, start = std::move(start)] {
    const c10::InferenceMode no_gradients;  // as where the tensors were made
    Works works;
    {
      const std::lock_guard lock(starting);
      works = start(*group->backend);
    }
    for (const auto& work : works) {
      if (!work->wait()) throw std::runtime_error("interrupted");
    }
  };
}

}  // namespace

struct C10dTransport::Impl {
  Impl(std::string backend, const Store& given_store, DeviceId rank, C10dOptions given);
  ~Impl();

  // Once: connects the ranks by the backend.
  void connect(const BackendKind& kind);

  void message(BoundedCalls& calls, DeviceId peer, const char* what, Start start);
  void collective(std::size_t set, Start start);
  std::vector<at::Tensor> all_gather(const at::Tensor& value, std::size_t set);

  std::size_t everyone() const { return options.sets.size(); }  // the set of all ranks
  const std::shared_ptr<CollectiveGroup>& group(std::size_t set) const {
    ENSURE(set < groups.size() && groups[set]);
    return groups[set];
  }
  bool make_groups(const BackendKind& kind);
  void end_calls();
  // The backend has failed: for the reason that is known soon, if one is, else for this one.
  [[noreturn]] void fail(const std::optional<DeviceId>& peer, const std::string& why);
  [[noreturn]] void fail_late(const CollectiveGroup& group, const std::string& call);
  void enter(const std::string& call);
  std::chrono::milliseconds says_so_after() const {
    return std::min(kSaysSo, options.connect.timeout / 4);
  }
  // The collective that this rank is in, for those that miss it there.
  void say_where_it_waits();

  const std::string name;  // of the backend
  const C10dOptions options;
  const DeviceId own;
  const Store store;    // which rank 0 serves for as long as it holds it
  const Store waiting;  // by rank: the collective that it waits for

  BoundedCalls sends;
  BoundedCalls receives;
  BoundedCalls collectives;
  std::vector<std::shared_ptr<CollectiveGroup>>
      groups;  // of sets; null where this rank is no member

  std::mutex mutex;
  std::string entered;  // the collective that goes on, empty if there is none
  Clock::time_point since;
  std::string said;
  bool finished = false;

  std::unique_ptr<JobEnd> job;           // calls end_calls()
  std::unique_ptr<Lifelines> lifelines;  // last made, first gone: it uses all of the above
};

C10dTransport::Impl::Impl(std::string backend, const Store& given_store, DeviceId rank,
                          C10dOptions given)
    : name(std::move(backend)),
      options(std::move(given)),
      own(rank),
      store(given_store),
      waiting(store.another_connection().under("waiting")) {
  Connections connections = connect_ranks(store.under("connections"), own, options.connect);
  job = std::make_unique<JobEnd>(store,
                                 JobEnd::Options{.own = own,
                                                 .device_names = options.connect.device_names,
                                                 .timeout = options.connect.timeout},
                                 [this] { end_calls(); });
  const auto lost = [this](DeviceId peer, const std::string& why) {
    job->lose(peer, fmt::format("connection to {} lost ({})", job->text_of(own), why));
  };
  lifelines = std::make_unique<Lifelines>(
      std::move(connections), Lifelines::Options{.on_lost = lost,
                                                 .on_tick = [this] { say_where_it_waits(); },
                                                 .every = says_so_after() / 2});
}

C10dTransport::Impl::~Impl() {
  lifelines.reset();
  job.reset();  // ends what goes on, unless the job is done
  if (finished) return;
  // A backend waits for what goes on in it before it is gone.
  std::thread([left = std::move(groups)]() mutable { left.clear(); }).detach();
}

void C10dTransport::Impl::end_calls() {
  sends.give_up();
  receives.give_up();
  collectives.give_up();
}

void C10dTransport::Impl::connect(const BackendKind& kind) {
  std::string why = "it is not ready";
  try {
    if (make_groups(kind)) return;
  } catch (const std::exception& error) {
    why = tensors::one_line(error);
  }
  fail(std::nullopt, fmt::format("{} does not connect it to the others within {} s ({})", name,
                                 seconds_of(options.connect.timeout), why));
}

// Every rank makes the groups that it belongs to, all in one order. False if they are not made
// within the time-out.
bool C10dTransport::Impl::make_groups(const BackendKind& kind) {
  std::vector<std::vector<DeviceId>> sets = options.sets;
  std::vector<DeviceId>& all = sets.emplace_back();
  for (const DeviceId rank : id_range<DeviceId>(options.connect.device_names.size())) {
    all.push_back(rank);
  }
  const auto maker = std::make_shared<MakeBackend>(kind.maker(
      {.address = options.connect.address, .timeout = options.connect.timeout + kBackendSlack}));
  const Store keys = store.another_connection();
  const Clock::time_point end = Clock::now() + options.connect.timeout;
  for (std::size_t set = 0; set < sets.size(); ++set) {
    const auto made = std::make_shared<CollectiveGroup>();
    made->members = std::move(sets[set]);
    const bool member = std::ranges::binary_search(made->members, own);
    groups.push_back(member ? made : nullptr);
    if (!member || made->size() == 1) continue;
    made->own = made->index_of(own);
    const auto make = [maker, made, own_keys = keys.under(fmt::format("{}/{}", name, set))] {
      made->backend = (*maker)(c10d_view(own_keys), made->own, made->size());
    };
    if (!collectives.run(make, end)) return false;
  }
  return true;
}

void C10dTransport::Impl::fail(const std::optional<DeviceId>& peer, const std::string& why) {
  job->wait_until(Clock::now() + kToldBy);
  if (peer) job->fail(*peer, why);
  job->abort(why);
  job->check();
  throw Error(ErrorKind::kBug, "a job that has ended has no reason");
}

void C10dTransport::Impl::message(BoundedCalls& calls, DeviceId peer, const char* what,
                                  Start start) {
  job->check();
  try {
    const auto until = Clock::now() + options.connect.timeout;
    if (calls.run(call_of(group(everyone()), std::move(start)), until)) return;
  } catch (const std::exception& error) {
    fail(peer, fmt::format("connection to {} lost ({}: {})", job->text_of(own), name,
                           tensors::one_line(error)));
  }
  job->fail(peer, fmt::format("did not {} for {} s, {} waits for it", what,
                              seconds_of(options.connect.timeout), job->text_of(own)));
}

void C10dTransport::Impl::collective(std::size_t set, Start start) {
  const std::shared_ptr<CollectiveGroup>& members = group(set);
  job->check();
  const std::string call = fmt::format("{} of set {}", ++members->calls, set);
  enter(call);
  try {
    const auto until = Clock::now() + options.connect.timeout;
    if (collectives.run(call_of(members, std::move(start)), until)) return enter("");
  } catch (const std::exception& error) {
    fail(std::nullopt,
         fmt::format("{} failed in a collective ({})", name, tensors::one_line(error)));
  }
  fail_late(*members, call);
}

void C10dTransport::Impl::enter(const std::string& call) {
  const std::lock_guard lock(mutex);
  entered = call;
  since = Clock::now();
}

void C10dTransport::Impl::say_where_it_waits() {
  {
    const std::lock_guard lock(mutex);
    if (entered.empty() || entered == said || Clock::now() - since < says_so_after()) return;
    said = entered;
  }
  try {
    waiting.until(Clock::now() + kToldBy).set(std::to_string(own.value()), said);
  } catch (const Error&) {
    // Who watches the job finds that its store is lost.
  }
}

// For the first member that has not said that it waits too.
void C10dTransport::Impl::fail_late(const CollectiveGroup& members, const std::string& call) {
  job->check();  // ended, and not late
  const double seconds = seconds_of(options.connect.timeout);
  for (const DeviceId peer : members.members) {
    if (peer == own) continue;
    const auto waits = waiting.until(Clock::now() + kToldBy).find(std::to_string(peer.value()));
    if (waits == call) continue;
    job->fail(peer, fmt::format("did not take part for {} s, {} waits for it", seconds,
                                job->text_of(own)));
  }
  fail(std::nullopt,
       fmt::format("{} has not ended for {} s a collective that all take part in", name, seconds));
}

std::vector<at::Tensor> C10dTransport::Impl::all_gather(const at::Tensor& value, std::size_t set) {
  std::vector<at::Tensor> gathered;
  std::vector<at::Tensor> places;
  for (int i = 0; i < group(set)->size(); ++i) {
    gathered.push_back(at::empty_like(value));
    places.push_back(bytes_of(gathered.back()));
  }
  if (gathered.size() == 1) {
    gathered[0].copy_(value);
  } else if (value.nbytes() > 0) {
    collective(set, [places, own_bytes = bytes_of(value)](c10d::Backend& backend) {
      std::vector<std::vector<at::Tensor>> outputs{places};
      std::vector<at::Tensor> inputs{own_bytes};
      return Works{backend.allgather(outputs, inputs)};
    });
  }
  return gathered;
}

C10dTransport::C10dTransport(const BackendKind& kind, const Store& store, DeviceId own,
                             C10dOptions options)
    : impl_(std::make_unique<Impl>(kind.name, store, own, std::move(options))) {
  impl_->connect(kind);
}

C10dTransport::~C10dTransport() = default;

// A backend keeps the messages of a pair in order, each with its tag: a number that is not
// negative.
void C10dTransport::send(const at::Tensor& value, DeviceId to, std::uint32_t tag) {
  EXPECT(value.is_contiguous() && value.is_cpu() && to != impl_->own);
  if (value.nbytes() == 0) return impl_->job->check();
  const int peer = impl_->group(impl_->everyone())->index_of(to);
  impl_->message(impl_->sends, to, "take what it was sent",
                 [bytes = bytes_of(value), peer, tag](c10d::Backend& backend) {
                   std::vector<at::Tensor> one{bytes};
                   return Works{backend.send(one, peer, static_cast<int>(tag & 0x7fffffff))};
                 });
}

void C10dTransport::receive(at::Tensor& value, DeviceId from, std::uint32_t tag) {
  EXPECT(value.is_contiguous() && value.is_cpu() && from != impl_->own);
  if (value.nbytes() == 0) return impl_->job->check();
  const int peer = impl_->group(impl_->everyone())->index_of(from);
  impl_->message(impl_->receives, from, "send",
                 [bytes = bytes_of(value), peer, tag](c10d::Backend& backend) {
                   std::vector<at::Tensor> one{bytes};
                   return Works{backend.recv(one, peer, static_cast<int>(tag & 0x7fffffff))};
                 });
}

void C10dTransport::all_reduce(at::Tensor& value, std::size_t set) {
  EXPECT(value.is_contiguous() && value.is_cpu());
  if (value.numel() == 0) return;
  if (!is_summed(value.scalar_type())) {
    value.copy_(sum_of(impl_->all_gather(value, set)));
    return;
  }
  impl_->collective(set, [flat = value.view({-1})](c10d::Backend& backend) {
    std::vector<at::Tensor> one{flat};
    return Works{backend.allreduce(one)};
  });
}

// Each part is reduced to its member.
void C10dTransport::reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) {
  EXPECT(value.is_contiguous() && value.is_cpu());
  if (value.numel() == 0) return;
  const auto own = static_cast<std::size_t>(impl_->group(set)->own);
  if (!is_summed(value.scalar_type())) {
    part_of(value, cuts, own).copy_(part_of(sum_of(impl_->all_gather(value, set)), cuts, own));
    return;
  }
  impl_->collective(set, [value, cuts](c10d::Backend& backend) {
    Works works;
    for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
      if (cuts[part] == cuts[part + 1]) continue;
      std::vector<at::Tensor> one{part_of(value, cuts, part).view({-1})};
      c10d::ReduceOptions options;
      options.rootRank = static_cast<int>(part);
      works.push_back(backend.reduce(one, options));
    }
    return works;
  });
}

// Each part is broadcast by its member; parts of one size are gathered at once.
void C10dTransport::all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) {
  EXPECT(value.is_contiguous() && value.is_cpu());
  if (value.numel() == 0) return;
  std::vector<at::Tensor> parts;
  for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
    parts.push_back(bytes_of(part_of(value, cuts, part)));
  }
  const bool even = std::ranges::all_of(
      parts, [&](const at::Tensor& part) { return part.numel() == parts[0].numel(); });
  const auto own = static_cast<std::size_t>(impl_->group(set)->own);
  impl_->collective(set, [parts, even, own](c10d::Backend& backend) {
    if (even) {
      std::vector<std::vector<at::Tensor>> outputs{parts};
      std::vector<at::Tensor> inputs{parts[own]};
      return Works{backend.allgather(outputs, inputs)};
    }
    Works works;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      if (parts[part].numel() == 0) continue;
      std::vector<at::Tensor> one{parts[part]};
      c10d::BroadcastOptions options;
      options.rootRank = static_cast<int>(part);
      works.push_back(backend.broadcast(one, options));
    }
    return works;
  });
}

std::vector<at::Tensor> C10dTransport::all_gather(const at::Tensor& own, std::size_t set) {
  return impl_->all_gather(own, set);
}

std::vector<at::Tensor> C10dTransport::gather_all(const at::Tensor& own) {
  return impl_->all_gather(own, impl_->everyone());
}

void C10dTransport::check() { impl_->job->check(); }

void C10dTransport::abort(const std::string& reason) { impl_->job->abort(reason); }

void C10dTransport::finish() {
  impl_->lifelines->let_go();  // peers close theirs once all have come
  impl_->job->finish();
  impl_->finished = true;
}

}  // namespace heterog::comm
