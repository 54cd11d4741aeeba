//! Selects elements of an expression (a pick), by selecting the elements of its operands that they are computed from.

use std::collections::HashMap;
use std::sync::Arc;

use cuzarr::Result;
use cuzarr_device::{DType, Device, NdBuffer, Order};

use super::expr::{Expr, Kind, Node, Summary};
use super::pick::Pick;
use crate::options::ComputeOptions;
use crate::regions::memory_shape;

impl Expr {
    /// Makes an expression for those elements of this expression that `pick` chooses. Only inputs of these elements are
    /// read.
    ///
    /// # Errors
    /// `SelectionInvalid` if the pick does not fit; what the device of operands in memory reports.
    pub fn picked(&self, pick: &Pick) -> Result<Expr> {
        pick.check(self.shape())?;
        if pick.is_all(self.shape()) {
            return Ok(self.clone());
        }
        let picked = Picking { pick, whole: self.shape(), known: HashMap::new() }.visit(self)?;
        match &picked.0.kind {
            Kind::Constant(bytes) => {
                let number = NdBuffer::from_host(Device::Cpu, self.dtype(), &[], Order::C, bytes)?;
                Expr::buffer(number.broadcast_to(&memory_shape(&pick.shape())?)?)
            }
            _ => Ok(picked),
        }
    }
}

/// A selection (a pick) that is being applied to the operands of an expression, with the shared operands that are done.
struct Picking<'a> {
    pick: &'a Pick,
    whole: &'a [u64],
    known: HashMap<*const Node, Expr>,
}

impl Picking<'_> {
    /// Returns the expression for those elements of `expr` that the pick chooses. Constants are unchanged.
    fn visit(&mut self, expr: &Expr) -> Result<Expr> {
        let key = Arc::as_ptr(&expr.0);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let own = self.pick.for_operand(self.whole, expr.shape());
        let kind = match &expr.0.kind {
            Kind::Constant(_) => return Ok(expr.clone()),
            Kind::Buffer(buffer) => Kind::Buffer(own.of_memory(buffer)?),
            Kind::Array(view) => Kind::Array(Box::new(view.picked(&own))),
            Kind::Cast(inner) => Kind::Cast(self.visit(inner)?),
            Kind::Apply(op, operands) => {
                Kind::Apply(*op, operands.iter().map(|operand| self.visit(operand)).collect::<Result<_>>()?)
            }
            Kind::Joined(joined) => {
                let picked = joined.picked(&own)?;
                self.known.insert(key, picked.clone());
                return Ok(picked);
            }
            Kind::Flat(flat) => Kind::Flat(flat.picked(&own)?),
            Kind::Running(running) => {
                let picked = running.picked(&own)?;
                self.known.insert(key, picked.clone());
                return Ok(picked);
            }
            Kind::Summary(summary, of) => {
                let picked = PickedSummary { summary: Arc::clone(summary), pick: own.clone() };
                Kind::Summary(Arc::new(picked), of.clone())
            }
        };
        let picked = Expr::new(own.shape(), expr.dtype(), kind);
        self.known.insert(key, picked.clone());
        Ok(picked)
    }
}

/// Elements that are picked from the result of a summary, such as a sum: the whole result is computed first.
#[derive(Debug)]
struct PickedSummary {
    summary: Arc<dyn Summary>,
    pick: Pick,
}

impl Summary for PickedSummary {
    fn result(&self, dtype: DType, shape: &[u64]) -> Result<(DType, Vec<u64>)> {
        let (dtype, _) = self.summary.result(dtype, shape)?;
        Ok((dtype, self.pick.shape()))
    }

    fn compute(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        self.pick.of_memory(&self.summary.compute(of, options)?)
    }

    fn name(&self) -> &'static str {
        self.summary.name()
    }

    fn arguments(&self) -> String {
        self.summary.arguments()
    }

    fn picked(&self) -> String {
        format!("{}{}", self.summary.picked(), self.pick)
    }
}
