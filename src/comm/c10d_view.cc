// Text for bytes, and polling for waiting.
#include "comm/c10d_view.h"

#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/check.h"

namespace heterog::comm {
namespace {

using Blob = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{2};

class View final : public c10d::Store {
 public:
  explicit View(comm::Store store) : store_(std::move(store)) {}

  void set(const std::string& key, const Blob& value) override { store_.set(key, text_of(value)); }
  Blob get(const std::string& key) override {
    wait({key});
    return bytes_of(store_.find(key).value());
  }
  Blob compareSet(const std::string& key, const Blob& expected, const Blob& desired) override {
    ENSURE(expected.empty());  // our store knows a first value alone
    return bytes_of(store_.set_first(key, text_of(desired)));
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return store_.add(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      if (!store_.find(key)) return false;
    }
    return true;
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    const Clock::time_point end = Clock::now() + timeout;
    while (!check(keys)) {
      if (Clock::now() > end) {
        throw Error(ErrorKind::kVerification, "the job's store does not get a key in time");
      }
      std::this_thread::sleep_for(kPoll);
    }
  }
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<View>(store_.another_connection());
  }
  // Nobody counts or deletes keys of a job.
  std::int64_t getNumKeys() override {
    ENSURE(false);
    return 0;
  }
  bool deleteKey(const std::string&) override { return false; }

 private:
  static Blob bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
  static std::string text_of(const Blob& bytes) { return {bytes.begin(), bytes.end()}; }

  const comm::Store store_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> c10d_view(const Store& store) {
  return c10::make_intrusive<View>(store);
}

}  // namespace heterog::comm
