// The exchange over the store: "hello/RANK" of each rank, compared by all.
#include "launch/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/connections.h"
#include "comm/network.h"

namespace heterog::launch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProtocol = 3;  // counts up whenever ranks of two builds would misunderstand
constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::milliseconds kLinger{2000};  // of rank 0 for those that are to read why

const std::string kEnded = "ended";
const std::string kRead = "read";

struct Hello {
  int protocol = kProtocol;
  std::uint64_t hash = 0;
  std::string process;  // who it is, should two claim one rank
  RankFacts facts;
};

// One field a line; none has line ends.
std::string text_of(const Hello& hello) {
  const RankFacts& facts = hello.facts;
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", hello.protocol, hello.hash,
                     hello.process, facts.type, facts.memory_bytes, facts.host, facts.shares,
                     facts.gpu, facts.note);
}

Hello parse_hello(const std::string& text) {
  std::istringstream lines(text);
  const auto line = [&] {
    std::string field;
    std::getline(lines, field);
    return field;
  };
  Hello hello;
  hello.protocol = std::atoi(line().c_str());
  if (hello.protocol != kProtocol) return hello;  // what follows may be anything
  hello.hash = std::strtoull(line().c_str(), nullptr, 10);
  hello.process = line();
  hello.facts.type = line();
  hello.facts.memory_bytes = std::strtoll(line().c_str(), nullptr, 10);
  hello.facts.host = line();
  hello.facts.shares = line();
  hello.facts.gpu = line();
  hello.facts.note = line();
  return hello;
}

class Introduction {
 public:
  Introduction(const RankPlace& place, const JobTerms& terms, const comm::Store& store,
               std::chrono::milliseconds timeout)
      : place_(place),
        terms_(terms),
        names_(device_names(terms)),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        store_(store.until(deadline_ + kLinger)) {}

  struct Found {
    int ranks_here = 1;
    std::vector<std::string> gpus;
  };
  Found run(const RankFacts& facts) {
    const Hello own{.hash = terms_.hash,
                    .process = fmt::format("process {} on {}", getpid(), facts.host),
                    .facts = facts};
    if (place_.rank != 0) compare(own, parse_hello(wait_for_hello(0)));
    const std::string said = store_.set_first(hello_key(place_.rank), text_of(own));
    VALIDATE(said == text_of(own), "{}: is already run by {}; each rank is started once",
             name(place_.rank), parse_hello(said).process);
    std::vector<Hello> hellos;
    hellos.reserve(static_cast<std::size_t>(place_.world_size));
    for (int rank = 0; rank < place_.world_size; ++rank) {
      hellos.push_back(parse_hello(wait_for_hello(rank)));
    }
    try {
      for (int rank = 0; rank < place_.world_size; ++rank) check_type(rank, hellos[rank]);
      check_own_gpus(hellos);
      check_memory(hellos);
    } catch (const Error&) {
      wait_until_read();
      throw;
    }
    store_.add(kRead, 1);
    const auto here = std::count_if(hellos.begin(), hellos.end(), [&](const Hello& hello) {
      return !facts.shares.empty() && hello.facts.shares == facts.shares;
    });
    Found found{.ranks_here = std::max(1, static_cast<int>(here))};
    for (const Hello& hello : hellos) found.gpus.push_back(hello.facts.gpu);
    return found;
  }

 private:
  static std::string hello_key(int rank) { return fmt::format("hello/{}", rank); }
  static std::string refused_key(int rank) { return fmt::format("refused/{}", rank); }
  std::string name(int rank) const {
    return comm::rank_text(DeviceId(static_cast<std::size_t>(rank)), names_);
  }

  std::string wait_for_hello(int rank) {
    for (;;) {
      if (auto hello = store_.find(hello_key(rank))) return *hello;
      if (const auto ended = store_.find(kEnded)) {
        store_.add(kRead, 1);
        throw Error(ErrorKind::kVerification, *ended);
      }
      if (Clock::now() >= deadline_) end_without_the_missing();
      std::this_thread::sleep_for(kLook);
    }
  }

  [[noreturn]] void end_without_the_missing() {
    std::string missing;
    std::string refused;
    int count = 0;
    for (int rank = 0; rank < place_.world_size; ++rank) {
      if (store_.find(hello_key(rank))) continue;
      ++count;
      missing += (missing.empty() ? "" : ", ") + name(rank);
      if (const auto why = store_.find(refused_key(rank))) refused += "; refused: " + *why;
    }
    const std::string line = store_.set_first(
        kEnded, fmt::format("{}: {} come to {}:{} within {} s{}", missing,
                            count == 1 ? "did not" : "did not all", place_.master_address,
                            place_.master_port, comm::seconds_of(timeout_), refused));
    wait_until_read();
    throw Error(ErrorKind::kVerification, line);
  }

  // Rank 0, which serves the store, stays for those that have come until they know.
  void wait_until_read() {
    store_.add(kRead, 1);
    if (place_.rank != 0) return;
    int present = 0;
    for (int rank = 0; rank < place_.world_size; ++rank) {
      present += store_.find(hello_key(rank)) ? 1 : 0;
    }
    for (const auto end = Clock::now() + kLinger; Clock::now() < end;) {
      if (store_.add(kRead, 0) >= present) return;
      std::this_thread::sleep_for(kLook);
    }
  }

  // A stranger leaves a word and goes, so that the rank that it is not may still come.
  void compare(const Hello& own, const Hello& first) {
    std::string why;
    if (first.protocol != own.protocol) {
      why = fmt::format(
          "{} speaks version {} of the protocol, rank 0 version {}: all ranks run "
          "the same build",
          own.process, own.protocol, first.protocol);
    } else if (first.hash != own.hash) {
      why = fmt::format("{} is of job {}, rank 0 ({}) of job {}: all ranks are given the same {}",
                        own.process, hash_text(own.hash), first.process, hash_text(first.hash),
                        terms_.given);
    } else {
      return;
    }
    store_.set(refused_key(place_.rank), why);
    fail_input("{}: refused: {}", name(place_.rank), why);
  }

  void check_type(int rank, const Hello& hello) const {
    const JobTerms::Rank& device = terms_.ranks[static_cast<std::size_t>(rank)];
    VALIDATE(terms_.any_device || hello.facts.type == device.type,
             "{}: is a {} on {}{}, the plan's device is a {}", name(rank),
             printable(hello.facts.type), printable(hello.facts.host),
             hello.facts.note.empty() ? "" : fmt::format(" ({})", printable(hello.facts.note, 200)),
             device.type);
  }

  // A device of the plan is a GPU of its own.
  void check_own_gpus(const std::vector<Hello>& hellos) const {
    std::map<std::string, int> taken;
    for (int rank = 0; rank < place_.world_size && !terms_.any_device; ++rank) {
      const RankFacts& facts = hellos[static_cast<std::size_t>(rank)].facts;
      if (facts.gpu.empty()) continue;
      const auto [at, is_new] = taken.try_emplace(facts.gpu, rank);
      VALIDATE(is_new,
               "{}: has the GPU on {} that {} has too; a host needs a GPU for each of its ranks, "
               "or --any-device lets them share",
               name(rank), printable(facts.host), name(at->second));
    }
  }

  // Devices that share memory need theirs at the same time.
  void check_memory(const std::vector<Hello>& hellos) const {
    std::map<std::string, Bytes> shared;
    for (std::size_t rank = 0; rank < hellos.size(); ++rank) {
      const RankFacts& facts = hellos[rank].facts;
      const Bytes needed = terms_.ranks[rank].needed_bytes;
      const Bytes total = facts.shares.empty() ? needed : shared[facts.shares] += needed;
      VALIDATE(total <= facts.memory_bytes,
               "{}: {} has {:.2f} GB of memory{}; the plan needs {:.2f} GB there{}",
               name(static_cast<int>(rank)),
               facts.gpu.empty() ? printable(facts.host) : "its GPU on " + printable(facts.host),
               static_cast<double>(facts.memory_bytes) / 1e9, facts.gpu.empty() ? "" : " free",
               static_cast<double>(total) / 1e9,
               total == needed ? "" : " for this rank and those before it");
    }
  }

  const RankPlace& place_;
  const JobTerms& terms_;
  const std::vector<std::string> names_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_;
  const comm::Store store_;  // which answers while there is time to say why it is over
};

comm::Store open_store(const RankPlace& place, const JobTerms& terms,
                       std::chrono::milliseconds timeout) {
  comm::StoreAddress address{.host = place.master_address,
                             .port = place.master_port,
                             .server = comm::rank_text(DeviceId(0), device_names(terms)),
                             .timeout = timeout};
  if (place.starter_serves) address.server = place.starter;
  if (place.rank != 0 || place.starter_serves) return comm::connect_store(address);
  if (place.listen_socket) return comm::serve_store(address, *place.listen_socket);
  const comm::ListeningSocket socket = comm::listen_on(place.master_address, place.master_port);
  address.port = socket.port;
  return comm::serve_store(address, socket.descriptor);
}

// The first number in a file; `otherwise` if there is none.
Bytes read_number(const char* path, std::string_view before, Bytes otherwise) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(before)) continue;
    const Bytes number = std::strtoll(line.c_str() + before.size(), nullptr, 10);
    return number > 0 ? number : otherwise;
  }
  return otherwise;
}

}  // namespace

RankFacts cpu_facts() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const Bytes memory = read_number("/proc/meminfo", "MemTotal:", 0) * 1024;
  const Bytes group = read_number("/sys/fs/cgroup/memory.max", "", memory);
  return {.type = "CPU",
          .memory_bytes = std::min(memory, group),
          .host = printable(host),
          .shares = "memory of " + (boot.empty() ? std::string(host) : boot)};
}

Meeting meet(const RankPlace& place, const JobTerms& terms, const RankFacts& facts,
             std::chrono::milliseconds timeout) {
  VALIDATE(static_cast<std::size_t>(place.world_size) == terms.ranks.size(),
           "{} starts {} ranks, the plan's cluster has {} devices; each device is a rank",
           place.starter, place.world_size, terms.ranks.size());
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string address = interface != nullptr && *interface != 0
                                  ? comm::address_of_interface(interface)
                                  : comm::address_towards(place.master_address);
  const comm::Store store =
      open_store(place, terms, timeout)
          .under(place.attempt.empty() ? "heterog" : "heterog/" + place.attempt);
  const Introduction::Found found = Introduction(place, terms, store, timeout).run(facts);
  return {.store = store, .address = address, .ranks_here = found.ranks_here, .gpus = found.gpus};
}

}  // namespace heterog::launch
