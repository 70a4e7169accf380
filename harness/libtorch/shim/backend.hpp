// What the parts of the shim that make backends share.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "shim.hpp"

namespace allranks {

// Registers a backend for device types of a group; `wrapped`: inside the wrapper that checks what ranks call.
void add_backend(
    const ar_group* group, const char* const* devices, size_t device_count, c10d::ProcessGroup::BackendType type,
    c10::intrusive_ptr<c10d::Backend> backend, const ar_store* store, std::chrono::milliseconds timeout,
    const char* name, bool wrapped);

} // namespace allranks
