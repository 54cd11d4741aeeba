//! Expressions as text, damaged at random: nothing panics.

#[path = "../../../fuzz/bodies/eval.rs"]
mod eval;
#[path = "../../../fuzz/bodies/mutation.rs"]
mod mutation;

#[test]
fn damaged_expressions_never_panic() {
    let seeds = [
        "u",
        "sqrt(u**2 + 2 * 8)",
        "-u % 3 == 0",
        "where(u > 1, u, -1.5e3)",
        "(u + 1) * -u",
        "maximum(u, minimum(u // 2, 1)) - abs(u)",
    ];
    let tokens = [
        "(",
        ")",
        "**",
        "-",
        "1e999",
        "99999999999999999999",
        ",",
        "u",
        "[",
        "]",
        "=",
        "\u{e9}",
        "sin(",
        "0x",
        "//",
        "u.u",
    ];
    mutation::campaign(&seeds, &tokens, 400, eval::check);
}
