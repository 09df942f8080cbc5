// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/log.h>
#include <millrace/concurrent/executor.h>

#include <deque>
#include <stdexcept>
#include <utility>

namespace millrace {

constinit thread_local const Executor* internal::tlsCurrentExecutor = nullptr;

namespace {

thread_local std::deque<Task>* tlsWaiting = nullptr;  // set while this thread runs immediate tasks

class ImmediateExecutor final : public Executor {
 public:
  void execute(Task task) override {
    if (!task) throw std::invalid_argument("execute(): the task is empty; give it a callable");
    if (tlsWaiting != nullptr) {
      tlsWaiting->push_back(std::move(task));
      return;
    }
    std::deque<Task> waiting;
    tlsWaiting = &waiting;
    run(task);
    while (!waiting.empty()) {
      Task next = std::move(waiting.front());
      waiting.pop_front();
      run(next);
    }
    tlsWaiting = nullptr;
  }

  bool tryExecute(Task task) override {
    execute(std::move(task));
    return true;
  }

  bool inEventLoop() const noexcept override { return tlsWaiting != nullptr; }

 private:
  static void run(Task& task) noexcept {
    try {
      task();
    } catch (const std::exception& e) {
      log(LogLevel::warn, "concurrent", "a task of the immediate executor threw: ", e.what());
    } catch (...) {
      log(LogLevel::warn, "concurrent", "a task of the immediate executor threw");
    }
    task.reset();
  }
};

}  // namespace

Executor& immediateExecutor() noexcept {
  static ImmediateExecutor& executor = *new ImmediateExecutor;
  return executor;
}

}  // namespace millrace
