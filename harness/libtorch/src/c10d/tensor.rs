//! Functions on tensors that tch lacks: a tensor's memory as bytes, views of any dtype, and inference mode.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use allranks_model::dtype::DType;
use tch::Tensor;

use super::error::check;
use super::{Error, Kind, Result, sys};

/// Returns the number of a `c10::ScalarType` (torch/headeronly/core/ScalarType.h). tch has no names for the wide unsigned ones.
fn scalar_type(dtype: DType) -> i8 {
    match dtype {
        DType::Uint8 => 0,
        DType::Int8 => 1,
        DType::Int16 => 2,
        DType::Int32 => 3,
        DType::Int64 => 4,
        DType::Float16 => 5,
        DType::Float32 => 6,
        DType::Float64 => 7,
        DType::Complex64 => 9,
        DType::Complex128 => 10,
        DType::Bool => 11,
        DType::Bfloat16 => 15,
        DType::Float8E5m2 => 23,
        DType::Float8E4m3fn => 24,
        DType::Uint16 => 27,
        DType::Uint32 => 28,
        DType::Uint64 => 29,
    }
}

/// Returns `base.view(dtype).as_strided(shape, strides, offset)`: a tensor on the same memory.
///
/// # Errors
/// torch's: the view reaches beyond the storage.
#[expect(unsafe_code, reason = "a function of the shim makes the tensor")]
pub fn view(
    base: &Tensor,
    dtype: DType,
    shape: &[i64],
    strides: &[i64],
    offset: i64,
) -> Result<Tensor> {
    if shape.len() != strides.len() {
        return Err(Error::new(Kind::Value, "as many strides as dimensions"));
    }
    let mut made = ptr::null_mut();
    // SAFETY: both slices are as long as is said, the base is a tensor, and the result is written to a variable of ours.
    check(unsafe {
        sys::ar_tensor_view(
            pointer(base),
            scalar_type(dtype),
            shape.as_ptr(),
            strides.as_ptr(),
            shape.len(),
            offset,
            &raw mut made,
        )
    })?;
    // SAFETY: the shim has made a tensor on the heap and given it away, as torch-sys's own functions do.
    Ok(unsafe { Tensor::from_ptr(made.cast()) })
}

/// Returns the address and the length in bytes of a tensor of bytes; `None` if it has no bytes.
fn memory(tensor: &Tensor) -> Result<Option<(NonNull<u8>, usize)>> {
    let is_plain = tensor.f_kind()? == tch::Kind::Uint8
        && tensor.device() == tch::Device::Cpu
        && tensor.is_contiguous();
    if !is_plain {
        return Err(Error::new(
            Kind::Type,
            "only a dense tensor of bytes on the CPU can be seen as bytes",
        ));
    }
    let length = tensor.numel();
    Ok(NonNull::new(tensor.data_ptr().cast::<u8>())
        .filter(|_| length > 0)
        .map(|begin| (begin, length)))
}

/// Returns the memory of a tensor of bytes, not copied.
///
/// # Errors
/// It is no dense tensor of bytes on the CPU.
#[expect(unsafe_code, reason = "a tensor's memory is read as bytes")]
pub fn bytes(tensor: &Tensor) -> Result<&[u8]> {
    Ok(match memory(tensor)? {
        // SAFETY: the tensor has so many bytes there for as long as it lives, which is longer than the slice. A backend
        // that has not done with it may still write to it: then what is read is what the check is about.
        Some((begin, length)) => unsafe { slice::from_raw_parts(begin.as_ptr(), length) },
        None => &[],
    })
}

/// Returns the memory of a tensor of bytes, to be written to.
///
/// # Errors
/// It is no dense tensor of bytes on the CPU.
#[expect(unsafe_code, reason = "a tensor's memory is written as bytes")]
pub fn bytes_mut(tensor: &mut Tensor) -> Result<&mut [u8]> {
    Ok(match memory(tensor)? {
        // SAFETY: as above; and the rank writes before it shows the tensor to any backend.
        Some((begin, length)) => unsafe { slice::from_raw_parts_mut(begin.as_ptr(), length) },
        None => &mut [],
    })
}

/// Returns the pointer of a tensor, to be lent to the shim.
pub(super) fn pointer(tensor: &Tensor) -> sys::ArTensor {
    tensor.as_ptr().cast_mut().cast()
}

/// A guard: this thread is in inference mode until it is dropped.
#[derive(Debug)]
pub struct InferenceMode(NonNull<sys::ArMode>, PhantomData<*const ()>);

impl InferenceMode {
    /// Enters inference mode on this thread.
    ///
    /// # Errors
    /// torch's.
    #[expect(unsafe_code, reason = "a function of the shim")]
    pub fn enter() -> Result<Self> {
        let mut made = ptr::null_mut();
        // SAFETY: the result is written to a variable of ours.
        check(unsafe { sys::ar_mode_inference(&raw mut made) })?;
        let made =
            NonNull::new(made).ok_or_else(|| Error::new(Kind::Runtime, "no mode was made"))?;
        Ok(Self(made, PhantomData))
    }
}

impl Drop for InferenceMode {
    #[expect(
        unsafe_code,
        reason = "the mode is left once, here, on the thread that entered it, which it cannot leave"
    )]
    fn drop(&mut self) {
        // SAFETY: the pointer is valid, and is not used after this.
        unsafe { sys::ar_mode_free(self.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_bytes_are_seen_as_bytes() {
        let cpu = tch::Device::Cpu;
        let mut tensor = Tensor::zeros([3], (tch::Kind::Uint8, cpu));
        bytes_mut(&mut tensor).unwrap()[1] = 7;
        assert_eq!(Vec::<u8>::try_from(&tensor).unwrap(), [0, 7, 0]);
        assert_eq!(
            bytes(&Tensor::zeros([0], (tch::Kind::Uint8, cpu))),
            Ok(&[][..])
        );
        assert!(bytes(&Tensor::zeros([3], (tch::Kind::Float, cpu))).is_err());
        let strided = Tensor::zeros([6], (tch::Kind::Uint8, cpu)).slice(0, 0, 6, 2);
        assert!(bytes(&strided).is_err());
    }
}
