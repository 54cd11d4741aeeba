//! Tests of the placements of reads and writes under many circumstances.

use cuzarr_device::{DType, Device};
use serde_json::{Value, json};

use super::write::{ENCODING_BATCHES, EncodingLoad};
use super::*;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::{ChunkSpec, Program};
use crate::meta::{DataType, Extension, FillValue};
use crate::plan::write::Coverage;

#[test]
fn little_is_encoded_by_the_host_and_much_by_the_device() {
    let speeds = EncodingSpeeds { host_thread_gb_s: 0.6, device_gb_s: 40.0, device_s: 1e-3 };
    let prefers = |chunks, chunk_bytes, threads| {
        EncodingLoad { chunks, chunk_bytes, threads, staged: false }.prefers_device(&speeds)
    };
    assert!(!prefers(1, 64 << 10, 16) && !prefers(16, 256 << 10, 16));
    assert!(prefers(1, 16 << 20, 16), "the device divides one chunk, the host does not");
    assert!(prefers(512, 1 << 20, 16) && prefers(8192, 64 << 10, 16));
    assert!(!prefers(8192, 64 << 10, 200), "threads enough");
}

/// Makes the program for chunks of `floats` floats with these codecs.
fn program(codecs: &Value, floats: u64, device: Device) -> Program {
    chain(codecs, floats).bind(device).unwrap()
}

/// Makes the chain of these codecs for chunks of `floats` floats.
fn chain(codecs: &Value, floats: u64) -> Chain {
    let codecs = codecs.as_array().unwrap().iter().map(|codec| Extension::from_json(codec, "codecs").unwrap());
    let data_type = DataType::try_from(DType::FLOAT32).unwrap();
    let fill_value = FillValue::default_of(&data_type);
    let spec = ChunkSpec::new(vec![floats], data_type, fill_value);
    Chain::from_codecs(&codecs.collect::<Vec<_>>(), spec).unwrap()
}

/// The circumstances of a large read, for tests.
fn reading() -> Circumstances {
    Circumstances {
        multiprocessors: 132,
        threads: 4,
        force_device: false,
        memory_limit_bytes: 1 << 30,
        slab_bytes: 16 << 20,
        decode_batch_bytes: 64 << 20,
        chunks: 4096,
        in_turn: false,
        is_resident: false,
        one_chunk_bytes: None,
    }
}

/// Chooses the route of a read of chunks of `floats` floats with these codecs. `change` adapts the circumstances of a
/// large read.
fn route(codecs: &Value, floats: u64, device: Device, change: impl Fn(&mut Circumstances)) -> Route {
    let (program, mut given) = (program(codecs, floats, device), reading());
    change(&mut given);
    ReadPlacement::new(Some(&program), device, &given).route
}

/// The circumstances of a write of `chunks` chunks of `floats` floats, each replaced as a whole.
fn writing(chunks: u64, floats: u64) -> WriteCircumstances {
    WriteCircumstances {
        device: Device::Cuda(0),
        staged: false,
        threads: 16,
        force_device: true,
        chunks,
        chunk_elements: floats as usize,
        part_elements: floats as usize,
        least: Coverage::Full,
        has_lists: false,
        write_empty: false,
        is_resident: false,
        takes_parts: false,
        memory_limit_bytes: 16 << 30,
        batch_bytes: 16 << 20,
        slab_bytes: 16 << 20,
    }
}

/// The kernels that this write uses, or the reason why the host encodes.
fn encoding(program: &Program, given: &WriteCircumstances) -> Result<DeviceEncoding, &'static str> {
    let placement = WritePlacement::new(Some(program), given);
    match &placement.route {
        WriteRoute::Device(device) => device.encoding.clone().ok_or_else(|| placement.left().unwrap()),
        route => panic!("{route:?}"),
    }
}

#[test]
fn kernels_encode_fewer_batches_at_a_time_where_memory_is_short() {
    let codecs = json!([{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]);
    let program = program(&codecs, 1 << 22, Device::Cuda(0));
    let mut given = writing(8, 1 << 22);
    let roomy = encoding(&program, &given).unwrap();
    assert_eq!((roomy.chunks, roomy.batches), (1, ENCODING_BATCHES));
    let mut batches = Vec::new();
    for limit in (1..200).rev().map(|step| step * roomy.memory_bytes / 100) {
        given.memory_limit_bytes = limit;
        match encoding(&program, &given) {
            Ok(encoding) => {
                assert!(encoding.memory_bytes <= limit, "{encoding:?}");
                batches.push(encoding.batches);
            }
            Err(reason) => assert!(reason.contains("memory"), "{reason}"),
        }
    }
    assert!(batches.is_sorted_by(|before, after| before >= after));
    batches.dedup();
    assert_eq!(batches, [4, 3, 2, 1]);
    given.memory_limit_bytes = 16 << 20;
    assert!(encoding(&program, &given).is_err(), "not even one");
}

#[test]
fn batches_grow_with_the_write_and_few_large_chunks_are_encoded_at_a_time() {
    let codecs = json!([{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]);
    let batches = |floats: u64, chunks: u64| {
        let encoding = encoding(&program(&codecs, floats, Device::Cuda(0)), &writing(chunks, floats)).unwrap();
        (encoding.chunks, encoding.batches)
    };
    let mib = 1 << 18;
    assert_eq!(batches(mib, 128), (16, 4), "a usual batch");
    assert_eq!(batches(mib, 512), (32, 4), "512 MiB in 16 batches");
    assert_eq!(batches(mib, 1 << 20), (64, 4), "the largest batch");
    assert_eq!(batches(64 * mib, 64), (1, 2), "large chunks");
}

#[test]
fn a_chunk_of_a_device_goes_by_the_route_that_its_coverage_allows() {
    let gpu = Device::Cuda(0);
    let (plain, lz4) = (json!([]), json!([{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]));
    let route = |codecs: &Value, coverage, change: &dyn Fn(&mut WriteCircumstances)| {
        let mut given = WriteCircumstances { least: coverage, ..writing(512, 1 << 18) };
        change(&mut given);
        match WritePlacement::new(Some(&program(codecs, 1 << 18, gpu)), &given).route {
            WriteRoute::Device(device) => Some(device.route_of(coverage, true, true)),
            _ => None,
        }
    };
    let (whole, edge, part) = (Coverage::Full, Coverage::UpToEdge, Coverage::Part);
    let as_it_is = |_: &mut WriteCircumstances| {};
    let is_resident = |given: &mut WriteCircumstances| given.is_resident = true;
    assert_eq!(route(&lz4, whole, &as_it_is), Some(ChunkRoute::Kernels));
    assert_eq!(route(&lz4, part, &as_it_is), Some(ChunkRoute::Merge));
    assert_eq!(route(&lz4, whole, &is_resident), Some(ChunkRoute::Kernels), "frames stay, chunks do not");
    assert_eq!(route(&plain, whole, &as_it_is), Some(ChunkRoute::Packed));
    assert_eq!(route(&plain, edge, &as_it_is), Some(ChunkRoute::Elements));
    assert_eq!(route(&plain, edge, &is_resident), Some(ChunkRoute::Resident));
    assert_eq!(route(&plain, part, &is_resident), Some(ChunkRoute::Elements));
    assert_eq!(route(&plain, part, &|given| given.has_lists = true), None, "the host merges");
    assert_eq!(route(&lz4, part, &|given| given.has_lists = true), Some(ChunkRoute::Merge));
    assert_eq!(route(&lz4, whole, &|given| given.device = Device::Cpu), None);
}

/// The text with which `strict` refuses a read or write; empty if it is allowed.
fn refusal(outcome: Result<()>) -> String {
    outcome.map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn strict_refuses_what_the_placement_leaves_to_the_host_and_nothing_else() {
    let gpu = Device::Cuda(0);
    let chain = |codecs: &Value| {
        let codecs = codecs.as_array().unwrap().iter().map(|codec| Extension::from_json(codec, "codecs").unwrap());
        let data_type = DataType::try_from(DType::FLOAT32).unwrap();
        let fill_value = FillValue::default_of(&data_type);
        let spec = ChunkSpec::new(vec![1 << 18], data_type, fill_value);
        Chain::from_codecs(&codecs.collect::<Vec<_>>(), spec).unwrap()
    };
    let (zstd, bz2) = (json!([{"name": "zstd", "configuration": {"level": 3}}]), json!([{"name": "numcodecs.bz2"}]));
    let lz4 = json!([{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]);
    let reads = |codecs: &Value, device, limit_bytes: u64| {
        let chain = chain(codecs);
        let given = Circumstances { force_device: true, memory_limit_bytes: limit_bytes, ..reading() };
        let placement = ReadPlacement::new(Some(&chain.bind(device).unwrap()), device, &given);
        let fallen = placement.codecs(&chain).iter().any(|place| place.via_host.is_some());
        let refused = refusal(placement.refuse_fallen(&chain));
        assert_eq!(fallen, !refused.is_empty(), "strict and explanations agree");
        refused
    };
    assert_eq!(reads(&zstd, gpu, 1 << 30), "");
    assert_eq!(reads(&bz2, Device::Cpu, 1 << 30), "");
    assert!(reads(&bz2, gpu, 1 << 30).contains("bz2"));
    let short = reads(&zstd, gpu, 1 << 20);
    assert!(short.contains("'zstd' (kernels need more memory") && !short.contains("'bytes'"), "{short}");
    let writes = |codecs: &Value, change: &dyn Fn(&mut WriteCircumstances)| {
        let (chain, mut given) = (chain(codecs), writing(512, 1 << 18));
        change(&mut given);
        let program = chain.bind(given.device).unwrap();
        refusal(WritePlacement::new(Some(&program), &given).refuse_fallen(&chain))
    };
    assert_eq!(writes(&lz4, &|_| {}), "");
    assert_eq!(writes(&json!([]), &|given| given.least = Coverage::Part), "", "no codec runs");
    assert_eq!(writes(&bz2, &|given| given.device = Device::Cpu), "");
    assert!(writes(&bz2, &|_| {}).contains("bz2"));
    assert!(writes(&lz4, &|given| given.memory_limit_bytes = 1 << 20).contains("memory"));
    let merged = |limit_bytes: u64| {
        writes(&lz4, &|given| (given.least, given.memory_limit_bytes) = (Coverage::Part, limit_bytes))
    };
    assert_eq!(merged(1 << 30), "");
    let least = (20..30).map(|bits| merged(1 << bits)).find(|refused| !refused.contains("would run on the host"));
    assert!(least.is_some_and(|refused| refused.is_empty() || refused.contains("merge")));
}

#[test]
fn a_route_follows_from_where_bytes_are_and_what_decodes_them() {
    let (gpu, floats, large) = (Device::Cuda(0), 1 << 18, |_: &mut Circumstances| {});
    let (plain, zstd) = (json!([]), json!([{"name": "zstd", "configuration": {"level": 3}}]));
    assert!(matches!(route(&zstd, floats, Device::Cpu, large), Route::Host));
    assert!(matches!(route(&zstd, floats, gpu, large), Route::Kernels(_)));
    assert!(matches!(route(&plain, floats, gpu, large), Route::Hybrid(None)));
    let little = |given: &mut Circumstances| given.memory_limit_bytes = 1 << 20;
    assert!(matches!(route(&zstd, floats, gpu, little), Route::Hybrid(None)));
    let resident = |given: &mut Circumstances| given.is_resident = true;
    assert!(matches!(route(&plain, floats, gpu, resident), Route::Resident(Resident::Packed)));
    assert!(matches!(route(&zstd, floats, gpu, resident), Route::Resident(Resident::Frames(_))));
}

#[test]
fn one_small_chunk_goes_by_the_host_unless_the_device_must_decode() {
    let is_small = |floats: u64, bytes: usize, change: &dyn Fn(&mut Circumstances)| {
        let route = route(&json!([]), floats, Device::Cuda(0), |given| {
            given.one_chunk_bytes = Some(bytes);
            change(given);
        });
        matches!(route, Route::Small)
    };
    assert!(is_small(1 << 15, SMALL_BYTES, &|_| {}));
    assert!(!is_small((1 << 15) + 1, 8, &|_| {}), "all of the chunk is decoded");
    assert!(!is_small(1 << 15, SMALL_BYTES + 1, &|_| {}));
    assert!(!is_small(1 << 15, 8, &|given| given.force_device = true));
    assert!(!is_small(1 << 15, 8, &|given| given.is_resident = true));
    assert!(!is_small(1 << 15, 8, &|given| given.one_chunk_bytes = None));
}

#[test]
fn an_accelerator_takes_chunks_that_kernels_decode_whole() {
    let placed = |codecs: &Value, chunks: u64| {
        let program = program(codecs, 1 << 18, Device::Cuda(0));
        let given = Circumstances { force_device: true, chunks, ..reading() };
        let chain = chain(codecs, 1 << 18);
        ReadPlacement::accelerated(&program, &chain, Device::Cuda(0), &given)
            .map(|placement| (placement.route_name(), placement.offload(&program, chunks).saved_s()))
    };
    let zstd = json!([{"name": "zstd", "configuration": {"level": 3}}]);
    let (route, saved_s) = placed(&zstd, 512).unwrap();
    assert!(route == "kernels" && saved_s > 0.02, "{route} {saved_s}");
    let lz4 = json!([{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]);
    assert_eq!(placed(&lz4, 1).unwrap(), ("kernels", 0.0), "one chunk is decoded sooner by a thread");
    assert!(placed(&zstd, 1).unwrap().1 < placed(&zstd, 16).unwrap().1);
    let mixed = json!([
        {"name": "zstd", "configuration": {"level": 3}},
        {"name": "numcodecs.bz2", "configuration": {"level": 1}}
    ]);
    assert!(placed(&mixed, 512).unwrap_err().starts_with("'numcodecs.bz2': "));
}

#[test]
fn elements_in_host_memory_are_encoded_by_a_device_that_has_room_for_them() {
    let lz4 = json!([{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]);
    let program = program(&lz4, 1 << 18, Device::Cpu);
    let placed = |change: &dyn Fn(&mut WriteCircumstances)| {
        let mut given = WriteCircumstances { staged: true, ..writing(512, 1 << 18) };
        change(&mut given);
        WritePlacement::accelerated(Some(&program), &given).map(|(placement, _)| match placement.route {
            WriteRoute::Device(device) => device,
            other => panic!("{other:?}"),
        })
    };
    let whole = placed(&|_| ()).unwrap();
    assert!(!whole.keeps_packed);
    let on_device = WriteCircumstances { staged: false, ..writing(512, 1 << 18) };
    let WriteRoute::Device(own) = WritePlacement::new(Some(&program), &on_device).route else { panic!() };
    let [staged, own] = [whole, own].map(|device| device.encoding.unwrap());
    let part_bytes = (4 << 18) * (staged.chunks * staged.batches) as u64;
    assert!(staged.memory_bytes >= own.memory_bytes + part_bytes, "the parts of all batches have room");
    assert!(placed(&|given| given.has_lists = true).is_err());
    assert!(placed(&|given| given.memory_limit_bytes = 1 << 20).is_err());
    let few = WriteCircumstances { staged: true, force_device: false, ..writing(1, 1 << 14) };
    let small = chain(&lz4, 1 << 14).bind(Device::Cpu).unwrap();
    assert!(WritePlacement::accelerated(Some(&small), &few).unwrap_err().contains("small"));
    assert!(WritePlacement::accelerated(None, &WriteCircumstances { staged: true, ..writing(1, 1) }).is_err());
}
