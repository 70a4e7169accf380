// c10d behind a C interface: what the Rust side (src/c10d/sys.rs) declares once more, and nothing else.
//
// Every function that can fail returns an error, or null if it did not: no exception leaves this file's functions. What
// a function makes comes back through its last argument, is owned by the caller, and is released by the `_free` of its
// type. Pointers passed in are borrowed for the length of the call. Tensors are `at::Tensor*`, as in torch-sys.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ar_error ar_error;
typedef struct ar_store ar_store;
typedef struct ar_group ar_group;
typedef struct ar_work ar_work;
typedef struct ar_mode ar_mode;
typedef struct ar_text ar_text;
typedef void* ar_tensor;

// The exception's class, under the name that Python knows it by. The Rust enum `Kind` has the same order.
enum ar_kind {
  AR_RUNTIME = 0,
  AR_VALUE,
  AR_TYPE,
  AR_INDEX,
  AR_NOT_IMPLEMENTED,
  AR_MEMORY,
  AR_DIST,
  AR_DIST_BACKEND,
  AR_DIST_NETWORK,
  AR_DIST_STORE,
  AR_DIST_QUEUE_EMPTY,
  AR_UNKNOWN,
};

// A list of tensors.
typedef struct {
  const ar_tensor* tensors;
  size_t length;
} ar_list;

// A reduce operator: c10d's number of it, and for PREMUL_SUM the factor, which is the tensor if there is one.
typedef struct {
  uint8_t number;
  double factor;
  ar_tensor tensor;
} ar_op;

int32_t ar_error_kind(const ar_error* error);
const char* ar_error_message(const ar_error* error);
void ar_error_free(ar_error* error);

// The version of the headers this was compiled against.
const char* ar_torch_version(void);
// Reads TORCH_DISTRIBUTED_DEBUG again, for a process that was forked with another environment.
ar_error* ar_read_debug_level(void);
// Whether TORCH_DISTRIBUTED_DEBUG says DETAIL.
int32_t ar_debug_is_detail(void);

// Stores.
ar_error* ar_store_tcp(
    const char* host, uint16_t port, int64_t world_size, int32_t is_master, int64_t timeout_ms, int32_t multi_tenant,
    ar_store** made);
ar_error* ar_store_file(const char* path, int32_t world_size, ar_store** made);
ar_error* ar_store_prefix(const char* prefix, const ar_store* inner, ar_store** made);
ar_error* ar_store_set_timeout(const ar_store* store, int64_t timeout_ms);
ar_error* ar_store_add(const ar_store* store, const char* key, int64_t value, int64_t* sum);
ar_error* ar_store_set(const ar_store* store, const char* key, const char* value);
ar_error* ar_store_wait(const ar_store* store, const char* key, int64_t timeout_ms);
void ar_store_free(ar_store* store);

// Tensors. `scalar_type` is the number of a c10::ScalarType: dtypes that tch has no name for have one too.
ar_error* ar_tensor_view(
    ar_tensor base, int8_t scalar_type, const int64_t* sizes, const int64_t* strides, size_t dimensions, int64_t offset,
    ar_tensor* made);
ar_error* ar_mode_inference(ar_mode** made);
void ar_mode_free(ar_mode* mode);

// Devices, `cuda:1`, of whatever kind libtorch has loaded.
ar_error* ar_device_set(const char* device);
ar_error* ar_device_synchronize(const char* device);
ar_error* ar_device_count(const char* device, int32_t* count);

// Groups.
ar_error* ar_group_new(
    const ar_store* store, int32_t rank, int32_t size, const char* default_backend, ar_group** made);
// Adds a Gloo backend for these device types (`cpu`, `cuda`). `wrapped`: with the checks of TORCH_DISTRIBUTED_DEBUG=DETAIL.
ar_error* ar_group_add_gloo(
    const ar_group* group, const char* const* devices, size_t device_count, const ar_store* store, int64_t timeout_ms,
    const uint64_t* global_ranks, size_t rank_count, const char* name, int32_t wrapped);
// The same with NCCL. `bound`: the device the group is bound to, or null. Fails where it was not compiled in.
ar_error* ar_group_add_nccl(
    const ar_group* group, const char* const* devices, size_t device_count, const ar_store* store, int64_t timeout_ms,
    const uint64_t* global_ranks, size_t rank_count, const char* name, int32_t wrapped, const char* bound);
// Whether ar_group_add_nccl can work.
int32_t ar_has_nccl(void);
ar_error* ar_group_name(const ar_group* group, const char* name, const char* description);
ar_error* ar_group_bind(const ar_group* group, const char* device);
ar_error* ar_group_supports_coalescing(const ar_group* group, ar_tensor tensor, int32_t* answer);
ar_error* ar_group_start_coalescing(const ar_group* group, ar_tensor tensor);
ar_error* ar_group_end_coalescing(const ar_group* group, ar_tensor tensor, ar_work** made);
ar_error* ar_group_timeout(const ar_group* group, const char* device, int64_t* timeout_ms);
ar_error* ar_group_shutdown(const ar_group* group);
ar_error* ar_group_abort(const ar_group* group);
void ar_group_free(ar_group* group);

// Collectives. `made` is null where the backend returns no work.
ar_error* ar_all_reduce(const ar_group* group, ar_list tensors, ar_op op, int32_t async, ar_work** made);
ar_error* ar_all_reduce_coalesced(const ar_group* group, ar_list tensors, ar_op op, int32_t async, ar_work** made);
ar_error* ar_broadcast(const ar_group* group, ar_tensor tensor, int64_t root, int32_t async, ar_work** made);
ar_error* ar_reduce(const ar_group* group, ar_tensor tensor, ar_op op, int64_t root, int32_t async, ar_work** made);
ar_error* ar_all_gather(const ar_group* group, ar_list outputs, ar_tensor input, int32_t async, ar_work** made);
ar_error* ar_all_gather_coalesced(
    const ar_group* group, const ar_list* outputs, size_t output_count, ar_list inputs, int32_t async, ar_work** made);
ar_error* ar_all_gather_into_tensor(
    const ar_group* group, ar_tensor output, ar_tensor input, int32_t async, ar_work** made);
ar_error* ar_all_gather_into_tensor_coalesced(
    const ar_group* group, ar_list outputs, ar_list inputs, ar_work** made);
// `outputs` of the root only; null elsewhere. `inputs` of scatter likewise.
ar_error* ar_gather(
    const ar_group* group, ar_tensor input, const ar_list* outputs, int64_t root, int32_t async, ar_work** made);
ar_error* ar_scatter(
    const ar_group* group, ar_tensor output, const ar_list* inputs, int64_t root, int32_t async, ar_work** made);
ar_error* ar_reduce_scatter(
    const ar_group* group, ar_tensor output, ar_list inputs, ar_op op, int32_t async, ar_work** made);
ar_error* ar_reduce_scatter_tensor(
    const ar_group* group, ar_tensor output, ar_tensor input, ar_op op, int32_t async, ar_work** made);
ar_error* ar_reduce_scatter_tensor_coalesced(
    const ar_group* group, ar_list outputs, ar_list inputs, ar_op op, int32_t async, ar_work** made);
ar_error* ar_all_to_all(const ar_group* group, ar_list outputs, ar_list inputs, int32_t async, ar_work** made);
ar_error* ar_all_to_all_single(
    const ar_group* group, ar_tensor output, ar_tensor input, const int64_t* output_splits, size_t output_count,
    const int64_t* input_splits, size_t input_count, int32_t async, ar_work** made);
ar_error* ar_barrier(const ar_group* group, const char* device, int32_t async, ar_work** made);
ar_error* ar_monitored_barrier(const ar_group* group, int64_t timeout_ms);
ar_error* ar_send(const ar_group* group, ar_tensor tensor, int32_t peer, int32_t tag, ar_work** made);
ar_error* ar_recv(const ar_group* group, ar_tensor tensor, int32_t peer, int32_t tag, ar_work** made);
ar_error* ar_recv_any(const ar_group* group, ar_tensor tensor, int32_t tag, ar_work** made);

// Works.
// `timeout_ms` 0: none.
ar_error* ar_work_wait(const ar_work* work, int64_t timeout_ms);
ar_error* ar_work_is_completed(const ar_work* work, int32_t* answer);
ar_error* ar_work_source(const ar_work* work, int32_t* rank);
// Waits for the work's future; whether it is done then.
ar_error* ar_work_future(const ar_work* work, int32_t* done);
void ar_work_free(ar_work* work);

// What a flight recorder, NCCL's or the one of all others, has of ops that have not ended, as JSON; null where NCCL was not
// compiled in. May be called while another thread is in a collective.
ar_error* ar_recorder_dump(int32_t nccl, ar_text** made);
const char* ar_text_chars(const ar_text* text);
void ar_text_free(ar_text* text);

#ifdef __cplusplus
}
#endif
