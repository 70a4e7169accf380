// Stores.

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "shim.hpp"

using allranks::guarded;
using std::chrono::milliseconds;

extern "C" {

ar_error* ar_store_tcp(
    const char* host, uint16_t port, int64_t world_size, int32_t is_master, int64_t timeout_ms, int32_t multi_tenant,
    ar_store** made) {
  return guarded([&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = is_master != 0;
    if (world_size >= 0) {
      options.numWorkers = static_cast<std::size_t>(world_size);
    }
    options.timeout = milliseconds(timeout_ms);
    options.multiTenant = multi_tenant != 0;
    *made = new ar_store{c10::make_intrusive<c10d::TCPStore>(host, options)};
  });
}

ar_error* ar_store_file(const char* path, int32_t world_size, ar_store** made) {
  return guarded([&] { *made = new ar_store{c10::make_intrusive<c10d::FileStore>(path, world_size)}; });
}

ar_error* ar_store_prefix(const char* prefix, const ar_store* inner, ar_store** made) {
  return guarded([&] { *made = new ar_store{c10::make_intrusive<c10d::PrefixStore>(prefix, inner->inner)}; });
}

ar_error* ar_store_set_timeout(const ar_store* store, int64_t timeout_ms) {
  return guarded([&] { store->inner->setTimeout(milliseconds(timeout_ms)); });
}

ar_error* ar_store_add(const ar_store* store, const char* key, int64_t value, int64_t* sum) {
  return guarded([&] { *sum = store->inner->add(key, value); });
}

ar_error* ar_store_set(const ar_store* store, const char* key, const char* value) {
  return guarded([&] { store->inner->set(key, std::string(value)); });
}

ar_error* ar_store_wait(const ar_store* store, const char* key, int64_t timeout_ms) {
  return guarded([&] { store->inner->wait({key}, milliseconds(timeout_ms)); });
}

void ar_store_free(ar_store* store) {
  delete store;
}

} // extern "C"
