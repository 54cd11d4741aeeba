//! Settings: typed keys with defaults, and the origin of each value.
//!
//! A [`Config`] is a value, not a global. It is built from the defaults, the environment and overrides, and passed on.
//! Where zarr-python has a setting, the key has the same name. The environment variable of `array.write_empty_chunks`
//! is `CUZARR_ARRAY__WRITE_EMPTY_CHUNKS`.
//!
//! ```
//! use cuzarr::config::{Config, Origin};
//! let config = Config::new().with("memory_limit", "512 MiB", Origin::Set)?;
//! assert_eq!(config.memory_limit_bytes(), 512 << 20);
//! assert_eq!(config.setting("memory_limit")?.origin, Origin::Set);
//! assert_eq!(config.setting("strict")?.origin, Origin::Default);
//! # Ok::<(), cuzarr::Error>(())
//! ```

pub(crate) mod environment;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use cuzarr_device::{Device, Order};

use self::environment::{cores, environment_variable, size};
use crate::error::{Error, ErrorKind, Result, ResultExt};

/// Where the value of a setting comes from. Later origins take precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The value is the built-in default.
    Default,
    /// The value comes from the environment variable of this name.
    Environment(String),
    /// The value was set for the whole process.
    Set,
    /// The value was set for a part of the program only.
    Scoped,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Environment(variable) => write!(f, "environment variable {variable}"),
            Origin::Set => f.write_str("set"),
            Origin::Scoped => f.write_str("set in scope"),
        }
    }
}

/// The value of a configuration key, by kind.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    /// No value is set, so the library chooses one.
    Automatic,
    /// The value of a setting that is on or off.
    Flag(bool),
    /// The value of a setting that is a number, or a number of bytes.
    Number(u64),
    /// The value of a setting that is one of a fixed set of words.
    Word(String),
}

impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigValue::Automatic => f.write_str("automatic"),
            ConfigValue::Flag(flag) => write!(f, "{flag}"),
            ConfigValue::Number(number) => write!(f, "{number}"),
            ConfigValue::Word(word) => f.write_str(word),
        }
    }
}

/// Which device decodes and encodes for arrays and values in host memory: the setting `accelerator`.
///
/// ```
/// use cuzarr::config::Accelerator;
/// use cuzarr::Device;
/// assert_eq!("cuda:1".parse::<Accelerator>()?, Accelerator::On(Device::Cuda(1)));
/// assert_eq!("auto".parse::<Accelerator>()?.to_string(), "auto");
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accelerator {
    /// The host decodes and encodes all that is read into or written from its memory.
    #[default]
    None,
    /// The first GPU decodes and encodes if that is expected to be faster.
    Auto,
    /// This device decodes and encodes all that its kernels can.
    On(Device),
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Accelerator::None => f.write_str("none"),
            Accelerator::Auto => f.write_str("auto"),
            Accelerator::On(device) => write!(f, "{device}"),
        }
    }
}

impl FromStr for Accelerator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.parse()) {
            ("none", _) => Ok(Accelerator::None),
            ("auto", _) => Ok(Accelerator::Auto),
            (_, Ok(device)) if device != Device::Cpu => Ok(Accelerator::On(device)),
            _ => {
                let message = format!("unknown accelerator '{text}', expected 'none', 'auto' or 'cuda:N'");
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }
}

/// The kind of value that a configuration key accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfigKind {
    Flag,
    /// The key accepts a number that is at least this one.
    Number(u64),
    /// The key accepts a number that is at least this one, or no number; without one, the library chooses.
    OptionalNumber(u64),
    Bytes,
    OptionalBytes,
    Words(&'static [&'static str]),
    Device,
    Accelerator,
}

/// One configuration key: its name, the kind of its values, its default, and what it does.
struct ConfigKey {
    name: &'static str,
    kind: ConfigKind,
    default: &'static str,
    meaning: &'static str,
}

const fn key(name: &'static str, kind: ConfigKind, default: &'static str, meaning: &'static str) -> ConfigKey {
    ConfigKey { name, kind, default, meaning }
}

const KEYS: &[ConfigKey] = &[
    key("device", ConfigKind::Device, "cpu", "where results are: cpu or cuda:N"),
    key(
        "accelerator",
        ConfigKind::Accelerator,
        "none",
        "what decodes and encodes for host memory: none (the host), auto (the first GPU where it is faster) or cuda:N",
    ),
    key("strict", ConfigKind::Flag, "false", "a fall-back to the host is an error"),
    key(
        "gds",
        ConfigKind::Words(&["auto", "on", "off"]),
        "auto",
        "cuFile between directories and GPUs, where a store can",
    ),
    key(
        "fsync",
        ConfigKind::Words(&["none", "data", "full"]),
        "none",
        "what a write to a directory waits for: nothing, its bytes on the disk, or their name too",
    ),
    key(
        "direct_io",
        ConfigKind::Words(&["auto", "on", "off"]),
        "auto",
        "O_DIRECT for files outside the page cache: once it cannot hold all that is read, always, never",
    ),
    key("memory_limit", ConfigKind::Bytes, "4 GiB", "bytes in flight, on the device and in pinned memory each"),
    key(
        "chunk_cache.size",
        ConfigKind::Bytes,
        "1 GiB",
        "decoded chunks that each device keeps for arrays with chunk_cache, within memory_limit",
    ),
    key(
        "chunk_cache.max_age",
        ConfigKind::Number(0),
        "60",
        "seconds for which the chunk cache trusts objects of a server, and missing ones; 0 asks each time",
    ),
    key("metadata_max_bytes", ConfigKind::Bytes, "256 MiB", "metadata documents larger than this are refused"),
    key("default_zarr_format", ConfigKind::Words(&["2", "3"]), "3", "format of new arrays and groups"),
    key("array.order", ConfigKind::Words(&["C", "F"]), "C", "memory order of results"),
    key(
        "array.read_missing_chunks",
        ConfigKind::Flag,
        "true",
        "missing chunks read as the fill value; otherwise an error",
    ),
    key("array.write_empty_chunks", ConfigKind::Flag, "false", "chunks that only hold the fill value are stored"),
    key(
        "array.target_shard_size_bytes",
        ConfigKind::OptionalBytes,
        "none",
        "size of shards whose shape is left to the library",
    ),
    key(
        "array.sharding_coalesce_max_gap_bytes",
        ConfigKind::Bytes,
        "1 MiB",
        "ranges this near to each other are read as one",
    ),
    key(
        "array.sharding_coalesce_max_bytes",
        ConfigKind::Bytes,
        "16 MiB",
        "ranges are not joined beyond this size, nor to one of 1 MiB or more",
    ),
    key(
        "array.variable_chunk_max_bytes",
        ConfigKind::Bytes,
        "512 MiB",
        "chunks of elements of variable length decode to at most this",
    ),
    key(
        "array.allow_unsafe_pickle_decode",
        ConfigKind::Flag,
        "false",
        "pickled objects are decoded, which can run any code",
    ),
    key(
        "threading.max_workers",
        ConfigKind::OptionalNumber(1),
        "none",
        "threads for reading and decoding; automatic: one a core",
    ),
    key("async.concurrency", ConfigKind::Number(1), "10", "requests in flight to stores that are not local"),
];

/// A configuration key with its value, and where the value comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The name of the configuration key.
    pub name: &'static str,
    /// The value of the setting.
    pub value: ConfigValue,
    /// Where the value of the setting comes from.
    pub origin: Origin,
    /// What the setting does, in one line.
    pub meaning: &'static str,
}

/// An immutable set of all settings. See the [module](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The setting of each key in `KEYS`, in the same order.
    settings: Vec<Setting>,
}

impl Default for Config {
    fn default() -> Self {
        Config::new()
    }
}

impl Config {
    /// Makes a configuration with the default of every key.
    pub fn new() -> Self {
        let setting = |key: &ConfigKey| Setting {
            name: key.name,
            // A test parses every default, so the fall-back is never used.
            value: parse(key.kind, key.default).unwrap_or(ConfigValue::Automatic),
            origin: Origin::Default,
            meaning: key.meaning,
        };
        Config { settings: KEYS.iter().map(setting).collect() }
    }

    /// Makes a configuration from the defaults and the environment variables.
    ///
    /// # Errors
    /// `ConfigInvalid` when the value of a variable is not valid.
    pub fn from_environment() -> Result<Self> {
        Config::from_variables(|variable| std::env::var(variable).ok())
    }

    /// Makes a configuration from the defaults and the environment variables that `lookup` has. `lookup` returns the
    /// value of each variable.
    ///
    /// # Errors
    /// `ConfigInvalid` when the value of a variable is not valid.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut config = Config::new();
        for key in KEYS {
            let variable = environment_variable(key.name);
            if let Some(text) = lookup(&variable) {
                config = config.with(key.name, &text, Origin::Environment(variable.clone())).at(|| variable)?;
            }
        }
        Ok(config)
    }

    /// Returns the configuration with the value of one key changed to the value in `text`. `text` is a value as people
    /// write it: `true`, `8 GiB`, `cuda:1`, `none`.
    ///
    /// # Errors
    /// `ConfigInvalid` when there is no such key, or the text is not a valid value.
    pub fn with(mut self, name: &str, text: &str, origin: Origin) -> Result<Self> {
        let index = index_of(name)?;
        let value = parse(KEYS[index].kind, text).map_err(|expected| {
            let message = format!("config key '{name}': got '{text}', expected {expected}");
            Error::new(ErrorKind::ConfigInvalid, message)
        })?;
        self.settings[index].value = value;
        self.settings[index].origin = origin;
        Ok(self)
    }

    /// All settings, in a fixed order.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Returns the setting of one key.
    ///
    /// # Errors
    /// `ConfigInvalid` when there is no such key.
    pub fn setting(&self, name: &str) -> Result<&Setting> {
        Ok(&self.settings[index_of(name)?])
    }

    /// The setting `device`: where results are, in host memory or on a GPU.
    pub fn device(&self) -> Device {
        // The text was checked when it was set.
        self.word("device").parse().unwrap_or(Device::Cpu)
    }

    /// The setting `accelerator`: the device that decodes and encodes for arrays and values in host memory.
    pub fn accelerator(&self) -> Accelerator {
        // The text was checked when it was set.
        self.word("accelerator").parse().unwrap_or_default()
    }

    /// The setting `strict`: whether a read or write fails instead of falling back to the host.
    pub fn strict(&self) -> bool {
        self.flag("strict")
    }

    /// The setting `memory_limit`: maximum number of bytes in flight, on the device and in pinned memory each.
    pub fn memory_limit_bytes(&self) -> u64 {
        self.number("memory_limit").unwrap_or(u64::MAX)
    }

    /// The setting `chunk_cache.size`: maximum bytes of decoded chunks that each device keeps in its chunk cache.
    pub fn chunk_cache_bytes(&self) -> u64 {
        self.number("chunk_cache.size").unwrap_or(0)
    }

    /// The setting `chunk_cache.max_age`: how long the chunk cache trusts objects of a server without asking again.
    pub fn chunk_cache_max_age(&self) -> Duration {
        Duration::from_secs(self.number("chunk_cache.max_age").unwrap_or(0))
    }

    /// The setting `metadata_max_bytes`: larger metadata documents are refused.
    pub fn metadata_max_bytes(&self) -> u64 {
        self.number("metadata_max_bytes").unwrap_or(0)
    }

    /// The setting `default_zarr_format`: the Zarr format of new arrays and groups, 2 or 3.
    pub fn default_zarr_format(&self) -> u8 {
        if self.word("default_zarr_format") == "2" { 2 } else { 3 }
    }

    /// The setting `array.order`: the order of elements in results.
    pub fn order(&self) -> Order {
        if self.word("array.order") == "F" { Order::F } else { Order::C }
    }

    /// The setting `array.read_missing_chunks`: whether missing chunks are read as the fill value; else they are an
    /// error.
    pub fn read_missing_chunks(&self) -> bool {
        self.flag("array.read_missing_chunks")
    }

    /// The setting `array.write_empty_chunks`: whether chunks that only hold the fill value are stored.
    pub fn write_empty_chunks(&self) -> bool {
        self.flag("array.write_empty_chunks")
    }

    /// The setting `array.target_shard_size_bytes`: size of shards whose shape the library chooses; `None` if it is not
    /// set.
    pub fn target_shard_size_bytes(&self) -> Option<u64> {
        self.number("array.target_shard_size_bytes")
    }

    /// The setting `array.sharding_coalesce_max_gap_bytes`: maximum gap between two ranges that one request reads.
    pub fn coalesce_gap_bytes(&self) -> u64 {
        self.number("array.sharding_coalesce_max_gap_bytes").unwrap_or(0)
    }

    /// The setting `array.sharding_coalesce_max_bytes`: maximum size of a request that was joined from several ranges.
    pub fn coalesce_max_bytes(&self) -> u64 {
        self.number("array.sharding_coalesce_max_bytes").unwrap_or(0)
    }

    /// The setting `array.variable_chunk_max_bytes`: maximum decoded bytes of a chunk of variable-length elements.
    pub fn variable_chunk_max_bytes(&self) -> u64 {
        self.number("array.variable_chunk_max_bytes").unwrap_or(0)
    }

    /// The setting `array.allow_unsafe_pickle_decode`: whether pickled objects are decoded, which can run any code.
    pub fn allow_unsafe_pickle_decode(&self) -> bool {
        self.flag("array.allow_unsafe_pickle_decode")
    }

    /// Number of threads for reading and decoding: the setting `threading.max_workers`, or else the number of cores.
    pub fn threads(&self) -> usize {
        let asked = self.number("threading.max_workers").map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        asked.unwrap_or_else(cores)
    }

    /// The setting `async.concurrency`: maximum number of requests in flight to stores that are not local.
    pub fn concurrency(&self) -> usize {
        self.number("async.concurrency").and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
    }

    fn value(&self, name: &str) -> Option<&ConfigValue> {
        index_of(name).ok().map(|index| &self.settings[index].value)
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Some(ConfigValue::Flag(true)))
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(ConfigValue::Number(number)) => Some(*number),
            _ => None,
        }
    }

    fn word(&self, name: &str) -> &str {
        match self.value(name) {
            Some(ConfigValue::Word(word)) => word,
            _ => "",
        }
    }
}

fn index_of(name: &str) -> Result<usize> {
    KEYS.iter().position(|key| key.name == name).ok_or_else(|| {
        Error::new(ErrorKind::ConfigInvalid, format!("there is no config key '{name}'"))
            .with_nearest(name, KEYS.iter().map(|key| key.name))
    })
}

/// Parses the text of a setting's value, which must be of the kind `kind`. The error says what was expected.
fn parse(kind: ConfigKind, text: &str) -> std::result::Result<ConfigValue, String> {
    let text = text.trim();
    let is_none = matches!(text.to_ascii_lowercase().as_str(), "none" | "null" | "auto" | "automatic" | "");
    let number = |least: u64| {
        let number = u64::from_str(text).ok().filter(|&number| number >= least);
        number.map(ConfigValue::Number).ok_or(format!("a whole number of at least {least}"))
    };
    let bytes = || size(text).map(ConfigValue::Number).ok_or("a number of bytes, as in '8 GiB'".to_string());
    match kind {
        ConfigKind::Flag => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(ConfigValue::Flag(true)),
            "false" | "0" | "no" | "off" => Ok(ConfigValue::Flag(false)),
            _ => Err("true or false".to_string()),
        },
        ConfigKind::OptionalNumber(_) | ConfigKind::OptionalBytes if is_none => Ok(ConfigValue::Automatic),
        ConfigKind::Number(least) => number(least),
        ConfigKind::OptionalNumber(least) => number(least).map_err(|expected| format!("{expected}, or none")),
        ConfigKind::Bytes => bytes(),
        ConfigKind::OptionalBytes => bytes().map_err(|expected| format!("{expected}, or none")),
        ConfigKind::Words(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
            Some(word) => Ok(ConfigValue::Word(word.to_string())),
            None => Err(format!("one of {}", words.join(", "))),
        },
        ConfigKind::Device => match text.parse::<Device>() {
            Ok(device) => Ok(ConfigValue::Word(device.to_string())),
            Err(_) => Err("'cpu' or 'cuda:N'".to_string()),
        },
        ConfigKind::Accelerator => match text.to_ascii_lowercase().parse::<Accelerator>() {
            Ok(accelerator) => Ok(ConfigValue::Word(accelerator.to_string())),
            Err(_) => Err("'none', 'auto' or 'cuda:N'".to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::environment::parse_bytes;
    use super::*;

    #[test]
    fn every_default_has_a_meaning() {
        for key in KEYS {
            assert!(parse(key.kind, key.default).is_ok(), "{}", key.name);
        }
        let config = Config::new();
        assert_eq!((config.device(), config.accelerator()), (Device::Cpu, Accelerator::None));
        assert!(
            config.read_missing_chunks()
                && !config.write_empty_chunks()
                && !config.strict()
                && config.order() == Order::C
        );
        assert_eq!((config.coalesce_gap_bytes(), config.coalesce_max_bytes()), (1 << 20, 16 << 20));
        assert_eq!((config.default_zarr_format(), config.concurrency()), (3, 10));
        assert!(config.threads() >= 1);
    }

    #[test]
    fn environment_is_read_by_key() {
        let config = Config::from_variables(|variable| match variable {
            "CUZARR_ARRAY__WRITE_EMPTY_CHUNKS" => Some("True".into()),
            "CUZARR_MEMORY_LIMIT" => Some("8 GiB".into()),
            "CUZARR_THREADING__MAX_WORKERS" => Some("3".into()),
            "CUZARR_DEVICE" => Some("gpu".into()),
            "CUZARR_ACCELERATOR" => Some("CUDA:2".into()),
            _ => None,
        });
        let config = config.unwrap();
        assert!(config.write_empty_chunks());
        assert_eq!((config.memory_limit_bytes(), config.threads()), (8 << 30, 3));
        assert_eq!(config.device(), Device::Cuda(0));
        assert_eq!(config.accelerator(), Accelerator::On(Device::Cuda(2)));
        let origin = &config.setting("memory_limit").unwrap().origin;
        assert_eq!(origin, &Origin::Environment("CUZARR_MEMORY_LIMIT".into()));
    }

    #[test]
    fn later_values_win_and_say_so() {
        let config = Config::new().with("strict", "yes", Origin::Set).unwrap();
        let inner = config.clone().with("strict", "off", Origin::Scoped).unwrap();
        assert!(config.strict() && !inner.strict());
        assert_eq!(inner.setting("strict").unwrap().origin, Origin::Scoped);
    }

    #[test]
    fn refuses_by_naming_key_got_and_expected() {
        let message = |name: &str, text: &str| Config::new().with(name, text, Origin::Set).unwrap_err().to_string();
        assert_eq!(message("strict", "maybe"), "config key 'strict': got 'maybe', expected true or false");
        assert_eq!(message("array.order", "K"), "config key 'array.order': got 'K', expected one of C, F");
        assert_eq!(message("order", "C"), "there is no config key 'order'\nhint: did you mean 'array.order'?");
        let expected = "config key 'accelerator': got 'cpu', expected 'none', 'auto' or 'cuda:N'";
        assert_eq!(message("accelerator", "cpu"), expected);
        assert!(message("threading.max_workers", "0").contains("at least 1, or none"));
        let error = Config::from_variables(|name| (name == "CUZARR_DEVICE").then(|| "tpu".into())).unwrap_err();
        assert!(error.to_string().starts_with("CUZARR_DEVICE: config key 'device': got 'tpu'"), "{error}");
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("0", 0),
            ("1048576", 1 << 20),
            ("1 MiB", 1 << 20),
            ("8GiB", 8 << 30),
            ("1.5 GiB", 3 << 29),
            ("64k", 64_000),
            ("64 KB", 64_000),
            ("2TiB", 2 << 40),
            ("1_000", 1000),
            ("7 b", 7),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "GiB", "-1", "1.5", "1e3", "8 XiB", "99999999999999999999", "99999999 TiB", "0.3 KiB", "1 2"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
