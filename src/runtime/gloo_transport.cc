// Point-to-point messages by Gloo, and collectives made of them.
//
// Gloo has collectives of its own, but a call of them cannot be ended from another thread, does not
// say which peer it waits for, and sums fewer dtypes. What is made of its messages ends the moment
// the job does.
#define USE_C10D_GLOO  // in this source alone: the headers are Debian's, the code LibTorch's
#include "runtime/gloo_transport.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "base/check.h"
#include "runtime/job_watch.h"
#include "runtime/store_impl.h"
#include "runtime/time_slice.h"

namespace heterog::runtime {

namespace {

using c10d::ProcessGroupGloo;

// A ring works on pieces of this many bytes, so that summing one overlaps with the next on its way.
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
// Up to here everyone sends everyone all of it: more bytes than round a ring, in one exchange where
// a ring of n takes 2(n - 1), each of which waits for threads to wake.
constexpr std::size_t kExchangedBytes = std::size_t{32} << 10;

double seconds_of(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1e3;
}

// In host memory, where Gloo reads and writes.
at::Tensor host_like(const at::Tensor& value) {
  return at::empty(value.sizes(), value.options().device(at::kCPU).pinned_memory(true));
}

at::Tensor on_host(const at::Tensor& value) {
  if (value.is_cpu()) return value;
  at::Tensor host = host_like(value);
  host.copy_(value);
  return host;
}

// Ranks that talk to each other, in the order of their ids.
struct Group {
  std::vector<DeviceId> members;
  int own = 0;  // index of this rank
  c10::intrusive_ptr<ProcessGroupGloo> gloo;
  std::mutex starting;  // Gloo's own count of calls is not made for two threads

  int size() const { return static_cast<int>(members.size()); }
  int index_of(DeviceId rank) const {
    const auto at = std::lower_bound(members.begin(), members.end(), rank);
    ENSURE(at != members.end() && *at == rank);
    return static_cast<int>(at - members.begin());
  }
};

// How the members of a group pass a value round: in as many segments as members, each in the same
// number of pieces. In step t, a member sends a segment to the next and receives the one before it.
struct Ring {
  enum class Half { kReduceScatter, kAllGather };

  Ring(const at::Tensor& value, int size, int own) : flat(value.view({-1})), size(size), own(own) {
    const std::int64_t segment = (flat.numel() + size - 1) / size;
    const std::int64_t piece = kPieceBytes / static_cast<std::int64_t>(flat.element_size());
    pieces = std::max<std::int64_t>(1, (segment + piece - 1) / piece);
  }

  int next() const { return (own + 1) % size; }
  int previous() const { return (own + size - 1) % size; }
  std::int64_t moves() const { return (size - 1) * pieces; }  // of one half

  // What the k-th move of a half sends or receives. Summed is the segment after one's own, and
  // from there the whole values start.
  at::Tensor sent(Half half, std::int64_t k) const { return piece_of(half, k, 0); }
  at::Tensor received(Half half, std::int64_t k) const { return piece_of(half, k, 1); }

  at::Tensor flat;
  int size;
  int own;
  std::int64_t pieces = 1;

 private:
  at::Tensor piece_of(Half half, std::int64_t k, int behind) const {
    const std::int64_t step = k / pieces + behind - (half == Half::kAllGather ? 1 : 0);
    const std::int64_t segment = (own - step + 2 * size) % size;
    const std::int64_t count = flat.numel();
    const std::int64_t begin = count * segment / size;
    const std::int64_t length = count * (segment + 1) / size - begin;
    const std::int64_t from = length * (k % pieces) / pieces;
    return flat.narrow(0, begin + from, length * (k % pieces + 1) / pieces - from);
  }
};

}  // namespace

std::string rank_text(DeviceId rank, const std::vector<std::string>& device_names) {
  if (rank.value() >= device_names.size()) return fmt::format("rank {}", rank.value());
  return fmt::format("rank {} ({})", rank.value(), device_names[rank.value()]);
}

struct GlooTransport::Impl {
  Impl(const Store& given_store, DeviceId rank, GlooOptions given);

  // A message on its way; can be woken as long as it lives.
  struct Message {
    Message(Impl& impl, DeviceId peer, bool sends) : impl(&impl), peer(peer), sends(sends) {}
    Message(Message&&) = default;
    Message& operator=(Message&&) = delete;
    ~Message() {
      if (work) impl->forget(work.get());
    }
    Impl* impl;
    DeviceId peer;
    bool sends;
    c10::intrusive_ptr<c10d::Work> work;  // none: nothing to move
  };
  Message start_send(Group& group, const at::Tensor& value, int to, std::uint32_t tag = 0);
  Message start_receive(Group& group, const at::Tensor& value, int from, std::uint32_t tag = 0);
  void complete(const Message& message);

  // One of the two halves of an all-reduce of `ring`.
  void go_round(Group& group, const Ring& ring, Ring::Half half);
  void all_reduce(Group& group, at::Tensor& value);
  std::vector<at::Tensor> all_gather(Group& group, const at::Tensor& value);

  template <class Begin>
  Message start(Group& group, const at::Tensor& value, Message message, const Begin& begin);
  void forget(c10d::Work* work);
  [[noreturn]] void fail(const Message& message, const std::exception* error);
  void end_calls(const std::string& why);
  void check_not_ended();
  void connect(const Store& keys);
  std::string unconnected(const Store& keys) const;
  static std::string connected_key(DeviceId rank) {
    return fmt::format("connected/{}", rank.value());
  }
  std::string text_of(DeviceId peer) const { return rank_text(peer, options.device_names); }

  Store store;  // which rank 0 serves for as long as it holds it
  GlooOptions options;
  DeviceId own;
  std::shared_ptr<gloo::transport::Device> messages_device;
  std::shared_ptr<gloo::transport::Device> collectives_device;
  Group up;    // messages to higher ranks
  Group down;  // messages to lower ranks
  Group all;
  std::vector<std::unique_ptr<Group>> sets;  // null where this rank is no member

  std::mutex mutex;
  std::optional<std::string> reason;  // why every call fails
  std::set<c10d::Work*> waited_for;   // to be woken when the job ends
  bool finished = false;

  std::unique_ptr<JobWatch> watch;  // last made, first gone: its thread calls end_calls()
};

GlooTransport::Impl::Impl(const Store& given_store, DeviceId rank, GlooOptions given)
    : store(given_store), options(std::move(given)), own(rank) {
  const Store keys = store.under("connections");
  try {
    connect(keys);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kVerification,
                fmt::format("{}: not connected to the other ranks on {} within {} s ({})",
                            unconnected(keys), options.address, seconds_of(options.timeout),
                            one_line(error)));
  }
  keys.set(connected_key(own), "yes");
  watch = std::make_unique<JobWatch>(store.another_connection().under("job"),
                                     [this](const std::string& why) { end_calls(why); });
}

// The ranks that neither connected nor said that they could not; this one if there is none such.
std::string GlooTransport::Impl::unconnected(const Store& keys) const {
  constexpr std::chrono::milliseconds kOthersNotice{500};  // as they wait for the same
  keys.set(connected_key(own), "no");
  std::this_thread::sleep_for(kOthersNotice);
  std::string missing;
  for (const DeviceId rank : id_range<DeviceId>(options.device_names.size())) {
    if (!keys.find(connected_key(rank))) missing += (missing.empty() ? "" : ", ") + text_of(rank);
  }
  return missing.empty() ? text_of(own) : missing;
}

// Every rank makes the communicators that it belongs to, all in one order.
void GlooTransport::Impl::connect(const Store& keys) {
  const ShortTurns at_once;  // of the devices' threads
  messages_device = ProcessGroupGloo::createDeviceForHostname(options.address, false);
  collectives_device = ProcessGroupGloo::createDeviceForHostname(options.address, false);
  int made = 0;
  const auto join = [&](Group& group, std::vector<DeviceId> members, const auto& device) {
    const int index = made++;
    group.members = std::move(members);
    const auto at = std::find(group.members.begin(), group.members.end(), own);
    if (at == group.members.end()) return false;
    group.own = static_cast<int>(at - group.members.begin());
    auto gloo = ProcessGroupGloo::Options::create(options.timeout);
    gloo->threads = 1;  // unused: those run Gloo's collectives
    gloo->devices.push_back(device);
    group.gloo = c10::make_intrusive<ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(std::to_string(index), keys.impl().store), group.own,
        group.size(), std::move(gloo));
    return true;
  };
  std::vector<DeviceId> everyone;
  for (const DeviceId rank : id_range<DeviceId>(options.device_names.size())) {
    everyone.push_back(rank);
  }
  join(all, everyone, collectives_device);
  join(up, everyone, messages_device);
  join(down, everyone, messages_device);
  for (const std::vector<DeviceId>& members : options.sets) {
    auto group = std::make_unique<Group>();
    if (!join(*group, members, collectives_device)) group.reset();
    sets.push_back(std::move(group));
  }
}

void GlooTransport::Impl::check_not_ended() {
  const std::lock_guard lock(mutex);
  if (reason) throw Error(ErrorKind::kVerification, *reason);
}

// Wakes what waits; what is still to come sees the reason.
void GlooTransport::Impl::end_calls(const std::string& why) {
  const std::lock_guard lock(mutex);
  if (reason) return;
  reason = why;
  for (c10d::Work* work : waited_for) work->abort();
}

void GlooTransport::Impl::fail(const Message& message, const std::exception* error) {
  check_not_ended();  // woken by end_calls(), or a consequence of what another rank has said
  const std::string peer = text_of(message.peer);
  const char* what = message.sends ? "take what it was sent" : "send";
  const bool expired = error != nullptr &&
                       std::string_view(error->what()).find("imed out") != std::string_view::npos;
  const std::string why = expired
                              ? fmt::format("{}: did not {} for {} s, {} waits for it", peer, what,
                                            seconds_of(options.timeout), text_of(own))
                              : fmt::format("{}: connection to {} lost ({})", peer, text_of(own),
                                            error == nullptr ? "interrupted" : one_line(*error));
  const std::string stands = watch->end(why);
  end_calls(stands);
  throw Error(ErrorKind::kVerification, stands);
}

void GlooTransport::Impl::forget(c10d::Work* work) {
  const std::lock_guard lock(mutex);
  waited_for.erase(work);
}

template <class Begin>
GlooTransport::Impl::Message GlooTransport::Impl::start(Group& group, const at::Tensor& value,
                                                        Message message, const Begin& begin) {
  EXPECT(value.is_contiguous() && value.is_cpu());
  check_not_ended();
  if (value.nbytes() == 0) return message;
  try {
    std::vector<at::Tensor> one{value};
    const std::lock_guard lock(group.starting);
    message.work = begin(*group.gloo, one);
  } catch (const std::exception& error) {
    fail(message, &error);
  }
  const std::lock_guard lock(mutex);
  waited_for.insert(message.work.get());
  if (reason) message.work->abort();
  return message;
}

GlooTransport::Impl::Message GlooTransport::Impl::start_send(Group& group, const at::Tensor& value,
                                                             int to, std::uint32_t tag) {
  return start(group, value, Message(*this, group.members[to], true),
               [&](ProcessGroupGloo& gloo, std::vector<at::Tensor>& one) {
                 return gloo.send(one, to, static_cast<int>(tag));
               });
}

GlooTransport::Impl::Message GlooTransport::Impl::start_receive(Group& group,
                                                                const at::Tensor& value, int from,
                                                                std::uint32_t tag) {
  return start(group, value, Message(*this, group.members[from], false),
               [&](ProcessGroupGloo& gloo, std::vector<at::Tensor>& one) {
                 return gloo.recv(one, from, static_cast<int>(tag));
               });
}

void GlooTransport::Impl::complete(const Message& message) {
  if (!message.work) return;
  bool done = false;
  try {
    done = message.work->wait(options.timeout);
  } catch (const std::exception& error) {
    fail(message, &error);
  }
  if (!done) fail(message, nullptr);
}

// Two receives are under way at any time; a piece is sent on once it is received, and summed.
void GlooTransport::Impl::go_round(Group& group, const Ring& ring, Ring::Half half) {
  const bool sums = half == Ring::Half::kReduceScatter;
  std::deque<std::pair<Message, at::Tensor>> receives;
  std::vector<Message> sends;
  const auto receive = [&](std::int64_t k) {
    if (k >= ring.moves()) return;
    const at::Tensor place = ring.received(half, k);
    at::Tensor taken = sums ? at::empty_like(place) : place;
    Message message = start_receive(group, taken, ring.previous());
    receives.emplace_back(std::move(message), std::move(taken));
  };
  const auto send = [&](std::int64_t k) {
    if (k < ring.moves()) sends.push_back(start_send(group, ring.sent(half, k), ring.next()));
  };
  receive(0);
  receive(1);
  for (std::int64_t k = 0; k < ring.pieces; ++k) send(k);
  for (std::int64_t k = 0; k < ring.moves(); ++k) {
    complete(receives.front().first);
    if (sums) ring.received(half, k).add_(receives.front().second);
    receives.pop_front();
    receive(k + 2);
    send(k + ring.pieces);
  }
  for (const Message& message : sends) complete(message);
}

// In a ring, a segment is summed on its way, ending at one member, which hands the sum round: all
// have its bits. What is exchanged is summed by everyone in the order of members.
void GlooTransport::Impl::all_reduce(Group& group, at::Tensor& value) {
  if (value.nbytes() <= kExchangedBytes) {
    const std::vector<at::Tensor> addends = all_gather(group, value);
    const at::Tensor& sum = addends[0];  // ours to add to
    for (std::size_t i = 1; i < addends.size(); ++i) sum.add_(addends[i]);
    value.copy_(sum);
    return;
  }
  at::Tensor host = on_host(value);
  const Ring ring(host, group.size(), group.own);
  go_round(group, ring, Ring::Half::kReduceScatter);
  go_round(group, ring, Ring::Half::kAllGather);
  if (!value.is_cpu()) value.copy_(host);
}

std::vector<at::Tensor> GlooTransport::Impl::all_gather(Group& group, const at::Tensor& value) {
  const at::Tensor host = on_host(value);
  std::vector<at::Tensor> gathered;
  std::vector<Message> messages;
  for (int index = 0; index < group.size(); ++index) {
    gathered.push_back(index == group.own ? host.clone() : at::empty_like(host));
    if (index == group.own) continue;
    messages.push_back(start_receive(group, gathered.back(), index));
    messages.push_back(start_send(group, host, index));
  }
  for (const Message& message : messages) complete(message);
  if (!value.is_cpu()) {
    for (at::Tensor& one : gathered) one = one.to(value.device());
  }
  return gathered;
}

GlooTransport::GlooTransport(const Store& store, DeviceId own, GlooOptions options)
    : impl_(std::make_unique<Impl>(store, own, std::move(options))) {}

GlooTransport::~GlooTransport() {
  if (!impl_->finished) abort("ended before the job was done");
}

void GlooTransport::send(const at::Tensor& value, DeviceId to, std::uint32_t tag) {
  Group& group = to > impl_->own ? impl_->up : impl_->down;
  const at::Tensor host = on_host(value);
  impl_->complete(impl_->start_send(group, host, group.index_of(to), tag));
}

void GlooTransport::receive(at::Tensor& value, DeviceId from, std::uint32_t tag) {
  Group& group = from < impl_->own ? impl_->up : impl_->down;
  at::Tensor host = value.is_cpu() ? value : host_like(value);
  impl_->complete(impl_->start_receive(group, host, group.index_of(from), tag));
  if (!value.is_cpu()) value.copy_(host);
}

void GlooTransport::all_reduce(at::Tensor& value, std::size_t set) {
  ENSURE(set < impl_->sets.size() && impl_->sets[set]);
  impl_->all_reduce(*impl_->sets[set], value);
}

std::vector<at::Tensor> GlooTransport::all_gather(const at::Tensor& own, std::size_t set) {
  ENSURE(set < impl_->sets.size() && impl_->sets[set]);
  return impl_->all_gather(*impl_->sets[set], own);
}

std::vector<at::Tensor> GlooTransport::gather_all(const at::Tensor& own) {
  return impl_->all_gather(impl_->all, own);
}

void GlooTransport::abort(const std::string& reason) {
  const bool named = reason.starts_with("rank ");  // by the transport that it comes from
  const std::string why = named ? reason : impl_->text_of(impl_->own) + ": " + reason;
  impl_->end_calls(why);
  impl_->watch->end(why);
}

void GlooTransport::run_until_finished(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    abort(error.what());
    throw;
  } catch (const std::bad_alloc&) {
    abort("out of host memory");
    throw;
  } catch (const std::exception& error) {
    abort(one_line(error));
    throw;
  }
  finish();
}

void GlooTransport::finish() {
  const int ranks = impl_->all.size();
  const bool left = impl_->watch->leave_together({.rank = static_cast<int>(impl_->own.value()),
                                                  .ranks = ranks,
                                                  .timeout = impl_->options.timeout});
  impl_->check_not_ended();
  if (!left) {
    abort(fmt::format("the other ranks did not end with it within {} s",
                      seconds_of(impl_->options.timeout)));
    impl_->check_not_ended();
  }
  impl_->finished = true;
}

}  // namespace heterog::runtime
