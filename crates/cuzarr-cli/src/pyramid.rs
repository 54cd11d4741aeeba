//! `cuzarr pyramid`: makes a multiscale OME-Zarr image from an array or from another image.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use cuzarr::Result;
use cuzarr_compute::{Pyramid as Plan, PyramidOptions};
use serde_json::json;

use crate::copy::{Codecs, Grid, Place, grid, with_grids};
use crate::output::{self, Output};
use crate::{Verdict, arguments, nodes};
use cuzarr::node::Node;

#[derive(Args)]
pub struct Pyramid {
    #[command(flatten)]
    place: Place,
    /// Method that joins elements: mean, gaussian, max, nearest, or mode [default: mean; for labels mode]
    #[arg(long)]
    method: Option<String>,
    /// Number of levels, the original included [default: until no spatial dimension is longer than 256]
    #[arg(long, value_parser = arguments::count)]
    levels: Option<usize>,
    /// Names of the dimensions, such as z,y,x or zyx (from t,c,z,y,x) [default: the array's own names, or the last ones of t,c,z,y,x]
    #[arg(long, value_delimiter = ',')]
    axes: Option<Vec<String>>,
    /// Size of an element along each dimension, such as 1,0.5,0.1,0.1
    #[arg(long, value_delimiter = ',', value_parser = arguments::number)]
    scale: Option<Vec<f64>>,
    /// Unit of each dimension, such as ,micrometer,micrometer; empty for none
    #[arg(long, value_delimiter = ',')]
    units: Option<Vec<String>>,
    /// Number of elements that become one along each dimension, from level to level: 1,1,2,2 [default: 2 along x, y and
    /// z; 1 along a dimension whose elements are at least twice as large as those of another one]
    #[arg(long, value_delimiter = ',', value_parser = arguments::positive)]
    factors: Option<Vec<u64>>,
    /// Labels of the channels
    #[arg(long, value_delimiter = ',')]
    channels: Option<Vec<String>>,
    /// Make a label image of this name inside the image at the target
    #[arg(long, value_name = "NAME")]
    labels: Option<String>,
    /// Version of OME-Zarr: 0.4, 0.5 or 0.6 [default: 0.5; of an image of 0.6, and of labels, the image's]
    #[arg(long = "ome-version", value_name = "VERSION")]
    version: Option<String>,
    /// Shape of a chunk, such as 1,-1,512, or dimensions by name, such as y=512,x=512; -1 is the whole dimension [default: the
    /// array's]
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true, value_parser = grid)]
    chunks: Option<Grid>,
    /// Shape of a shard, such as 1,-1,1024 or y=1024, or none
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true, value_parser = grid)]
    shards: Option<Grid>,
    #[command(flatten)]
    codecs: Codecs,
}

impl Pyramid {
    /// Returns the path or URL of the image that is written.
    pub fn target(&self) -> Option<&str> {
        Some(&self.place.target)
    }

    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        let changes = with_grids(self.codecs.changes()?, self.chunks, self.shards);
        // An image has several dimensions, so a single text has one letter for each.
        let axes = self.axes.map(|axes| match &axes[..] {
            [letters] => letters.chars().map(String::from).collect(),
            _ => axes,
        });
        let settings = json!({
            "method": self.method, "levels": self.levels, "axes": axes, "scale": self.scale, "units": self.units,
            "factors": self.factors, "channels": self.channels, "version": self.version,
            "labels": self.labels.as_ref().map(|name| json!({ "name": name })),
        });
        let options = PyramidOptions::from_json(&settings, changes)?;
        let target = nodes::target(output.registry(), &self.place.target)?;
        let store = Arc::clone(&target.store);
        let existing = self.place.existing();
        let plan = match self.place.open_source(output)? {
            Node::Array(source) => Plan::new(&source, store, "", existing, options)?,
            Node::Group(image) => Plan::of_image(&image.reading_documents()?, store, "", existing, options)?,
        };
        let (mut document, shapes) = (plan.to_json(), plan.shapes());
        let rows: Vec<Vec<String>> =
            shapes.iter().enumerate().map(|(number, shape)| vec![number.to_string(), format!("{shape:?}")]).collect();
        let text = output::table(&["level", "shape"], &rows);
        if self.place.dry_run {
            document["dry_run"] = json!(true);
            output.answer(&document, &text);
            return Ok(Verdict::Passed);
        }
        let started = Instant::now();
        {
            let shown = Mutex::new(&mut *output);
            plan.run(&|name, now| {
                let mut output = shown.lock().unwrap_or_else(PoisonError::into_inner);
                output.throughput(name, now.bytes_done, now.bytes, now.seconds);
            })?;
        }
        target.finish()?;
        let seconds = started.elapsed().as_secs_f64();
        document["seconds"] = json!(seconds);
        output.answer(&document, &format!("{text}\n{} levels in {}: {seconds:.2} s", shapes.len(), self.place.target));
        Ok(Verdict::Passed)
    }
}
