//! The JSON that callers pass: options of arrays and writers, and descriptions of new arrays and groups. Errors are
//! `InvalidArgument`: text that is no JSON object, and unknown or missing members and values. Fuzz targets use this file
//! by itself.

use std::sync::Arc;
use std::time::Duration;

use cuzarr::config::{Accelerator, Config};
use cuzarr::meta::{ArrayMetadata, DataType, Extension, ZarrFormat};
use cuzarr::node::{Array, ArrayOptions, Group, GroupBuilder, WriterOptions};
use cuzarr::store::{ReadOnly, Store};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_remote::StorageOptions;
use serde_json::{Map, Value};

/// How arrays and groups are opened: options of arrays, options of stores, and whether nothing may be changed.
pub struct Options {
    /// The options of the array, or of arrays that the group opens.
    pub array: ArrayOptions,
    storage: StorageOptions,
    read_only: bool,
}

/// The names of all options.
const OPTIONS: &str = "accelerator chunk_cache chunk_cache_bytes chunk_cache_max_age coalesce_gap_bytes coalesce_max_bytes \
    memory_limit_bytes mode read_missing_chunks storage_options strict threads variable_limit_bytes \
    write_empty_chunks";

impl Options {
    /// Parses options from a JSON object. `None` gives the defaults, with what the environment sets.
    ///
    /// # Errors
    /// `ConfigInvalid` for a variable of the environment that is not valid.
    pub fn parse(text: Option<&str>, device: Option<&str>) -> Result<Options> {
        let mut array = ArrayOptions::from(&Config::from_environment()?);
        let (mut storage, mut read_only) = (StorageOptions::from_environment(), false);
        for (name, value) in members(text, "options")? {
            let name = name.as_str();
            match name {
                "accelerator" => array.accelerator = word(name, &value)?.parse::<Accelerator>()?,
                "chunk_cache" => array.chunk_cache = flag(name, &value)?,
                "chunk_cache_bytes" => array.chunk_cache_bytes = number(name, &value)?,
                "chunk_cache_max_age" => array.chunk_cache_max_age = Duration::from_secs(number(name, &value)?),
                "coalesce_gap_bytes" => array.coalesce_gap_bytes = number(name, &value)?,
                "coalesce_max_bytes" => array.coalesce_max_bytes = number(name, &value)?,
                "memory_limit_bytes" => array.memory_limit_bytes = number(name, &value)?,
                "mode" if value == "r" => read_only = true,
                "mode" if value == "r+" => read_only = false,
                "mode" => return Err(wrong(name, &value, "\"r\" (only read) or \"r+\" (read and write)")),
                "read_missing_chunks" => array.read_missing_chunks = flag(name, &value)?,
                "storage_options" => store_options(&mut storage, "", &value)?,
                "strict" => array.strict = flag(name, &value)?,
                "threads" => array.threads = usize::try_from(number(name, &value)?).unwrap_or(usize::MAX).max(1),
                "variable_limit_bytes" => array.variable_limit_bytes = number(name, &value)?,
                "write_empty_chunks" => array.write_empty_chunks = flag(name, &value)?,
                _ => return Err(unknown("options", name, OPTIONS)),
            }
        }
        if let Some(device) = device {
            array.device = device.parse()?;
        }
        Ok(Options { array, storage, read_only })
    }

    /// Opens the store at a path or URL.
    pub fn store(&self, url: &str) -> Result<Arc<dyn Store>> {
        let store = cuzarr_remote::registry_with(self.storage.clone()).open(url)?;
        Ok(if self.read_only { Arc::new(ReadOnly::new(store)) } else { store })
    }
}

/// Sets options of stores. Names in objects are joined by dots, as in `client_kwargs.endpoint_url`.
fn store_options(storage: &mut StorageOptions, name: &str, value: &Value) -> Result<()> {
    match value {
        Value::Object(members) => {
            for (inner, value) in members {
                let name = if name.is_empty() { inner.clone() } else { format!("{name}.{inner}") };
                store_options(storage, &name, value)?;
            }
        }
        Value::String(text) if !name.is_empty() => storage.set(name, text),
        Value::Bool(_) | Value::Number(_) if !name.is_empty() => storage.set(name, value.to_string()),
        // The value may be a secret, so it is not shown.
        _ => return Err(invalid(format!("storage option '{name}': expected text, a number, true or false"))),
    }
    Ok(())
}

/// The names of all members of an array's description.
const ARRAY_MEMBERS: &str =
    "attributes chunks codecs compressor dimension_names dtype fill_value overwrite shape shards zarr_format";

/// Makes the metadata of a new array from its description. Also returns whether an existing node is replaced.
pub fn array(text: &str) -> Result<(ArrayMetadata, bool)> {
    let members = members(Some(text), "description")?;
    let needed = |name: &str| members.get(name).ok_or_else(|| invalid(format!("description: there is no '{name}'")));
    let shape = numbers("shape", needed("shape")?)?;
    let mut builder = Array::builder(shape, DataType::from_v3(needed("dtype")?)?);
    let mut overwrite = false;
    for (name, value) in &members {
        let name = name.as_str();
        builder = match name {
            "shape" | "dtype" => builder,
            "attributes" => builder.attributes(object(name, value)?),
            "chunks" => builder.chunks(numbers(name, value)?),
            "codecs" => builder.codecs(
                list(name, value)?.iter().map(|one| Extension::from_json(one, name)).collect::<Result<Vec<_>>>()?,
            ),
            "compressor" => builder.compressor(word(name, value)?),
            "dimension_names" => builder
                .dimension_names(list(name, value)?.iter().map(|one| word(name, one)).collect::<Result<Vec<_>>>()?),
            "fill_value" => builder.fill_value_json(value.clone()),
            "overwrite" => {
                overwrite = flag(name, value)?;
                builder
            }
            "shards" => builder.shards(numbers(name, value)?),
            "zarr_format" => builder.zarr_format(format(value)?),
            _ => return Err(unknown("description", name, ARRAY_MEMBERS)),
        };
    }
    Ok((builder.metadata()?, overwrite))
}

/// Makes the builder of a new group from its description.
pub fn group(text: Option<&str>) -> Result<GroupBuilder> {
    let mut builder = Group::builder();
    for (name, value) in members(text, "description")? {
        builder = match name.as_str() {
            "attributes" => builder.attributes(object(&name, &value)?),
            "overwrite" => builder.overwrite(flag(&name, &value)?),
            "zarr_format" => builder.zarr_format(format(&value)?),
            other => return Err(unknown("description", other, "attributes overwrite zarr_format")),
        };
    }
    Ok(builder)
}

/// Makes the options of a writer.
pub fn writer(text: Option<&str>) -> Result<WriterOptions> {
    let mut options = WriterOptions::default();
    for (name, value) in members(text, "options")? {
        match name.as_str() {
            "region" => {
                if let Some(other) = object(&name, &value)?.keys().find(|part| *part != "start" && *part != "shape") {
                    return Err(unknown("region", other, "shape start"));
                }
                let part = |name: &str| numbers(&format!("region's {name}"), &value[name]);
                options.region = Some((part("start")?, part("shape")?));
            }
            "resume" => options.resume = flag(&name, &value)?,
            "slots" => options.slots = usize::try_from(number(&name, &value)?).unwrap_or(usize::MAX),
            other => return Err(unknown("options", other, "region resume slots")),
        }
    }
    Ok(options)
}

fn format(value: &Value) -> Result<ZarrFormat> {
    match value.as_u64() {
        Some(2) => Ok(ZarrFormat::V2),
        Some(3) => Ok(ZarrFormat::V3),
        _ => Err(wrong("zarr_format", value, "2 or 3")),
    }
}

/// Parses a JSON object. Members that are `null` are left out.
fn members(text: Option<&str>, what: &str) -> Result<Map<String, Value>> {
    let Some(text) = text else { return Ok(Map::new()) };
    let parsed = serde_json::from_str(text).map_err(|error| invalid(format!("{what}: not JSON: {error}")))?;
    let mut members = object(what, &parsed)?;
    members.retain(|_, value| !value.is_null());
    Ok(members)
}

fn object(name: &str, value: &Value) -> Result<Map<String, Value>> {
    value.as_object().cloned().ok_or_else(|| wrong(name, value, "an object"))
}

fn list<'a>(name: &str, value: &'a Value) -> Result<&'a [Value]> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(name, value, "a list"))
}

fn numbers(name: &str, value: &Value) -> Result<Vec<u64>> {
    list(name, value)?.iter().map(|one| number(name, one)).collect()
}

fn number(name: &str, value: &Value) -> Result<u64> {
    value.as_u64().ok_or_else(|| wrong(name, value, "a whole number from 0"))
}

fn flag(name: &str, value: &Value) -> Result<bool> {
    value.as_bool().ok_or_else(|| wrong(name, value, "true or false"))
}

fn word<'a>(name: &str, value: &'a Value) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong(name, value, "text"))
}

fn unknown(what: &str, name: &str, known: &str) -> Error {
    invalid(format!("{what}: unknown member '{name}', expected one of: {known}")).with_nearest(name, known.split(' '))
}

fn wrong(name: &str, got: &Value, expected: &str) -> Error {
    invalid(format!("{name}: got {got}, expected {expected}"))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
