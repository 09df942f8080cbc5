// SPDX-License-Identifier: Apache-2.0
//
// Netty's NIO loop in the scenarios of ../post_scenarios.h and ../timer_scenarios.h, with the same command
// line, the same rows and the same mechanism. Each scenario runs once or more unmeasured first: the compiler
// needs it.

import io.netty.channel.EventLoop;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.util.concurrent.ScheduledFuture;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.function.LongPredicate;

public final class NettyBench {
  static final long MAX_OUTSTANDING = 8192;
  static final long ROOM_TO_RESUME = 1000;
  static final int LOOP_CORE = 0;
  static final int PRODUCER_CORE = 1;
  static final long WARM_MS = Long.getLong("warm", 2000);
  static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  /** What one producer and the loop share, see Lane in post_scenarios.h. */
  static final class Lane {
    private final AtomicLongArray counter = new AtomicLongArray(48); // one is used; the rest keeps the sides apart
    final long[] delays = new long[1 << 20];
    int samples;
    long posted;
    long postingCpu;
    long waitingCpu;

    void ran(long stamp) {
      if (stamp != 0 && samples < delays.length) delays[samples++] = System.nanoTime() - stamp;
      counter.lazySet(24, counter.getPlain(24) + 1);
    }

    long done() {
      return counter.get(24);
    }

    boolean caughtUp() {
      return done() == posted;
    }
  }

  static long cpu() {
    return THREADS.getCurrentThreadCpuTime();
  }

  static void emit(String row, double value) {
    System.out.printf("%s\t%.6g%n", row, value);
  }

  static void emitMicros(String row, long[] ns, int count) {
    long[] sorted = Arrays.copyOf(ns, count);
    Arrays.sort(sorted);
    for (int p : new int[] {50, 99}) {
      long value = count == 0 ? 0 : sorted[(int) (p / 100.0 * (count - 1) + 0.5)];
      emit(row + "_p" + p + "_us", value / 1000.0);
    }
  }

  /** Pins the calling thread. Java has no call for it, taskset has. */
  static void pinTo(int core) {
    try {
      String tid = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
      new ProcessBuilder("taskset", "-pc", Integer.toString(core), tid)
          .redirectOutput(ProcessBuilder.Redirect.DISCARD)
          .start()
          .waitFor();
    } catch (Exception e) {
      throw new IllegalStateException("cannot pin a thread", e);
    }
  }

  interface Condition {
    boolean holds();
  }

  static void spinUntil(Condition condition) {
    for (int i = 0; !condition.holds(); ++i) {
      if (i < 64) {
        Thread.onSpinWait();
      } else {
        i = 0;
        Thread.yield();
      }
    }
  }

  static void spinFor(long ns) {
    long end = System.nanoTime() + ns;
    while (System.nanoTime() - end < 0) Thread.onSpinWait();
  }

  static void callInLoop(EventLoop loop, Runnable task) throws InterruptedException {
    CountDownLatch done = new CountDownLatch(1);
    loop.execute(
        () -> {
          task.run();
          done.countDown();
        });
    done.await();
  }

  static EventLoop startLoop(int core) throws InterruptedException {
    NioEventLoopGroup group = new NioEventLoopGroup(1);
    EventLoop loop = group.next();
    callInLoop(loop, () -> pinTo(core));
    return loop;
  }

  static void stop(EventLoop loop) throws InterruptedException {
    loop.parent().shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
  }

  static void produce(EventLoop loop, Lane lane, long limit, LongPredicate more) {
    Random random = new Random(System.identityHashCode(lane));
    Runnable plain = () -> lane.ran(0); // no allocation for most tasks: the best a user of Netty can do
    long room = lane.posted + limit;
    long sample = lane.posted + random.nextInt(1024);
    long resume = Math.min(ROOM_TO_RESUME, limit / 2);
    long waited = 0;
    long begin = cpu();
    long posted = lane.posted;
    for (; more.test(posted); ++posted) {
      if (posted == room) {
        room = lane.done() + limit;
        if (room - posted < resume) {
          long waitBegin = cpu();
          long goal = posted - limit + resume;
          spinUntil(() -> lane.done() >= goal);
          room = lane.done() + limit;
          waited += cpu() - waitBegin;
        }
      }
      if (posted == sample) {
        sample += 1 + random.nextInt(2047);
        long stamp = System.nanoTime();
        loop.execute(() -> lane.ran(stamp));
      } else {
        loop.execute(plain);
      }
    }
    lane.posted = posted;
    lane.postingCpu += cpu() - begin - waited;
    lane.waitingCpu += waited;
  }

  static volatile int phase;

  static void posts(int producers, long ms) throws Exception {
    final int warmUp = 1, between = 2, measuring = 3, end = 4;
    EventLoop loop = startLoop(LOOP_CORE);
    Lane[] lanes = new Lane[producers];
    Thread[] threads = new Thread[producers];
    CountDownLatch ready = new CountDownLatch(producers);
    CountDownLatch warm = new CountDownLatch(producers);
    CountDownLatch go = new CountDownLatch(1);
    AtomicLong finished = new AtomicLong(Long.MIN_VALUE);
    phase = warmUp;
    for (int i = 0; i < producers; ++i) {
      Lane lane = lanes[i] = new Lane();
      threads[i] =
          new Thread(
              () -> {
                pinTo(PRODUCER_CORE);
                ready.countDown();
                long limit = MAX_OUTSTANDING / producers;
                while (phase == warmUp) { // several calls, so that the whole method gets compiled
                  long stopAt = lane.posted + 200_000;
                  produce(loop, lane, limit, posted -> phase == warmUp && posted != stopAt);
                }
                spinUntil(lane::caughtUp);
                warm.countDown();
                try {
                  go.await();
                } catch (InterruptedException e) {
                  return;
                }
                produce(loop, lane, limit, posted -> phase == measuring);
                spinUntil(lane::caughtUp);
                finished.accumulateAndGet(System.nanoTime(), Math::max);
              });
      threads[i].start();
    }
    ready.await();
    Thread.sleep(WARM_MS);
    phase = between;
    warm.await();
    long tasks = 0;
    for (Lane lane : lanes) {
      lane.samples = 0;
      lane.postingCpu = lane.waitingCpu = 0;
      tasks -= lane.posted;
    }
    AtomicLong loopCpu = new AtomicLong();
    callInLoop(loop, () -> loopCpu.set(-cpu()));
    phase = measuring;
    long start = System.nanoTime();
    go.countDown();
    Thread.sleep(ms);
    phase = end;
    for (Thread thread : threads) thread.join();
    callInLoop(loop, () -> loopCpu.addAndGet(cpu()));

    long posting = 0, waiting = 0;
    long[] delays = new long[0];
    for (Lane lane : lanes) {
      tasks += lane.posted;
      posting += lane.postingCpu;
      waiting += lane.waitingCpu;
      int old = delays.length;
      delays = Arrays.copyOf(delays, old + lane.samples);
      System.arraycopy(lane.delays, 0, delays, old, lane.samples);
    }
    double n = tasks;
    emit("rate_mps", n / (finished.get() - start) * 1000.0);
    emit("cpu_ns", (loopCpu.get() + posting) / n);
    emit("cpu_loop_ns", loopCpu.get() / n);
    emit("cpu_producers_ns", posting / n);
    emit("cpu_waiting_ns", waiting / n);
    emitMicros("delay", delays, delays.length);
    stop(loop);
  }

  static long awakeBatch(EventLoop loop, Lane lane, Runnable task, int batch) {
    AtomicInteger hold = new AtomicInteger();
    loop.execute(
        () -> {
          hold.set(1);
          while (hold.get() != 2) Thread.onSpinWait();
          hold.set(3);
        });
    spinUntil(() -> hold.get() == 1);
    long begin = System.nanoTime();
    for (int k = 0; k < batch; ++k) loop.execute(task);
    long cost = System.nanoTime() - begin;
    lane.posted += batch;
    hold.set(2);
    spinUntil(() -> hold.get() == 3 && lane.caughtUp());
    return cost;
  }

  static void awake(int batches) throws Exception {
    final int batch = 1024;
    EventLoop loop = startLoop(LOOP_CORE);
    pinTo(PRODUCER_CORE);
    Lane lane = new Lane();
    Runnable task = () -> lane.ran(0);
    long warm = System.nanoTime() + WARM_MS * 1_000_000L;
    while (System.nanoTime() - warm < 0) awakeBatch(loop, lane, task, batch);
    long[] costs = new long[batches];
    for (int i = 0; i < batches; ++i) costs[i] = awakeBatch(loop, lane, task, batch);
    Arrays.sort(costs);
    emit("post_ns", costs[batches / 2] / (double) batch);
    stop(loop);
  }

  static void asleep(int count, long gapUs) throws Exception {
    EventLoop loop = startLoop(LOOP_CORE);
    pinTo(PRODUCER_CORE);
    long[] trips = new long[count], calls = new long[count];
    int warm = count >= 500 ? 1000 : 0; // none under strace, where two lengths are compared
    for (int i = -warm; i < count; ++i) {
      AtomicLong ran = new AtomicLong();
      spinFor(gapUs * 1000);
      long begin = System.nanoTime();
      loop.execute(() -> ran.lazySet(System.nanoTime()));
      long posted = System.nanoTime();
      while (ran.get() == 0) Thread.onSpinWait();
      if (i < 0) continue;
      trips[i] = ran.get() - begin;
      calls[i] = posted - begin;
    }
    emitMicros("trip", trips, count);
    emitMicros("call", calls, count);
    stop(loop);
  }

  static final class SelfPoster implements Runnable {
    final EventLoop loop;
    final CountDownLatch done = new CountDownLatch(1);
    long left;
    long wall, cpu;

    SelfPoster(EventLoop loop, long count) {
      this.loop = loop;
      left = count + 1;
    }

    @Override
    public void run() {
      if (--left != 0) {
        loop.execute(this);
        return;
      }
      wall += System.nanoTime();
      cpu += cpu();
      done.countDown();
    }

    void begin() {
      wall = -System.nanoTime();
      cpu = -cpu();
      run();
    }
  }

  static void self(long count) throws Exception {
    EventLoop loop = startLoop(LOOP_CORE);
    for (int round = 0; round < 6; ++round) {
      SelfPoster poster = new SelfPoster(loop, count);
      loop.execute(poster::begin);
      poster.done.await();
      if (round != 5) continue;
      emit("task_ns", poster.wall / (double) count);
      emit("task_cpu_ns", poster.cpu / (double) count);
    }
    stop(loop);
  }

  static final class PingPong {
    final EventLoop near, far;
    final CountDownLatch done = new CountDownLatch(1);
    final long[] trips;
    int count;
    long begin;

    PingPong(EventLoop near, EventLoop far, int count) {
      this.near = near;
      this.far = far;
      trips = new long[count];
    }

    void serve() {
      begin = System.nanoTime();
      far.execute(() -> near.execute(this::returned));
    }

    void returned() {
      trips[count++] = System.nanoTime() - begin;
      if (count != trips.length) {
        serve();
      } else {
        done.countDown();
      }
    }
  }

  static void pingPong(int count) throws Exception {
    EventLoop near = startLoop(LOOP_CORE), far = startLoop(PRODUCER_CORE);
    PingPong game = null;
    for (int round = 0; round < 2; ++round) {
      game = new PingPong(near, far, count);
      near.execute(game::serve);
      game.done.await();
    }
    emitMicros("trip", game.trips, game.count);
    stop(near);
    stop(far);
  }

  /** The three phases on the loop's thread; see TimerPhases in timer_scenarios.h. */
  static final class TimerPhases {
    final EventLoop loop;
    final ScheduledFuture<?>[] timers;
    final long[] delays;
    final int[] order;
    final int cancelled;
    final AtomicInteger fired = new AtomicInteger();
    final CountDownLatch done = new CountDownLatch(1);
    long start, armed, ended;

    TimerPhases(EventLoop loop, int count) {
      this.loop = loop;
      timers = new ScheduledFuture<?>[count];
      delays = new long[count];
      order = new int[count];
      cancelled = count / 10 * 9;
      Random random = new Random(42);
      for (int i = 0; i < count; ++i) {
        delays[i] = 1_000_000_000L + (long) (random.nextDouble() * 59e9);
        order[i] = i;
      }
      for (int i = count; i > 1; --i) {
        int other = random.nextInt(i);
        int kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
      }
    }

    void arm() {
      Runnable task = () -> fired.lazySet(fired.getPlain() + 1);
      start = cpu();
      for (int i = 0; i < timers.length; ++i) timers[i] = loop.schedule(task, delays[i], TimeUnit.NANOSECONDS);
      armed = cpu();
      loop.execute(this::cancel);
    }

    void cancel() {
      for (int i = 0; i < cancelled; ++i) timers[order[i]].cancel(false);
      loop.execute(this::end);
    }

    void end() {
      ended = cpu();
      for (int i = cancelled; i < timers.length; ++i) timers[order[i]].cancel(false);
      done.countDown();
    }
  }

  static void timers(int count) throws Exception {
    EventLoop loop = startLoop(LOOP_CORE);
    int rounds = 4;
    for (int round = 1; round <= rounds; ++round) {
      TimerPhases phases = new TimerPhases(loop, round == rounds ? count : count / 4);
      loop.execute(phases::arm);
      phases.done.await();
      if (round != rounds) continue;
      double schedule = (phases.armed - phases.start) / (double) count;
      double cancel = (phases.ended - phases.armed) / (double) phases.cancelled;
      emit("schedule_ns", schedule);
      emit("cancel_ns", cancel);
      emit("sum_ns", schedule + cancel);
      emit("fired_meanwhile", phases.fired.get());
    }
    stop(loop);
  }

  static void lateness(int count) throws Exception {
    EventLoop loop = startLoop(LOOP_CORE);
    for (int n : new int[] {count / 4, count}) {
      CountDownLatch done = new CountDownLatch(n);
      long[] late = new long[n];
      callInLoop(
          loop,
          () -> {
            Random random = new Random(7);
            for (int i = 0; i < n; ++i) {
              int index = i;
              long delay = 50_000_000L + (long) (random.nextDouble() * 1e9);
              long due = System.nanoTime() + delay;
              loop.schedule(
                  () -> {
                    late[index] = System.nanoTime() - due;
                    done.countDown();
                  },
                  delay,
                  TimeUnit.NANOSECONDS);
            }
          });
      done.await();
      if (n == count) emitMicros("late", late, n);
    }
    stop(loop);
  }

  public static void main(String[] args) throws Exception {
    long[] n = new long[4];
    for (int i = 1; i < args.length; ++i) n[i] = Long.parseLong(args[i]);
    switch (args[0]) {
      case "posts" -> posts((int) n[1], n[2]);
      case "awake" -> awake((int) n[1]);
      case "asleep" -> asleep((int) n[1], n[2]);
      case "self" -> self(n[1]);
      case "pingpong" -> pingPong((int) n[1]);
      case "timers" -> timers((int) n[1]);
      case "lateness" -> lateness((int) n[1]);
      default -> System.exit(3);
    }
    System.out.flush();
    System.exit(0);
  }
}
