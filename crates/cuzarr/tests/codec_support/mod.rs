//! Whole chunks through a chain's program and its tail.

use cuzarr::internal::codec::Chain;
use cuzarr_device::internal::transfer::{gather_host, scatter_host};
use cuzarr_device::{Device, NdBuffer, Order, Transfer, TransferBox};

fn shape(chain: &Chain) -> Vec<usize> {
    chain.spec().shape.iter().map(|&extent| extent as usize).collect()
}

/// The movement of one whole chunk.
fn transfer(chain: &Chain) -> Transfer {
    let program = chain.bind(Device::Cpu).unwrap();
    let shape = shape(chain);
    let mut packed_strides = vec![0; shape.len()];
    let mut stride = 1;
    for &axis in program.packed_axes().iter().rev() {
        packed_strides[axis] = stride;
        stride *= shape[axis] as isize;
    }
    let whole = TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: program.packed_size_bytes(),
        packed_first_elem: 0,
        start: vec![0; shape.len()],
        extent: shape,
    };
    Transfer { tail: program.tail().clone(), packed_strides, lists: None, boxes: vec![whole] }
}

/// The elements of one stored chunk, through passes and tail.
pub fn decode(chain: &Chain, stored: &[u8]) -> cuzarr::Result<Vec<u8>> {
    let program = chain.bind(Device::Cpu)?;
    let mut packed = vec![0; program.packed_size_bytes()];
    program.decode(stored, &mut packed)?;
    let target = NdBuffer::zeroed(Device::Cpu, program.tail().dtype, &shape(chain), Order::C)?;
    scatter_host(&packed, &transfer(chain), &target)?;
    Ok(target.to_host_bytes(Order::C)?)
}

/// What is stored for one chunk of elements, through tail and passes.
pub fn encode(chain: &Chain, elements: &[u8]) -> cuzarr::Result<Vec<u8>> {
    let program = chain.bind(Device::Cpu)?;
    let source = NdBuffer::from_host(Device::Cpu, program.tail().dtype, &shape(chain), Order::C, elements)?;
    let mut packed = vec![0; program.packed_size_bytes()];
    gather_host(&source, &transfer(chain), &mut packed)?;
    program.encode(&packed)
}
