//! Pictures as PNG files and on terminals.

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

use cuzarr::display::{Gantt, Mark};
use cuzarr::{Error, ErrorKind, Result};

use crate::letters;

/// A picture of red, green and blue pixels.
pub struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// Checks that a picture can be written to `path`, before the work that it will show.
///
/// # Errors
/// `StoreFailed` when `path` is a directory, or its parent does not exist.
pub fn check_place(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let problem = match (directory.is_dir(), path.is_dir()) {
        (true, false) => return Ok(()),
        (true, true) => "it is a directory".to_string(),
        (false, _) => format!("there is no directory '{}'", directory.display()),
    };
    Err(Error::new(ErrorKind::StoreFailed, format!("cannot write '{}': {problem}", path.display())))
}

impl Picture {
    /// A picture of one colour.
    pub fn new(width: usize, height: usize, colour: [u8; 3]) -> Picture {
        Picture { width, height, pixels: colour.repeat(width * height) }
    }

    /// A picture of numbers: dark at the lower bound, light at the upper bound, grey for NaN.
    pub fn of(width: usize, height: usize, values: &[f64], (low, high): (f64, f64)) -> Picture {
        let scale = |value: f64| if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 };
        let colour = |&value: &f64| if value.is_nan() { [128, 128, 128] } else { viridis(scale(value)) };
        Picture { width, height, pixels: values.iter().flat_map(colour).collect() }
    }

    /// A picture of a call's stages over time.
    pub fn of_stages(gantt: &Gantt) -> Picture {
        let mut picture = Picture::new(gantt.width as usize, gantt.height as usize, [255; 3]);
        for mark in &gantt.marks {
            match mark {
                Mark::Bar { place: [x, y, width, height], colour, .. } => {
                    // At least one column, so that short bars are visible.
                    let columns = *x as usize..(x + width).ceil().max(x.floor() + 1.0) as usize;
                    picture.fill_inside(columns, *y as usize..(y + height).round() as usize, *colour);
                }
                Mark::Line { x, y: [from, to] } => {
                    picture.fill_inside(*x as usize..*x as usize + 1, *from as usize..*to as usize, [0xdd; 3]);
                }
                Mark::Text { place: [x, foot], size, content } => {
                    picture.write(*x as usize, *foot as usize, if *size > 12 { 2 } else { 1 }, content);
                }
            }
        }
        picture
    }

    /// Writes letters of five by seven pixels, times `scale`. They stand on row `foot`.
    fn write(&mut self, left: usize, foot: usize, scale: usize, content: &str) {
        for (number, letter) in content.chars().enumerate() {
            for (row, bits) in letters::rows(letter).into_iter().enumerate() {
                let top = (foot + row * scale).saturating_sub(letters::HEIGHT * scale);
                for column in (0..5).filter(|column| bits >> (4 - column) & 1 == 1) {
                    let from = left + (number * letters::ADVANCE + column) * scale;
                    self.fill_inside(from..from + scale, top..top + scale, [0; 3]);
                }
            }
        }
    }

    /// Fills the part of a box that lies inside the picture.
    fn fill_inside(&mut self, columns: Range<usize>, rows: Range<usize>, colour: [u8; 3]) {
        let within = |range: Range<usize>, end: usize| range.start.min(end)..range.end.min(end);
        self.fill(within(columns, self.width), within(rows, self.height), colour);
    }

    /// Fills a box.
    pub fn fill(&mut self, columns: Range<usize>, rows: Range<usize>, colour: [u8; 3]) {
        for row in rows {
            for column in columns.clone() {
                let at = (row * self.width + column) * 3;
                self.pixels[at..at + 3].copy_from_slice(&colour);
            }
        }
    }

    /// Writes a PNG file.
    ///
    /// # Errors
    /// `StoreFailed`
    pub fn save(&self, path: &Path) -> Result<()> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::StoreFailed, format!("cannot write '{}': {source}", path.display()))
        };
        let file = File::create(path).map_err(|error| failed(error.into()))?;
        let mut encoder = png::Encoder::new(BufWriter::new(file), self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|error| failed(error.into()))?;
        writer.write_image_data(&self.pixels).map_err(|error| failed(error.into()))?;
        writer.finish().map_err(|error| failed(error.into()))
    }

    /// The picture for terminals with colours: two rows of pixels per line.
    pub fn in_colour(&self) -> String {
        let pixel = |column: usize, row: usize| {
            let at = (row.min(self.height - 1) * self.width + column) * 3;
            (self.pixels[at], self.pixels[at + 1], self.pixels[at + 2])
        };
        let mut text = String::new();
        for row in (0..self.height).step_by(2) {
            for column in 0..self.width {
                let ((r, g, b), (below_r, below_g, below_b)) = (pixel(column, row), pixel(column, row + 1));
                text += &format!("\x1b[38;2;{r};{g};{b}m\x1b[48;2;{below_r};{below_g};{below_b}m▀");
            }
            text += "\x1b[0m\n";
        }
        text
    }

    /// The picture for other outputs: one character per pixel.
    pub fn in_characters(&self) -> String {
        const RAMP: &[u8] = b" .:-=+*#%@";
        let line = |row: &[u8]| {
            let shade = |pixel: &[u8]| {
                let light = 2126 * u32::from(pixel[0]) + 7152 * u32::from(pixel[1]) + 722 * u32::from(pixel[2]);
                char::from(RAMP[light as usize * (RAMP.len() - 1) / 2_550_000])
            };
            row.chunks_exact(3).map(shade).collect::<String>()
        };
        let rows: Vec<String> = self.pixels.chunks_exact(self.width.max(1) * 3).map(line).collect();
        rows.join("\n")
    }
}

/// A bar whose length is `eighths` eighths of a character.
pub fn bar(eighths: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// The colour at `at` (0 to 1), from dark blue to yellow: between nine points of matplotlib's viridis.
fn viridis(at: f64) -> [u8; 3] {
    const POINTS: [[f64; 3]; 9] = [
        [68.0, 1.0, 84.0],
        [71.0, 44.0, 122.0],
        [59.0, 81.0, 139.0],
        [44.0, 113.0, 142.0],
        [33.0, 144.0, 141.0],
        [39.0, 173.0, 129.0],
        [92.0, 200.0, 99.0],
        [170.0, 220.0, 50.0],
        [253.0, 231.0, 37.0],
    ];
    let place = at * 8.0;
    let first = (place as usize).min(7);
    let share = place - first as f64;
    std::array::from_fn(|part| (POINTS[first][part] * (1.0 - share) + POINTS[first + 1][part] * share).round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_numbers_are_lighter() {
        let picture = Picture::of(3, 1, &[0.0, 5.0, 10.0], (0.0, 10.0));
        let text = picture.in_characters();
        let place = |index: usize| " .:-=+*#%@".find(text.chars().nth(index).unwrap()).unwrap();
        assert!(place(0) < place(1) && place(1) < place(2), "{text}");
        assert_eq!(Picture::of(2, 1, &[f64::NAN, 1.0], (1.0, 1.0)).pixels[..3], [128, 128, 128]);
    }

    #[test]
    fn bars_have_eighths() {
        assert_eq!((bar(0), bar(9), bar(16)), (String::new(), "█▏".into(), "██".into()));
    }
}
