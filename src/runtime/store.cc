// Stores of c10d: in memory, or served over TCP to the processes of a job.
#include "runtime/store.h"

#include <c10/util/Exception.h>
#include <c10/util/Flags.h>

#include <algorithm>
#include <mutex>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "runtime/process_settings.h"
#include "runtime/store_impl.h"

C10_DECLARE_int(caffe2_log_level);

namespace heterog::runtime {

namespace {

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

template <class Call>
auto call_store(const Store::Impl& impl, const Call& call) {
  try {
    return call(*impl.store);
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kVerification, fmt::format("{}: lost, and with it the job's store ({})",
                                                      impl.server, one_line(error)));
  }
}

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
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(address.host, options);
    return Store(std::make_shared<Store::Impl>(Store::Impl{std::move(store), address.server}));
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kVerification,
                fmt::format("{}: not reached at {}:{} within {} s ({})", address.server,
                            address.host, address.port,
                            static_cast<double>(address.timeout.count()) / 1e3, one_line(error)));
  }
}

c10d::TCPStoreOptions options_of(const StoreAddress& address) {
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.timeout = address.timeout;
  options.waitWorkers = false;
  return options;
}

}  // namespace

std::string one_line(const std::exception& error) {
  const auto* with_backtrace = dynamic_cast<const c10::Error*>(&error);
  std::string text = with_backtrace != nullptr ? with_backtrace->what_without_backtrace()
                                               : std::string(error.what());
  text = text.substr(0, text.find('\n'));
  if (text.starts_with("[/")) {  // "[/source.cc:123] What is wrong"
    const std::size_t end = text.find("] ");
    if (end != text.npos) text = text.substr(end + 2);
  }
  while (text.ends_with('.')) text.pop_back();
  return printable(text, 200);
}

void Store::set(const std::string& key, const std::string& value) const {
  call_store(*impl_, [&](c10d::Store& store) { store.set(key, bytes_of(value)); });
}

std::optional<std::string> Store::find(const std::string& key) const {
  return call_store(*impl_, [&](c10d::Store& store) -> std::optional<std::string> {
    if (!store.check({key})) return std::nullopt;
    const std::vector<std::uint8_t> value = store.get(key);
    return std::string(value.begin(), value.end());
  });
}

std::string Store::set_first(const std::string& key, const std::string& value) const {
  return call_store(*impl_, [&](c10d::Store& store) {
    const std::vector<std::uint8_t> now = store.compareSet(key, {}, bytes_of(value));
    return std::string(now.begin(), now.end());
  });
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) const {
  return call_store(*impl_, [&](c10d::Store& store) { return store.add(key, amount); });
}

Store Store::under(const std::string& prefix) const {
  return Store(std::make_shared<Impl>(
      Impl{c10::make_intrusive<c10d::PrefixStore>(prefix, impl_->store), impl_->server}));
}

Store Store::another_connection() const {
  return call_store(*impl_, [&](c10d::Store& store) {
    return Store(std::make_shared<Impl>(Impl{store.clone(), impl_->server}));
  });
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
