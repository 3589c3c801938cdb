// Stores of c10d, served over TCP to the processes of a job: torchrun's agent serves one too.
#include <c10/util/Flags.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "base/check.h"
#include "base/process_settings.h"
#include "comm/connections.h"
#include "comm/key_values.h"
#include "tensors/torch_error.h"

C10_DECLARE_int(caffe2_log_level);

namespace heterog::comm {
namespace {

using Clock = Store::Clock;

// After c10d's own time-out, which knows more to say.
constexpr std::chrono::milliseconds kSlack{500};

std::vector<std::uint8_t> bytes_in(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// What `call` throws, in one line.
template <class Call>
auto in_one_line(const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw std::runtime_error(tensors::one_line(error));
  }
}

class C10dKeyValues final : public KeyValues {
 public:
  explicit C10dKeyValues(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    in_one_line([&] { store_->set(key, bytes_in(value)); });
  }
  std::optional<std::string> find(const std::string& key) override {
    return in_one_line([&]() -> std::optional<std::string> {
      if (!store_->check({key})) return std::nullopt;
      return text_of(store_->get(key));
    });
  }
  std::string set_first(const std::string& key, const std::string& value) override {
    return in_one_line([&] { return text_of(store_->compareSet(key, {}, bytes_in(value))); });
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return in_one_line([&] { return store_->add(key, amount); });
  }
  std::shared_ptr<KeyValues> another_connection() override {
    return in_one_line([&] { return std::make_shared<C10dKeyValues>(store_->clone()); });
  }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

// c10d logs each lost connection with a backtrace, beside the exception that tells us.
void log_exceptions_only() {
  if (!process_settings_allowed()) return;
  static std::once_flag once;
  std::call_once(once, [] {
    constexpr int kFatal = 3;
    FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, kFatal);
  });
}

Store open_store(const StoreAddress& address, const c10d::TCPStoreOptions& options) {
  log_exceptions_only();
  const auto calls = std::make_shared<BoundedCalls>();
  const auto values = std::make_shared<std::shared_ptr<KeyValues>>();
  const auto open = [values, options, host = address.host] {
    *values = in_one_line([&] {
      return std::make_shared<C10dKeyValues>(c10::make_intrusive<c10d::TCPStore>(host, options));
    });
  };
  std::string why = "it does not answer";
  try {
    if (calls->run(open, Clock::now() + address.timeout + kSlack)) {
      return Store(std::make_shared<Store::Impl>(Store::Impl{.values = *values,
                                                             .server = address.server,
                                                             .timeout = address.timeout,
                                                             .calls = calls}));
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  throw Error(ErrorKind::kVerification,
              fmt::format("{}: not reached at {}:{} within {} s ({})", address.server, address.host,
                          address.port, seconds_of(address.timeout), why));
}

c10d::TCPStoreOptions options_of(const StoreAddress& address) {
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.timeout = address.timeout;
  options.waitWorkers = false;
  return options;
}

}  // namespace

Store serve_store(const StoreAddress& address, int listening_socket) {
  c10d::TCPStoreOptions options = options_of(address);
  options.isServer = true;
  options.masterListenFd = listening_socket;
  return open_store(address, options);
}

Store connect_store(const StoreAddress& address) {
  return open_store(address, options_of(address));
}

}  // namespace heterog::comm
