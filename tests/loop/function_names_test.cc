// SPDX-License-Identifier: Apache-2.0
#include "loop/function_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gnu/libc-version.h>

namespace quarry {

[[gnu::noinline]] int countCarts(int carts) { return carts + 1; }

}  // namespace quarry

namespace millrace {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

template <class F>
std::uintptr_t addressOf(F* function) {
  return reinterpret_cast<std::uintptr_t>(function);
}

std::string blocking(std::vector<CodePlace> stack) {
  const CodePlace* place = blockingFunction(stack);
  return place == nullptr ? "none" : place->text();
}

TEST(FunctionNames, KnowFunctionsOfTheProgram) {
  if (!canNameEveryFunction()) GTEST_SKIP() << "built without libdw";

  const auto places = placesOf({addressOf(&quarry::countCarts) + 1});

  ASSERT_FALSE(places.empty());
  EXPECT_EQ(places.back().text(), "quarry::countCarts(int)");
  EXPECT_THAT(places.back().module, EndsWith("millrace_loop_tests"));
}

TEST(FunctionNames, KnowExportedFunctionsWithoutDebugInformation) {
  const auto places = exportedPlacesOf({addressOf(&::gnu_get_libc_version), 16});

  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places[0].text(), "gnu_get_libc_version");
  EXPECT_THAT(places[0].module, HasSubstr("libc"));
  EXPECT_EQ(places[1].text(), "?+0x10");
}

TEST(FunctionNames, OfAnAddressWithoutANameAreModuleAndOffset) {
  EXPECT_EQ((CodePlace{"", "/usr/lib/libgranite.so.1", 0x1a2f}.text()), "libgranite.so.1+0x1a2f");
  EXPECT_EQ((CodePlace{"", "", 0}.text()), "?+0x0");
  EXPECT_EQ(placesOf({16}).at(0).text(), "?+0x10");
}

TEST(BlockingFunction, IsTheInnermostOneOfTheUser) {
  EXPECT_EQ(blocking({{"__futex_abstimed_wait_common", "/lib/libc.so.6", 1},
                      {"pthread_cond_wait", "/usr/bin/server", 2},  // a sanitizer's
                      {"_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE", "server", 3},
                      {"_ZN6__tsan3FooEv", "server", 4},
                      {"_ZNK8millrace6FutureIvE3getEv", "server", 5},
                      {"_ZN6quarry9loadStoneEv", "/usr/bin/server", 6},
                      {"main", "/usr/bin/server", 7}}),
            "quarry::loadStone()");
}

TEST(BlockingFunction, MayBeALambdaOrAFunctionWithoutAName) {
  EXPECT_EQ(blocking({{"nanosleep", "/lib/libc.so.6", 1}, {"_ZZ4mainENKUlvE_clEv", "server", 2}}),
            "main::{lambda()#1}::operator()() const");
  EXPECT_EQ(blocking({{"nanosleep", "/lib/libc.so.6", 1}, {"", "/usr/bin/server", 0x20}}),
            "server+0x20");
  EXPECT_EQ(blocking({{"std::this_thread::sleep_for", "server", 1}, {"loadStone", "server", 2}}),
            "loadStone");
}

TEST(BlockingFunction, IsOursIfThereIsNoOther) {
  EXPECT_EQ(blocking({{"read", "/lib/libc.so.6", 1}, {"_ZN8millrace4readEv", "server", 2}}),
            "millrace::read()");
}

TEST(BlockingFunction, IsWhatATaskCallsThatWasInlinedIntoItsCaller) {
  EXPECT_EQ(blocking({{"clock_nanosleep", "/lib/libc.so.6", 1},
                      {"usleep", "/lib/libc.so.6", 2},
                      {"_ZN8millrace4Task6invokeIZ4mainEUlvE_EEvPv", "server", 3},
                      {"_ZN8millrace4readEv", "server", 4}}),
            "usleep");
  EXPECT_EQ(blocking({{"syscall", "/lib/libc.so.6", 1},
                      {"_ZN8millrace9futexWaitEv", "server", 2},
                      {"_ZNK8millrace6FutureIvE4syncEv", "server", 3},
                      {"_ZNSt17_Function_handlerIFvijEZ4mainEUlijE_E9_M_invokeEv", "server", 4},
                      {"_ZN8millrace4readEv", "server", 5}}),
            "millrace::Future<void>::sync() const");
}

TEST(BlockingFunction, IsTheSystemsIfThereIsNothingElse) {
  EXPECT_EQ(blocking({{"read", "/lib/libc.so.6", 1}}), "read");
  EXPECT_EQ(blocking({}), "none");
}

}  // namespace
}  // namespace millrace
