// NCCL backends, made as torch's Python layer makes them, but for one thing: where the world is bound to a device, Python
// splits a new group's communicator off the world's (`ncclCommSplit`); here every group makes its own. Compiled with the
// feature `nccl` only: it needs CUDA's headers.

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "backend.hpp"

using allranks::guarded;
using std::chrono::milliseconds;

extern "C" {

ar_error* ar_group_add_nccl(
    const ar_group* group, const char* const* devices, size_t device_count, const ar_store* store, int64_t timeout_ms,
    const uint64_t* global_ranks, size_t rank_count, const char* name, int32_t wrapped, const char* bound) {
  return guarded([&] {
    auto& inner = group->inner;
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = milliseconds(timeout_ms);
    options->global_ranks_in_group.assign(global_ranks, global_ranks + rank_count);
    options->group_name = name;
    auto backend =
        c10::make_intrusive<c10d::ProcessGroupNCCL>(store->inner, inner->getRank(), inner->getSize(), options);
    allranks::add_backend(
        group, devices, device_count, c10d::ProcessGroup::BackendType::NCCL, backend, store, milliseconds(timeout_ms),
        name, wrapped != 0);
    if (bound != nullptr) {
      c10::Device device(bound);
      inner->getBackend(device.type())->eagerConnectSingleDevice(device);
    }
  });
}

int32_t ar_has_nccl(void) {
  return 1;
}

} // extern "C"
