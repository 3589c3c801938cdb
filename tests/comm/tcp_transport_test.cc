// Messages and collectives between ranks that are threads, and how they end when one fails.
#include "comm/tcp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>

#include "comm/ranks.h"

namespace heterog::comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Whole numbers, which sum exactly in any order.
at::Tensor numbers(std::size_t rank, std::int64_t count) {
  return at::arange(count, at::kDouble).remainder(1000).add(static_cast<double>(rank));
}

TEST(TcpTransport, SendsAnyDtypeAndShape) {
  const std::vector<at::ScalarType> types{at::kFloat, at::kDouble,      at::kHalf, at::kBFloat16,
                                          at::kLong,  at::kInt,         at::kBool, at::kByte,
                                          at::kShort, at::kComplexFloat};
  const std::vector<std::vector<std::int64_t>> shapes{{}, {1}, {3, 5}, {0}, {2, 0, 4}, {1 << 20}};
  const auto value_of = [&](std::size_t type, std::size_t shape) {
    return at::arange(7, 7 + at::empty(shapes[shape]).numel())
        .remainder(2 + 3 * static_cast<std::int64_t>(type))
        .view(shapes[shape])
        .to(types[type]);
  };
  const auto errors = run_ranks(2, {}, [&](TcpTransport& transport, std::size_t rank) {
    for (std::size_t type = 0; type < types.size(); ++type) {
      for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
        const at::Tensor expected = value_of(type, shape);
        const auto tag = static_cast<std::uint32_t>(type * 100 + shape);
        if (rank == 0) {
          transport.send(expected, DeviceId(1), tag);
        } else {
          at::Tensor value = at::zeros_like(expected);
          transport.receive(value, DeviceId(0), tag);
          EXPECT_TRUE(value.equal(expected)) << types[type] << " " << expected.sizes();
        }
      }
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(TcpTransport, SumsOverASet) {
  for (const int ranks : {2, 3, 5}) {
    // From less than one value a rank to several pieces a segment.
    for (const std::int64_t count : {0, 1, 3, 1000, 3'000'001}) {
      at::Tensor expected = at::zeros({count}, at::kDouble);
      for (int rank = 0; rank < ranks; ++rank) {
        expected += numbers(static_cast<std::size_t>(rank), count);
      }
      const auto errors =
          run_ranks(ranks, {.sets = {everyone(ranks)}}, [&](auto& transport, auto rank) {
            at::Tensor value = numbers(rank, count);
            transport.all_reduce(value, 0);
            EXPECT_TRUE(value.equal(expected)) << ranks << " ranks, " << count;
          });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

// Values that round: each member may add in another order than one would, but all have one result.
TEST(TcpTransport, SumsToTheSameBitsOnAllMembers) {
  constexpr int kRanks = 4;
  std::vector<at::Tensor> inputs;
  at::manual_seed(3);
  for (int rank = 0; rank < kRanks; ++rank) inputs.push_back(at::randn({10'007}));
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    std::vector<at::Tensor> sums(kRanks);
    const auto errors =
        run_ranks(kRanks, {.sets = {everyone(kRanks)}}, [&](auto& transport, auto rank) {
          sums[rank] = inputs[rank].to(type, false, true);
          transport.all_reduce(sums[rank], 0);
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
    at::Tensor exact = at::zeros({10'007}, at::kDouble);
    for (const at::Tensor& input : inputs) exact += input.to(type).to(at::kDouble);
    EXPECT_LT((sums[0].to(at::kDouble) - exact).abs().max().item<double>(), 0.1) << type;
    for (int rank = 1; rank < kRanks; ++rank) EXPECT_TRUE(sums[rank].equal(sums[0])) << type;
  }
}

TEST(TcpTransport, GathersInTheOrderOfTheSet) {
  const RanksOptions options{.sets = {devices({0, 1}), devices({0, 2, 3}), devices({1, 3})}};
  const auto errors = run_ranks(4, options, [&](TcpTransport& transport, std::size_t rank) {
    for (std::size_t set = 0; set < options.sets.size(); ++set) {
      const std::vector<DeviceId>& members = options.sets[set];
      if (std::count(members.begin(), members.end(), DeviceId(rank)) == 0) continue;
      const std::vector<at::Tensor> values = transport.all_gather(numbers(rank, 5), set);
      ASSERT_EQ(values.size(), members.size());
      for (std::size_t i = 0; i < members.size(); ++i) {
        EXPECT_TRUE(values[i].equal(numbers(members[i].value(), 5))) << set << " " << i;
      }
    }
    const std::vector<at::Tensor> all = transport.gather_all(numbers(rank, 2));
    ASSERT_EQ(all.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(all[i].equal(numbers(i, 2)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// One thread sends, one receives, one reduces. As in a plan, the messages of all ranks have one
// order, of which each thread does its part: a message may wait until its receiver comes to it.
TEST(TcpTransport, ThreeThreadsOfARankDoNotWaitForEachOther) {
  constexpr int kRanks = 3;
  constexpr int kRounds = 20;
  constexpr std::int64_t kCount = 100'000;
  const auto errors =
      run_ranks(kRanks, {.sets = {everyone(kRanks)}}, [&](auto& transport, std::size_t rank) {
        const auto messages = [&](const auto& call) {
          for (std::size_t from = 0; from < kRanks; ++from) {
            for (std::size_t to = 0; to < kRanks; ++to) {
              if (from != to) call(from, to);
            }
          }
        };
        std::thread sender([&] {
          for (int round = 0; round < kRounds; ++round) {
            messages([&](std::size_t from, std::size_t to) {
              if (from == rank) transport.send(numbers(rank + 10, kCount), DeviceId(to), 5);
            });
          }
        });
        std::thread receiver([&] {
          for (int round = 0; round < kRounds; ++round) {
            messages([&](std::size_t from, std::size_t to) {
              if (to != rank) return;
              at::Tensor value = at::empty({kCount}, at::kDouble);
              transport.receive(value, DeviceId(from), 5);
              EXPECT_TRUE(value.equal(numbers(from + 10, kCount)));
            });
          }
        });
        for (int round = 0; round < kRounds; ++round) {
          at::Tensor value = at::full({kCount}, static_cast<double>(rank), at::kDouble);
          transport.all_reduce(value, 0);
          EXPECT_EQ(value.min().item<double>(), 3);
          EXPECT_EQ(value.max().item<double>(), 3);
        }
        sender.join();
        receiver.join();
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(TcpTransport, AbortEndsEveryCallOfEveryRank) {
  const auto errors =
      run_ranks(4, {.sets = {everyone(4)}}, [&](TcpTransport& transport, std::size_t rank) {
        at::Tensor value = at::zeros({20'000'000});  // more than the system takes in advance
        if (rank == 0) transport.receive(value, DeviceId(1), 0);
        if (rank == 1) transport.all_reduce(value, 0);
        if (rank == 2) transport.send(value, DeviceId(1), 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // most likely they wait now
        throw Error(ErrorKind::kVerification, "the loss is not a number");
      });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(errors[rank], "rank 3 (host/cpu3): the loss is not a number");
  }
}

TEST(TcpTransport, AbortFromAnotherThreadOfTheSameRank) {
  const auto errors = run_ranks(2, {}, [&](TcpTransport& transport, std::size_t rank) {
    at::Tensor value = at::zeros({4});
    std::thread aborts;
    if (rank == 0) {
      aborts = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // most likely it waits now
        transport.abort("first");
        transport.abort("second");
      });
    }
    try {
      transport.receive(value, DeviceId(1 - rank), 0);
      ADD_FAILURE() << "received what nobody sent";
    } catch (const Error&) {
      if (aborts.joinable()) aborts.join();
      EXPECT_THROW(transport.send(value, DeviceId(1 - rank), 0), Error) << "the job has ended";
      throw;
    }
  });
  EXPECT_THAT(errors, Each("rank 0 (host/cpu0): first"));
}

// A rank that goes without a word: those that wait for it name it, and tell those that wait for
// them.
TEST(TcpTransport, NamesThePeerThatIsGone) {
  const auto errors = run_ranks(3, {}, [&](TcpTransport& transport, std::size_t rank) {
    at::Tensor value = at::zeros({4});
    if (rank == 0) transport.receive(value, DeviceId(1), 0);
    if (rank == 1) transport.receive(value, DeviceId(2), 0);
    throw Error(ErrorKind::kVerification, "");
  });
  EXPECT_THAT(errors[0], StartsWith("rank 2 (host/cpu2): "));
  EXPECT_THAT(errors[1], StartsWith("rank 2 (host/cpu2): "));
}

TEST(TcpTransport, NamesThePeerThatDoesNotSend) {
  with_patience([&](std::chrono::milliseconds patience) {
    std::atomic<bool> waits = true;
    const auto errors =
        run_ranks(2, {.timeout = patience}, [&](TcpTransport& transport, std::size_t rank) {
          at::Tensor value = at::zeros({4});
          if (rank == 0) {
            try {
              transport.receive(value, DeviceId(1), 0);
            } catch (const Error&) {
              waits = false;
              throw;
            }
          }
          while (waits) std::this_thread::yield();
          transport.receive(value, DeviceId(0), 0);
        });
    if (errors[0].find("not connected") != std::string::npos) return false;
    EXPECT_EQ(
        errors[0],
        fmt::format("rank 1 (host/cpu1): did not send for {} s, rank 0 (host/cpu0) waits for it",
                    seconds_of(patience)));
    EXPECT_EQ(errors[1], errors[0]);
    return true;
  });
}

// After the last step, one does not come to the end.
TEST(TcpTransport, NamesThePeerThatDoesNotEnd) {
  for (const std::size_t late : {0, 1}) {
    with_patience([&](std::chrono::milliseconds patience) {
      std::atomic<bool> waits = true;
      const Store store = make_local_store();
      const auto errors = run_threads(2, [&](int thread) {
        const auto rank = static_cast<std::size_t>(thread);
        try {
          TcpTransport transport(
              store, DeviceId(rank),
              {.connect = {.device_names = device_names(2), .timeout = patience}});
          while (rank == late && waits) std::this_thread::yield();
          transport.finish();
        } catch (const Error&) {
          waits = false;
          throw;
        }
      });
      if (errors[0].find("not connected") != std::string::npos) return false;
      EXPECT_THAT(errors,
                  Each(fmt::format("rank {} (host/cpu{}): did not end with the others within {} s",
                                   late, late, seconds_of(patience))));
      return true;
    });
  }
}

TEST(TcpTransport, NamesThePeerThatDoesNotConnect) {
  for (const std::size_t own : {0, 1}) {
    const Store store = make_local_store();
    const auto errors = run_threads(1, [&](int) {
      TcpTransport(store, DeviceId(own),
                   {.connect = {.device_names = device_names(2), .timeout = kHasty}});
    });
    EXPECT_THAT(errors[0],
                StartsWith(fmt::format("rank {} (host/cpu{}): not connected", 1 - own, 1 - own)));
  }
}

// What does not fit to what is due is not taken for it.
TEST(TcpTransport, NamesTheMessageThatIsNotDue) {
  for (const std::int64_t count : {4, 5}) {
    const auto errors = run_ranks(2, {}, [&](TcpTransport& transport, std::size_t rank) {
      at::Tensor value = at::zeros({rank == 0 ? 4 : count});
      if (rank == 0) transport.send(value, DeviceId(1), 7);
      transport.receive(value, DeviceId(1 - rank), count == 4 ? 8 : 7);
    });
    EXPECT_THAT(errors, Each(StartsWith("rank 0 (host/cpu0): sent 16 bytes of 7 where ")));
  }
}

// Connections to where rank 0 accepts the others, each of which has said these words.
std::vector<Descriptor> strangers(const Store& store, const std::vector<std::string>& words) {
  std::optional<std::string> place;
  while (!place) place = store.under("connections").find("listens/0");
  const auto port = static_cast<std::uint16_t>(std::stoi(place->substr(place->find(' ') + 1)));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<Descriptor> lines;
  for (const std::string& text : words) {
    const Descriptor& line = lines.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(line.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(send(line.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  return lines;
}

// Whether the other end has closed it.
bool is_closed(const Descriptor& line) {
  char byte = 0;
  return recv(line.get(), &byte, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EINTR);
}

// Two ranks that meet once rank 1 has seen what it waits for.
void meet_after(const std::function<void(const Store&)>& before) {
  const Store store = make_local_store();
  const auto errors = run_threads(2, [&](int rank) {
    if (rank == 1) before(store);
    TcpTransport transport(
        store, DeviceId(static_cast<std::size_t>(rank)),
        {.connect = {.device_names = device_names(2), .timeout = kPatient}, .sets = {everyone(2)}});
    at::Tensor value = at::ones({3});
    transport.all_reduce(value, 0);
    EXPECT_EQ(value.sum().item<double>(), 6);
    transport.finish();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Somebody who looks for open ports.
TEST(TcpTransport, IgnoresStrangers) {
  meet_after([](const Store& store) {
    strangers(store, {"", "GET / HTTP/1.1\r\n\r\n", "123456781234"});  // and they go
  });
  // More than are listened to at once, which stay.
  std::vector<Descriptor> lines;
  meet_after([&](const Store& store) {
    lines = strangers(store, std::vector<std::string>(400, "12345678"));
  });
}

// Who comes last and is sent away is so while the silent ones before it still have all their time.
TEST(TcpTransport, SilentStrangersHoldNobodyUp) {
  bool held_up = true;
  for (int attempt = 0; attempt < 2 && held_up; ++attempt) {  // should this thread have slept
    std::vector<Descriptor> lines;
    meet_after([&](const Store& store) {
      std::vector<std::string> words(20);
      words.push_back("sixteen letters.");  // as many as the first words of a rank
      lines = strangers(store, words);
      while (!is_closed(lines.back())) std::this_thread::yield();
      held_up = std::any_of(lines.begin(), lines.end() - 1, is_closed);
    });
  }
  EXPECT_FALSE(held_up);
}

// Every reason is one line, whatever LibTorch says.
TEST(TcpTransport, SaysOneLine) {
  const auto errors = run_ranks(2, {}, [&](TcpTransport& transport, std::size_t rank) {
    at::Tensor value = at::zeros({4});
    if (rank == 0) transport.receive(value, DeviceId(1), 0);
    throw Error(ErrorKind::kVerification, "stops");
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_LT(error.size(), 300u);
  }
}

}  // namespace
}  // namespace heterog::comm
