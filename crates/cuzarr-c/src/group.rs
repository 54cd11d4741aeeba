//! Groups, and their members.

use std::ffi::c_char;
use std::sync::RwLock;

use cuzarr::meta::NodeMetadata;
use cuzarr::node::Consolidation;
use cuzarr::{Group, Result};
use serde_json::{Map, Value};

use crate::array::{cuzarr_array, store};
use crate::error::{call, cuzarr_error, cuzarr_status, make};
use crate::handle::{change, free, kind, look, optional_text, promised, put_text, text};
use crate::json;

/// An open group. Several threads may use the same handle at once.
pub struct cuzarr_group(());

kind!(cuzarr_group owns RwLock<Group>, tag b"czgroup1");

/// Returns a clone of the group of a handle.
unsafe fn group(group: *const cuzarr_group) -> Result<Group> {
    promised!(look(group, |group| Ok(group.clone())))
}

/// Opens the group at a path or URL, and stores its handle in `group`. Free it with cuzarr_group_free. The arguments are
/// those of cuzarr_array_open; arrays that are opened by the group have its device and options.
///
/// Errors: CUZARR_STATUS_GROUP_NOT_FOUND, and what the store and the metadata report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_group_open(
    url: *const c_char, device: *const c_char, options: *const c_char, group: *mut *mut cuzarr_group,
    error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(make(group, error, || {
        let (store, options) = store(url, device, options)?;
        Group::open(store, "", None, Consolidation::WhenPresent, options).map(RwLock::new)
    }))
}

/// Creates a group at a path or URL, and stores its handle in `group`. Free it with cuzarr_group_free. `description` is a
/// JSON object with "attributes", "zarr_format" (2 or 3) and "overwrite", or NULL. The other arguments are those of
/// cuzarr_array_open.
///
/// Errors: CUZARR_STATUS_CONTAINS_ARRAY or CUZARR_STATUS_CONTAINS_GROUP if something is there; what the store reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_group_create(
    url: *const c_char, device: *const c_char, description: *const c_char, options: *const c_char,
    group: *mut *mut cuzarr_group, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(make(group, error, || {
        let (text, (store, options)) = (optional_text(description, "description")?, store(url, device, options)?);
        json::group(text)?.options(options).create_in(store, "").map(RwLock::new)
    }))
}

/// Frees the handle of a group. What is stored stays, and arrays that were opened by it live on. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_group_free(group: *mut cuzarr_group) {
    promised!(free(group))
}

/// Stores the direct members of the group in `json`: a JSON object with the name of each, and "array" or "group". Free it
/// with cuzarr_string_free. A member whose metadata cannot be read is "unreadable".
///
/// Errors: what the store reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_group_members(
    group: *const cuzarr_group, json: *mut *mut c_char, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    let members = || {
        let mut members = Map::new();
        promised!(self::group(group))?.walk(Some(0), &mut |name, metadata| {
            let kind = match metadata {
                Ok(NodeMetadata::Array(_)) => "array",
                Ok(NodeMetadata::Group(_)) => "group",
                Err(_) => "unreadable",
            };
            members.insert(name.into(), kind.into());
            Ok(())
        })?;
        Ok(Value::Object(members).to_string())
    };
    promised!(call(error, || put_text(json, members)))
}

/// Stores the group's attributes in `json`: the text of a JSON object in UTF-8. Free it with cuzarr_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_group_attributes(
    group: *const cuzarr_group, json: *mut *mut c_char, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || put_text(json, || look(group, |group| Ok(group.metadata().attributes_json())))))
}

/// Replaces all attributes of the group, in the handle and in the store, by the members of the JSON object in `json`.
///
/// Errors: CUZARR_STATUS_METADATA_INVALID if it is no JSON object; what the store reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_group_set_attributes(
    group: *const cuzarr_group, json: *const c_char, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || change(group, |group| group.set_attributes_json(text(json, "json")?))))
}

/// Opens the array at a path below the group, such as "t2m" or "pressure/t2m", and stores its handle in `array`. Free it
/// with cuzarr_array_free.
///
/// Errors: CUZARR_STATUS_ARRAY_NOT_FOUND, and what the store and the metadata report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_group_array(
    group: *const cuzarr_group, path: *const c_char, array: *mut *mut cuzarr_array, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(make(array, error, || self::group(group)?.array(text(path, "path")?).map(RwLock::new)))
}

/// Creates an array at a path below the group, with the groups between them, and stores its handle in `array`. Free it with
/// cuzarr_array_free. `description` is that of cuzarr_array_create; its format must be that of the group.
///
/// Errors: those of cuzarr_array_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_group_create_array(
    group: *const cuzarr_group, path: *const c_char, description: *const c_char, array: *mut *mut cuzarr_array,
    error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(make(array, error, || {
        let (group, path, text) = (self::group(group)?, text(path, "path")?, text(description, "description")?);
        let (metadata, overwrite) = json::array(text)?;
        group.create_array(path, metadata, overwrite).map(RwLock::new)
    }))
}
