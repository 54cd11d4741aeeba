//! Explanations: what a read or write would do, and why, as text and as JSON.

use std::fmt;

use cuzarr_device::Device;
use serde_json::{Value, json};

use super::chunk_order::ChunkOrder;
use super::costs::{Estimate, Load};
use super::options::PlanOptions;
use super::placement::{Decoding, Merging, Placement, ReadPlacement, WritePlacement};
use super::read::Plan;
use super::selection::Selection;
use super::source::{ChunkLayout, Source};
use crate::codec::{Chain, Program};
use crate::error::Result;

/// A description of how a read or write of a selection would be carried out, and why, without doing it.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Whether a write is explained, and not a read.
    pub writing: bool,
    /// The device in whose memory the result of a read or the value of a write lies.
    pub device: String,
    /// The selection that would be read or written.
    pub selection: String,
    /// How chunks get to their destination: `host`, `small`, `variable`, `kernels`, `resident`, or steps such as `host,
    /// then kernels`.
    pub route: String,
    /// The array's codecs in order of encoding, and where each runs.
    pub placements: Vec<Placement>,
    /// The device that decodes or encodes although the elements are in host memory, or why it does not; `None` if no
    /// accelerator is wanted.
    pub accelerator: Option<Acceleration>,
    /// Where a write merges a chunk's old elements with new ones; `None` for reads and if each chunk is replaced as a
    /// whole. `None` for a read, and for a write that replaces each chunk as a whole.
    pub merging: Option<Merging>,
    /// The estimated decoding speeds of device and host, from which it was decided which of the two decodes.
    pub decoding: Vec<Decoding>,
    /// Number of stored objects that the selection touches, including missing ones.
    pub objects: u64,
    /// Number of chunks to decode, if all of them exist.
    pub chunks: u64,
    /// Size of the result in bytes.
    pub result_bytes: u64,
    /// Size in bytes of the chunks to decode, after host codecs are undone.
    pub packed_bytes: u64,
    /// Upper limit of the bytes to read from the store. It is exact for whole uncompressed chunks; otherwise it follows
    /// from the metadata. `None` if the metadata gives no limit.
    pub stored_bytes_at_most: Option<u64>,
    /// The number of batches into which the read or write is divided.
    pub batches: u64,
    /// Maximum number of bytes that may be in flight.
    pub memory_limit_bytes: u64,
    /// Maximum gap in bytes between two ranges of an object that one request reads together.
    pub coalesce_gap_bytes: u64,
    /// Maximum size of one request that reads several chunks.
    pub coalesce_max_bytes: u64,
    /// The chunk cache of the device, if the read uses it.
    pub chunk_cache: Option<CacheState>,
}

/// The accelerator of a read into host memory, or of a write from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceleration {
    /// The device, such as `cuda:0`.
    pub device: String,
    /// Why the host does the work; `None` if the device does.
    pub via_host: Option<String>,
}

/// The chunk cache of a device: what it holds now, and its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Number of chunks of all arrays in the cache.
    pub chunks: u64,
    /// Size of the cached chunks in bytes, with the cache's own tables.
    pub size_bytes: u64,
    /// Maximum size of the cache in bytes.
    pub limit_bytes: u64,
}

impl Explanation {
    /// Describes how a read of `selection` would be carried out, with the route and codecs' devices that `placement`
    /// holds. The chunks of the read are not counted yet.
    pub(crate) fn of_read(
        chain: &Chain,
        program: Option<&Program>,
        placement: &ReadPlacement,
        device: Device,
        selection: &Selection,
        options: &PlanOptions,
        memory_limit_bytes: u64,
    ) -> Explanation {
        let element_bytes = chain.spec().data_type.size_bytes().unwrap_or(0) as u64;
        Explanation {
            writing: false,
            device: device.to_string(),
            selection: selection.to_string(),
            route: placement.route_name().into(),
            placements: placement.codecs(chain),
            accelerator: None,
            merging: None,
            decoding: placement.estimates(program),
            objects: 0,
            chunks: 0,
            result_bytes: selection.len().unwrap_or(u64::MAX).saturating_mul(element_bytes),
            packed_bytes: 0,
            stored_bytes_at_most: Some(0),
            batches: 0,
            memory_limit_bytes,
            coalesce_gap_bytes: options.coalesce_gap_bytes,
            coalesce_max_bytes: options.coalesce_max_bytes,
            chunk_cache: None,
        }
    }

    /// Adds to this explanation the numbers of objects, chunks and bytes that the read `plan` touches.
    ///
    /// # Errors
    /// Errors from the codecs of an object.
    pub(crate) fn count(&mut self, plan: &Plan, batch_bytes: u64) -> Result<()> {
        let (source, before) = (plan.source(), self.packed_bytes);
        for order in plan.orders() {
            if !source.is_uneven() {
                self.add(source, order, source.layout(), order.touched(source.cells(0)), &order.whole());
                continue;
            }
            for object in order.walk_all(source.cells(0)) {
                let layout = source.layout_at(&object.origin)?;
                self.add(source, order, &layout, 1, &object.inside);
            }
        }
        let packed_bytes = self.packed_bytes - before;
        self.batches += packed_bytes.div_ceil(batch_bytes.max(1)).max(u64::from(self.chunks > 0));
        Ok(())
    }

    /// Adds to this explanation's counts the chunks in `objects` stored objects that hold the elements at positions
    /// `inside`.
    fn add(&mut self, source: &Source, order: &ChunkOrder, layout: &ChunkLayout, objects: u64, inside: &[(u64, u64)]) {
        let cells = |level: usize| if level == 0 { objects } else { order.cells(inside, source.cells(level)) };
        let chunks = cells(layout.levels.len() - 1);
        let indexes = layout.levels.iter().enumerate();
        let indexes = indexes.filter_map(|(number, level)| {
            level.shard.as_ref().map(|shard| cells(number).saturating_mul(shard.index_size_bytes))
        });
        let indexes = indexes.fold(0, u64::saturating_add);
        let chunk_bytes = match layout.packed.stored_is_packed {
            true => Some(layout.packed.size_bytes as u64),
            false => layout.leaf().bound_bytes,
        };
        let stored = chunk_bytes.map(|bytes| chunks.saturating_mul(bytes).saturating_add(indexes));
        self.objects = self.objects.saturating_add(objects);
        self.chunks = self.chunks.saturating_add(chunks);
        self.packed_bytes = self.packed_bytes.saturating_add(chunks.saturating_mul(layout.packed.size_bytes as u64));
        self.stored_bytes_at_most =
            self.stored_bytes_at_most.zip(stored).map(|(all, stored)| all.saturating_add(stored));
    }

    /// Turns this explanation of a read to a device into that of a read into host memory whose chunks the device decodes.
    pub(crate) fn back_to_host(&mut self, accelerator: Acceleration) {
        self.device = Device::Cpu.to_string();
        self.route = format!("{}, then host", self.route);
        self.accelerator = Some(accelerator);
    }

    /// Turns this explanation into that of a write, with the route and codecs' devices that `placement` holds.
    #[must_use]
    pub(crate) fn of_write(self, chain: &Chain, placement: &WritePlacement) -> Explanation {
        Explanation {
            writing: true,
            route: placement.route_name().into(),
            placements: placement.codecs(chain),
            merging: placement.merging(),
            decoding: Vec::new(),
            chunk_cache: None,
            ..self
        }
    }

    /// Returns the explanation as a JSON object.
    pub fn to_json(&self) -> Value {
        let placements = self.placements.iter().map(|placement| match &placement.via_host {
            None => json!({ "codec": placement.codec, "placement": "native" }),
            Some(reason) => json!({ "codec": placement.codec, "placement": "via host", "reason": reason }),
        });
        let decoding = self.decoding.iter().map(|decoding| {
            let Decoding { format, frame_bytes, load, estimate } = decoding;
            json!({
                "format": format, "frame_bytes": frame_bytes, "frames_at_once": load.frames, "host_threads": load.threads,
                "device_gb_s": estimate.device_gb_s, "host_gb_s": estimate.host_gb_s,
            })
        });
        json!({
            "action": if self.writing { "write" } else { "read" },
            "device": self.device,
            "selection": self.selection,
            "route": self.route,
            "codecs": placements.collect::<Vec<_>>(),
            "accelerator": self.accelerator.as_ref().map(|Acceleration { device, via_host }| match via_host {
                None => json!({ "device": device, "placement": "native" }),
                Some(reason) => json!({ "device": device, "placement": "via host", "reason": reason }),
            }),
            "parts_of_chunks": self.merging.as_ref().map(|merging| match &merging.via_host {
                None => json!({ "placement": "native" }),
                Some(reason) => json!({ "placement": "via host", "reason": reason }),
            }),
            "decoding": decoding.collect::<Vec<_>>(),
            "objects": self.objects,
            "chunks": self.chunks,
            "result_bytes": self.result_bytes,
            "packed_bytes": self.packed_bytes,
            "stored_bytes_at_most": self.stored_bytes_at_most,
            "batches": self.batches,
            "memory_limit_bytes": self.memory_limit_bytes,
            "coalesce_gap_bytes": self.coalesce_gap_bytes,
            "coalesce_max_bytes": self.coalesce_max_bytes,
            "chunk_cache": self.chunk_cache.map(|cache| {
                let CacheState { chunks, size_bytes, limit_bytes } = cache;
                json!({ "chunks": chunks, "size_bytes": size_bytes, "limit_bytes": limit_bytes })
            }),
        })
    }
}

/// Formats a number of bytes for people to read.
fn readable(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut amount, mut unit) = (bytes as f64 / 1024.0, 0);
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if bytes < 1024 { format!("{bytes} B") } else { format!("{amount:.1} {}", units[unit]) }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.writing {
            false => writeln!(f, "read {} into {}", self.selection, self.device)?,
            true => writeln!(f, "write {} from {}", self.selection, self.device)?,
        }
        writeln!(f, "  route                {}", self.route)?;
        for placement in &self.placements {
            match &placement.via_host {
                None => writeln!(f, "  {:<20} native", placement.codec)?,
                Some(reason) => writeln!(f, "  {:<20} via host: {reason}", placement.codec)?,
            }
        }
        match &self.accelerator {
            None => {}
            Some(Acceleration { device, via_host: None }) => writeln!(f, "  accelerator          {device}")?,
            Some(Acceleration { device, via_host: Some(reason) }) => {
                writeln!(f, "  accelerator          {device} is not used: {reason}")?;
            }
        }
        match &self.merging {
            None => {}
            Some(Merging { via_host: None }) => writeln!(f, "  parts of chunks      native: decoded and merged there")?,
            Some(Merging { via_host: Some(reason) }) => writeln!(f, "  parts of chunks      via host: {reason}")?,
        }
        for Decoding { format, frame_bytes, load, estimate } in &self.decoding {
            let (size, Load { threads, frames }) = (readable(*frame_bytes as u64), load);
            let Estimate { device_gb_s, host_gb_s } = estimate;
            let what = format!("{frames} x {size} of {format} at once");
            writeln!(
                f,
                "  expected             {what}: {device_gb_s:.1} GB/s on the device, {host_gb_s:.1} by {threads} threads"
            )?;
        }
        writeln!(f, "  objects              {}", self.objects)?;
        writeln!(f, "  chunks               {} ({} packed)", self.chunks, readable(self.packed_bytes))?;
        let stored =
            self.stored_bytes_at_most.map_or(String::from("unknown"), |bytes| format!("at most {}", readable(bytes)));
        writeln!(f, "  stored bytes         {stored}")?;
        writeln!(f, "  result               {}", readable(self.result_bytes))?;
        writeln!(f, "  batches              {}", self.batches)?;
        let (gap, most) = (readable(self.coalesce_gap_bytes), readable(self.coalesce_max_bytes));
        writeln!(f, "  reads joined         over gaps up to {gap}, up to {most}")?;
        if let Some(CacheState { chunks, size_bytes, limit_bytes }) = self.chunk_cache {
            let (size, limit) = (readable(size_bytes), readable(limit_bytes));
            writeln!(f, "  chunk cache          {chunks} chunks, {size} of at most {limit}")?;
        }
        write!(f, "  memory in flight     at most {}", readable(self.memory_limit_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(
            (readable(12), readable(1536), readable(3 << 30)),
            ("12 B".into(), "1.5 KiB".into(), "3.0 GiB".into())
        );
    }
}
