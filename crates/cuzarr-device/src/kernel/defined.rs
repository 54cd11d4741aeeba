//! Reads numbers that kernels and the host share, such as table sizes, from the kernels' CUDA text. They are written
//! only in the kernels' text, and read from there at compile time.

/// Returns the number that a kernel's text defines as `name`, so that host code need not repeat it:
/// `const SPANS: u32 = defined(include_str!("find.cu"), "SPANS");`.
///
/// The definition may be an expression of numbers and of other names that the text defines, with `+`, `-`, `*`, `/`,
/// `<<` and parentheses. Use it in a constant: at run time, each call would search the text.
///
/// # Panics
/// When the text does not define the name, or defines it as something else. In a constant, the program does not
/// compile.
pub const fn defined(text: &str, name: &str) -> u32 {
    let value = value_of(text.as_bytes(), name.as_bytes());
    assert!(value <= u32::MAX as u64, "more than 32 bits");
    value as u32
}

/// Returns the size of a structure that a kernel's text states in a line `static_assert(sizeof(Unit) == 48, "…")`.
///
/// # Panics
/// When the text does not state the size of this structure. In a constant, the program does not compile.
pub const fn stated_size(text: &str, structure: &str) -> usize {
    let (text, structure) = (text.as_bytes(), structure.as_bytes());
    let mut at = 0;
    while at < text.len() {
        let (name, end) = (at + b"sizeof(".len(), at + b"sizeof(".len() + structure.len());
        if starts_with(text, at, b"sizeof(") && starts_with(text, name, structure) && starts_with(text, end, b") == ") {
            return number(text, end + b") == ".len()).0 as usize;
        }
        at += 1;
    }
    panic!("no such structure");
}

const fn value_of(text: &[u8], name: &[u8]) -> u64 {
    let mut at = 0;
    while at < text.len() {
        let value = at + b"#define ".len() + name.len();
        let is_it = starts_with(text, at, b"#define ") && starts_with(text, value - name.len(), name);
        if is_it && starts_with(text, value, b" ") {
            let (number, end) = expression(text, value + 1, 1);
            let end = behind_spaces(text, end);
            let is_whole = end == text.len() || text[end] == b'\n' || starts_with(text, end, b"//");
            assert!(is_whole, "not an expression alone");
            return number;
        }
        at += 1;
    }
    panic!("no such definition");
}

/// Parses an expression whose operators bind at least as strongly as `least`. Returns its value and where it ends.
const fn expression(text: &[u8], at: usize, least: u8) -> (u64, usize) {
    let (mut value, mut at) = term(text, behind_spaces(text, at));
    loop {
        let operator = behind_spaces(text, at);
        let (sign, size) = match operator < text.len() {
            true if starts_with(text, operator, b"<<") => (b'<', 2),
            true if !starts_with(text, operator, b"//") => (text[operator], 1),
            _ => (b' ', 1),
        };
        let binds = match sign {
            b'*' | b'/' => 3,
            b'+' | b'-' => 2,
            b'<' if size == 2 => 1,
            _ => return (value, at),
        };
        if binds < least {
            return (value, at);
        }
        let right;
        (right, at) = expression(text, operator + size, binds + 1);
        value = match sign {
            b'*' => value * right,
            b'/' => value / right,
            b'+' => value + right,
            b'-' => value - right,
            _ => value << right,
        };
    }
}

const fn term(text: &[u8], at: usize) -> (u64, usize) {
    assert!(at < text.len(), "an expression ends too early");
    if text[at] == b'(' {
        let (value, end) = expression(text, at + 1, 1);
        let end = behind_spaces(text, end);
        assert!(starts_with(text, end, b")"), "a parenthesis is open");
        return (value, end + 1);
    }
    if text[at].is_ascii_digit() {
        return number(text, at);
    }
    let mut end = at;
    while end < text.len() && (text[end].is_ascii_alphanumeric() || text[end] == b'_') {
        end += 1;
    }
    assert!(end > at, "not a number");
    (value_of(text, text.split_at(end).0.split_at(at).1), end)
}

/// Parses the decimal or hexadecimal number at byte `at` of a kernel's text, including its type suffix. Returns its
/// value and where it ends.
const fn number(text: &[u8], at: usize) -> (u64, usize) {
    let (radix, begin) = if starts_with(text, at, b"0x") { (16, at + 2) } else { (10, at) };
    let (mut value, mut end) = (0, begin);
    while end < text.len()
        && let Some(digit) = (text[end] as char).to_digit(radix)
    {
        value = value * radix as u64 + digit as u64;
        end += 1;
    }
    assert!(end > begin, "not a number");
    while end < text.len() && matches!(text[end], b'u' | b'l') {
        end += 1;
    }
    (value, end)
}

const fn behind_spaces(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && text[at] == b' ' {
        at += 1;
    }
    at
}

const fn starts_with(text: &[u8], at: usize, sought: &[u8]) -> bool {
    let mut i = 0;
    while i < sought.len() && at + i < text.len() && text[at + i] == sought[i] {
        i += 1;
    }
    i == sought.len()
}

#[cfg(test)]
mod tests {
    use super::{defined, stated_size};

    #[test]
    fn definitions_are_found_by_their_whole_name() {
        let text = "#define GROUPS 128u\n#define GROUP 16\n#define GROUPED 7u  // of them\n";
        assert_eq!([defined(text, "GROUP"), defined(text, "GROUPS"), defined(text, "GROUPED")], [16, 128, 7]);
    }

    #[test]
    fn expressions_are_computed_as_c_does() {
        let text =
            "#define LOG 11u\n#define WORDS ((1u << LOG) / 2 + 4)\n#define ALL (WORDS * 2 + 0x10ull - 3 * 2 << 1)\n";
        assert_eq!([defined(text, "WORDS"), defined(text, "ALL")], [1028, 4132]);
    }

    #[test]
    fn sizes_are_found_by_the_whole_name_of_their_structure() {
        let text = "static_assert(sizeof(UnitOf) == 8 && sizeof(Unit) == 48, \"as the host has them\");";
        assert_eq!([stated_size(text, "Unit"), stated_size(text, "UnitOf")], [48, 8]);
    }

    #[test]
    #[should_panic(expected = "no such definition")]
    fn nothing_is_made_up() {
        defined("#define GROUPS 128u\n", "GROUP");
    }

    #[test]
    #[should_panic(expected = "no such structure")]
    fn no_size_is_made_up() {
        stated_size("static_assert(sizeof(Units) == 48);", "Unit");
    }

    #[test]
    #[should_panic(expected = "not an expression alone")]
    fn other_operators_are_refused() {
        defined("#define GROUP 16 % 2\n", "GROUP");
    }

    #[test]
    #[should_panic(expected = "more than 32 bits")]
    fn large_numbers_are_refused() {
        defined("#define GROUP 0x100000000ull\n", "GROUP");
    }
}
