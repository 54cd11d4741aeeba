//! The example, run: it checks its own answer.

#[path = "../examples/expression.rs"]
mod expression;

#[test]
fn expression_runs() {
    expression::main().unwrap();
}
