//! Launches the kernels of `scan.cu`, which compute running sums and products.

use crate::array::dtype::DType;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::memory::pool;
use crate::ops::launch::{blocks, threads};
use crate::ops::lines::Lines;
use crate::ops::scan::{SEGMENT, Scan, TEXT};
use crate::stream::Stream;

static SCAN: KernelSource = KernelSource { name: "scan", text: TEXT, headers: &[] };

/// Computes running sums or products of packed int64, float64 or complex128, in place and in stream order. There must
/// be at least one element.
pub(crate) fn scan(values: &Buffer, dtype: DType, lines: Lines, operation: Scan, stream: &Stream) -> Result<()> {
    let segments = lines.extent.div_ceil(SEGMENT);
    let of_totals = Lines { extent: segments, ..lines };
    let threads = threads(stream.device());
    let launch = |name: &str, totals: &Buffer| {
        let kernel = SCAN.kernel(stream.device(), &format!("{name}_{dtype}"))?;
        let grid = blocks(&kernel, of_totals.len().div_ceil(threads.into()));
        let arguments = (values.address(), totals.address(), lines, operation as u32);
        // SAFETY: the parameters of both kernels. `values` has the elements of the lines. If lines have several
        // segments, `totals` has an element for each segment; otherwise no kernel touches it.
        unsafe { kernel.launch(stream, grid, threads, arguments, &[values, totals]) }
    };
    if segments == 1 {
        return launch("scan_segments", values);
    }
    let totals = pool::allocate(of_totals.len() as usize * dtype.size_bytes(), stream)?;
    launch("scan_totals", &totals)?;
    scan(&totals, dtype, of_totals, operation, stream)?;
    launch("scan_segments", &totals)
}
