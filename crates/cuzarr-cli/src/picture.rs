//! Pictures as PNG files and on terminals. The crate plotters draws axes, letters and colours.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Once;

use clap::ValueEnum;
use cuzarr::display::{Gantt, Mark};
use cuzarr::{Error, ErrorKind, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::axes::Axis;
use crate::destination::{self, Destination, Replaces};
use crate::output;

const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<BitMapBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// The rule by which numbers become colours in a picture.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Colours {
    /// Dark blue to yellow, even to eyes that see few colours
    #[default]
    Viridis,
    /// Black to white
    Grey,
    /// A colour of its own for each whole number, black for 0
    Labels,
}

impl Colours {
    /// Returns the colour of a number from 0 to 1.
    fn of(self, at: f64) -> RGBColor {
        match self {
            Colours::Viridis => ViridisRGB::get_color(at as f32),
            Colours::Grey => BlackWhite::get_color(at as f32),
            Colours::Labels => label_colour(at),
        }
    }
}

/// Returns the colour that a label gets if no colour is given for it. Neighbouring labels get very different hues.
pub fn label_colour(label: f64) -> RGBColor {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    if label == 0.0 {
        return BLACK;
    }
    let light = 0.45 + 0.1 * (label.abs() % 3.0);
    let (red, green, blue) = HSLColor((label * GOLDEN).rem_euclid(1.0), 0.75, light).rgb();
    RGBColor(red, green, blue)
}

/// A channel of an image, which is drawn over the other channels in its own colour.
pub struct Channel {
    /// The channel's name.
    pub name: String,
    /// Red, green and blue of the channel's largest drawn number.
    pub colour: [u8; 3],
    /// The numbers of the channel, one for each pixel.
    pub values: Vec<f64>,
    pub range: Limits,
}

/// The numbers that are drawn in the darkest and in the lightest colour.
#[derive(Clone, Copy)]
pub struct Limits {
    pub low: f64,
    pub high: f64,
}

/// The kind of legend beside a picture, and the colours that it explains.
pub enum Legend<'a> {
    /// A bar with the colours of a range of numbers, and the unit of these numbers.
    Bar { range: Limits, colours: Colours, unit: &'a str },
    /// Names of labels or channels, each with its colour in the picture.
    Names(&'a [(String, [u8; 3])]),
}

/// Least number of pixels along the longer side of a drawn plane. Numbers of smaller planes get several pixels each.
const LEAST_PIXELS: usize = 512;
/// The largest number that an axis can show.
const MOST: f64 = 1e300;
/// Number of colours in the bar of a legend.
const SHADES: u32 = 256;

/// A picture of red, green and blue pixels.
pub struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// Checks that a picture of the data at `source` can be written to `path`. Call it before the work whose result is
/// drawn.
///
/// # Errors
/// Those of [`Destination::check`].
pub fn check_place(path: &Path, endings: &[&str], source: &str, overwrite: bool) -> Result<()> {
    Destination { path, endings, sources: &[source], replaces: Replaces::Pictures, overwrite }.check()
}

impl Picture {
    /// Makes a white picture of this size, and lets `draw` draw on it.
    fn drawn(width: u32, height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<Picture> {
        static LETTERS: Once = Once::new();
        LETTERS.call_once(|| drop(register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)));
        let mut pixels = vec![255; width as usize * height as usize * 3];
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        draw(&area).map_err(|error| Error::new(ErrorKind::Unsupported, format!("cannot draw a picture: {error}")))?;
        drop(area);
        Ok(Picture { width: width as usize, height: height as usize, pixels })
    }

    /// Draws a plane of numbers: dark at the lower bound, light at the upper bound, grey for NaN.
    pub fn of(width: usize, height: usize, values: &[f64], range: Limits, colours: Colours) -> Picture {
        let colour = |&value: &f64| match colours {
            _ if value.is_nan() => [128; 3],
            Colours::Labels => label_colour(value).rgb().into(),
            _ => colours.of(range.scaled(value)).rgb().into(),
        };
        Picture { width, height, pixels: values.iter().flat_map(colour).collect() }
    }

    /// Draws a plane of labels, each in its colour. `colours` gives some of them their own colour.
    pub fn of_labels(width: usize, height: usize, values: &[f64], colours: &BTreeMap<u64, [u8; 3]>) -> Picture {
        Picture { width, height, pixels: values.iter().flat_map(|&value| colour_of_label(value, colours)).collect() }
    }

    /// Draws the channels of an image over each other, by adding their light.
    pub fn of_channels(width: usize, height: usize, channels: &[Channel]) -> Picture {
        let mut light = vec![0.0f64; width * height * 3];
        for channel in channels {
            for (pixel, value) in light.chunks_exact_mut(3).zip(&channel.values) {
                let bright = if value.is_nan() { 0.0 } else { channel.range.scaled(*value) };
                pixel.iter_mut().zip(channel.colour).for_each(|(light, colour)| *light += bright * f64::from(colour));
            }
        }
        Picture { width, height, pixels: light.into_iter().map(|light| light.round().min(255.0) as u8).collect() }
    }

    /// Draws a line through numbers for a terminal, with one column of pixels for each number.
    pub fn of_points(height: usize, values: &[f64], range: Limits) -> Picture {
        let width = values.len();
        let mut pixels = vec![0; width * height * 3];
        let row = |value: f64| ((1.0 - range.scaled(value)) * (height - 1) as f64).round() as usize;
        let mut before = None;
        for (column, value) in values.iter().enumerate() {
            let at = (!value.is_nan()).then(|| row(*value));
            for at in at.into_iter().flat_map(|at| between(before.unwrap_or(at), at)) {
                pixels[(at * width + column) * 3..][..3].fill(255);
            }
            before = at;
        }
        Picture { width, height, pixels }
    }

    /// Draws a line through numbers, with axes and a title.
    pub fn of_line(title: &str, unit: &str, axis: &Axis, values: &[f64], range: Limits) -> Result<Picture> {
        Picture::drawn(900, 480, |area| {
            let mut chart = ChartBuilder::on(area)
                .margin(16)
                .caption(title, (FONT, 17))
                .x_label_area_size(52)
                .y_label_area_size(98)
                .build_cartesian_2d(axis.range.clone(), shown(range.low, range.high))?;
            let (place, number) = (|place: &f64| axis.text(*place), |value: &f64| output::number(*value));
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(&axis.name).y_desc(unit).label_style((FONT, 14));
            mesh.x_label_formatter(&place).y_label_formatter(&number).draw()?;
            let points: Vec<(f64, f64)> =
                values.iter().enumerate().map(|(at, value)| (axis.place(at), *value)).collect();
            // A number that is not finite breaks the line.
            for part in points.split(|(_, value)| !value.is_finite()).filter(|part| !part.is_empty()) {
                chart.draw_series([PathElement::new(part.to_vec(), RGBColor(46, 92, 160))])?;
                if let [alone] = part {
                    chart.draw_series([Circle::new(*alone, 2, RGBColor(46, 92, 160).filled())])?;
                }
            }
            Ok(())
        })
    }

    /// Adds named axes and a legend to this picture of numbers. In small pictures, each number gets several pixels.
    pub fn with_axes(&self, title: &str, [down, across]: [&Axis; 2], legend: &Legend<'_>) -> Result<Picture> {
        let scale = (LEAST_PIXELS / self.width.max(self.height).max(1)).max(1);
        let (width, height) = ((self.width * scale) as u32 + 84, ((self.height * scale) as u32).max(100) + 52);
        Picture::drawn(width + 150, height + 44, |area| {
            let (head, body) = area.split_vertically(44);
            head.titled(title, (FONT, 17))?;
            let (plane, beside) = body.split_horizontally(width);
            let texts = (|place: &f64| across.text(*place), |place: &f64| down.text(*place));
            let mut chart = ChartBuilder::on(&plane)
                .margin_left(8)
                .x_label_area_size(52)
                .y_label_area_size(76)
                .build_cartesian_2d(across.range.clone(), down.range.end..down.range.start)?;
            let mut mesh = chart.configure_mesh();
            mesh.disable_mesh().x_desc(&across.name).y_desc(&down.name).label_style((FONT, 14));
            mesh.x_label_formatter(&texts.0).y_label_formatter(&texts.1).draw()?;
            let rows = (down.range.end - down.range.start) / self.height as f64;
            let columns = (across.range.end - across.range.start) / self.width as f64;
            chart.draw_series(self.pixels.chunks_exact(3).enumerate().map(|(at, pixel)| {
                let x = across.range.start + (at % self.width) as f64 * columns;
                let y = down.range.start + (at / self.width) as f64 * rows;
                Rectangle::new([(x, y), (x + columns, y + rows)], RGBColor(pixel[0], pixel[1], pixel[2]).filled())
            }))?;
            legend.draw(&beside)
        })
    }

    /// Draws a histogram whose bins have equal width.
    pub fn of_bins(title: &str, unit: &str, width: f64, bins: &[(f64, u64)]) -> Result<Picture> {
        let most = bins.iter().map(|bin| bin.1).max().unwrap_or(0).max(1);
        let range = shown(bins.first().map_or(0.0, |bin| bin.0), bins.last().map_or(0.0, |bin| bin.0 + width));
        Picture::drawn(900, 480, |area| {
            let mut chart = ChartBuilder::on(area)
                .margin(16)
                .caption(title, (FONT, 17))
                .x_label_area_size(48)
                .y_label_area_size(90)
                .build_cartesian_2d(range, 0..most)?;
            let number = |value: &f64| output::number(*value);
            let mut mesh = chart.configure_mesh();
            mesh.disable_x_mesh().x_desc(unit).y_desc("elements").label_style((FONT, 14));
            mesh.x_label_formatter(&number).draw()?;
            chart.draw_series(bins.iter().map(|&(start, count)| {
                Rectangle::new([(start, 0), (start + width, count)], RGBColor(46, 92, 160).filled())
            }))?;
            Ok(())
        })
    }

    /// Draws when the stages of a read ran, as bars over time.
    pub fn of_stages(gantt: &Gantt) -> Result<Picture> {
        Picture::drawn(gantt.width as u32, gantt.height as u32, |area| {
            for mark in &gantt.marks {
                match mark {
                    Mark::Bar { place: [x, y, width, height], colour: [red, green, blue], .. } => {
                        // At least one column, so that short bars are visible.
                        let right = (x + width).ceil().max(x.floor() + 1.0) as i32 - 1;
                        let corners = [(*x as i32, *y as i32), (right, (y + height).round() as i32 - 1)];
                        area.draw(&Rectangle::new(corners, RGBColor(*red, *green, *blue).filled()))?;
                    }
                    Mark::Line { x, y: [from, to] } => {
                        let ends = [(*x as i32, *from as i32), (*x as i32, *to as i32)];
                        area.draw(&PathElement::new(ends, RGBColor(0xdd, 0xdd, 0xdd)))?;
                    }
                    Mark::Text { place: [x, foot], size, content } => {
                        let style = (FONT, *size).into_text_style(area);
                        area.draw_text(content, &style, (*x as i32, *foot as i32 - *size as i32))?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Writes the picture to a PNG file.
    ///
    /// # Errors
    /// `StoreFailed`
    pub fn save(&self, path: &Path) -> Result<()> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::StoreFailed, format!("cannot write '{}': {source}", path.display()))
        };
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|error| failed(error.into()))?;
        writer.write_image_data(&self.pixels).map_err(|error| failed(error.into()))?;
        writer.finish().map_err(|error| failed(error.into()))?;
        destination::write(path, &bytes)
    }

    /// Returns the picture as coloured text for terminals: two rows of pixels per line.
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

    /// Returns the picture as text without colours: one character per pixel.
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

impl Legend<'_> {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        match self {
            Legend::Bar { range, colours, unit } => {
                let range = shown(range.low, range.high);
                let (low, step) = (range.start, (range.end - range.start) / f64::from(SHADES));
                let mut chart = ChartBuilder::on(area)
                    .margin_left(24)
                    .margin_right(8)
                    .margin_bottom(52)
                    .right_y_label_area_size(98)
                    .build_cartesian_2d(0.0..1.0, range)?;
                let number = |value: &f64| output::number(*value);
                let mut mesh = chart.configure_mesh();
                mesh.disable_mesh().y_desc(*unit).y_label_formatter(&number).label_style((FONT, 14)).draw()?;
                chart.draw_series((0..SHADES).map(f64::from).map(|shade| {
                    let (from, to) = (low + step * shade, low + step * (shade + 1.0));
                    Rectangle::new([(0.0, from), (1.0, to)], colours.of(shade / f64::from(SHADES - 1)).filled())
                }))?;
            }
            Legend::Names(names) => {
                for (line, (name, [red, green, blue])) in names.iter().enumerate() {
                    let top = 8 + 22 * line as i32;
                    area.draw(&Rectangle::new([(16, top), (30, top + 14)], RGBColor(*red, *green, *blue).filled()))?;
                    area.draw_text(name, &(FONT, 14).into_text_style(area), (38, top))?;
                }
            }
        }
        Ok(())
    }
}

impl Limits {
    /// Returns where a number lies between the limits of the colours, from 0 (darkest) to 1 (lightest).
    fn scaled(self, value: f64) -> f64 {
        let Limits { low, high } = self;
        if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// Returns the colour of a label: that in `colours` if it has one, else a fixed one.
pub fn colour_of_label(label: f64, colours: &BTreeMap<u64, [u8; 3]>) -> [u8; 3] {
    let own = (label >= 0.0 && label.fract() == 0.0).then(|| colours.get(&(label as u64))).flatten();
    own.copied().unwrap_or_else(|| label_colour(label).rgb().into())
}

/// Returns the range of pixel rows between two rows, both included, in ascending order.
fn between(from: usize, to: usize) -> Range<usize> {
    from.min(to)..from.max(to) + 1
}

/// Returns the range of an axis for numbers from `low` to `high`: finite, and wide enough for labels to differ.
fn shown(low: f64, high: f64) -> Range<f64> {
    let (low, high) = if low <= high { (low.max(-MOST), high.min(MOST)) } else { (0.0, 1.0) };
    let size = low.abs().max(high.abs());
    if high - low > (size * 1e-9).max(1.0 / MOST) {
        low..high
    } else {
        low - size.max(1.0) / 2.0..high + size.max(1.0) / 2.0
    }
}

/// Returns a bar of block characters whose length is `eighths` eighths of a character.
pub fn bar(eighths: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_numbers_are_lighter() {
        let range = Limits { low: 0.0, high: 10.0 };
        let picture = Picture::of(3, 1, &[0.0, 5.0, 10.0], range, Colours::Viridis);
        let text = picture.in_characters();
        let place = |index: usize| " .:-=+*#%@".find(text.chars().nth(index).unwrap()).unwrap();
        assert!(place(0) < place(1) && place(1) < place(2), "{text}");
        let range = Limits { low: 1.0, high: 1.0 };
        assert_eq!(Picture::of(2, 1, &[f64::NAN, 1.0], range, Colours::Grey).pixels[..3], [128, 128, 128]);
    }

    #[test]
    fn neighbouring_labels_have_colours_far_apart() {
        let colour = |label: u32| label_colour(f64::from(label)).rgb();
        assert_eq!(colour(0), (0, 0, 0));
        for label in 1..200 {
            let ((r, g, b), (next_r, next_g, next_b)) = (colour(label), colour(label + 1));
            let apart = u32::from(r.abs_diff(next_r)) + u32::from(g.abs_diff(next_g)) + u32::from(b.abs_diff(next_b));
            assert!(apart > 100, "{label}: {apart}");
        }
        let own = BTreeMap::from([(7, [1, 2, 3])]);
        assert_eq!(Picture::of_labels(1, 1, &[7.0], &own).pixels, [1, 2, 3]);
    }

    #[test]
    fn channels_add_their_light() {
        let range = Limits { low: 0.0, high: 10.0 };
        let channel =
            |colour, values: [f64; 2]| Channel { name: String::new(), colour, values: values.to_vec(), range };
        let red = channel([255, 0, 0], [0.0, 10.0]);
        let green = channel([0, 255, 0], [5.0, f64::NAN]);
        assert_eq!(Picture::of_channels(2, 1, &[red, green]).pixels, [0, 128, 0, 255, 0, 0]);
    }

    #[test]
    fn a_line_has_no_gap_but_where_numbers_are_missing() {
        let picture = Picture::of_points(3, &[0.0, 2.0, f64::NAN, 1.0], Limits { low: 0.0, high: 2.0 });
        assert_eq!(picture.in_characters(), " @  \n @ @\n@@  ");
    }

    #[test]
    fn bars_have_eighths() {
        assert_eq!((bar(0), bar(9), bar(16)), (String::new(), "█▏".into(), "██".into()));
    }
}
