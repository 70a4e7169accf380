//! The calls of `torch.distributed` that frames of stacks show, and how each concerns other ranks.

use super::phase::Nature;

/// Calls of `torch.distributed` in which ranks wait for others.
pub(super) const CALLS: &[&str] = &[
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "init_process_group",
    "monitored_barrier",
    "new_group",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
];

/// Returns the call of `torch.distributed` that a frame in this function of `distributed_c10d.py` shows: its name, and how it concerns
/// other ranks; `None` if the function is no such call.
pub(super) fn call_of(function: &str) -> Option<(String, Nature)> {
    let function = match function {
        // As MPI and CANN write them.
        "allgather" => "all_gather",
        "allreduce" => "all_reduce",
        "alltoall" => "all_to_all",
        other => other,
    };
    let nature = match function {
        "destroy_process_group" => Nature::Destroy,
        // SGLang's own broadcast of requests.
        "broadcast_pyobj" => return Some(("broadcast".to_owned(), nature("broadcast"))),
        _ => nature(CALLS.iter().find(|call| **call == function)?),
    };
    Some((function.to_owned(), nature))
}

/// Returns how a call of `torch.distributed` concerns other ranks.
pub(super) fn nature(call: &'static str) -> Nature {
    match call {
        "init_process_group" => Nature::Init,
        "new_group" => Nature::NewGroup(Vec::new()),
        "monitored_barrier" => Nature::Collective("barrier"),
        call => Nature::Collective(call),
    }
}
