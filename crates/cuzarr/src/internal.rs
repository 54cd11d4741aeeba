//! Items that only the other crates of this workspace, its tests and its fuzz targets use, grouped by module. They are
//! not part of the public interface, and any release may change them.

pub use crate::config::environment::{cores, environment_variable, parse_bytes};
pub use crate::error::{is_printable, nearest, printable, printable_lines};

/// Codec chains: binding them to a device, and running them.
pub mod codec {
    pub use crate::codec::binding::{Stage, Support};
    pub use crate::codec::chain::{Chain, Sharding};
    pub use crate::codec::host::{ArrayToArray, ArrayToBytes, BytesToBytes, TailPart, VariableToBytes};
    pub use crate::codec::program::{Leave, Program, Work};
    pub use crate::codec::registry::{REFUSED, device_decoder};
    pub use crate::codec::sharding_indexed::ShardIndex;
    pub use crate::codec::size::Size;

    /// Decoding or encoding many frames of one codec by one launch.
    pub mod batch {
        pub use crate::codec::batch::*;
    }

    /// The costs of codecs, by device and frame size, from which it is decided where to decode.
    pub mod cost {
        pub use crate::codec::cost::*;
    }

    /// The traits that codecs with kernels implement.
    pub mod device {
        pub use crate::codec::device::*;
    }
}

/// Parts of metadata documents, and the choice of codecs.
pub mod meta {
    /// Chunk and shard shapes in the forms in which callers give them.
    pub mod chunking {
        pub use crate::meta::chunking::*;
    }

    /// The choice of codecs and chunks for new and changed arrays.
    pub mod encoding {
        pub use crate::meta::encoding::*;
    }

    /// The names of metadata documents, such as `zarr.json`.
    pub mod node {
        pub use crate::meta::node::*;
    }
}

/// Functions for single steps of creating, deleting and copying nodes, and access to the inside of arrays and groups.
pub mod node {
    use std::sync::Arc;

    use serde_json::Value;

    use crate::codec::Chain;
    use crate::error::Result;
    use crate::meta::FillValue;
    use crate::meta::chunking::{Chunks, Shards};
    use crate::meta::encoding::IndexLocation;
    use crate::node::{Array, ArrayBuilder, ArrayResize, Group, resize};
    use crate::store::Store;

    pub use crate::node::creation::NewNodes;
    pub use crate::node::deletion::{CHECKPOINT, OLD_COPY_CHECKPOINT, refresh_consolidated};
    pub use crate::node::documents::{FoundNode, Lookup, find_documents, find_many};
    pub use crate::node::group::consolidate;
    pub use crate::node::hierarchy::{gather_documents, walk_documents};
    pub use crate::node::place::refuse_overlap;
    pub use crate::node::resize::ResizeOptions;
    pub use crate::node::unchanged::check_unchanged;

    /// Sets the chunks and shards of a new array in the forms that the Python package accepts. Also sets the place of
    /// the index in a shard.
    pub fn with_grid(
        builder: ArrayBuilder,
        chunks: Chunks,
        shards: Option<Shards>,
        index_location: IndexLocation,
    ) -> ArrayBuilder {
        builder.grid(chunks, shards).index_location(index_location)
    }

    /// Sets the JSON of the data type in a new array's document.
    pub fn with_data_type_words(builder: ArrayBuilder, words: Value) -> ArrayBuilder {
        builder.data_type_words(words)
    }

    /// Sets the value of elements that were never written, for a new array.
    pub fn with_stored_fill_value(builder: ArrayBuilder, value: FillValue) -> ArrayBuilder {
        builder.stored_fill_value(value)
    }

    /// Sets the names of a new array's dimensions; `None` for a dimension without a name.
    pub fn with_optional_dimension_names(builder: ArrayBuilder, names: Vec<Option<String>>) -> ArrayBuilder {
        builder.optional_dimension_names(names)
    }

    /// Returns the codec chain of an array.
    ///
    /// # Errors
    /// `UnknownCodec` and others that the codecs report.
    pub fn chain(array: &Array) -> Result<&Arc<Chain>> {
        array.chain()
    }

    /// Marks that an array's metadata came, or may have come, from the consolidated metadata of a group above it.
    #[must_use]
    pub fn trusting_consolidated(array: Array) -> Array {
        array.trusting_consolidated()
    }

    /// Returns the array with another store object for the same data, such as one that counts requests. Both handles
    /// share the bound codecs and the last report.
    #[must_use]
    pub fn with_store(array: &Array, store: Arc<dyn Store>) -> Array {
        array.with_store(store)
    }

    /// Like [`resize_all`](crate::node::resize_all), but with options.
    ///
    /// # Errors
    /// Those of [`resize_all`](crate::node::resize_all).
    pub fn resize_with(arrays: &mut [ArrayResize<'_>], options: ResizeOptions) -> Result<()> {
        resize::resize_with(arrays, options)
    }

    /// Marks in a group, and in the store, that work on the group is unfinished; `None` removes the mark.
    ///
    /// # Errors
    /// Those of [`Group::set_attributes`].
    pub fn set_unfinished(group: &mut Group, mark: Option<&Value>) -> Result<()> {
        group.set_unfinished(mark)
    }
}

/// Plans of reads and writes, and the values that the engine needs to execute them.
pub mod plan {
    pub use crate::plan::batch::{Batch, ChunkName, Fill, Place, Read, SizeRule, Unit};
    pub use crate::plan::costs::{Costs, Load};
    pub use crate::plan::options::PlanOptions;
    pub use crate::plan::read::{Entries, IndexPlace, IndexRead, Plan, ResultOf, Room, Spacing, Step};
    pub use crate::plan::selection::Parts;
    pub use crate::plan::source::{KeyOf, Source};
    pub use crate::plan::whole::WholeShards;

    /// The kind of a selection, with its ranges, lists or points.
    pub fn parts(selection: &crate::plan::Selection) -> &Parts {
        selection.parts()
    }
}

/// The engine that executes plans, its threads, and the sizes of batches.
pub mod run {
    use cuzarr_device::Device;

    use crate::run::Options;

    pub use crate::run::access::Access;
    pub use crate::run::engine::Engine;
    pub use crate::run::options::Tuning;
    pub use crate::run::read::call::{ArrayRead, ArrayResult};
    pub use crate::run::schedule::walk::{Behind, apart, aside, relay, walk};

    /// The sizes of batches in these options, for tests and measurements that change them.
    pub fn tuning(options: &mut Options) -> &mut Tuning {
        &mut options.tuning
    }

    /// Target size of one batch of a read into memory of `device`, in bytes of decoded chunks before elements are
    /// copied to the result ("packed bytes").
    pub fn batch_bytes(options: &Options, device: Device) -> u64 {
        options.batch_bytes(device)
    }
}

/// Parts from which stores are built, and stores for tests.
pub mod store {
    pub use crate::store::registry::{has_zip_name, is_zip};
    pub use crate::store::values::Values as KeyTable;

    /// Stores for tests that record, fail and delay operations.
    pub mod testing {
        pub use crate::store::testing::*;
    }
}
