// The keys and values behind a store, wherever they lie.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "comm/bounded_calls.h"
#include "comm/store.h"

namespace heterog::comm {

// Calls throw std::exceptions whose message is one line; from several threads.
class KeyValues {
 public:
  virtual ~KeyValues() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // Sets the key if it has no value yet; the value that it has then.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // The same keys by another connection.
  virtual std::shared_ptr<KeyValues> another_connection() = 0;
};

struct Store::Impl {
  std::shared_ptr<KeyValues> values;
  std::string server;  // for messages
  std::chrono::milliseconds timeout{0};
  std::shared_ptr<BoundedCalls> calls;  // null: in memory, where none hangs
  std::string prefix;                   // of all keys
};

}  // namespace heterog::comm
