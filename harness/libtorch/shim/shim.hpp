// What the parts of the shim share: the C types' insides, and the one place where exceptions end.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "c10d.h"

struct ar_store {
  c10::intrusive_ptr<c10d::Store> inner;
};

struct ar_group {
  c10::intrusive_ptr<c10d::ProcessGroup> inner;
};

struct ar_work {
  c10::intrusive_ptr<c10d::Work> inner;
};

namespace allranks {

// The exception being handled, as an error. Never throws.
ar_error* caught() noexcept;

// Runs `body`; what it throws becomes the returned error.
template <typename Body>
ar_error* guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return nullptr;
  } catch (...) {
    return caught();
  }
}

inline at::Tensor& tensor(ar_tensor from) {
  return *static_cast<at::Tensor*>(from);
}

inline std::vector<at::Tensor> tensors(ar_list from) {
  std::vector<at::Tensor> all;
  all.reserve(from.length);
  for (size_t index = 0; index < from.length; ++index) {
    all.push_back(tensor(from.tensors[index]));
  }
  return all;
}

inline void hand_over(c10::intrusive_ptr<c10d::Work> work, ar_work** made) {
  *made = work ? new ar_work{std::move(work)} : nullptr;
}

} // namespace allranks
