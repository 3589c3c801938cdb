// The transport of NCCL among threads on the fake device: what arrives, what a call costs, and how
// a job ends where a peer is late, lost or hangs.
#include "comm/nccl_transport.h"

#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "comm/device_copies.h"
#include "comm/fake_device.h"
#include "comm/heartbeats.h"
#include "comm/stub_nccl.h"
#include "comm/threads.h"

namespace heterog::comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    unsetenv("NCCL_COMM_BLOCKING");
    fake::install();
    fake::reset_counts();
    stub_nccl::reset();
  }

  // Rank r has fake device r + 1.
  std::vector<std::string> run(int ranks, std::chrono::milliseconds timeout,
                               const std::function<void(Transport&, std::size_t rank)>& body) {
    const Store store = make_local_store();
    NcclOptions options{.device_names = device_names(ranks), .timeout = timeout};
    options.sets = {everyone(ranks)};
    options.pairs = {{DeviceId(0), DeviceId(1)}};
    return run_threads(ranks, [&](int rank) {
      NcclOptions own = options;
      own.device = fake::device(rank + 1);
      const auto transport =
          make_nccl_transport(store, DeviceId(static_cast<std::size_t>(rank)), own);
      const c10::DeviceGuard guard(own.device);
      try {
        body(*transport, static_cast<std::size_t>(rank));
      } catch (const Error& error) {
        transport->abort(error.what());
        throw;
      }
    });
  }
};

at::Tensor there(const at::Tensor& value, std::size_t rank) {
  return value.to(fake::device(static_cast<int>(rank) + 1));
}

void synchronize(const at::Tensor& value) { current_stream(value.device()).synchronize(); }

// Until the job has ended.
[[noreturn]] void wait_for_the_end(Transport& transport) {
  while (true) {
    transport.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void make_every_call(Transport& transport, std::size_t rank) {
  const double own = static_cast<double>(rank) + 1;
  at::Tensor value = there(at::full({4}, own), rank);
  transport.all_reduce(value, 0);
  synchronize(value);
  EXPECT_TRUE(value.cpu().equal(at::full({4}, 6.0)));

  at::Tensor rows = there(at::arange(5).to(at::kFloat) * own, rank);
  transport.reduce_scatter(rows, {0, 2, 2, 5}, 0);
  synchronize(rows);
  const at::Tensor sum = at::arange(5).to(at::kFloat) * 6;
  const std::int64_t begin = rank == 0 ? 0 : 2, end = rank == 2 ? 5 : 2;
  EXPECT_TRUE(rows.cpu().slice(0, begin, end).equal(sum.slice(0, begin, end)));

  at::Tensor parts = there(at::full({5}, own), rank);
  transport.all_gather_rows(parts, {0, 2, 2, 5}, 0);
  synchronize(parts);
  EXPECT_TRUE(parts.cpu().equal(at::tensor({1.0F, 1.0F, 3.0F, 3.0F, 3.0F})));

  const std::vector<at::Tensor> all = transport.all_gather(there(at::full({2}, own), rank), 0);
  synchronize(all[0]);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[1].cpu().equal(at::full({2}, 2.0)));

  at::Tensor flags = there(at::tensor({rank == 1 ? 1 : 0, 0}).to(at::kBool), rank);
  transport.all_reduce(flags, 0);
  synchronize(flags);
  EXPECT_TRUE(flags.cpu().equal(at::tensor({1, 0}).to(at::kBool)));

  if (rank == 0) transport.send(there(at::arange(3), rank), DeviceId(1), 7);
  if (rank == 1) {
    at::Tensor received = there(at::zeros({3}, at::kLong), rank);
    transport.receive(received, DeviceId(0), 7);
    synchronize(received);
    EXPECT_TRUE(received.cpu().equal(at::arange(3)));
  }
  transport.check();
}

TEST_F(Nccl, CallsDoWhatTheySay) {
  EXPECT_THAT(run(3, kPatient, make_every_call), Each(IsEmpty()));
  EXPECT_EQ(stub_nccl::counts().blocking, 5u);  // three of the set, two of the pair
  EXPECT_EQ(stub_nccl::counts().groups, 6u);
}

// An answer that a thread has to wait for costs every gradient that time, and NCCL a thread.
TEST_F(Nccl, ACallOnlyEnqueues) {
  stub_nccl::set_faults({.questions = 1});
  const auto errors = run(2, kPatient, [](Transport& transport, std::size_t rank) {
    at::Tensor value = there(at::ones({4}), rank);
    for (int i = 0; i < 200; ++i) transport.all_reduce(value, 0);
    EXPECT_EQ(stub_nccl::questions_of_this_thread(), 0u);
    synchronize(value);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_F(Nccl, CommunicatorsThatDoNotBlockAreAskedUntilTheyAreDone) {
  setenv("NCCL_COMM_BLOCKING", "0", 1);
  stub_nccl::set_faults({.questions = 3});
  EXPECT_THAT(run(3, kPatient, make_every_call), Each(IsEmpty()));
  EXPECT_EQ(stub_nccl::counts().blocking, 0u);
  unsetenv("NCCL_COMM_BLOCKING");
}

TEST_F(Nccl, OnlyTheRanksOwnDevicesAreOpened) {
  EXPECT_THAT(run(3, kPatient, make_every_call), Each(IsEmpty()));
  EXPECT_EQ(stub_nccl::counts().aborts, 5u);
  EXPECT_EQ(fake::counts().contexts, 0b1110u);
}

// After a time-out in which every rank has said several times how far it has come.
TEST_F(Nccl, APeerThatIsLateIsNamed) {
  const auto errors = run(3, 4 * Heartbeats::kEvery, [](Transport& transport, std::size_t rank) {
    at::Tensor value = there(at::ones({4}), rank);
    if (rank != 2) transport.all_reduce(value, 0);
    wait_for_the_end(transport);
  });
  EXPECT_THAT(errors, Each(AllOf(StartsWith("rank 2 (host/cpu2)"),
                                 HasSubstr("did not come to a reduction for "))));
}

TEST_F(Nccl, APeerThatIsLostIsNamed) {
  const auto errors = run(2, kPatient, [](Transport& transport, std::size_t) {
    stub_nccl::set_faults({.lost_for = 0});
    wait_for_the_end(transport);
  });
  EXPECT_THAT(errors,
              Each("rank 1 (host/cpu1): connection to rank 0 (host/cpu0) lost (NCCL: remote "
                   "process exited)"));
}

TEST_F(Nccl, ACallThatIsRefusedEndsTheJob) {
  const auto errors = run(2, kPatient, [](Transport& transport, std::size_t rank) {
    stub_nccl::set_faults({.refused_to = 1});
    at::Tensor value = there(at::ones({4}), rank);
    transport.all_reduce(value, 0);
    wait_for_the_end(transport);
  });
  EXPECT_THAT(errors, Each(HasSubstr("unhandled cuda error: the stub says so")));
}

// A kernel that waits for a peer for ever ends with the job, and so does what stands behind it.
TEST_F(Nccl, AnAbortEndsWhatWaitsOnTheDevice) {
  const auto errors = run(2, kPatient, [](Transport& transport, std::size_t rank) {
    if (rank == 1) throw Error(ErrorKind::kVerification, "rank 1 (host/cpu1): no more");
    at::Tensor value = there(at::ones({4}), rank);
    transport.all_reduce(value, 0);
    synchronize(value);
    wait_for_the_end(transport);
  });
  EXPECT_THAT(errors, Each("rank 1 (host/cpu1): no more"));
}

// NCCL may hang in a call, with a communicator in hand: the job ends all the same.
TEST_F(Nccl, AnAbortEndsACallThatHangs) {
  for (const bool by_peer : {true, false}) {
    stub_nccl::reset();
    const auto errors =
        run(2, by_peer ? kPatient : kHasty, [&](Transport& transport, std::size_t rank) {
          stub_nccl::set_faults({.hangs_for = 0});
          at::Tensor value = there(at::ones({4}), rank);
          if (rank == 0) transport.all_reduce(value, 0);
          if (by_peer) throw Error(ErrorKind::kVerification, "rank 1 (host/cpu1): no more");
          wait_for_the_end(transport);
        });
    EXPECT_THAT(errors[0], StartsWith("rank 1 (host/cpu1)"));
    EXPECT_EQ(errors[1], errors[0]);
  }
}

TEST_F(Nccl, APeerThatDoesNotConnectIsNamed) {
  const Store store = make_local_store();
  NcclOptions options{.device_names = device_names(2), .timeout = kHasty};
  options.sets = {everyone(2)};
  options.device = fake::device(1);
  try {
    make_nccl_transport(store, DeviceId(0), options);
    ADD_FAILURE() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("rank 1 (host/cpu1)"));
  }
}

}  // namespace
}  // namespace heterog::comm
