// Errors, and what else needs few of torch's headers: the version, the debug level.

#include <new>
#include <stdexcept>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/version.h>

#include "c10d.h"

struct ar_error {
  ar_kind kind;
  std::string message;
};

namespace allranks {

// For when there is no memory for an error.
static ar_error out_of_memory{AR_MEMORY, "out of memory"};

static ar_error* error(ar_kind kind, const char* message) noexcept {
  try {
    return new ar_error{kind, message};
  } catch (...) {
    return &out_of_memory;
  }
}

// In the order in which PyTorch's own bindings look (torch/csrc/Exceptions.h): the special before the general.
ar_error* caught() noexcept {
#define AR_CATCH(type, kind)                             \
  catch (const type& thrown) {                           \
    return error(kind, thrown.what_without_backtrace()); \
  }
  try {
    throw;
  }
  AR_CATCH(c10::IndexError, AR_INDEX)
  AR_CATCH(c10::ValueError, AR_VALUE)
  AR_CATCH(c10::TypeError, AR_TYPE)
  AR_CATCH(c10::NotImplementedError, AR_NOT_IMPLEMENTED)
  AR_CATCH(c10::DistBackendError, AR_DIST_BACKEND)
  AR_CATCH(c10::DistNetworkError, AR_DIST_NETWORK)
  AR_CATCH(c10::DistQueueEmptyError, AR_DIST_QUEUE_EMPTY)
  AR_CATCH(c10::DistStoreError, AR_DIST_STORE)
  AR_CATCH(c10::DistError, AR_DIST)
  AR_CATCH(c10::Error, AR_RUNTIME)
  catch (const std::bad_alloc& thrown) {
    return error(AR_MEMORY, thrown.what());
  }
  catch (const std::invalid_argument& thrown) {
    return error(AR_VALUE, thrown.what());
  }
  catch (const std::domain_error& thrown) {
    return error(AR_VALUE, thrown.what());
  }
  catch (const std::length_error& thrown) {
    return error(AR_VALUE, thrown.what());
  }
  catch (const std::out_of_range& thrown) {
    return error(AR_INDEX, thrown.what());
  }
  catch (const std::exception& thrown) {
    return error(AR_RUNTIME, thrown.what());
  }
  catch (...) {
    return error(AR_UNKNOWN, "something was thrown that is no std::exception");
  }
#undef AR_CATCH
}

} // namespace allranks

extern "C" {

int32_t ar_error_kind(const ar_error* error) {
  return error->kind;
}

const char* ar_error_message(const ar_error* error) {
  return error->message.c_str();
}

void ar_error_free(ar_error* error) {
  if (error != &allranks::out_of_memory) {
    delete error;
  }
}

const char* ar_torch_version(void) {
  return TORCH_VERSION;
}

ar_error* ar_read_debug_level(void) {
  try {
    c10d::setDebugLevelFromEnvironment();
    return nullptr;
  } catch (...) {
    return allranks::caught();
  }
}

int32_t ar_debug_is_detail(void) {
  return c10d::debug_level() == c10d::DebugLevel::Detail;
}

} // extern "C"
