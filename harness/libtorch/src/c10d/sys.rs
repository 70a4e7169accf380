//! `shim/c10d.h` in Rust, line by line.

use std::ffi::{c_char, c_void};

/// Declares the C types that Rust never looks into.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque! { ArError ArStore ArGroup ArWork ArMode ArText }

/// A pointer to a tensor of torch: `at::Tensor*`.
pub type ArTensor = *mut c_void;

/// A list of tensors.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArList {
    pub tensors: *const ArTensor,
    pub length: usize,
}

/// A reduce operator.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArOp {
    pub number: u8,
    pub factor: f64,
    pub tensor: ArTensor,
}

#[expect(
    unsafe_code,
    reason = "the C interface of the shim; every function of it is called in this module's siblings only"
)]
unsafe extern "C" {
    pub fn ar_error_kind(error: *const ArError) -> i32;
    pub fn ar_error_message(error: *const ArError) -> *const c_char;
    pub fn ar_error_free(error: *mut ArError);
    pub fn ar_torch_version() -> *const c_char;
    pub fn ar_read_debug_level() -> *mut ArError;
    pub fn ar_debug_is_detail() -> i32;

    pub fn ar_store_tcp(
        host: *const c_char,
        port: u16,
        world_size: i64,
        is_master: i32,
        timeout_ms: i64,
        multi_tenant: i32,
        made: *mut *mut ArStore,
    ) -> *mut ArError;
    pub fn ar_store_file(
        path: *const c_char,
        world_size: i32,
        made: *mut *mut ArStore,
    ) -> *mut ArError;
    pub fn ar_store_prefix(
        prefix: *const c_char,
        inner: *const ArStore,
        made: *mut *mut ArStore,
    ) -> *mut ArError;
    pub fn ar_store_set_timeout(store: *const ArStore, timeout_ms: i64) -> *mut ArError;
    pub fn ar_store_add(
        store: *const ArStore,
        key: *const c_char,
        value: i64,
        sum: *mut i64,
    ) -> *mut ArError;
    pub fn ar_store_set(
        store: *const ArStore,
        key: *const c_char,
        value: *const c_char,
    ) -> *mut ArError;
    pub fn ar_store_wait(
        store: *const ArStore,
        key: *const c_char,
        timeout_ms: i64,
    ) -> *mut ArError;
    pub fn ar_store_free(store: *mut ArStore);

    pub fn ar_tensor_view(
        base: ArTensor,
        scalar_type: i8,
        sizes: *const i64,
        strides: *const i64,
        dimensions: usize,
        offset: i64,
        made: *mut ArTensor,
    ) -> *mut ArError;
    pub fn ar_mode_inference(made: *mut *mut ArMode) -> *mut ArError;
    pub fn ar_mode_free(mode: *mut ArMode);

    pub fn ar_device_set(device: *const c_char) -> *mut ArError;
    pub fn ar_device_synchronize(device: *const c_char) -> *mut ArError;
    pub fn ar_device_count(device: *const c_char, count: *mut i32) -> *mut ArError;

    pub fn ar_group_new(
        store: *const ArStore,
        rank: i32,
        size: i32,
        default_backend: *const c_char,
        made: *mut *mut ArGroup,
    ) -> *mut ArError;
    pub fn ar_group_add_gloo(
        group: *const ArGroup,
        devices: *const *const c_char,
        device_count: usize,
        store: *const ArStore,
        timeout_ms: i64,
        global_ranks: *const u64,
        rank_count: usize,
        name: *const c_char,
        wrapped: i32,
    ) -> *mut ArError;
    pub fn ar_group_add_nccl(
        group: *const ArGroup,
        devices: *const *const c_char,
        device_count: usize,
        store: *const ArStore,
        timeout_ms: i64,
        global_ranks: *const u64,
        rank_count: usize,
        name: *const c_char,
        wrapped: i32,
        bound: *const c_char,
    ) -> *mut ArError;
    pub fn ar_has_nccl() -> i32;
    pub fn ar_group_name(
        group: *const ArGroup,
        name: *const c_char,
        description: *const c_char,
    ) -> *mut ArError;
    pub fn ar_group_bind(group: *const ArGroup, device: *const c_char) -> *mut ArError;
    pub fn ar_group_supports_coalescing(
        group: *const ArGroup,
        tensor: ArTensor,
        answer: *mut i32,
    ) -> *mut ArError;
    pub fn ar_group_start_coalescing(group: *const ArGroup, tensor: ArTensor) -> *mut ArError;
    pub fn ar_group_end_coalescing(
        group: *const ArGroup,
        tensor: ArTensor,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_group_timeout(
        group: *const ArGroup,
        device: *const c_char,
        timeout_ms: *mut i64,
    ) -> *mut ArError;
    pub fn ar_group_shutdown(group: *const ArGroup) -> *mut ArError;
    pub fn ar_group_abort(group: *const ArGroup) -> *mut ArError;
    pub fn ar_group_free(group: *mut ArGroup);

    pub fn ar_all_reduce(
        group: *const ArGroup,
        tensors: ArList,
        op: ArOp,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_all_reduce_coalesced(
        group: *const ArGroup,
        tensors: ArList,
        op: ArOp,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_broadcast(
        group: *const ArGroup,
        tensor: ArTensor,
        root: i64,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_reduce(
        group: *const ArGroup,
        tensor: ArTensor,
        op: ArOp,
        root: i64,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_all_gather(
        group: *const ArGroup,
        outputs: ArList,
        input: ArTensor,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_all_gather_coalesced(
        group: *const ArGroup,
        outputs: *const ArList,
        output_count: usize,
        inputs: ArList,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_all_gather_into_tensor(
        group: *const ArGroup,
        output: ArTensor,
        input: ArTensor,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_all_gather_into_tensor_coalesced(
        group: *const ArGroup,
        outputs: ArList,
        inputs: ArList,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_gather(
        group: *const ArGroup,
        input: ArTensor,
        outputs: *const ArList,
        root: i64,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_scatter(
        group: *const ArGroup,
        output: ArTensor,
        inputs: *const ArList,
        root: i64,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_reduce_scatter(
        group: *const ArGroup,
        output: ArTensor,
        inputs: ArList,
        op: ArOp,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_reduce_scatter_tensor(
        group: *const ArGroup,
        output: ArTensor,
        input: ArTensor,
        op: ArOp,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_reduce_scatter_tensor_coalesced(
        group: *const ArGroup,
        outputs: ArList,
        inputs: ArList,
        op: ArOp,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_all_to_all(
        group: *const ArGroup,
        outputs: ArList,
        inputs: ArList,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_all_to_all_single(
        group: *const ArGroup,
        output: ArTensor,
        input: ArTensor,
        output_splits: *const i64,
        output_count: usize,
        input_splits: *const i64,
        input_count: usize,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_barrier(
        group: *const ArGroup,
        device: *const c_char,
        is_async: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_monitored_barrier(group: *const ArGroup, timeout_ms: i64) -> *mut ArError;
    pub fn ar_send(
        group: *const ArGroup,
        tensor: ArTensor,
        peer: i32,
        tag: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_recv(
        group: *const ArGroup,
        tensor: ArTensor,
        peer: i32,
        tag: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;
    pub fn ar_recv_any(
        group: *const ArGroup,
        tensor: ArTensor,
        tag: i32,
        made: *mut *mut ArWork,
    ) -> *mut ArError;

    pub fn ar_work_wait(work: *const ArWork, timeout_ms: i64) -> *mut ArError;
    pub fn ar_work_is_completed(work: *const ArWork, answer: *mut i32) -> *mut ArError;
    pub fn ar_work_source(work: *const ArWork, rank: *mut i32) -> *mut ArError;
    pub fn ar_work_future(work: *const ArWork, done: *mut i32) -> *mut ArError;
    pub fn ar_work_free(work: *mut ArWork);

    pub fn ar_recorder_dump(nccl: i32, made: *mut *mut ArText) -> *mut ArError;
    pub fn ar_text_chars(text: *const ArText) -> *const c_char;
    pub fn ar_text_free(text: *mut ArText);
}
