//! The builder of new groups.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::ArrayOptions;
use super::group::Group;
use crate::error::Result;
use crate::meta::{GroupMetadata, ZarrFormat};
use crate::store::{Registry, Store};

/// Sets the properties of a new group step by step, and creates it; see [`Group::builder`].
///
/// Errors in any step are reported by the last one: [`create`](GroupBuilder::create),
/// [`create_in`](GroupBuilder::create_in) or [`metadata`](GroupBuilder::metadata).
#[derive(Debug)]
#[must_use = "a builder does nothing until `create`, `create_in` or `metadata`"]
pub struct GroupBuilder {
    zarr_format: ZarrFormat,
    attributes: Map<String, Value>,
    overwrite: bool,
    options: ArrayOptions,
}

impl Group {
    /// Begins to build a new group. The defaults are format 3 and no attributes.
    ///
    /// ```
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::{Array, Group};
    ///
    /// let group = Group::builder().attribute("title", "Reanalysis").create("memory://reanalysis")?;
    /// let metadata = Array::builder([365, 180], DataType::Float32).metadata()?;
    /// let array = group.create_array("temperature", metadata, false)?;
    /// assert_eq!(array.path(), "temperature");
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    pub fn builder() -> GroupBuilder {
        GroupBuilder {
            zarr_format: ZarrFormat::V3,
            attributes: Map::new(),
            overwrite: false,
            options: ArrayOptions::default(),
        }
    }
}

impl GroupBuilder {
    /// Sets the storage format: Zarr version 2 or 3. The default is 3.
    pub fn zarr_format(mut self, format: ZarrFormat) -> GroupBuilder {
        self.zarr_format = format;
        self
    }

    /// Adds one attribute to the group.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Value>) -> GroupBuilder {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Adds attributes to the group.
    pub fn attributes(mut self, attributes: Map<String, Value>) -> GroupBuilder {
        self.attributes.extend(attributes);
        self
    }

    /// Sets whether an existing node at the group's path is deleted. By default, an existing node is an error.
    pub fn overwrite(mut self, overwrite: bool) -> GroupBuilder {
        self.overwrite = overwrite;
        self
    }

    /// Sets the options of arrays that the group will open and create. They are not stored.
    pub fn options(mut self, options: ArrayOptions) -> GroupBuilder {
        self.options = options;
        self
    }

    /// Creates the group at a path or URL that [`Registry::new`] can open. Does not create groups above it.
    ///
    /// # Errors
    /// Those of [`Registry::open`] and [`Group::create`].
    pub fn create(self, url: &str) -> Result<Group> {
        self.create_in(Registry::new().open(url)?, "")
    }

    /// Creates the group at a path in a store, and the groups above it.
    ///
    /// # Errors
    /// Those of [`Group::create`].
    pub fn create_in(self, store: Arc<dyn Store>, path: &str) -> Result<Group> {
        let (overwrite, options) = (self.overwrite, self.options.clone());
        Group::create_from(store, path, self.metadata()?, overwrite, options)
    }

    /// Returns the metadata of the group, without storing anything.
    ///
    /// # Errors
    /// `MetadataInvalid` for attributes that are nested too deeply.
    pub fn metadata(self) -> Result<GroupMetadata> {
        GroupMetadata::new(self.zarr_format, self.attributes)
    }
}
