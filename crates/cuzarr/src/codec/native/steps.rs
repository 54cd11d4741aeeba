//! The steps by which a device does the work of codecs.

use cuzarr_device::{DType, Packing, Tail};

use super::{Map, Step};
use crate::codec::ChunkSpec;
use crate::codec::device::FrameDecoder;
use crate::codec::host::{ArrayToArray, ArrayToBytes, BytesToBytes, ON_HOST, TailPart};
use crate::codec::size::Size;
use crate::codec::step::{Location, PackedBits};

/// The steps by which a device decodes a bytes→bytes codec, or the reason why the host does.
pub(crate) fn bytes_steps(codec: &dyn BytesToBytes, decoded: Size) -> Result<Vec<Step>, &'static str> {
    match (codec.device_decoder(), decoded) {
        (Some(decoder), Size::Exact(bytes)) => {
            let decoded_bytes = usize::try_from(bytes).map_err(|_| ON_HOST)?;
            Ok(vec![Step::Decode { decoder: FrameDecoder::Any(decoder), decoded_bytes }])
        }
        (Some(_), _) => Err("metadata does not fix its decoded size"),
        (None, _) => codec.native(decoded).map(|step| vec![step]).ok_or(codec.host_reason()),
    }
}

/// The steps by which a device decodes an array→bytes codec to chunks of `spec`.
pub(crate) fn serializer_steps(codec: &dyn ArrayToBytes, spec: &ChunkSpec) -> Result<Vec<Step>, &'static str> {
    if let (Some(decoder), Ok(decoded_bytes)) = (codec.device_decoder(), spec.size_bytes()) {
        return Ok(vec![Step::Decode { decoder, decoded_bytes }]);
    }
    if let Some(steps) = codec.native() {
        return Ok(steps);
    }
    let (Some(steps), Ok(dtype), Some(len)) = (codec.steps(), spec.dtype(), len_of(spec)) else {
        return Err(codec.host_reason());
    };
    Ok(vec![Step::Map(Map::flat(Tail { steps, ..Tail::plain(dtype) }, len))])
}

/// The steps by which a device decodes an array→array codec to chunks of `decoded`.
pub(crate) fn array_steps(codec: &dyn ArrayToArray, decoded: &ChunkSpec) -> Result<Vec<Step>, &'static str> {
    let encoded = codec.encoded_spec();
    let (Ok(dtype), Ok(packed), Some(len)) = (decoded.dtype(), encoded.dtype(), len_of(decoded)) else {
        return Err(ON_HOST);
    };
    match codec.tail() {
        TailPart::Steps { read, write } => {
            let tail = Tail { packing: Packing::Plain, packed, steps: read, write_steps: Some(write), dtype };
            Ok(vec![Step::Map(Map::flat(tail, len))])
        }
        TailPart::Axes(axes) => {
            let shape: Vec<usize> = decoded.shape.iter().map(|&extent| extent as usize).collect();
            let mut packed_strides = vec![0; axes.len()];
            let mut stride = 1;
            for &axis in axes.iter().rev() {
                packed_strides[axis] = stride as isize;
                stride *= shape[axis];
            }
            Ok(vec![Step::Map(Map { tail: Tail::plain(dtype), shape, packed_strides })])
        }
        TailPart::Bits(header) => {
            let tail = Tail { packing: Packing::Bits, ..Tail::plain(DType::BOOL) };
            Ok(vec![header_step(&header), Step::Map(Map::flat(tail, len))])
        }
        TailPart::Host(reason) => codec.native().ok_or(reason),
    }
}

/// The step that checks the byte in front of packed booleans.
pub(crate) fn header_step(header: &PackedBits) -> Step {
    Step::Header { expected: header.padding, location: Location::Start }
}

fn len_of(spec: &ChunkSpec) -> Option<usize> {
    usize::try_from(spec.elements()?).ok()
}
