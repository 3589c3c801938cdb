// One lock, mailboxes for pairs of ranks and meeting points for sets.
#include "comm/local_transport.h"

#include <c10/core/Event.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "comm/device_copies.h"

namespace heterog::comm {
namespace {

// Behind all that the calling thread's stream has been given; null on CPUs, where what a call did
// is done.
using Mark = std::shared_ptr<c10::Event>;

Mark mark_on(const at::Device& device) {
  if (device.is_cpu()) return nullptr;
  auto mark = std::make_shared<c10::Event>(device.type());
  mark->record(current_stream(device));
  return mark;
}

// What the calling thread launches next comes after the mark.
void go_behind(const Mark& mark, const at::Device& device) {
  if (mark) mark->block(current_stream(device));
}

}  // namespace

// What the members of a set gave, in their order. On a device: each with a mark behind what it
// wrote, and, once all have left, one behind what it read of the others.
struct LocalHub::Round {
  std::vector<at::Tensor> given;
  std::vector<Mark> written;
  std::vector<Mark> read;
};

class LocalHub::Shared {
 public:
  Shared(std::size_t ranks, DeviceSets sets) : sets_(std::move(sets)) {
    std::vector<DeviceId> all;
    for (DeviceId rank : id_range<DeviceId>(ranks)) all.push_back(rank);
    sets_.push_back(std::move(all));
    meetings_ = std::vector<Meeting>(sets_.size());
  }

  std::size_t everybody() const { return sets_.size() - 1; }

  void send(const at::Tensor& value, DeviceId from, DeviceId to, std::uint32_t tag) {
    const Mark written = mark_on(value.device());
    std::unique_lock lock(mutex_);
    Letter letter{&value, tag, written, {}, false};
    Box& box = boxes_[{from, to}];
    wait(lock, box.changed, [&] { return box.letter == nullptr; });
    box.letter = &letter;
    box.changed.notify_all();
    wait(lock, box.changed, [&] { return letter.taken; });
    lock.unlock();
    go_behind(letter.read, value.device());
  }

  void receive(at::Tensor& value, DeviceId from, DeviceId to, std::uint32_t tag) {
    std::unique_lock lock(mutex_);
    Box& box = boxes_[{from, to}];
    wait(lock, box.changed, [&] { return box.letter != nullptr; });
    Letter* letter = box.letter;
    if (letter->tag != tag) {
      throw Error(ErrorKind::kBug, fmt::format("rank {} sends tag {} where rank {} expects {}",
                                               from.value(), letter->tag, to.value(), tag));
    }
    // The sender waits, so its tensor stays as it is while the lock is open. If an abort lets it go
    // meanwhile, the tensor is still there: the worker keeps it until all its queues have stopped.
    at::Tensor sent = *letter->value;
    const Mark written = letter->written;
    lock.unlock();
    ENSURE(sent.sizes() == value.sizes() && sent.scalar_type() == value.scalar_type() &&
           sent.device() == value.device());
    go_behind(written, value.device());
    value.copy_(sent);
    Mark read = mark_on(value.device());
    lock.lock();
    if (aborted_) throw Error(ErrorKind::kVerification, *aborted_);
    sent.reset();  // the sender lets go of it last, whose stream knows of the mark
    letter->read = std::move(read);
    letter->taken = true;
    box.letter = nullptr;
    box.changed.notify_all();
  }

  // What every member gave, kept until all have seen it. The calling thread's stream comes after
  // what the others wrote.
  std::shared_ptr<Round> meet(const at::Tensor& own, DeviceId rank, std::size_t set) {
    const Mark written = mark_on(own.device());
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_[set];
    const auto& members = sets_[set];
    const std::size_t place = place_of(rank, set);
    wait(lock, meeting.changed, [&] { return meeting.leaving == 0; });  // of the last time
    if (!meeting.round) meeting.round = std::make_shared<Round>();
    const std::shared_ptr<Round> round = meeting.round;
    round->given.resize(members.size());
    round->written.resize(members.size());
    round->given[place] = own;
    round->written[place] = written;
    if (++meeting.arrived == members.size()) {
      meeting.leaving = members.size();
      meeting.changed.notify_all();
    } else {
      wait(lock, meeting.changed, [&] { return meeting.leaving > 0; });
    }
    lock.unlock();
    for (const Mark& mark : round->written) go_behind(mark, own.device());
    return round;
  }

  std::size_t place_of(DeviceId rank, std::size_t set) const {
    const auto& members = sets_[set];
    const auto place =
        static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    ENSURE(place < members.size());
    return place;
  }

  // Nobody changes what others may still read, nor does the calling thread's stream.
  void leave(const std::shared_ptr<Round>& round, const at::Device& device, std::size_t set) {
    const Mark read = mark_on(device);
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_[set];
    round->read.push_back(read);
    if (--meeting.leaving == 0) {
      meeting.arrived = 0;
      meeting.round.reset();
      round->given.clear();
      meeting.changed.notify_all();
    } else {
      wait(lock, meeting.changed, [&] { return round->read.size() == round->written.size(); });
    }
    lock.unlock();
    for (const Mark& mark : round->read) go_behind(mark, device);
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
    for (auto& [_, box] : boxes_) box.changed.notify_all();
    for (Meeting& meeting : meetings_) meeting.changed.notify_all();
  }

 private:
  struct Letter {
    const at::Tensor* value = nullptr;
    std::uint32_t tag = 0;
    Mark written;  // as of a round
    Mark read;
    bool taken = false;
  };
  // Who waits for something is woken by it alone: hundreds of threads may meet here.
  struct Box {
    Letter* letter = nullptr;
    std::condition_variable changed;
  };
  struct Meeting {
    std::condition_variable changed;
    std::shared_ptr<Round> round;
    std::size_t arrived = 0;
    std::size_t leaving = 0;
  };

  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Ready ready) {
    changed.wait(lock, [&] { return aborted_ || ready(); });
    if (aborted_) throw Error(ErrorKind::kVerification, *aborted_);
  }

  DeviceSets sets_;
  std::mutex mutex_;
  std::map<std::pair<DeviceId, DeviceId>, Box> boxes_;
  std::vector<Meeting> meetings_;
  std::optional<std::string> aborted_;
};

class LocalHub::End final : public Transport {
 public:
  End(Shared& shared, DeviceId rank) : shared_(shared), rank_(rank) {}

  bool messages_side_by_side() const override { return true; }
  void send(const at::Tensor& value, DeviceId to, std::uint32_t tag) override {
    shared_.send(value, rank_, to, tag);
  }
  void receive(at::Tensor& value, DeviceId from, std::uint32_t tag) override {
    shared_.receive(value, from, rank_, tag);
  }
  void all_reduce(at::Tensor& value, std::size_t set) override {
    const auto round = shared_.meet(value, rank_, set);
    const std::vector<at::Tensor>& given = round->given;
    at::Tensor sum = given[0].to(value.device(), value.scalar_type(), false, true);
    for (std::size_t i = 1; i < given.size(); ++i) sum.add_(given[i].to(value.device()));
    shared_.leave(round, value.device(), set);
    value.copy_(sum);
  }
  void reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) override {
    const std::size_t own = shared_.place_of(rank_, set);
    const auto round = shared_.meet(value, rank_, set);
    const std::vector<at::Tensor>& given = round->given;
    at::Tensor sum =
        part_of(given[0], cuts, own).to(value.device(), value.scalar_type(), false, true);
    for (std::size_t i = 1; i < given.size(); ++i) {
      sum.add_(part_of(given[i], cuts, own).to(value.device()));
    }
    shared_.leave(round, value.device(), set);
    part_of(value, cuts, own).copy_(sum);
  }
  void all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) override {
    const std::size_t own = shared_.place_of(rank_, set);
    const auto round = shared_.meet(value, rank_, set);
    // Nobody writes what another reads: a member's own rows stay as they are.
    for (std::size_t i = 0; i < round->given.size(); ++i) {
      if (i != own) part_of(value, cuts, i).copy_(part_of(round->given[i], cuts, i));
    }
    shared_.leave(round, value.device(), set);
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) override {
    const auto round = shared_.meet(own, rank_, set);
    std::vector<at::Tensor> copies;
    for (const at::Tensor& value : round->given) {
      copies.push_back(value.to(own.device(), own.scalar_type(), false, true));
    }
    shared_.leave(round, own.device(), set);
    return copies;
  }
  std::vector<at::Tensor> gather_all(const at::Tensor& own) override {
    return all_gather(own, shared_.everybody());
  }
  void abort(const std::string& reason) override { shared_.abort(reason); }

 private:
  Shared& shared_;
  DeviceId rank_;
};

LocalHub::LocalHub(std::size_t ranks, DeviceSets sets)
    : shared_(std::make_unique<Shared>(ranks, std::move(sets))) {}
LocalHub::~LocalHub() = default;

std::unique_ptr<Transport> LocalHub::end_of(DeviceId rank) {
  return std::make_unique<End>(*shared_, rank);
}

}  // namespace heterog::comm
