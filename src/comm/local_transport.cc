// One lock, mailboxes for pairs of ranks and meeting points for sets.
#include "comm/local_transport.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"

namespace heterog::comm {

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
    std::unique_lock lock(mutex_);
    Letter letter{&value, tag, false};
    Letter*& box = boxes_[{from, to}];
    wait(lock, [&] { return box == nullptr; });
    box = &letter;
    changed_.notify_all();
    wait(lock, [&] { return letter.taken; });
  }

  void receive(at::Tensor& value, DeviceId from, DeviceId to, std::uint32_t tag) {
    std::unique_lock lock(mutex_);
    Letter*& box = boxes_[{from, to}];
    wait(lock, [&] { return box != nullptr; });
    Letter* letter = box;
    if (letter->tag != tag) {
      throw Error(ErrorKind::kBug, fmt::format("rank {} sends tag {} where rank {} expects {}",
                                               from.value(), letter->tag, to.value(), tag));
    }
    // The sender waits, so its tensor stays as it is while the lock is open. If an abort lets it go
    // meanwhile, the tensor is still there: the worker keeps it until all its queues have stopped.
    const at::Tensor sent = *letter->value;
    lock.unlock();
    ENSURE(sent.sizes() == value.sizes() && sent.scalar_type() == value.scalar_type());
    value.copy_(sent);
    lock.lock();
    if (aborted_) throw Error(ErrorKind::kVerification, *aborted_);
    letter->taken = true;
    box = nullptr;
    changed_.notify_all();
  }

  // What every member gave, in the order of the set, kept until all have seen it.
  std::vector<at::Tensor> meet(const at::Tensor& own, DeviceId rank, std::size_t set) {
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_[set];
    const auto& members = sets_[set];
    const std::size_t place = place_of(rank, set);
    wait(lock, [&] { return meeting.leaving == 0; });  // of the last time
    meeting.given.resize(members.size());
    meeting.given[place] = own;
    if (++meeting.arrived == members.size()) {
      meeting.leaving = members.size();
      changed_.notify_all();
    } else {
      wait(lock, [&] { return meeting.leaving > 0; });
    }
    return meeting.given;
  }

  std::size_t place_of(DeviceId rank, std::size_t set) const {
    const auto& members = sets_[set];
    const auto place =
        static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    ENSURE(place < members.size());
    return place;
  }

  void leave(std::size_t set) {
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_[set];
    if (--meeting.leaving == 0) {
      meeting.arrived = 0;
      meeting.given.clear();
      changed_.notify_all();
    } else {
      // Nobody changes what others may still read.
      wait(lock, [&] { return meeting.leaving == 0 || meeting.arrived == 0; });
    }
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
    changed_.notify_all();
  }

 private:
  struct Letter {
    const at::Tensor* value = nullptr;
    std::uint32_t tag = 0;
    bool taken = false;
  };
  struct Meeting {
    std::vector<at::Tensor> given;
    std::size_t arrived = 0;
    std::size_t leaving = 0;
  };

  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Ready ready) {
    changed_.wait(lock, [&] { return aborted_ || ready(); });
    if (aborted_) throw Error(ErrorKind::kVerification, *aborted_);
  }

  DeviceSets sets_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<DeviceId, DeviceId>, Letter*> boxes_;
  std::vector<Meeting> meetings_;
  std::optional<std::string> aborted_;
};

class LocalHub::End final : public Transport {
 public:
  End(Shared& shared, DeviceId rank) : shared_(shared), rank_(rank) {}

  void send(const at::Tensor& value, DeviceId to, std::uint32_t tag) override {
    shared_.send(value, rank_, to, tag);
  }
  void receive(at::Tensor& value, DeviceId from, std::uint32_t tag) override {
    shared_.receive(value, from, rank_, tag);
  }
  void all_reduce(at::Tensor& value, std::size_t set) override {
    const std::vector<at::Tensor> given = shared_.meet(value, rank_, set);
    at::Tensor sum = given[0].to(value.device(), value.scalar_type(), false, true);
    for (std::size_t i = 1; i < given.size(); ++i) sum.add_(given[i].to(value.device()));
    shared_.leave(set);
    value.copy_(sum);
  }
  void reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) override {
    const std::size_t own = shared_.place_of(rank_, set);
    const std::vector<at::Tensor> given = shared_.meet(value, rank_, set);
    at::Tensor sum =
        part_of(given[0], cuts, own).to(value.device(), value.scalar_type(), false, true);
    for (std::size_t i = 1; i < given.size(); ++i) {
      sum.add_(part_of(given[i], cuts, own).to(value.device()));
    }
    shared_.leave(set);
    part_of(value, cuts, own).copy_(sum);
  }
  void all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) override {
    const std::size_t own = shared_.place_of(rank_, set);
    const std::vector<at::Tensor> given = shared_.meet(value, rank_, set);
    // Nobody writes what another reads: a member's own rows stay as they are.
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (i != own) part_of(value, cuts, i).copy_(part_of(given[i], cuts, i));
    }
    shared_.leave(set);
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) override {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& value : shared_.meet(own, rank_, set)) {
      copies.push_back(value.to(own.device(), own.scalar_type(), false, true));
    }
    shared_.leave(set);
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
