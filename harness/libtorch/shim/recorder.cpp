// What torch's flight recorders hold. Gloo, and backends of one's own, share one recorder; NCCL has its own.

#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include "shim.hpp"

using allranks::guarded;

#ifdef ALLRANKS_NCCL
namespace c10d {
// As in ProcessGroupNCCL.hpp, which needs CUDA's headers.
TORCH_API std::string dump_nccl_trace_json(bool includeCollectives, bool onlyActive);
} // namespace c10d
#endif

struct ar_text {
  std::string inner;
};

extern "C" {

ar_error* ar_recorder_dump(int32_t nccl, ar_text** made) {
  return guarded([&] {
    *made = nullptr;
    const bool collectives = true;
    const bool only_active = true;
    if (nccl == 0) {
      *made = new ar_text{c10d::dump_fr_trace_json(collectives, only_active)};
      return;
    }
#ifdef ALLRANKS_NCCL
    *made = new ar_text{c10d::dump_nccl_trace_json(collectives, only_active)};
#endif
  });
}

const char* ar_text_chars(const ar_text* text) {
  return text->inner.c_str();
}

void ar_text_free(ar_text* text) {
  delete text;
}

} // extern "C"
