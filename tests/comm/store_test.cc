// The store in memory, used by several threads.
#include "comm/store.h"

#include <gtest/gtest.h>

#include <atomic>

#include "comm/threads.h"

namespace heterog::comm {
namespace {

TEST(LocalStore, KeepsWhatItIsTold) {
  const Store store = make_local_store();
  EXPECT_FALSE(store.find("key"));
  store.set("key", "value");
  EXPECT_EQ(store.find("key"), "value");
  EXPECT_EQ(store.set_first("key", "other"), "value");
  EXPECT_EQ(store.set_first("new", "first"), "first");
  EXPECT_EQ(store.add("sum", 3), 3);
  EXPECT_EQ(store.add("sum", -1), 2);
  EXPECT_EQ(store.find("sum"), "2");
}

TEST(LocalStore, KeysUnderAPrefixAreTheirOwn) {
  const Store store = make_local_store();
  const Store inner = store.under("a").under("b");
  inner.set("key", "inner");
  EXPECT_FALSE(store.find("key"));
  EXPECT_EQ(store.find("a/b/key"), "inner");
  EXPECT_EQ(inner.another_connection().find("key"), "inner");
}

TEST(LocalStore, OneOfManyIsFirst) {
  const Store store = make_local_store();
  std::atomic<int> firsts{0};
  run_threads(8, [&](int rank) {
    const std::string own = std::to_string(rank);
    if (store.set_first("first", own) == own) ++firsts;
    for (int i = 0; i < 100; ++i) store.add("sum", 1);
  });
  EXPECT_EQ(firsts, 1);
  EXPECT_EQ(store.add("sum", 0), 800);
}

}  // namespace
}  // namespace heterog::comm
