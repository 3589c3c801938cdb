// Communicators of NCCL: one for each set of devices, one for each ordered pair that sends.
//
// Why this cannot hang. A rank uses a communicator from one of its three threads alone, on that
// thread's stream: that of a set from the thread of collectives, that of a pair from the sender's
// thread of sends and the receiver's of receives. Each of these threads issues its calls in the
// order of the plan's dispatch sequence, one order for all ranks, so two members never issue the
// calls of one communicator in different orders. Calls of different communicators do meet in
// different orders on different ranks, as one rank's streams are free of each other; so look at the
// earliest task of the sequence that is not finished. All that comes before it in any queue is
// finished, hence at each of its ranks it has been launched or is next to be, it is at the head of
// its stream, and the events that it waits for have happened. It runs once its kernels find room.
// What may be in the way are kernels that compute, which end by themselves, and kernels of NCCL
// that wait for their own peers: at most one a stream, so two others. They leave room because
// every communicator is held to a quarter of the multiprocessors (maxCTAs). Streams have queues of
// the hardware to themselves (CUDA_DEVICE_MAX_CONNECTIONS, src/launch/gpus_cuda.cc), so that none
// stands behind another's wait. So the earliest task ends, and after it the next.
//
// What could still wait inside a step is taken out of it: all connections and their buffers are
// made here, and each is used once. After that a call only enqueues: communicators block, because
// those that do not make a thread for every call and have to be asked until it has enqueued. What
// blocks while connections are made is called on a thread that can be left behind. Left is
// PyTorch's allocator when it has to return memory to the
// driver, which waits for the whole device; a step that hangs so is ended by the time-out.
#include "comm/nccl_transport.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/process_settings.h"
#include "base/text.h"
#include "comm/bounded_calls.h"
#include "comm/connections.h"
#include "comm/device_copies.h"
#include "comm/heartbeats.h"
#include "comm/job_watch.h"
#include "comm/nccl_communicator.h"
#include "tensors/torch_error.h"

namespace heterog::comm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{50};         // how often calls under way are looked at
constexpr milliseconds kAbortTime{5000};  // for communicators to end
constexpr int kPairChannels = 8;          // of a pair: enough for any link, and memory for few

// All connections when communicators are made, not when first used: a call that waits for a peer's
// first one would hold up the calls behind it.
void connect_at_once() {
  constexpr const char* kVariable = "NCCL_RUNTIME_CONNECT";
  if (process_settings_allowed()) setenv(kVariable, "0", 0);
  VALIDATE(
      std::getenv(kVariable),
      "{} is not set: ranks that talk by NCCL need it at 0; set it, or allow the runtime to set "
      "what holds for the whole process (tune_process)",
      kVariable);
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(const Store& store, DeviceId own, const NcclOptions& options)
      : options_(options), own_(own), beats_(store.another_connection(), own) {
    connect_at_once();
    const c10::DeviceGuard guard(options_.device);
    watch_ = std::make_unique<JobWatch>(store.another_connection().under("job"),
                                        [this](const std::string& why) { end_calls(why); });
    try {
      make_communicators(store.under("nccl"));
    } catch (...) {
      end_calls(rank_text(own_, options_.device_names) + ": its connections were not all made");
      throw;
    }
    {
      const std::lock_guard lock(mutex_);
      making_.reset();
    }
    watching_ = std::thread([this] { watch_calls(); });
  }

  ~NcclTransport() override {
    const c10::DeviceGuard guard(options_.device);
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (watching_.joinable()) watching_.join();
    watch_.reset();
    abort_all();  // nothing is under way if all went well
    for (const auto& group : all_) {
      const std::lock_guard lock(group->mutex);
      group->calls.clear();
    }
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  void send(const at::Tensor& value, DeviceId to, std::uint32_t) override {
    issue(pair_of(own_, to), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(value.const_data_ptr(), value.nbytes(), ncclUint8, 1, comm, stream);
    });
  }

  void receive(at::Tensor& value, DeviceId from, std::uint32_t) override {
    issue(pair_of(from, own_), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(value.data_ptr(), value.nbytes(), ncclUint8, 0, comm, stream);
    });
  }

  void all_reduce(at::Tensor& value, std::size_t set) override {
    const auto count = static_cast<std::size_t>(value.numel());
    const ncclRedOp_t sum = value.scalar_type() == at::kBool ? ncclMax : ncclSum;
    issue(*sets_[set], [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(value.data_ptr(), value.data_ptr(), count,
                           nccl_type(value.scalar_type()), sum, comm, stream);
    });
  }

  // NCCL's own forms of these want parts of one size: here each part is reduced to the member that
  // has it, or sent out from it, all in one group of calls.
  void reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) override {
    const ncclRedOp_t sum = value.scalar_type() == at::kBool ? ncclMax : ncclSum;
    each_part(value, cuts, set, [&](const at::Tensor& part, int root, auto comm, auto stream) {
      return ncclReduce(part.data_ptr(), part.data_ptr(), static_cast<std::size_t>(part.numel()),
                        nccl_type(part.scalar_type()), sum, root, comm, stream);
    });
  }

  void all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) override {
    each_part(value, cuts, set, [&](const at::Tensor& part, int root, auto comm, auto stream) {
      return ncclBroadcast(part.data_ptr(), part.data_ptr(), part.nbytes(), ncclUint8, root, comm,
                           stream);
    });
  }

  std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) override {
    NcclCommunicator& group = *sets_[set];
    std::vector<std::int64_t> sizes = own.sizes().vec();
    sizes.insert(sizes.begin(), static_cast<std::int64_t>(group.members.size()));
    const at::Tensor all = at::empty(sizes, own.options());
    issue(group, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(own.const_data_ptr(), all.data_ptr(), own.nbytes(), ncclUint8, comm,
                           stream);
    });
    return all.unbind(0);
  }

  std::vector<at::Tensor> gather_all(const at::Tensor&) override {
    ENSURE(false);  // goes through the host
    return {};
  }

  void check() override { check_not_ended(); }

  void abort(const std::string& reason) override {
    const bool named = reason.starts_with("rank ");
    const std::string why = named ? reason : text_of(own_) + ": " + reason;
    end_calls(why);
    watch_->end(why);
  }

 private:
  std::string text_of(DeviceId rank) const { return rank_text(rank, options_.device_names); }

  std::string text_of(const std::vector<DeviceId>& ranks) const {
    std::string text;
    for (DeviceId rank : ranks) text += (text.empty() ? "" : ", ") + text_of(rank);
    return text;
  }

  std::vector<DeviceId> peers_of(const NcclCommunicator& group) const {
    std::vector<DeviceId> peers;
    for (DeviceId member : group.members) {
      if (member != own_) peers.push_back(member);
    }
    return peers;
  }

  template <class Call>
  void each_part(const at::Tensor& value, const Cuts& cuts, std::size_t set, Call call) {
    NcclCommunicator& group = *sets_[set];
    issue(group, [&](ncclComm_t comm, cudaStream_t stream) {
      ncclResult_t result = ncclGroupStart();
      for (std::size_t i = 0; i < group.members.size(); ++i) {
        const at::Tensor part = part_of(value, cuts, i);
        if (part.numel() == 0 || (result != ncclSuccess && result != ncclInProgress)) continue;
        result = call(part, static_cast<int>(i), comm, stream);
      }
      const ncclResult_t ended = ncclGroupEnd();
      return result != ncclSuccess && result != ncclInProgress ? result : ended;
    });
  }

  // ---- connections ----

  void make_communicators(const Store& keys) {
    int made = 0;
    int multiprocessors = 0;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                           options_.device.index());
    const int room = std::max(1, multiprocessors / 4);
    const auto join = [&](std::vector<DeviceId> members, bool sums) {
      const std::string key = std::to_string(made++);
      const auto at = std::find(members.begin(), members.end(), own_);
      if (at == members.end()) return static_cast<NcclCommunicator*>(nullptr);
      auto group = std::make_shared<NcclCommunicator>();
      group->own = static_cast<int>(at - members.begin());
      group->members = std::move(members);
      group->sums = sums;
      group->device = options_.device;
      NcclCommunicator* joined = group.get();
      {
        const std::lock_guard lock(mutex_);
        all_.push_back(group);
      }
      connect(group, keys, key, sums ? room : std::min(room, kPairChannels));
      return joined;
    };
    for (const std::vector<DeviceId>& set : options_.sets) {
      sets_.push_back(set.empty() ? nullptr : join(set, true));
    }
    for (const auto& [from, to] : options_.pairs) {
      if (NcclCommunicator* group = join({from, to}, false)) pairs_.push_back({from, to, group});
    }
    const auto deadline = Clock::now() + options_.timeout;
    for (const auto& group : all_) {
      for (const NcclCommunicator::Call& call : group->calls) {
        while (!call.end.query()) {
          check_not_ended();
          if (Clock::now() > deadline) fail_late(*group);
          std::this_thread::sleep_for(milliseconds(1));
        }
      }
    }
    check_not_ended();
  }

  void connect(const std::shared_ptr<NcclCommunicator>& group, const Store& keys,
               const std::string& key, int channels) {
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    ncclUniqueId id;
    if (group->own == 0) {
      const ncclResult_t result = ncclGetUniqueId(&id);
      if (result != ncclSuccess) fail(*group, ncclGetErrorString(result));
      keys.set(key, nccl_id_text(id));
    } else {
      std::optional<std::string> found;
      while (!(found = keys.find(key))) {
        check_not_ended();
        if (Clock::now() > deadline) fail_late(*group);
        std::this_thread::sleep_for(milliseconds(5));
      }
      id = parse_nccl_id(*found);
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.maxCTAs = channels;
    const auto result = std::make_shared<ncclResult_t>(ncclSuccess);
    make_until(*group, deadline, [group, id, config, result] {
      const c10::DeviceGuard on_its_device(group->device);
      auto own_config = config;
      ncclComm_t made = nullptr;
      *result = ncclCommInitRankConfig(&made, static_cast<int>(group->members.size()), id,
                                       group->own, &own_config);
      const std::lock_guard calling(group->calling);
      group->comm = made;
      if (group->ended && made != nullptr) ncclCommAbort(group->comm.exchange(nullptr));
    });
    settle(*group, *result);
    // Once to and fro, so that nothing is left to be made when it is first needed.
    const auto first = std::make_shared<std::optional<Issued>>();
    make_until(*group, deadline, [group, first] {
      const c10::DeviceGuard on_its_device(group->device);
      const at::Tensor one = at::ones({1}, at::TensorOptions().device(group->device));
      *first = enqueue_on(*group, [&](ncclComm_t comm, cudaStream_t stream) {
        if (group->sums) {
          return ncclAllReduce(one.data_ptr(), one.data_ptr(), 1, ncclFloat32, ncclSum, comm,
                               stream);
        }
        return group->own == 0 ? ncclSend(one.data_ptr(), 4, ncclUint8, 1, comm, stream)
                               : ncclRecv(one.data_ptr(), 4, ncclUint8, 0, comm, stream);
      });
    });
    complete(*group, std::move(**first));
  }

  // A call that waits for the peers, on a thread that is left behind with it if they do not come.
  void make_until(const NcclCommunicator& group, Clock::time_point deadline,
                  std::function<void()> call) {
    check_not_ended();
    if (making_->run(std::move(call), deadline)) return;
    fail_late(group);  // or for the reason why the job has ended
  }

  NcclCommunicator& pair_of(DeviceId from, DeviceId to) {
    for (const Pair& pair : pairs_) {
      if (pair.from == from && pair.to == to) return *pair.group;
    }
    ENSURE(false);
    return *pairs_.front().group;
  }

  // ---- calls ----

  // A call that NCCL was given, and what it said; nothing if the communicator has ended.
  struct Issued {
    c10::Stream stream;
    NcclCommunicator::Call call;
    std::optional<ncclResult_t> result;
  };

  // On the current stream of the calling thread. Owns nothing of the transport's.
  template <class Enqueue>
  static Issued enqueue_on(NcclCommunicator& group, const Enqueue& enqueue) {
    const c10::Stream stream = current_stream(group.device);
    Issued issued{stream, NcclCommunicator::Call(group.device.type()), std::nullopt};
    issued.call.begin.record(stream);
    {
      const std::lock_guard lock(group.mutex);
      group.asked_since = Clock::now();
    }
    {
      const std::lock_guard calling(group.calling);
      if (ncclComm_t comm = group.comm) {
        issued.result = enqueue(comm, static_cast<cudaStream_t>(stream.native_handle()));
      }
    }
    const std::lock_guard lock(group.mutex);
    group.asked_since.reset();
    return issued;
  }

  template <class Enqueue>
  void issue(NcclCommunicator& group, const Enqueue& enqueue) {
    check_not_ended();
    complete(group, enqueue_on(group, enqueue));
  }

  void complete(NcclCommunicator& group, Issued issued) {
    if (!issued.result) fail_ended();
    settle(group, *issued.result);
    issued.call.end.record(issued.stream);
    const std::lock_guard lock(group.mutex);
    group.calls.push_back(std::move(issued.call));
    ++group.issued;
  }

  // Communicators block, unless NCCL_COMM_BLOCKING says otherwise: then what takes long goes on by
  // itself, and is asked for here.
  void settle(NcclCommunicator& group, ncclResult_t result) {
    const auto deadline = Clock::now() + options_.timeout;
    while (result == ncclInProgress) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      check_not_ended();
      if (Clock::now() > deadline) fail_late(group);
      const std::lock_guard calling(group.calling);
      ncclComm_t comm = group.comm;
      const ncclResult_t asked =
          comm == nullptr ? ncclInvalidUsage : ncclCommGetAsyncError(comm, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result == ncclSuccess) return;
    std::string why = ncclGetErrorString(result);
    {
      const std::lock_guard calling(group.calling);
      if (ncclComm_t comm = group.comm) why += fmt::format(": {}", ncclGetLastError(comm));
    }
    fail(group, why);
  }

  void check_not_ended() {
    const std::lock_guard lock(mutex_);
    if (reason_) throw Error(ErrorKind::kVerification, *reason_);
  }

  [[noreturn]] void fail_ended() {
    check_not_ended();
    throw Error(ErrorKind::kVerification, text_of(own_) + ": the job has ended");
  }

  // The job ends for what NCCL says of a communicator.
  [[noreturn]] void fail(const NcclCommunicator& group, const std::string& why) {
    check_not_ended();
    end(lost_text(group, why));
    fail_ended();
  }
  [[noreturn]] void fail_late(const NcclCommunicator& group) {
    check_not_ended();
    end(late_text(peers_of(group), group));
    fail_ended();
  }

  std::string lost_text(const NcclCommunicator& group, const std::string& why) const {
    return fmt::format("{}: connection to {} lost (NCCL: {})", text_of(peers_of(group)),
                       text_of(own_), printable(why, 300));
  }
  std::string late_text(const std::vector<DeviceId>& peers, const NcclCommunicator& group) const {
    return fmt::format("{}: did not {} for {} s, {} waits for it", text_of(peers),
                       group.sums       ? "come to a reduction"
                       : group.own == 0 ? "take what it was sent"
                                        : "send",
                       seconds_of(options_.timeout), text_of(own_));
  }

  void end(const std::string& why) { end_calls(watch_->end(why)); }

  void end_calls(const std::string& why) {
    std::shared_ptr<BoundedCalls> making;
    {
      const std::lock_guard lock(mutex_);
      if (reason_) return;
      reason_ = why;
      making = making_;
    }
    changed_.notify_all();
    if (making) making->give_up();
    abort_all();
  }

  void abort_all() {
    std::vector<std::shared_ptr<NcclCommunicator>> groups;
    {
      const std::lock_guard lock(mutex_);
      groups = all_;
    }
    end_communicators(groups, kAbortTime);
  }

  // ---- the watch ----

  void watch_calls() {
    // A new thread is on the first GPU, where what it asks of events would open a context.
    const c10::DeviceGuard guard(options_.device);
    auto next_beat = Clock::now();
    std::unique_lock lock(mutex_);
    while (!stop_ && !reason_) {
      lock.unlock();
      std::optional<std::string> why;
      try {
        for (const auto& group : all_) {
          if (!why) why = look_at(*group);
        }
        if (!why && Clock::now() >= next_beat) {
          next_beat = Clock::now() + Heartbeats::kEvery;
          why = beat();
        }
      } catch (const std::exception& error) {  // the store is lost, or the device
        why = fmt::format("{}: {}", text_of(own_), tensors::one_line(error));
      }
      if (why) end(*why);
      lock.lock();
      changed_.wait_for(lock, kLook, [&] { return stop_ || reason_; });
    }
  }

  // Why the job ends, if a call has failed or takes too long.
  std::optional<std::string> look_at(NcclCommunicator& group) {
    if (std::unique_lock calling(group.calling, std::try_to_lock); calling.owns_lock()) {
      ncclComm_t comm = group.comm;
      if (comm == nullptr) return std::nullopt;
      ncclResult_t result = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
      if (asked != ncclSuccess) result = asked;
      if (result != ncclSuccess && result != ncclInProgress) {
        return lost_text(group, ncclGetErrorString(result));
      }
    }
    std::uint64_t issued = 0;
    {
      const std::lock_guard lock(group.mutex);
      while (!group.calls.empty() && group.calls.front().end.query()) group.calls.pop_front();
      std::optional<Clock::time_point> since = group.asked_since;
      if (!group.calls.empty()) {
        NcclCommunicator::Call& call = group.calls.front();
        if (!call.runs_since && call.begin.query()) call.runs_since = Clock::now();
        if (!since) since = call.runs_since;
      }
      if (!since || Clock::now() - *since < options_.timeout) return std::nullopt;
      issued = group.issued;
    }
    return late_text(late_members(group, issued), group);  // the store may not answer
  }

  // Those that have issued fewer calls than this rank; all if they cannot be told apart.
  std::vector<DeviceId> late_members(const NcclCommunicator& group, std::uint64_t issued) const {
    const auto peers = peers_of(group);
    const auto index =
        static_cast<std::size_t>(std::find(sets_.begin(), sets_.end(), &group) - sets_.begin());
    std::vector<DeviceId> late;
    for (DeviceId peer : peers) {
      const std::vector<std::uint64_t> theirs = beats_.progress_of(peer);
      if (index < theirs.size() && theirs[index] < issued) late.push_back(peer);
    }
    return late.empty() ? peers : late;
  }

  // Calls issued over each of the sets. A peer of the same host whose process is gone closes
  // nothing that NCCL would notice: it is missed here.
  std::optional<std::string> beat() {
    std::vector<std::uint64_t> issued;
    for (NcclCommunicator* group : sets_) {
      if (group == nullptr) {
        issued.push_back(0);
        continue;
      }
      const std::lock_guard lock(group->mutex);
      issued.push_back(group->issued);
    }
    beats_.beat(issued);
    for (const auto& group : all_) {
      {
        const std::lock_guard lock(group->mutex);
        if (group->calls.empty()) continue;
      }
      for (DeviceId peer : peers_of(*group)) {
        if (!beats_.is_silent(peer, Clock::now())) continue;
        return fmt::format("{}: gave no sign of life for {} s, {} waits for it", text_of(peer),
                           seconds_of(Heartbeats::kSilence), text_of(own_));
      }
    }
    return std::nullopt;
  }

  const NcclOptions options_;
  const DeviceId own_;
  Heartbeats beats_;  // of the watching thread alone

  std::vector<std::shared_ptr<NcclCommunicator>> all_;  // this rank's, in the order of the job's
  std::vector<NcclCommunicator*> sets_;                 // null: not this rank's, or not by NCCL
  struct Pair {
    DeviceId from, to;
    NcclCommunicator* group;
  };
  std::vector<Pair> pairs_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<BoundedCalls> making_ = std::make_shared<BoundedCalls>();  // of connections
  std::optional<std::string> reason_;                                        // why every call fails
  bool stop_ = false;
  std::unique_ptr<JobWatch> watch_;
  std::thread watching_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const Store& store, DeviceId own,
                                               const NcclOptions& options) {
  return std::make_unique<NcclTransport>(store, own, options);
}

}  // namespace heterog::comm
