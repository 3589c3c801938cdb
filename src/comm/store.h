// The keys and values that the processes of a job share: how they meet and how one tells the
// others why it ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace heterog::comm {

// One connection to the store of a job. Copies share it; a thread that must not wait for another's
// calls takes a connection of its own. Calls throw an Error (kVerification) of one line once the
// store is lost, or if it does not answer within the time-out of its address: then it is lost.
class Store {
 public:
  using Clock = std::chrono::steady_clock;
  struct Impl;
  explicit Store(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  void set(const std::string& key, const std::string& value) const;
  std::optional<std::string> find(const std::string& key) const;
  // Sets the key if it has no value yet; returns the value that it has then. Not for empty values.
  std::string set_first(const std::string& key, const std::string& value) const;
  std::int64_t add(const std::string& key, std::int64_t amount) const;  // returns the new sum

  Store under(const std::string& prefix) const;  // the same connection, keys of their own
  // Its calls may take some seconds more: those that miss a peer, which is lost with the store, say
  // so first.
  Store another_connection() const;
  Store until(Clock::time_point end) const;  // the same, for calls that are over by then
  // Ends the calls of this connection that still wait for an answer, and those to come.
  void give_up() const;

 private:
  template <class Call>
  auto call(Call call) const;

  std::shared_ptr<Impl> impl_;
  Clock::time_point end_ = Clock::time_point::max();
};

// For ranks that are threads of one process.
Store make_local_store();

struct StoreAddress {
  std::string host;
  std::uint16_t port = 0;
  std::string server;  // who serves it, for messages: "rank 0 (a/cpu0)"
  std::chrono::milliseconds timeout{300'000};
};
// Serves the store to those that reach `listening_socket`, which it takes over: the caller decides
// where it listens. Lost once the last connection of this process is given up.
Store serve_store(const StoreAddress& address, int listening_socket);
// Tries until the time-out.
Store connect_store(const StoreAddress& address);

}  // namespace heterog::comm
