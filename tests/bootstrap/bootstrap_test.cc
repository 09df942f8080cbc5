// SPDX-License-Identifier: Apache-2.0
// Clients as bootstraps make them: names, several addresses, cross-loop use, failures.
#include "support/census.h"
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/base/attribute_map.h>
#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/context.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <netdb.h>
#include <stdexcept>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using Addresses = std::vector<SocketAddress>;
using test::errnoOf;
using test::EventLog;
using test::LogPtr;
using test::NetTest;
using test::recording;
using test::succeeds;
using testing::ElementsAre;
using testing::HasSubstr;

const AttributeKey<int> kClientNumber("client number");

class Clients : public NetTest {
 protected:
  Bootstrap client() { return Bootstrap().group(group()).handler(recording(log_)); }
  Resolver giving(Result<Addresses> found) {
    return [found = std::move(found)](const std::string&, std::uint16_t) {
      return Future<Addresses>::of(found);
    };
  }
  void expectEcho(const ChannelPtr& channel) {
    EXPECT_TRUE(succeeds(channel->send(ByteBuf::of("hello"))));
    EXPECT_TRUE(log_->awaitBytes(5));
    EXPECT_TRUE(succeeds(channel->close()));
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// behaviour 3.13.3
TEST_P(Clients, SeeOptionsAndAttributesInTheirHandlers) {
  const Server server = serve(test::echoing());
  std::atomic<int> number{0};
  std::atomic<bool> half{false};
  const ChannelPtr channel = Bootstrap()
                                 .group(group())
                                 .option(options::allowHalfClosure, true)
                                 .attribute(kClientNumber, 7)
                                 .handler([&](Channel& ch) {
                                   number = *ch.attributes().get(kClientNumber);
                                   half = ch.option(options::allowHalfClosure).get();
                                 })
                                 .connect(server.address())
                                 .get();

  EXPECT_EQ(number, 7);
  EXPECT_TRUE(half);
  EXPECT_TRUE(succeeds(channel->close()));
}

// behaviour 3.13.4-5: two loops that bind and connect on each other
TEST_P(Clients, MayBeMadeFromOtherLoopsTurns) {
  more(2);
  EventLoop& a = *group().begin();
  EventLoop& b = *++group().begin();
  const Server server = serve(test::echoing());
  std::atomic<int> done{0};
  const auto work = [&] {
    for (int i = 0; i < 100; ++i) {
      client().connect(server.address()).addListener([&](const Result<ChannelPtr>& made) {
        ++done;
        if (made.ok()) (*made)->close();
      });
      bootstrap(test::echoing()).bind(anyAddress()).addListener([&](const Result<Server>& made) {
        EXPECT_TRUE(made.ok());
        ++done;
      });
    }
  };
  a.execute(work);
  b.execute(work);

  EXPECT_TRUE(test::eventually([&] { return done == 400; }));
}

// behaviour 3.13.6-8: the future belongs to the channel's loop
TEST_P(Clients, TellTheirListenersOnTheChannelsLoop) {
  const Server server = serve(test::echoing());
  std::atomic<bool> onLoop{false};
  const auto note = [&] { onLoop = loop().inEventLoop(); };

  Future<ChannelPtr> made;
  {
    const test::Held late(loop());
    made = client().connect(server.address());
    made.addListener(note);
    EXPECT_FALSE(made.isDone());
  }
  EXPECT_TRUE(succeeds(made));
  EXPECT_TRUE(test::eventually([&] { return onLoop.load(); }));
  EXPECT_TRUE(succeeds(made.get()->close()));

  const test::Nobody nobody(anyAddress());
  const SocketAddress gone = nobody.address();
  onLoop = false;
  Future<ChannelPtr> failed;
  {
    const test::Held late(loop());
    failed = client().connect(gone);
    failed.addListener(note);
  }
  EXPECT_EQ(errnoOf(failed), ECONNREFUSED);
  EXPECT_TRUE(test::eventually([&] { return onLoop.load(); }));
}

// behaviour 3.13.9: numbers need no resolver's thread
TEST_P(Clients, ReadNumericAddressesThemselves) {
  if (!isTcp()) return;
  const Server server = serve(test::echoing());

  expectEcho(client().connect("127.0.0.1", server.address().port()).get());

  EXPECT_EQ(errnoOf(client().resolver(numericResolver()).connect("a.name", 80)), EINVAL);
}

// behaviour 3.13.11: the answer comes later, from another thread
TEST_P(Clients, WaitForTheResolver) {
  const Server server = serve(test::echoing());
  Promise<Addresses> answer(immediateExecutor());
  std::string asked;
  const Future<ChannelPtr> made = client()
                                      .resolver([&](const std::string& host, std::uint16_t port) {
                                        asked = host + " " + std::to_string(port);
                                        return answer.future();
                                      })
                                      .connect("echo.example", 77);
  EXPECT_EQ(asked, "echo.example 77");
  EXPECT_FALSE(made.isDone());

  std::thread([&] { answer.trySuccess(Addresses{server.address()}); }).join();

  EXPECT_TRUE(succeeds(made));
  expectEcho(made.get());
}

// A bound stream that does not listen would be of no use to anybody.
TEST_P(Clients, BindOnlyDatagramChannels) {
  EXPECT_THAT(test::textOf<std::logic_error>(
                  [&] { static_cast<void>(client().bind(SocketAddress::loopback4(0))); }),
              HasSubstr("call datagram() first; to listen, use ServerBootstrap"));
}

TEST_P(Clients, FailWithAReasonOfItsOwnForAnUnknownHost) {
  test::ignoreThreadsInCensus("mr-resolver");                   // they live on
  const std::string host = std::string(100, 'x') + ".invalid";  // nobody needs to be asked
  const Future<ChannelPtr> made = client().connect(host, 80);

  EXPECT_TRUE(test::failsWith(made, Errc::unknownHost));
  EXPECT_THAT(made.cause().message(), HasSubstr(host));
}

// behaviour 3.13.12: no such name
TEST_P(Clients, FailWithTheResolversReason) {
  const Future<ChannelPtr> made =
      client()
          .resolver(giving(Error::fromErrno(EHOSTUNREACH, "resolve", "nowhere.example")))
          .connect("nowhere.example", 80);

  EXPECT_EQ(errnoOf(made), EHOSTUNREACH);
  EXPECT_THAT(made.cause().message(), HasSubstr("nowhere.example"));
  EXPECT_EQ(log_->events().size(), 0U);
}

// behaviour 3.13.12: a resolver that finds nothing and says nothing
TEST_P(Clients, FailWhenTheResolverFindsNoAddress) {
  const Future<ChannelPtr> made =
      client().resolver(giving(Addresses{})).connect("empty.example", 80);

  EXPECT_FALSE(succeeds(made));
  EXPECT_THAT(made.cause().message(), HasSubstr("empty.example"));
}

// behaviour 3.13.13: a resolver that throws
TEST_P(Clients, FailWhenTheResolverThrows) {
  const Future<ChannelPtr> made =
      client()
          .resolver([](const std::string&, std::uint16_t) -> Future<Addresses> {
            throw std::runtime_error("the book is burnt");
          })
          .connect("any.example", 80);

  EXPECT_FALSE(succeeds(made));
  EXPECT_THAT(made.cause().message(), HasSubstr("the book is burnt"));
}

// behaviour 3.13.9: a name, asked on a thread of its own
TEST_P(Clients, AskTheSystemForNames) {
  if (!isTcp()) return;
  test::ignoreThreadsInCensus("mr-resolver");  // they live on
  const Server server = serve(test::echoing());
  const Future<ChannelPtr> made = client().connect("localhost", server.address().port());
  addrinfo* known = nullptr;
  if (::getaddrinfo("localhost", nullptr, nullptr, &known) !=
      0) {  // a bare system without /etc/hosts
    EXPECT_TRUE(test::failsWith(made, Errc::unknownHost));
    return;
  }
  ::freeaddrinfo(known);
  ASSERT_TRUE(succeeds(made)) << made.cause().message();
  expectEcho(made.get());
}

// Several addresses, one after the other; the last failure is told
TEST_P(Clients, TryEveryAddressUntilOneAnswers) {
  const Server server = serve(test::echoing());
  const test::Nobody nobody(anyAddress());
  const SocketAddress gone = nobody.address();

  expectEcho(client().connect(Addresses{gone, gone, server.address()}).get());
  EXPECT_EQ(log_->count("added"), 3U);

  const Future<ChannelPtr> none = client().connect(Addresses{gone, gone});
  EXPECT_EQ(errnoOf(none), ECONNREFUSED);
  EXPECT_TRUE(log_->await("removed", 5));
}

// F10: no way there
TEST_P(Clients, TellWhenThereIsNoRoute) {
  if (!isTcp()) return;
  // The kernel refuses to send to this one without asking anybody.
  const Future<ChannelPtr> made = client().connect(SocketAddress::inet4({255, 255, 255, 255}, 9));

  EXPECT_THAT(errnoOf(made), testing::AnyOf(ENETUNREACH, EACCES, EHOSTUNREACH));
  EXPECT_THAT(made.cause().message(), HasSubstr("255.255.255.255:9"));
}

// C206: from a chosen address
TEST_P(Clients, MayComeFromAChosenAddress) {
  if (!isTcp()) return;
  const Server server = serve(test::echoing());

  const ChannelPtr channel = client()
                                 .localAddress(SocketAddress::inet4({127, 0, 0, 5}, 0))
                                 .connect(server.address())
                                 .get();

  EXPECT_EQ(channel->localAddress().host(), "127.0.0.5");
  expectEcho(channel);
  EXPECT_EQ(errnoOf(client().localAddress(server.address()).connect(server.address())), EADDRINUSE);
}

// F49
TEST_P(Clients, FailOnAGroupThatHasEnded) {
  const Bootstrap made = client();
  group().shutdownGracefully().sync();

  EXPECT_TRUE(test::failsWith(made.connect(anyAddress()), Errc::rejected));
  EXPECT_TRUE(test::failsWith(made.connect("127.0.0.1", 9), Errc::rejected));
}

// behaviour 3.13.14: handlers that cannot be made
TEST_P(Clients, FailWithWhatTheirInitializerThrew) {
  const Server server = serve(test::echoing());

  const Future<ChannelPtr> made =
      Bootstrap()
          .group(group())
          .handler([](Channel&) { throw std::runtime_error("no handler today"); })
          .connect(server.address());

  EXPECT_FALSE(succeeds(made));
  EXPECT_THAT(made.cause().message(), HasSubstr("no handler today"));
}

// behaviour 3.13, code rules
TEST_P(Clients, NeedAGroupAndAHandler) {
  const auto text = [&](const Bootstrap& made) {
    return test::textOf<std::logic_error>([&] { static_cast<void>(made.connect(anyAddress())); });
  };
  EXPECT_THAT(text(Bootstrap().handler(test::echoing())), HasSubstr("group()"));
  EXPECT_THAT(text(Bootstrap().group(group())), HasSubstr("handler()"));
  EXPECT_THAT(test::textOf<std::invalid_argument>(
                  [&] { static_cast<void>(client().connect(Addresses{})); }),
              HasSubstr("no address"));
  EXPECT_THAT(test::textOf<std::invalid_argument>([&] { client().resolver({}); }),
              HasSubstr("resolver"));
}

// behaviour 3.13.1-2: copies go their own ways
TEST_P(Clients, MayBeCopied) {
  const Server server = serve(test::echoing());
  Bootstrap first = client();
  first.option(options::writeSpinCount, 3);
  Bootstrap second = first;
  second.option(options::writeSpinCount, 4);

  const ChannelPtr a = first.connect(server.address()).get();
  const ChannelPtr b = second.connect(server.address()).get();

  EXPECT_EQ(a->option(options::writeSpinCount).get(), 3);
  EXPECT_EQ(b->option(options::writeSpinCount).get(), 4);
  EXPECT_TRUE(succeeds(a->close()));
  EXPECT_TRUE(succeeds(b->close()));
}

// A connect that nobody waits for any more closes what it made
TEST_P(Clients, CloseAConnectionThatWasCancelled) {
  const Server server = serve(test::echoing());
  Future<ChannelPtr> made;
  {
    const test::Held late(loop());
    made = client().connect(server.address());
    EXPECT_TRUE(made.cancel());
  }
  settle();

  EXPECT_EQ(log_->count("active"), log_->count("inactive"));
}

INSTANTIATE_TEST_SUITE_P(Engines, Clients, testing::ValuesIn(test::socketRows()), test::netRowName);

}  // namespace
}  // namespace millrace
