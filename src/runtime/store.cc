// Stores of c10d: in memory, or served over TCP to the processes of a job.
#include "runtime/store.h"

#include <c10/util/Flags.h>

#include <algorithm>
#include <mutex>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "base/check.h"
#include "runtime/bounded_calls.h"
#include "runtime/connections.h"
#include "runtime/process_settings.h"
#include "runtime/torch_error.h"

C10_DECLARE_int(caffe2_log_level);

namespace heterog::runtime {

struct Store::Impl {
  c10::intrusive_ptr<c10d::Store> store;
  std::string server;  // for messages
  std::chrono::milliseconds timeout{0};
  std::shared_ptr<BoundedCalls> calls;  // null: in memory, where none hangs
};

namespace {

using Clock = Store::Clock;

// After c10d's own time-out, which knows more to say.
constexpr std::chrono::milliseconds kSlack{500};
constexpr std::chrono::milliseconds kLonger{3000};  // of another connection

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

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
  const auto store = std::make_shared<c10::intrusive_ptr<c10d::Store>>();
  const auto open = [store, options, host = address.host] {
    *store = c10::make_intrusive<c10d::TCPStore>(host, options);
  };
  std::string why = "it does not answer";
  try {
    if (calls->run(open, Clock::now() + address.timeout + kSlack)) {
      return Store(std::make_shared<Store::Impl>(
          Store::Impl{*store, address.server, address.timeout, calls}));
    }
  } catch (const std::exception& error) {
    why = one_line(error);
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

// `call` owns all that it needs beside the store.
template <class Call>
auto Store::call(Call call) const {
  using Result = decltype(call(*impl_->store));
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = std::min(end_, start + impl_->timeout);
  try {
    if (!impl_->calls) return call(*impl_->store);
    const auto result = std::make_shared<std::optional<Result>>();
    const auto made = [store = impl_->store, call, result] { *result = call(*store); };
    if (impl_->calls->run(made, end)) return std::move(**result);
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kVerification, fmt::format("{}: lost, and with it the job's store ({})",
                                                      impl_->server, one_line(error)));
  }
  throw Error(ErrorKind::kVerification,
              fmt::format("{}: lost, and with it the job's store (no answer for {:.3g} s)",
                          impl_->server, std::chrono::duration<double>(end - start).count()));
}

void Store::set(const std::string& key, const std::string& value) const {
  call([key, value](c10d::Store& store) {
    store.set(key, bytes_of(value));
    return true;
  });
}

std::optional<std::string> Store::find(const std::string& key) const {
  return call([key](c10d::Store& store) -> std::optional<std::string> {
    if (!store.check({key})) return std::nullopt;
    const std::vector<std::uint8_t> value = store.get(key);
    return std::string(value.begin(), value.end());
  });
}

std::string Store::set_first(const std::string& key, const std::string& value) const {
  return call([key, value](c10d::Store& store) {
    const std::vector<std::uint8_t> now = store.compareSet(key, {}, bytes_of(value));
    return std::string(now.begin(), now.end());
  });
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) const {
  return call([key, amount](c10d::Store& store) { return store.add(key, amount); });
}

Store Store::under(const std::string& prefix) const {
  Store keys = *this;
  keys.impl_ = std::make_shared<Impl>(*impl_);
  keys.impl_->store = c10::make_intrusive<c10d::PrefixStore>(prefix, impl_->store);
  return keys;
}

Store Store::another_connection() const {
  Store other = *this;
  other.impl_ = std::make_shared<Impl>(*impl_);
  other.impl_->store = call([](c10d::Store& store) { return store.clone(); });
  other.impl_->timeout += kLonger;
  if (impl_->calls) other.impl_->calls = std::make_shared<BoundedCalls>();
  return other;
}

Store Store::until(Clock::time_point end) const {
  Store bounded = *this;
  bounded.end_ = end;
  return bounded;
}

void Store::give_up() const {
  if (impl_->calls) impl_->calls->give_up();
}

Store make_local_store() {
  return Store(std::make_shared<Store::Impl>(
      Store::Impl{c10::make_intrusive<c10d::HashStore>(), "this process"}));
}

Store serve_store(const StoreAddress& address, int listening_socket) {
  c10d::TCPStoreOptions options = options_of(address);
  options.isServer = true;
  options.masterListenFd = listening_socket;
  return open_store(address, options);
}

Store connect_store(const StoreAddress& address) {
  return open_store(address, options_of(address));
}

}  // namespace heterog::runtime
