//! The order in which the coefficients of a zfp block are stored, from the tables in `zfp_order.cuh`.

/// The CUDA header with the orders of coefficients, as text.
const TEXT: &[u8] = include_bytes!("zfp_order.cuh");

/// The order in which the coefficients of a block of `ndim` dimensions, 1 to 4, are stored.
pub(super) fn of(ndim: usize) -> &'static [u8] {
    const ORDER_1: [u8; 4] = table(b"#define CUZARR_ZFP_ORDER_1 ");
    const ORDER_2: [u8; 16] = table(b"#define CUZARR_ZFP_ORDER_2 ");
    const ORDER_3: [u8; 64] = table(b"#define CUZARR_ZFP_ORDER_3 ");
    const ORDER_4: [u8; 256] = table(b"#define CUZARR_ZFP_ORDER_4 ");
    match ndim {
        1 => &ORDER_1,
        2 => &ORDER_2,
        3 => &ORDER_3,
        _ => &ORDER_4,
    }
}

/// Parses the numbers after `definition` in the header, separated by commas, up to the end of the line.
const fn table<const N: usize>(definition: &[u8]) -> [u8; N] {
    let mut at = 0;
    while !starts_with(at, definition) {
        at += 1;
    }
    at += definition.len();
    let (mut numbers, mut count, mut number) = ([0; N], 0, 0);
    loop {
        match TEXT[at] {
            digit @ b'0'..=b'9' => number = 10 * number + (digit - b'0') as u32,
            end @ (b',' | b'\n') => {
                assert!(number < N as u32, "no place of a block");
                numbers[count] = number as u8;
                (count, number) = (count + 1, 0);
                if end == b'\n' {
                    assert!(count == N, "too few numbers");
                    return numbers;
                }
            }
            _ => {}
        }
        at += 1;
    }
}

const fn starts_with(at: usize, sought: &[u8]) -> bool {
    let mut index = 0;
    while index < sought.len() {
        if TEXT[at + index] != sought[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_comes_once_and_low_frequencies_first() {
        for ndim in 1..=4 {
            let order = of(ndim);
            let mut places: Vec<u8> = order.to_vec();
            places.sort_unstable();
            assert_eq!(places, (0..1usize << (2 * ndim)).map(|place| place as u8).collect::<Vec<_>>());
            let frequencies = |place: &u8| {
                let each = (0..ndim).map(|axis| u32::from(*place) >> (2 * axis) & 3);
                (each.clone().sum::<u32>(), each.map(|one| one * one).sum::<u32>())
            };
            assert!(order.is_sorted_by_key(frequencies), "{ndim} dimensions");
        }
    }
}
