// How the calls of processes end: all of them, for one reason, which names who is missing.
#include "comm/process_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/transports.h"

namespace heterog::comm {
namespace {

using testing::Each;
using testing::StartsWith;

class ProcessTransports : public testing::TestWithParam<ProcessKind> {
 protected:
  std::vector<std::string> run(
      int ranks, const RanksOptions& options,
      const std::function<void(ProcessTransport&, std::size_t rank)>& body) {
    return run_ranks(
        ranks, {.sets = options.sets, .timeout = options.timeout, .make = GetParam().make}, body);
  }
};
INSTANTIATE_TEST_SUITE_P(All, ProcessTransports, testing::ValuesIn(process_kinds()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ProcessTransports, AbortEndsEveryCallOfEveryRank) {
  const auto errors =
      run(4, {.sets = {everyone(4)}}, [&](ProcessTransport& transport, std::size_t rank) {
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

TEST_P(ProcessTransports, AbortFromAnotherThreadOfTheSameRank) {
  const auto errors = run(2, {}, [&](ProcessTransport& transport, std::size_t rank) {
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
TEST_P(ProcessTransports, NamesThePeerThatIsGone) {
  const auto errors = run(3, {}, [&](ProcessTransport& transport, std::size_t rank) {
    at::Tensor value = at::zeros({4});
    if (rank == 0) transport.receive(value, DeviceId(1), 0);
    if (rank == 1) transport.receive(value, DeviceId(2), 0);
    throw Error(ErrorKind::kVerification, "");
  });
  EXPECT_THAT(errors[0], StartsWith("rank 2 (host/cpu2): "));
  EXPECT_THAT(errors[1], StartsWith("rank 2 (host/cpu2): "));
}

TEST_P(ProcessTransports, NamesThePeerThatDoesNotSend) {
  with_patience([&](std::chrono::milliseconds patience) {
    std::atomic<bool> waits = true;
    const auto errors =
        run(2, {.timeout = patience}, [&](ProcessTransport& transport, std::size_t rank) {
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
    if (errors[0].find("connect") != std::string::npos) return false;
    EXPECT_EQ(
        errors[0],
        fmt::format("rank 1 (host/cpu1): did not send for {} s, rank 0 (host/cpu0) waits for it",
                    seconds_of(patience)));
    EXPECT_EQ(errors[1], errors[0]);
    return true;
  });
}

// In a collective of three, the other two miss the same one.
TEST_P(ProcessTransports, NamesThePeerThatDoesNotTakePart) {
  with_patience([&](std::chrono::milliseconds patience) {
    std::atomic<int> waiting = 2;
    const auto errors = run(3, {.sets = {everyone(3)}, .timeout = patience},
                            [&](ProcessTransport& transport, std::size_t rank) {
                              at::Tensor value = at::ones({4});
                              transport.all_reduce(value, 0);
                              while (rank == 2 && waiting > 0) std::this_thread::yield();
                              try {
                                transport.all_reduce(value, 0);
                              } catch (const Error&) {
                                --waiting;
                                throw;
                              }
                            });
    const auto said = [&](const char* text) { return errors[0].find(text) != std::string::npos; };
    if (said("connect") || !said("rank 2 (host/cpu2): did not")) return false;
    EXPECT_THAT(errors, Each(errors[0]));
    return true;
  });
}

// After the last step, one does not come to the end.
TEST_P(ProcessTransports, NamesThePeerThatDoesNotEnd) {
  for (const std::size_t late : {0, 1}) {
    with_patience([&](std::chrono::milliseconds patience) {
      std::atomic<bool> waits = true;
      const Store store = make_local_store();
      const auto errors = run_threads(2, [&](int thread) {
        const auto rank = static_cast<std::size_t>(thread);
        try {
          const auto transport = GetParam().make(
              store, DeviceId(rank), {.device_names = device_names(2), .timeout = patience}, {});
          while (rank == late && waits) std::this_thread::yield();
          transport->finish();
        } catch (const Error&) {
          waits = false;
          throw;
        }
      });
      if (errors[0].find("connect") != std::string::npos) return false;
      EXPECT_THAT(errors,
                  Each(fmt::format("rank {} (host/cpu{}): did not end with the others within {} s",
                                   late, late, seconds_of(patience))));
      return true;
    });
  }
}

TEST_P(ProcessTransports, NamesThePeerThatDoesNotConnect) {
  for (const std::size_t own : {0, 1}) {
    const Store store = make_local_store();
    const auto errors = run_threads(1, [&](int) {
      GetParam().make(store, DeviceId(own), {.device_names = device_names(2), .timeout = kHasty},
                      {});
    });
    EXPECT_THAT(errors[0],
                StartsWith(fmt::format("rank {} (host/cpu{}): not connected", 1 - own, 1 - own)));
  }
}

// Every reason is one line, whatever LibTorch says.
TEST_P(ProcessTransports, SaysOneLine) {
  const auto errors = run(2, {}, [&](ProcessTransport& transport, std::size_t rank) {
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
