//! Explains what computing an expression would do.

use std::fmt;

use cuzarr::Result;
use cuzarr::plan::{Explanation, Region};
use cuzarr_device::Device;
use serde_json::{Value, json};

use super::job::Job;
use crate::expression::{Expr, Flat, Kind, Running};
use crate::options::ComputeOptions;
use crate::program::{Input, lower};

/// An explanation of what computing an expression would do, stage by stage. Its `Display` is for people,
/// [`ComputeExplanation::to_json`] for programs.
#[derive(Clone, Debug)]
pub struct ComputeExplanation {
    /// The device that computes.
    pub device: Device,
    /// Limit for the memory that the work takes besides its result, in bytes.
    pub memory_limit_bytes: u64,
    /// The stages of the computation, in order. Summaries come before the computations that use them.
    pub stages: Vec<ComputeStage>,
}

/// One stage of a computation: one pass through its arrays.
#[derive(Clone, Debug)]
pub struct ComputeStage {
    /// The expression that is computed, as text.
    pub computes: String,
    /// The shape of the stage's result.
    pub shape: Vec<u64>,
    /// The element type of the stage's result.
    pub dtype: String,
    /// Number of operations that the stage does for each element.
    pub operations: usize,
    /// The number of regions in which the stage is computed, and the shape of the first one. `None` for summaries,
    /// which choose their own regions.
    pub regions: Option<(u64, Vec<u64>)>,
    /// The names of the arrays that are read, each with an explanation of reading everything that is needed of it.
    pub reads: Vec<(String, Explanation)>,
    /// Size in bytes of the operands that are already in memory.
    pub memory_bytes: u64,
}

impl Expr {
    /// Explains what computing the expression would do. No elements are read.
    ///
    /// ```
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::Array;
    /// use cuzarr_compute::{ComputeOptions, Expr, Op};
    /// let array = Array::builder([8, 8], DataType::Float32).chunks([2, 8]).create("memory://explained")?;
    /// let plan = Expr::apply(Op::Sqrt, &[Expr::array(array)?.into()])?;
    /// let explanation = plan.explain(&ComputeOptions::default())?;
    /// assert_eq!((explanation.stages.len(), explanation.stages[0].reads[0].1.chunks), (1, 4));
    /// assert!(explanation.to_string().contains("sqrt(array)"));
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `BudgetExceeded` when work on one chunk does not fit the limit; `Unsupported` for codecs; those of
    /// [`Expr::compute`] for arrays that have changed.
    pub fn explain(&self, options: &ComputeOptions<'_>) -> Result<ComputeExplanation> {
        self.check_sources(options)?;
        let stages = self.stages(options)?;
        Ok(ComputeExplanation { device: options.device, memory_limit_bytes: options.memory_limit_bytes, stages })
    }

    /// Returns the stages (passes through arrays) of computing this expression, in order, for [`Expr::explain`].
    pub(super) fn stages(&self, options: &ComputeOptions<'_>) -> Result<Vec<ComputeStage>> {
        let mut stages = Vec::new();
        self.add_stages(options, &mut stages)?;
        Ok(stages)
    }

    fn add_stages(&self, options: &ComputeOptions<'_>, stages: &mut Vec<ComputeStage>) -> Result<()> {
        self.add_summaries(options, stages)?;
        if matches!(self.0.kind, Kind::Summary(..)) {
            return Ok(());
        }
        let whole = Region { number: 0, start: vec![0; self.ndim()], extent: self.shape().to_vec() };
        let mut job = Job::planned(self, whole, options)?.near();
        let limit_bytes = if self.is_in_memory() { u64::MAX } else { options.memory_limit_bytes };
        let regions = job.regions(None, limit_bytes)?;
        let first = regions.first().map_or_else(|| self.shape().to_vec(), |region| region.extent.clone());
        let (reads, memory_bytes) = job.explained_inputs()?;
        stages.push(ComputeStage {
            computes: self.to_string(),
            shape: self.shape().to_vec(),
            dtype: self.dtype().to_string(),
            operations: job.program.operations(),
            regions: Some((regions.len() as u64, first)),
            reads,
            memory_bytes,
        });
        Ok(())
    }

    /// Adds a stage to the explanation for each summary (such as a sum) that the expression uses.
    fn add_summaries(&self, options: &ComputeOptions<'_>, stages: &mut Vec<ComputeStage>) -> Result<()> {
        for input in &lower(self)?.1 {
            if let Input::Flat(Flat { of, .. }) | Input::Running(Running { of, .. }) = input {
                of.add_summaries(options, stages)?;
            }
            if let Input::Reduced(of, summary) = input {
                of.add_stages(options, stages)?;
                // The last stage computes the elements that the summary takes.
                if let Some(stage) = stages.last_mut() {
                    let (dtype, shape) = summary.result(of.dtype(), of.shape())?;
                    stage.computes =
                        format!("{}({}{}){}", summary.name(), stage.computes, summary.arguments(), summary.picked());
                    (stage.dtype, stage.shape, stage.regions) = (dtype.to_string(), shape, None);
                }
            }
        }
        Ok(())
    }
}

impl ComputeStage {
    fn to_json(&self) -> Value {
        let (count, shape) = self.regions.clone().map_or((None, None), |(count, shape)| (Some(count), Some(shape)));
        let reads = self.reads.iter().map(|(name, read)| json!({ "array": name, "read": read.to_json() }));
        json!({
            "computes": self.computes,
            "shape": self.shape,
            "dtype": self.dtype,
            "operations": self.operations,
            "regions": count,
            "region_shape": shape,
            "memory_bytes": self.memory_bytes,
            "reads": reads.collect::<Vec<_>>(),
        })
    }
}

impl ComputeExplanation {
    /// Returns the explanation as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "device": self.device.to_string(),
            "memory_limit_bytes": self.memory_limit_bytes,
            "stages": self.stages.iter().map(ComputeStage::to_json).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for ComputeStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.computes)?;
        write!(f, "  shape {:?}, {}", self.shape, self.dtype)?;
        match &self.regions {
            Some((count, shape)) => {
                write!(f, ", {} operations on each element, {count} regions of {shape:?}", self.operations)?
            }
            None => write!(f, ", {} operations on each element before they are joined", self.operations)?,
        }
        if self.memory_bytes > 0 {
            write!(f, "\n  operands in memory: {} bytes", self.memory_bytes)?;
        }
        for (name, read) in &self.reads {
            write!(f, "\n  reads {name}")?;
            for line in read.to_string().lines() {
                write!(f, "\n    {line}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ComputeExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {}, at most {} bytes in flight", self.device, self.memory_limit_bytes)?;
        for (number, stage) in self.stages.iter().enumerate() {
            write!(f, "\n{}. {stage}", number + 1)?;
        }
        Ok(())
    }
}
