// Groups and their Gloo backend, made as torch's Python layer makes them (`_new_process_group_helper` in
// torch/distributed/distributed_c10d.py); tensors' views; inference mode; devices.

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>

#include "backend.hpp"
#include "shim.hpp"

using allranks::guarded;
using c10d::ProcessGroup;
using std::chrono::milliseconds;

struct ar_mode {
  c10::InferenceMode guard;
};

namespace allranks {

void add_backend(
    const ar_group* group, const char* const* devices, size_t device_count, ProcessGroup::BackendType type,
    c10::intrusive_ptr<c10d::Backend> backend, const ar_store* store, milliseconds timeout, const char* name,
    bool wrapped) {
  auto& inner = group->inner;
  backend->setSequenceNumberForGroup();
  if (wrapped) {
    auto own = c10::make_intrusive<c10d::PrefixStore>(std::string("pg_wrapper:") + name, store->inner);
    auto helper = c10::make_intrusive<c10d::ProcessGroupGloo>(
        own, inner->getRank(), inner->getSize(), c10d::ProcessGroupGloo::Options::create_default(timeout));
    backend = c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, helper);
  }
  for (size_t index = 0; index < device_count; ++index) {
    inner->setBackend(c10::Device(devices[index]).type(), type, backend);
  }
}

} // namespace allranks

extern "C" {

ar_error* ar_tensor_view(
    ar_tensor base, int8_t scalar_type, const int64_t* sizes, const int64_t* strides, size_t dimensions, int64_t offset,
    ar_tensor* made) {
  return guarded([&] {
    auto typed = allranks::tensor(base).view(static_cast<c10::ScalarType>(scalar_type));
    auto view = typed.as_strided(
        c10::IntArrayRef(sizes, dimensions), c10::IntArrayRef(strides, dimensions), offset);
    *made = new at::Tensor(std::move(view));
  });
}

ar_error* ar_mode_inference(ar_mode** made) {
  return guarded([&] { *made = new ar_mode; });
}

void ar_mode_free(ar_mode* mode) {
  delete mode;
}

ar_error* ar_device_set(const char* device) {
  return guarded([&] {
    c10::Device which(device);
    c10::impl::VirtualGuardImpl(which.type()).setDevice(which);
  });
}

ar_error* ar_device_synchronize(const char* device) {
  return guarded([&] {
    c10::Device which(device);
    c10::impl::VirtualGuardImpl(which.type()).synchronizeDevice(which.has_index() ? which.index() : 0);
  });
}

ar_error* ar_device_count(const char* device, int32_t* count) {
  return guarded([&] { *count = c10::impl::VirtualGuardImpl(c10::Device(device).type()).deviceCount(); });
}

ar_error* ar_group_new(
    const ar_store* store, int32_t rank, int32_t size, const char* default_backend, ar_group** made) {
  return guarded([&] {
    auto group = c10::make_intrusive<ProcessGroup>(store->inner, rank, size);
    group->setDefaultBackend(std::string(default_backend));
    *made = new ar_group{std::move(group)};
  });
}

ar_error* ar_group_add_gloo(
    const ar_group* group, const char* const* devices, size_t device_count, const ar_store* store, int64_t timeout_ms,
    const uint64_t* global_ranks, size_t rank_count, const char* name, int32_t wrapped) {
  return guarded([&] {
    auto options = c10d::ProcessGroupGloo::Options::create_default(milliseconds(timeout_ms));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(
        store->inner, group->inner->getRank(), group->inner->getSize(), options);
    backend->getOptions()->global_ranks_in_group.assign(global_ranks, global_ranks + rank_count);
    backend->getOptions()->group_name = name;
    allranks::add_backend(
        group, devices, device_count, ProcessGroup::BackendType::GLOO, backend, store, milliseconds(timeout_ms), name,
        wrapped != 0);
  });
}

#ifndef ALLRANKS_NCCL

ar_error* ar_group_add_nccl(
    const ar_group*, const char* const*, size_t, const ar_store*, int64_t, const uint64_t*, size_t, const char*,
    int32_t, const char*) {
  return guarded([&] { TORCH_CHECK(false, "the libtorch driver was built without NCCL (its feature `nccl`)"); });
}

int32_t ar_has_nccl(void) {
  return 0;
}

#endif

ar_error* ar_group_name(const ar_group* group, const char* name, const char* description) {
  return guarded([&] {
    group->inner->setGroupName(name);
    group->inner->setGroupDesc(description);
  });
}

ar_error* ar_group_bind(const ar_group* group, const char* device) {
  return guarded([&] { group->inner->setBoundDeviceId(c10::Device(device)); });
}

ar_error* ar_group_supports_coalescing(const ar_group* group, ar_tensor tensor, int32_t* answer) {
  return guarded([&] {
    auto type = allranks::tensor(tensor).device().type();
    *answer = group->inner->getBackend(type)->supportsCoalescing();
  });
}

ar_error* ar_group_start_coalescing(const ar_group* group, ar_tensor tensor) {
  return guarded([&] { group->inner->startCoalescing(allranks::tensor(tensor).device().type()); });
}

ar_error* ar_group_end_coalescing(const ar_group* group, ar_tensor tensor, ar_work** made) {
  return guarded([&] {
    allranks::hand_over(group->inner->endCoalescing(allranks::tensor(tensor).device().type()), made);
  });
}

ar_error* ar_group_timeout(const ar_group* group, const char* device, int64_t* timeout_ms) {
  return guarded([&] {
    auto options = group->inner->getBackend(c10::Device(device).type())->getBackendOptions();
    *timeout_ms = options->timeout.count();
  });
}

ar_error* ar_group_shutdown(const ar_group* group) {
  return guarded([&] { group->inner->shutdown(); });
}

ar_error* ar_group_abort(const ar_group* group) {
  return guarded([&] { group->inner->abort(); });
}

void ar_group_free(ar_group* group) {
  delete group;
}

} // extern "C"
