// A store's calls, each over by its time, and the store in memory.
#include "comm/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"
#include "comm/key_values.h"

namespace heterog::comm {
namespace {

constexpr std::chrono::milliseconds kLonger{3000};  // of another connection

// A map that several threads use.
class LocalKeyValues final : public KeyValues, public std::enable_shared_from_this<LocalKeyValues> {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  std::optional<std::string> find(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string set_first(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    return values_.try_emplace(key, value).first->second;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    const std::int64_t sum = (value.empty() ? 0 : std::stoll(value)) + amount;
    value = std::to_string(sum);
    return sum;
  }
  std::shared_ptr<KeyValues> another_connection() override { return shared_from_this(); }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

}  // namespace

// `call` owns all that it needs beside the store.
template <class Call>
auto Store::call(Call call) const {
  using Result = decltype(call(*impl_->values));
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = std::min(end_, start + impl_->timeout);
  try {
    if (!impl_->calls) return call(*impl_->values);
    const auto result = std::make_shared<std::optional<Result>>();
    const auto made = [values = impl_->values, call, result] { *result = call(*values); };
    if (impl_->calls->run(made, end)) return std::move(**result);
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kVerification, fmt::format("{}: lost, and with it the job's store ({})",
                                                      impl_->server, error.what()));
  }
  throw Error(ErrorKind::kVerification,
              fmt::format("{}: lost, and with it the job's store (no answer for {:.3g} s)",
                          impl_->server, std::chrono::duration<double>(end - start).count()));
}

void Store::set(const std::string& key, const std::string& value) const {
  call([key = impl_->prefix + key, value](KeyValues& values) {
    values.set(key, value);
    return true;
  });
}

std::optional<std::string> Store::find(const std::string& key) const {
  return call([key = impl_->prefix + key](KeyValues& values) { return values.find(key); });
}

std::string Store::set_first(const std::string& key, const std::string& value) const {
  return call([key = impl_->prefix + key, value](KeyValues& values) {
    return values.set_first(key, value);
  });
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) const {
  return call(
      [key = impl_->prefix + key, amount](KeyValues& values) { return values.add(key, amount); });
}

Store Store::under(const std::string& prefix) const {
  Store keys = *this;
  keys.impl_ = std::make_shared<Impl>(*impl_);
  keys.impl_->prefix += prefix + "/";
  return keys;
}

Store Store::another_connection() const {
  Store other = *this;
  other.impl_ = std::make_shared<Impl>(*impl_);
  other.impl_->values = call([](KeyValues& values) { return values.another_connection(); });
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
      Store::Impl{.values = std::make_shared<LocalKeyValues>(), .server = "this process"}));
}

}  // namespace heterog::comm
