// Collectives, messages and works: each function makes one call of c10d::ProcessGroup or c10d::Work.

#include "shim.hpp"

using allranks::guarded;
using allranks::hand_over;
using allranks::tensor;
using allranks::tensors;
using std::chrono::milliseconds;

namespace {

c10d::ReduceOp reduce_op(const ar_op& op) {
  auto number = static_cast<c10d::ReduceOp::RedOpType>(op.number);
  if (number != c10d::ReduceOp::PREMUL_SUM) {
    return c10d::ReduceOp(number);
  }
  return op.tensor != nullptr ? c10d::makeNCCLPreMulSum(tensor(op.tensor)) : c10d::makeNCCLPreMulSum(op.factor);
}

template <typename Options>
Options with_root(int64_t root, int32_t async) {
  Options options;
  options.rootRank = root;
  options.asyncOp = async != 0;
  return options;
}

template <typename Options>
Options with_op(const ar_op& op, int32_t async) {
  Options options;
  options.reduceOp = reduce_op(op);
  options.asyncOp = async != 0;
  return options;
}

template <typename Options>
Options plain(int32_t async) {
  Options options;
  options.asyncOp = async != 0;
  return options;
}

} // namespace

extern "C" {

ar_error* ar_all_reduce(const ar_group* group, ar_list list, ar_op op, int32_t async, ar_work** made) {
  return guarded([&] {
    auto all = tensors(list);
    hand_over(group->inner->allreduce(all, with_op<c10d::AllreduceOptions>(op, async)), made);
  });
}

ar_error* ar_all_reduce_coalesced(const ar_group* group, ar_list list, ar_op op, int32_t async, ar_work** made) {
  return guarded([&] {
    auto all = tensors(list);
    hand_over(group->inner->allreduce_coalesced(all, with_op<c10d::AllreduceCoalescedOptions>(op, async)), made);
  });
}

ar_error* ar_broadcast(const ar_group* group, ar_tensor from, int64_t root, int32_t async, ar_work** made) {
  return guarded([&] {
    std::vector<at::Tensor> all{tensor(from)};
    hand_over(group->inner->broadcast(all, with_root<c10d::BroadcastOptions>(root, async)), made);
  });
}

ar_error* ar_reduce(const ar_group* group, ar_tensor from, ar_op op, int64_t root, int32_t async, ar_work** made) {
  return guarded([&] {
    std::vector<at::Tensor> all{tensor(from)};
    auto options = with_root<c10d::ReduceOptions>(root, async);
    options.reduceOp = reduce_op(op);
    hand_over(group->inner->reduce(all, options), made);
  });
}

ar_error* ar_all_gather(const ar_group* group, ar_list outputs, ar_tensor input, int32_t async, ar_work** made) {
  return guarded([&] {
    std::vector<std::vector<at::Tensor>> to{tensors(outputs)};
    std::vector<at::Tensor> from{tensor(input)};
    hand_over(group->inner->allgather(to, from, plain<c10d::AllgatherOptions>(async)), made);
  });
}

ar_error* ar_all_gather_coalesced(
    const ar_group* group, const ar_list* outputs, size_t output_count, ar_list inputs, int32_t async,
    ar_work** made) {
  return guarded([&] {
    std::vector<std::vector<at::Tensor>> to;
    for (size_t index = 0; index < output_count; ++index) {
      to.push_back(tensors(outputs[index]));
    }
    auto from = tensors(inputs);
    hand_over(group->inner->allgather_coalesced(to, from, plain<c10d::AllgatherOptions>(async)), made);
  });
}

ar_error* ar_all_gather_into_tensor(
    const ar_group* group, ar_tensor output, ar_tensor input, int32_t async, ar_work** made) {
  return guarded([&] {
    hand_over(
        group->inner->_allgather_base(tensor(output), tensor(input), plain<c10d::AllgatherOptions>(async)), made);
  });
}

ar_error* ar_all_gather_into_tensor_coalesced(
    const ar_group* group, ar_list outputs, ar_list inputs, ar_work** made) {
  return guarded([&] {
    auto to = tensors(outputs);
    auto from = tensors(inputs);
    hand_over(group->inner->allgather_into_tensor_coalesced(to, from), made);
  });
}

ar_error* ar_gather(
    const ar_group* group, ar_tensor input, const ar_list* outputs, int64_t root, int32_t async, ar_work** made) {
  return guarded([&] {
    std::vector<std::vector<at::Tensor>> to;
    if (outputs != nullptr) {
      to.push_back(tensors(*outputs));
    }
    std::vector<at::Tensor> from{tensor(input)};
    hand_over(group->inner->gather(to, from, with_root<c10d::GatherOptions>(root, async)), made);
  });
}

ar_error* ar_scatter(
    const ar_group* group, ar_tensor output, const ar_list* inputs, int64_t root, int32_t async, ar_work** made) {
  return guarded([&] {
    std::vector<at::Tensor> to{tensor(output)};
    std::vector<std::vector<at::Tensor>> from;
    if (inputs != nullptr) {
      from.push_back(tensors(*inputs));
    }
    hand_over(group->inner->scatter(to, from, with_root<c10d::ScatterOptions>(root, async)), made);
  });
}

ar_error* ar_reduce_scatter(
    const ar_group* group, ar_tensor output, ar_list inputs, ar_op op, int32_t async, ar_work** made) {
  return guarded([&] {
    std::vector<at::Tensor> to{tensor(output)};
    std::vector<std::vector<at::Tensor>> from{tensors(inputs)};
    hand_over(group->inner->reduce_scatter(to, from, with_op<c10d::ReduceScatterOptions>(op, async)), made);
  });
}

ar_error* ar_reduce_scatter_tensor(
    const ar_group* group, ar_tensor output, ar_tensor input, ar_op op, int32_t async, ar_work** made) {
  return guarded([&] {
    auto options = with_op<c10d::ReduceScatterOptions>(op, async);
    hand_over(group->inner->_reduce_scatter_base(tensor(output), tensor(input), options), made);
  });
}

ar_error* ar_reduce_scatter_tensor_coalesced(
    const ar_group* group, ar_list outputs, ar_list inputs, ar_op op, int32_t async, ar_work** made) {
  return guarded([&] {
    auto to = tensors(outputs);
    auto from = tensors(inputs);
    auto options = with_op<c10d::ReduceScatterOptions>(op, async);
    hand_over(group->inner->reduce_scatter_tensor_coalesced(to, from, options), made);
  });
}

ar_error* ar_all_to_all(const ar_group* group, ar_list outputs, ar_list inputs, int32_t async, ar_work** made) {
  return guarded([&] {
    auto to = tensors(outputs);
    auto from = tensors(inputs);
    hand_over(group->inner->alltoall(to, from, plain<c10d::AllToAllOptions>(async)), made);
  });
}

ar_error* ar_all_to_all_single(
    const ar_group* group, ar_tensor output, ar_tensor input, const int64_t* output_splits, size_t output_count,
    const int64_t* input_splits, size_t input_count, int32_t async, ar_work** made) {
  return guarded([&] {
    std::vector<int64_t> to(output_splits, output_splits + output_count);
    std::vector<int64_t> from(input_splits, input_splits + input_count);
    auto options = plain<c10d::AllToAllOptions>(async);
    hand_over(group->inner->alltoall_base(tensor(output), tensor(input), to, from, options), made);
  });
}

ar_error* ar_barrier(const ar_group* group, const char* device, int32_t async, ar_work** made) {
  return guarded([&] {
    auto options = plain<c10d::BarrierOptions>(async);
    options.device = c10::Device(device);
    hand_over(group->inner->barrier(options), made);
  });
}

ar_error* ar_monitored_barrier(const ar_group* group, int64_t timeout_ms) {
  return guarded([&] {
    c10d::BarrierOptions options;
    options.timeout = milliseconds(timeout_ms);
    group->inner->monitoredBarrier(options, false);
  });
}

ar_error* ar_send(const ar_group* group, ar_tensor from, int32_t peer, int32_t tag, ar_work** made) {
  return guarded([&] {
    std::vector<at::Tensor> all{tensor(from)};
    hand_over(group->inner->send(all, peer, tag), made);
  });
}

ar_error* ar_recv(const ar_group* group, ar_tensor to, int32_t peer, int32_t tag, ar_work** made) {
  return guarded([&] {
    std::vector<at::Tensor> all{tensor(to)};
    hand_over(group->inner->recv(all, peer, tag), made);
  });
}

ar_error* ar_recv_any(const ar_group* group, ar_tensor to, int32_t tag, ar_work** made) {
  return guarded([&] {
    std::vector<at::Tensor> all{tensor(to)};
    hand_over(group->inner->recvAnysource(all, tag), made);
  });
}

ar_error* ar_work_wait(const ar_work* work, int64_t timeout_ms) {
  return guarded([&] { work->inner->wait(milliseconds(timeout_ms)); });
}

ar_error* ar_work_is_completed(const ar_work* work, int32_t* answer) {
  return guarded([&] { *answer = work->inner->isCompleted(); });
}

ar_error* ar_work_source(const ar_work* work, int32_t* rank) {
  return guarded([&] { *rank = work->inner->sourceRank(); });
}

ar_error* ar_work_future(const ar_work* work, int32_t* done) {
  return guarded([&] {
    auto future = work->inner->getFuture();
    future->wait();
    // Throws what went wrong, as `Future.wait` of Python does.
    future->value();
    *done = future->completed();
  });
}

void ar_work_free(ar_work* work) {
  delete work;
}

} // extern "C"
