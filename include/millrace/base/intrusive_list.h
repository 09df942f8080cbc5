// SPDX-License-Identifier: Apache-2.0
// A doubly linked list whose links live in its elements: no allocation, removal in one step.
//
// Threads: as its owner. Ownership: none; an element must leave the list before it dies (checked).
#pragma once

#include <millrace/base/check.h>

#include <cstddef>

namespace millrace {

/// Base of list elements. An element is in at most one list.
class ListLink {
 public:
  ListLink() noexcept = default;
  ListLink(const ListLink&) = delete;
  ListLink& operator=(const ListLink&) = delete;
  ~ListLink() { MR_CHECK(!isLinked(), "an element died while it was in a list"); }

  bool isLinked() const noexcept { return next_ != nullptr; }
  /// Takes the element out of its list. REQUIRES: isLinked()
  void unlink() noexcept {
    MR_CHECK(isLinked(), "unlink() of an element that is in no list");
    prev_->next_ = next_;
    next_->prev_ = prev_;
    prev_ = next_ = nullptr;
  }

 private:
  template <class T>
  friend class IntrusiveList;
  ListLink* prev_ = nullptr;
  ListLink* next_ = nullptr;
};

/// The list itself. `T` derives from ListLink.
template <class T>
class IntrusiveList {
 public:
  IntrusiveList() noexcept { root_.prev_ = root_.next_ = &root_; }
  ~IntrusiveList() {
    MR_CHECK(empty(), "a list died with elements in it");
    root_.prev_ = root_.next_ = nullptr;
  }

  bool empty() const noexcept { return root_.next_ == &root_; }
  T* front() noexcept { return empty() ? nullptr : static_cast<T*>(root_.next_); }
  void pushBack(T& element) noexcept {
    ListLink& link = element;
    MR_CHECK(!link.isLinked(), "pushBack() of an element that is in a list already");
    link.prev_ = root_.prev_;
    link.next_ = &root_;
    root_.prev_->next_ = &link;
    root_.prev_ = &link;
  }
  /// The first element, taken out; null when empty.
  T* popFront() noexcept {
    T* first = front();
    if (first != nullptr) first->unlink();
    return first;
  }
  /// Calls `fn(T&)` for each element; `fn` may unlink the element it is given and no other.
  template <class F>
  void forEach(F&& fn) {
    for (ListLink* at = root_.next_; at != &root_;) {
      ListLink* following = at->next_;
      fn(*static_cast<T*>(at));
      at = following;
    }
  }

 private:
  ListLink root_;
};

}  // namespace millrace
