// SPDX-License-Identifier: Apache-2.0
// How a producer and a loop use an Inbox, in three functions.
#pragma once

#include <millrace/concurrent/inbox.h>

#include <cstddef>
#include <utility>

namespace millrace::test {

/// A node of this thread with `task` in it.
inline TaskNode* nodeFor(Inbox& inbox, Task task) {
  TaskNode* node = NodeCache::ofThread().get(inbox.pool());
  node->task = std::move(task);
  return node;
}

/// Pushes `task`; false if the inbox is closed.
inline bool post(Inbox& inbox, Task task, std::uintptr_t kind = TaskNode::user) {
  TaskNode* node = nodeFor(inbox, std::move(task));
  if (inbox.push(node, kind, NodeCache::ofThread())) return true;
  node->task.reset();
  NodeCache::ofThread().unget(node);
  return false;
}

/// Runs the tasks and gives the nodes back, as a loop does; returns how many.
inline std::size_t runAndRecycle(Inbox& inbox, TaskChain chain) {
  NodeReturn used;
  std::size_t count = 0;
  for (; TaskNode* node = chain.popFront(); ++count) {
    if (node->task) node->task();
    node->task.reset();
    used.add(node, inbox.pool());
  }
  used.flush(inbox.pool());
  return count;
}

}  // namespace millrace::test
