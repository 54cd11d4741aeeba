//! An expression of two arrays, computed region by region into a third one.

use cuzarr::prelude::*;
use cuzarr_compute::{ComputeOptions, Expr, ReduceOp, Reduction, parse};

pub(crate) fn main() -> Result<()> {
    let group = cuzarr::create_group("memory://wind")?;
    let new = || Array::builder([300, 400], DataType::Float32).chunks([100, 100]).metadata();
    let [u, v, speed] = ["u", "v", "speed"].map(|name| group.create_array(name, new()?, false));
    let (u, v, speed) = (u?, v?, speed?);
    let all = Selection::all(u.shape());
    u.write(&all, &vec![3.0_f32; 300 * 400])?;
    v.write(&all, &vec![4.0_f32; 300 * 400])?;

    let inputs = [("u", Expr::array(u)?), ("v", Expr::array(v)?)];
    let named = |name: &str| inputs.iter().find(|(known, _)| *known == name).map(|(_, input)| input.clone());
    let expression = parse("sqrt(u**2 + v**2)", &named)?;

    // What is in flight stays below the limit, however large the arrays are.
    let options = ComputeOptions::default().with_memory_limit_bytes(1 << 20);
    expression.store(&speed, &options)?;
    assert!(speed.read::<f32>(&all)?.iter().all(|&speed| speed == 5.0));

    let mean = expression.reduce(&Reduction::new(ReduceOp::Mean, None), &options)?;
    assert_eq!(mean.into_vec::<f32>()?, [5.0]);
    Ok(())
}
