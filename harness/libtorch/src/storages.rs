//! Storages and tensors: raw bytes from the wire become tensors, and the same bytes go back.
//!
//! Each storage is a tensor of bytes that libtorch has allocated (64 bytes aligned, as all of its tensors), and is read
//! from the socket in place. The step's tensors are views of it, so nothing is copied on the CPU; and a work that outlives
//! its step keeps the memory it writes to. On a device each storage is copied there and back.

use allranks_protocol::Tensor as Spec;
use tch::{Device, Tensor};

use crate::c10d::{self, Error, Kind, Result};

/// The storages of one step.
#[derive(Debug)]
pub struct Storages {
    bytes: Vec<Tensor>,
    lengths: Vec<usize>,
    /// The copy of a storage that the tensors are views of, by index; `None` if they are views of `bytes`.
    copies: Vec<Option<Tensor>>,
}

impl Storages {
    /// Allocates storages of these lengths in bytes.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(lengths: &[u64]) -> Result<Self> {
        let bytes = lengths
            .iter()
            .map(|length| Tensor::f_empty([*length as i64], (tch::Kind::Uint8, Device::Cpu)))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Self {
            copies: lengths.iter().map(|_| None).collect(),
            lengths: lengths.iter().map(|length| *length as usize).collect(),
            bytes,
        })
    }

    /// Returns the number of storages.
    pub fn count(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of one storage, as they are now.
    ///
    /// # Errors
    /// None of a storage made by [`Self::new`].
    pub fn bytes(&self, index: usize) -> Result<&[u8]> {
        c10d::bytes(&self.bytes[index])
    }

    /// Returns the bytes of one storage, to be filled before any tensor is a view of them.
    ///
    /// # Errors
    /// None of a storage made by [`Self::new`].
    pub fn bytes_mut(&mut self, index: usize) -> Result<&mut [u8]> {
        c10d::bytes_mut(&mut self.bytes[index])
    }

    /// Makes the step's tensors on a device, or in page-locked memory of the host.
    ///
    /// # Errors
    /// torch's.
    pub fn tensors(
        &mut self,
        specs: &[Spec],
        device: Device,
        is_pinned: bool,
    ) -> Result<Vec<Tensor>> {
        self.copies.fill_with(|| None);
        specs
            .iter()
            .map(|spec| {
                let place = if spec.host { Device::Cpu } else { device };
                let base = self.base(spec.storage, place, is_pinned)?;
                let size = spec.dtype.size();
                let whole = (self.lengths[spec.storage] / size * size) as i64;
                let numbers = |from: &[u64]| from.iter().map(|n| *n as i64).collect::<Vec<_>>();
                c10d::view(
                    &base.f_narrow(0, 0, whole)?,
                    spec.dtype,
                    &numbers(&spec.shape),
                    &numbers(&spec.strides),
                    spec.offset as i64,
                )
            })
            .collect()
    }

    /// Returns a whole storage on the device of its tensors.
    fn base(&mut self, index: usize, place: Device, is_pinned: bool) -> Result<Tensor> {
        let Some(bytes) = self.bytes.get(index) else {
            return Err(Error::new(
                Kind::Index,
                format!("there is no storage {index}"),
            ));
        };
        if let Some(copy) = &self.copies[index] {
            return Ok(copy.shallow_clone());
        }
        let copy = if is_pinned {
            bytes.f_pin_memory(Device::Cuda(0))?
        } else if place == Device::Cpu {
            return Ok(bytes.shallow_clone());
        } else {
            bytes.f_to_device(place)?
        };
        self.copies[index] = Some(copy.shallow_clone());
        Ok(copy)
    }

    /// Copies the bytes of tensors on another device back.
    ///
    /// # Errors
    /// torch's.
    pub fn read_back(&mut self) -> Result<()> {
        for (bytes, copy) in self.bytes.iter_mut().zip(&self.copies) {
            if let Some(copy) = copy {
                bytes.f_copy_(copy)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_model::dtype::DType;

    fn spec(storage: usize, dtype: DType, shape: &[u64], strides: &[u64], offset: u64) -> Spec {
        Spec {
            storage,
            dtype,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset,
            host: false,
        }
    }

    #[test]
    fn tensors_are_the_storage_itself() {
        let mut storages = Storages::new(&[9, 0]).unwrap();
        storages.bytes_mut(0).unwrap().copy_from_slice(&[0; 9]);
        let specs = [
            spec(0, DType::Uint16, &[2], &[2], 1),
            spec(0, DType::Uint8, &[], &[], 8),
            spec(1, DType::Float32, &[0], &[1], 0),
        ];
        let mut tensors = storages.tensors(&specs, Device::Cpu, false).unwrap();
        assert_eq!(tensors[2].size(), [0]);
        let _ = tensors[1].fill_(7);
        assert_eq!(storages.bytes(0).unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 7]);
        let _ = tensors[0].f_fill_(0x0102).unwrap();
        assert_eq!(storages.bytes(0).unwrap(), [0, 0, 2, 1, 0, 0, 2, 1, 7]);
        assert_eq!(storages.bytes_mut(0).unwrap().as_ptr() as usize % 64, 0);
    }

    #[test]
    fn a_view_beyond_the_storage_is_refused() {
        let mut storages = Storages::new(&[8]).unwrap();
        let specs = [spec(0, DType::Float32, &[3], &[1], 0)];
        let refused = storages.tensors(&specs, Device::Cpu, false).unwrap_err();
        assert!(refused.message.contains("out of bounds"), "{refused}");
    }
}
